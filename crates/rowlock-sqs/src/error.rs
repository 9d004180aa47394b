//! What can be wrong before a bridge runs. Once it runs, it counts, tells the log, and tries again.

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
        /// What is wrong, and what is not.
        problem: String,
    },
    /// There is no such queue.
    #[error("there is no SQS queue {url}; create it, or look at the region and the account")]
    NoQueue {
        /// Its address.
        url: String,
    },
    /// SQS did not do it.
    #[error("sqs could not {doing}")]
    Sqs {
        /// What was asked for.
        doing: &'static str,
        /// What it said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database did not do it.
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
            text = format!("{text}: {error}");
            source = error.source();
        }
        text
    }
}
