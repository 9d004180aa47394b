//! Errors of SQLite, with a text that an operator can act on, and cloneable, because several callers may get the same
//! error.

use std::{borrow::Cow, error::Error as StdError, fmt};

use sqlx::error::{DatabaseError, ErrorKind};

/// An error with SQLite's code and an error message that names the file and what to do.
#[derive(Clone, Debug)]
struct Refused {
    code: Option<String>,
    message: String,
    unique: bool,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for Refused {}

impl DatabaseError for Refused {
    fn message(&self) -> &str {
        &self.message
    }

    fn code(&self) -> Option<Cow<'_, str>> {
        self.code.as_deref().map(Cow::Borrowed)
    }

    fn as_error(&self) -> &(dyn StdError + Send + Sync + 'static) {
        self
    }

    fn as_error_mut(&mut self) -> &mut (dyn StdError + Send + Sync + 'static) {
        self
    }

    fn into_error(self: Box<Self>) -> Box<dyn StdError + Send + Sync + 'static> {
        self
    }

    fn kind(&self) -> ErrorKind {
        match self.unique {
            true => ErrorKind::UniqueViolation,
            false => ErrorKind::Other,
        }
    }
}

fn code(error: &sqlx::Error) -> Option<i32> {
    error.as_database_error()?.code()?.parse().ok()
}

/// SQLITE_BUSY in any of its extended forms.
pub fn is_busy(error: &sqlx::Error) -> bool {
    code(error).is_some_and(|c| c & 0xff == 5)
}

/// SQLITE_BUSY_SNAPSHOT: another connection wrote after this transaction had read, so this transaction cannot begin to
/// write any more.
const BUSY_SNAPSHOT: i32 = 517;

/// The same error, with the file's name if the error is about the write lock.
pub fn explained(error: sqlx::Error, file: &str) -> sqlx::Error {
    if !is_busy(&error) {
        return error;
    }
    let message = match code(&error) {
        Some(BUSY_SNAPSHOT) => format!(
            "this transaction read from {file} before another connection wrote to it; roll back and try again, \
             with `begin immediate`"
        ),
        _ => format!("another process or connection holds the write lock of {file}"),
    };
    refusal(&error, message)
}

/// A copy of the error, for another caller in the same transaction.
pub fn again(error: &sqlx::Error) -> sqlx::Error {
    let message = match error.as_database_error() {
        Some(said) => said.message().to_owned(),
        None => error.to_string(),
    };
    refusal(error, message)
}

fn refusal(error: &sqlx::Error, message: String) -> sqlx::Error {
    let said = error.as_database_error();
    sqlx::Error::Database(Box::new(Refused {
        code: said.and_then(|e| e.code()).map(Cow::into_owned),
        unique: said.is_some_and(|e| e.is_unique_violation()),
        message,
    }))
}

/// The writer did not become free in time.
pub fn no_turn(file: &str, waited: std::time::Duration) -> sqlx::Error {
    let message = format!(
        "could not get the write lock of {file} within {} ms; a handler of this process, or another process, holds it",
        waited.as_millis()
    );
    sqlx::Error::Database(Box::new(Refused {
        code: Some("5".to_owned()),
        message,
        unique: false,
    }))
}
