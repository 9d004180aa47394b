//! Rows into nouns, once for both databases: a column is read as what the noun has, whatever its database stores.

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
    case::CaseView,
    effect::EffectState,
    observe::{AttemptView, JobView, LaneStatus, WorkerStatus},
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

/// Databases hold JSON that cannot be read here, such as 1e999. It becomes a string of its text, so that nothing is lost
/// and the other rows can be read.
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

/// What one row says.
pub trait Noun: Sized {
    fn of(row: &impl Columns) -> sqlx::Result<Self>;
}

/// What all rows say.
pub fn nouns<N: Noun>(rows: &[impl Columns]) -> sqlx::Result<Vec<N>> {
    rows.iter().map(N::of).collect()
}

impl Noun for JobView {
    fn of(row: &impl Columns) -> sqlx::Result<JobView> {
        let tags: Option<Value> = row.read("tags")?;
        Ok(JobView {
            id: row.read("id")?,
            uid: row.read("uid")?,
            kind: row.read("kind")?,
            version: row.read("version")?,
            queue: row.read("queue")?,
            priority: row.read("priority")?,
            state: row.read("state")?,
            attempt: row.read("attempt")?,
            attempts_max: row.read("attempts_max")?,
            epoch: row.read("epoch")?,
            due_at: row.read("due_at")?,
            worker: row.read("worker")?,
            claimed_at: row.read("claimed_at")?,
            last_outcome: row.read("last_outcome")?,
            last_ended_at: row.read("last_ended_at")?,
            last_error: row.read("last_error")?,
            result: row.read("result")?,
            payload: row.read::<Option<_>>("payload")?.unwrap_or_default(),
            tags: tags.and_then(|t| serde_json::from_value(t).ok()).unwrap_or_default(),
            chain: row.read("chain")?,
            position: row.read("position")?,
            expires_at: row.read("expires_at")?,
            created_at: row.read("created_at")?,
            waits_for: row.read("waits_for")?,
            group: row.read("in_group")?,
            key: row.read("key")?,
        })
    }
}

impl Noun for AttemptView {
    fn of(row: &impl Columns) -> sqlx::Result<AttemptView> {
        Ok(AttemptView {
            epoch: row.read("epoch")?,
            attempt: row.read("attempt")?,
            worker: row.read("worker")?,
            outcome: row.read("outcome")?,
            started_at: row.read("started_at")?,
            ended_at: row.read("ended_at")?,
            error: row.read("error")?,
            result: row.read("result")?,
        })
    }
}

impl Noun for CaseView {
    fn of(row: &impl Columns) -> sqlx::Result<CaseView> {
        Ok(CaseView {
            id: row.read("id")?,
            kind: row.read("kind")?,
            queue: row.read("queue")?,
            reason: row.read("reason")?,
            attempt: row.read("attempt")?,
            attempts_max: row.read("attempts_max")?,
            retired_at: row.read("retired_at")?,
            history: row.read::<Option<_>>("history")?.unwrap_or_default(),
            error_no: row.read("error_no")?,
            owner: row.read("owner")?,
            note: row.read("note")?,
        })
    }
}

impl Noun for LaneStatus {
    fn of(row: &impl Columns) -> sqlx::Result<LaneStatus> {
        Ok(LaneStatus {
            queue: row.read("queue")?,
            kind: row.read("kind")?,
            due: row.read("due")?,
            scheduled: row.read("scheduled")?,
            waiting: row.read("waiting")?,
            leased: row.read("leased")?,
            cases: row.read("cases")?,
            more: row.read("more")?,
            oldest_due_ms: row.read("oldest_due_ms")?,
        })
    }
}

impl Noun for WorkerStatus {
    fn of(row: &impl Columns) -> sqlx::Result<WorkerStatus> {
        Ok(WorkerStatus {
            id: row.read("id")?,
            name: row.read("name")?,
            lease_ms: row.read("lease_ms")?,
            beat_age_ms: row.read("beat_age_ms")?,
            dead: row.read("dead")?,
            leases: row.read("leases")?,
            started_at: row.read("started_at")?,
        })
    }
}
