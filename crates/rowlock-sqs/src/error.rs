//! Errors before a bridge runs. Once it runs, it counts and logs a failure, and tries again.

use thiserror::Error;

/// A bridge's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a bridge did not start, or a call of it failed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// A setting is out of its limits.
    #[error("{field}: {problem}")]
    Config {
        /// Which one.
        field: &'static str,
        /// What is wrong, and which values are allowed.
        problem: String,
    },
    /// There is no such queue.
    #[error("there is no SQS queue {url}; create it, or check the region and the account")]
    NoQueue {
        /// Its address.
        url: String,
    },
    /// A call of SQS failed.
    #[error("SQS could not {doing}")]
    Sqs {
        /// What was asked for.
        doing: &'static str,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A call of the database failed.
    #[error(transparent)]
    Rowlock(#[from] rowlock::Error),
}

impl Error {
    pub(crate) fn sqs(doing: &'static str, source: impl std::error::Error + Send + Sync + 'static) -> Error {
        Error::Sqs {
            doing,
            source: Box::new(source),
        }
    }

    /// Everything it says, its sources too, for the log.
    pub(crate) fn whole(&self) -> String {
        let mut text = self.to_string();
        let mut source = std::error::Error::source(self);
        while let Some(error) = source {
            let said = error.to_string();
            // Many errors print their source themselves.
            if !text.ends_with(&said) {
                text = format!("{text}: {said}");
            }
            source = error.source();
        }
        text
    }
}

/// Whether the database would refuse the same message every time: the problem is in the message.
pub(crate) fn is_final(error: &rowlock::Error) -> bool {
    use rowlock::Error::{Database, Encode, Invalid, KeyConflict};
    match error {
        Invalid { .. } | Encode { .. } | KeyConflict { .. } => true,
        // PostgreSQL refuses the data: its form, its constraints, its limits. Wait out anything else, like an outage.
        Database { .. } => error
            .code()
            .is_some_and(|code| code.len() == 5 && matches!(code.get(..2), Some("22" | "23" | "54"))),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_message_does_not_pass() {
        let invalid = rowlock::Admin::open("postgres://db/shop", "No Name").err();
        assert!(is_final(&invalid.expect("a schema's name has no blanks")));
        assert!(!is_final(&rowlock::Error::Conflict("it moved".into())));
    }
}
