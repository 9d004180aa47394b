//! Converts rows into values, once for both databases. A column is read as the type of the field, however its database
//! stores it.

use jiff::Timestamp;
use serde_json::Value;
#[cfg(feature = "postgres")]
use sqlx::postgres::PgRow;
#[cfg(feature = "sqlite")]
use sqlx::sqlite::SqliteRow;
use sqlx::{Row, ValueRef};
use uuid::Uuid;

use crate::{
    breaker::BreakerState,
    effect::EffectState,
    id::{AuditNo, EffectNo, ErrorNo, JobId},
    lease::WorkerId,
    state::{Ended, State},
};

macro_rules! plain_columns {
    ($($method:ident: $type:ty),* $(,)?) => {
        /// A row of either database.
        pub trait Columns: Sized {
            $(fn $method(&self, column: &str) -> sqlx::Result<$type>;)*
            fn time(&self, column: &str) -> sqlx::Result<Timestamp>;
            fn uuid(&self, column: &str) -> sqlx::Result<Uuid>;
            fn is_null(&self, column: &str) -> sqlx::Result<bool>;

            fn read<T: Column>(&self, column: &str) -> sqlx::Result<T> {
                T::of(self, column)
            }
        }

        $(impl Column for $type {
            fn of(row: &impl Columns, column: &str) -> sqlx::Result<$type> {
                row.$method(column)
            }
        })*

        macro_rules! plain_methods {
            () => {
                $(fn $method(&self, column: &str) -> sqlx::Result<$type> {
                    self.try_get(column)
                })*

                fn is_null(&self, column: &str) -> sqlx::Result<bool> {
                    Ok(self.try_get_raw(column)?.is_null())
                }
            };
        }
    };
}

/// What a column can be read as.
pub trait Column: Sized {
    fn of(row: &impl Columns, column: &str) -> sqlx::Result<Self>;
}

plain_columns!(small: i16, int: i32, long: i64, flag: bool, text: String, bytes: Vec<u8>);

#[cfg(feature = "postgres")]
impl Columns for PgRow {
    plain_methods!();

    fn time(&self, column: &str) -> sqlx::Result<Timestamp> {
        self.try_get::<jiff_sqlx::Timestamp, _>(column).map(|at| at.to_jiff())
    }

    fn uuid(&self, column: &str) -> sqlx::Result<Uuid> {
        self.try_get(column)
    }
}

/// Times are microseconds since the epoch, and uuids are text.
#[cfg(feature = "sqlite")]
impl Columns for SqliteRow {
    plain_methods!();

    fn time(&self, column: &str) -> sqlx::Result<Timestamp> {
        Timestamp::from_microsecond(self.try_get(column)?).map_err(|e| sqlx::Error::Decode(e.into()))
    }

    fn uuid(&self, column: &str) -> sqlx::Result<Uuid> {
        Uuid::try_parse(self.try_get(column)?).map_err(|e| sqlx::Error::Decode(e.into()))
    }
}

impl Column for Timestamp {
    fn of(row: &impl Columns, column: &str) -> sqlx::Result<Timestamp> {
        row.time(column)
    }
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Column for $type {
            fn of(row: &impl Columns, column: &str) -> sqlx::Result<$type> {
                row.long(column).map(<$type>::from)
            }
        }
    )*};
}

numbers!(JobId, EffectNo, ErrorNo, AuditNo);

impl Column for WorkerId {
    fn of(row: &impl Columns, column: &str) -> sqlx::Result<WorkerId> {
        row.long(column).map(WorkerId)
    }
}

impl Column for Uuid {
    fn of(row: &impl Columns, column: &str) -> sqlx::Result<Uuid> {
        row.uuid(column)
    }
}

impl<T: Column> Column for Option<T> {
    fn of(row: &impl Columns, column: &str) -> sqlx::Result<Option<T>> {
        match row.is_null(column)? {
            true => Ok(None),
            false => T::of(row, column).map(Some),
        }
    }
}

/// Databases hold JSON that cannot be read here, such as 1e999. Such JSON becomes a string of its text, so that nothing
/// is lost and the other rows can be read.
impl Column for Value {
    fn of(row: &impl Columns, column: &str) -> sqlx::Result<Value> {
        let text = row.text(column)?;
        Ok(serde_json::from_str(&text).unwrap_or(Value::String(text)))
    }
}

macro_rules! words {
    ($($type:ty),*) => {
        $(impl Column for $type {
            fn of(row: &impl Columns, column: &str) -> sqlx::Result<$type> {
                let text = row.text(column)?;
                word(&text, <$type>::parse(&text))
            }
        })*
    };
}

words!(State, Ended, BreakerState, EffectState);

pub fn word<T>(text: &str, parsed: Option<T>) -> sqlx::Result<T> {
    parsed.ok_or_else(|| {
        sqlx::Error::Decode(format!("unknown value {text:?}; deploy a newer binary if the schema is newer").into())
    })
}

pub fn ended(text: &str) -> sqlx::Result<Ended> {
    word(text, Ended::parse(text))
}

/// A value that is read from one row.
pub trait Noun: Sized {
    fn of(row: &impl Columns) -> sqlx::Result<Self>;
}

/// Reads a value from every row.
pub fn nouns<N: Noun>(rows: &[impl Columns]) -> sqlx::Result<Vec<N>> {
    rows.iter().map(N::of).collect()
}
