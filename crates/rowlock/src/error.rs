//! The library's error enum, and the typed answers that travel through a handler's `?`.
//!
//! Lost races are values, such as `SettledIn::LeaseLost`; errors are what a caller can act on. Sources are kept, but
//! never printed inside our own error message.

use thiserror::Error;

/// What can go wrong in a call to Rowlock.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum Error {
    /// The job or an option of it was refused before any SQL ran; the caller's transaction is untouched.
    #[error("{field}: {problem}")]
    #[non_exhaustive]
    Invalid {
        /// The field or option, such as `payload` or `tags[2]`.
        field: String,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// The job's payload could not be written as JSON.
    #[error("payload of kind {kind} cannot be written as JSON")]
    #[non_exhaustive]
    Encode {
        /// The job's kind.
        kind: String,
        /// The serialiser's error.
        source: serde_json::Error,
    },
    /// The database holds no Rowlock schema, or an older one than this binary needs.
    #[error("{found}, but this binary needs schema {needed}; run `rowlock migrate`")]
    #[non_exhaustive]
    SchemaBehind {
        /// What was found.
        found: String,
        /// The number this binary needs.
        needed: i32,
    },
    /// The database's schema no longer allows binaries as old as this one.
    #[error(
        "the database has schema {found}, which needs binaries of schema {oldest} or newer, but this one is of schema \
         {speaks}; deploy a newer binary"
    )]
    #[non_exhaustive]
    SchemaAhead {
        /// The schema's number.
        found: i32,
        /// The oldest number it allows.
        oldest: i32,
        /// The number this binary speaks.
        speaks: i32,
    },
    /// The functions in the database are from an older release, or from another build of this one.
    #[error("the functions in the database are not those of this binary; run `rowlock migrate`")]
    FunctionsBehind,
    /// The database's schema was made by an unreleased version of Rowlock, and no migration starts from it. Nothing in
    /// it was changed.
    #[error(
        "the database has a Rowlock schema of an unreleased version, from which nothing leads to this binary's; use \
         another database, or remove that schema with all its jobs, then run `rowlock migrate`"
    )]
    SchemaUnknown,
    /// A setting contradicts another one or a limit.
    #[error("{0}")]
    Config(String),
    /// No such job, or the job is not in the place that the command needs.
    #[error("{0}")]
    NotFound(String),
    /// The command does not apply to the place that the job is in.
    #[error("{0}")]
    Conflict(String),
    /// The key is held by another request. Nothing was written; a repeat would get the same answer.
    #[error("key {key:?} is already used by a different request (stored: {held}; given: {given})")]
    #[non_exhaustive]
    KeyConflict {
        /// The key.
        key: String,
        /// What holds it: the job or ledger entry, with the fingerprint of its request.
        held: String,
        /// The fingerprint of the request that was refused.
        given: String,
        /// What the answer means.
        source: Meaning,
    },
    /// What a guard protects has changed since it was read. Through a handler's `?` it settles the job as done, without
    /// an error, and is counted: the next job reads again.
    #[error("{key:?} has changed since it was read")]
    #[non_exhaustive]
    Changed {
        /// The guard's key.
        key: String,
        /// What the answer means.
        source: Meaning,
    },
    /// No row had the status that a transition starts from. Through a handler's `?` it settles the job as done, without
    /// an error, and is counted.
    #[error("{what}")]
    #[non_exhaustive]
    AlreadyHandled {
        /// Which row, and the status it does not have.
        what: String,
        /// What the answer means.
        source: AlreadyHandled,
    },
    /// The transaction's isolation level would make the operation read a stale snapshot.
    #[error("{doing} needs a read committed transaction, but this one is {found}; begin it as read committed")]
    #[non_exhaustive]
    Isolation {
        /// The operation.
        doing: &'static str,
        /// The level found.
        found: String,
        /// What that means.
        source: Meaning,
    },
    /// Another transaction was in the way (serialisation failure, deadlock, lock time-out, busy file). Nothing is wrong
    /// with the request: roll back and run the whole transaction again.
    #[error("{doing} conflicted with another transaction; roll back and run the transaction again")]
    #[non_exhaustive]
    TryAgain {
        /// The operation that was under way.
        doing: &'static str,
        /// The driver's error.
        source: sqlx::Error,
    },
    /// The database refused or could not be reached.
    #[error("{doing} failed")]
    #[non_exhaustive]
    Database {
        /// The operation that was under way.
        doing: &'static str,
        /// The driver's error.
        source: sqlx::Error,
    },
}

impl Error {
    /// A refused value, by the name of its field. For crates that build on this one.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Error {
        Error::Invalid {
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// The same refusal, for another field.
    pub(crate) fn about(self, field: &str) -> Error {
        match self {
            Error::Invalid { problem, .. } => Error::invalid(field, problem),
            other => other,
        }
    }

    /// What a driver's error means in the caller's transaction: [`Error::TryAgain`] if another transaction was in the
    /// way, otherwise [`Error::Database`]. Use it for your own statements and commits:
    /// `Error::database("pay", e).is_retryable()`.
    pub fn database(doing: &'static str, source: sqlx::Error) -> Error {
        Error::Database { doing, source }.answered()
    }

    /// The SQLSTATE or SQLite code, if a database gave one.
    pub fn code(&self) -> Option<String> {
        match self {
            Error::Database { source, .. } | Error::TryAgain { source, .. } => sqlstate(source),
            _ => None,
        }
    }

    /// Whether you can run the whole transaction again.
    pub fn is_retryable(&self) -> bool {
        matches!(self, Error::TryAgain { .. })
    }

    /// Whether a retry may succeed in a moment: the database is away, starting or busy, or another transaction is in
    /// the way.
    pub(crate) fn passes(&self) -> bool {
        let source = match self {
            Error::TryAgain { .. } => return true,
            Error::Database { source, .. } => source,
            _ => return false,
        };
        match sqlstate(source) {
            // Connection, rollback, resources, object in use, operator intervention; a primary that became a standby.
            Some(code) if code.len() == 5 => {
                matches!(code.get(..2), Some("08" | "40" | "53" | "55" | "57")) || code == "25006"
            }
            Some(_) => in_the_way(source),
            None => matches!(
                source,
                sqlx::Error::Io(_)
                    | sqlx::Error::Tls(_)
                    | sqlx::Error::Protocol(_)
                    | sqlx::Error::Configuration(_)
                    | sqlx::Error::PoolTimedOut
                    | sqlx::Error::WorkerCrashed
            ),
        }
    }

    /// The answer of an operation in the caller's transaction: separates errors that only ask for another try.
    pub(crate) fn answered(self) -> Error {
        match self {
            Error::Database { doing, source } if in_the_way(&source) => Error::TryAgain { doing, source },
            other => other,
        }
    }
}

impl Error {
    /// Why it failed, for a log line that already says what failed: all sources in one line, each text once, with the
    /// database's code and without a leading "VERB failed".
    pub fn cause(&self) -> String {
        match self {
            Error::Database { source, .. } | Error::TryAgain { source, .. } => chain(source),
            other => chain(other),
        }
    }
}

/// An error and its sources in one line, each text once, with the database's code.
pub(crate) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(link) = next {
        let mut text = link.to_string();
        // Many errors print their source themselves.
        if !texts.last().is_some_and(|last| last.contains(&text)) {
            if let Some(code) = link.downcast_ref::<sqlx::Error>().and_then(sqlstate) {
                text.push_str(&format!(" (code {code})"));
            }
            texts.push(text);
        }
        next = link.source();
    }
    texts.join(": ")
}

/// The SQLSTATE or SQLite result code of a driver error.
pub(crate) fn sqlstate(error: &sqlx::Error) -> Option<String> {
    error.as_database_error().and_then(|e| e.code()).map(|c| c.into_owned())
}

impl Error {
    /// Whether the database itself reported this, as the answer to a request.
    pub(crate) fn is_answer(&self) -> bool {
        matches!(self, Error::Database { source, .. } if sqlstate(source).is_some())
    }
}

/// Serialisation failure, deadlock, lock not available; SQLite: busy, in any of its forms.
fn in_the_way(error: &sqlx::Error) -> bool {
    let Some(code) = sqlstate(error) else {
        return false;
    };
    matches!(code.as_str(), "40001" | "40P01" | "55P03") || code.parse().is_ok_and(|code: i32| code & 0xff == 5)
}

/// The code of one link in a chain of sources: a driver's error, or the error inside a wrapper that hides it.
pub(crate) fn code_of(link: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(error) = link.downcast_ref::<sqlx::Error>() {
        return sqlstate(error);
    }
    let said = link.downcast_ref::<Box<dyn sqlx::error::DatabaseError>>()?;
    said.code().map(|c| c.into_owned())
}

/// Short form for operations: `.doing("claim")`.
pub(crate) trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T>;
}

impl<T> Doing<T> for std::result::Result<T, sqlx::Error> {
    fn doing(self, doing: &'static str) -> Result<T> {
        self.map_err(|source| Error::Database { doing, source })
    }
}

/// The library's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Zero rows matched a guarded write: the work was done already. Through a handler's `?` it settles the job as done,
/// without an error, and is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AlreadyHandled;

impl std::fmt::Display for AlreadyHandled {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Handled.fmt(f)
    }
}

impl std::error::Error for AlreadyHandled {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&Handled)
    }
}

/// The marker to look for in a chain of sources. A wrapper such as `anyhow::Error` hides the type of the outermost
/// error only.
#[derive(Debug, Error)]
#[error("already handled: no row matched")]
pub(crate) struct Handled;

/// What an answer means for its receiver. It travels as the answer's source, where no wrapper hides it from the
/// handler's `?`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Meaning {
    /// Do not act on what was read.
    #[error("read it again and decide again")]
    LookAgain,
    /// Trying again does not help.
    #[error("a retry gets the same answer")]
    Final,
}

/// An external call's error that says that the effect did not happen and will not: the request never left, or the other
/// side refused it. Only this closes an intent so that the next attempt may call again whatever the policy.
///
/// It is found anywhere in an error's chain of sources, also behind `anyhow::Context`. A [`Fail`](crate::Fail) says the
/// same with `Fail::retire("card declined").not_done()`.
///
/// ```
/// use rowlock::NotDone;
///
/// let error = NotDone::because("connection refused");
/// assert_eq!(error.to_string(), "the effect did not happen");
/// ```
#[derive(Debug, Error)]
#[error("{DID_NOT_HAPPEN}")]
pub struct NotDone(#[source] Undone);

impl NotDone {
    /// The effect did not happen, for this reason.
    pub fn because(reason: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> NotDone {
        NotDone(Undone(reason.into()))
    }
}

const DID_NOT_HAPPEN: &str = "the effect did not happen";

/// Does for [`NotDone`] what [`Handled`] does for [`AlreadyHandled`].
#[derive(Debug, Error)]
#[error("{DID_NOT_HAPPEN}")]
pub(crate) struct Undone(#[source] Box<dyn std::error::Error + Send + Sync>);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Error)]
    #[error("outer")]
    struct Outer(#[source] std::io::Error);

    #[test]
    fn a_cause_is_the_whole_chain_with_each_text_once() {
        let refused = || std::io::Error::other("connection refused (127.0.0.1:5432)");
        assert_eq!(chain(&Outer(refused())), "outer: connection refused (127.0.0.1:5432)");
        let error = Error::Database {
            doing: "mark dead workers",
            source: sqlx::Error::Io(refused()),
        };
        let cause = "error communicating with database: connection refused (127.0.0.1:5432)";
        assert_eq!(chain(&error), format!("mark dead workers failed: {cause}"));
        assert_eq!(error.cause(), cause, "the log line names the verb");
        assert_eq!(Error::Config("slots: 0".into()).cause(), "slots: 0");
    }
}
