//! The ledger: what was done once, by key, in the transaction that did it.
//!
//! The unique key decides. The insert of a concurrent caller waits for the open transaction that holds the key. A
//! separate statement then reads what was stored, because the insert's snapshot is older than the commit that it waited
//! for.

use std::time::Duration;

use jiff::Timestamp;

use super::rows::{Columns, Noun};
use crate::key::{Fingerprint, Hold};

/// The longest period, so that adding it to a time cannot overflow.
const PERIOD_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// The request of a caller of `once`; its key has been checked.
#[derive(Clone, Debug)]
pub struct Ask {
    pub key: String,
    pub fingerprint: Option<Fingerprint>,
    pub hold: Hold,
    /// The longest wait for an open transaction that holds the key, where the connection's own setting does not decide
    /// it.
    pub wait: Option<Duration>,
}

impl Ask {
    pub fn period_us(&self) -> Option<i64> {
        let period = self.hold.period()?.min(PERIOD_MAX);
        i64::try_from(period.as_micros()).ok()
    }

    pub fn print(&self) -> Option<&[u8]> {
        self.fingerprint.as_ref().map(Fingerprint::as_bytes)
    }
}

/// The answer to an [`Ask`].
#[derive(Clone, Debug)]
pub enum Taken {
    /// This transaction has taken the key.
    First(Mine),
    /// Another caller committed under this key.
    Seen(Entry),
}

/// An entry of this transaction.
#[derive(Clone, Copy, Debug)]
pub struct Mine {
    /// Distinguishes the entry from a later entry of the same key.
    pub made_at: Timestamp,
    /// Whether the transaction is serializable; then rows that a statement only scans count as read.
    pub serializable: bool,
}

/// A committed entry.
#[derive(Clone, Debug)]
pub struct Entry {
    pub fingerprint: Option<Vec<u8>>,
    /// JSON; `None` when the first caller stored no answer.
    pub answer: Option<String>,
    pub made_at: Timestamp,
    /// The period has passed: the next caller is first again.
    pub over: bool,
}

impl Noun for Entry {
    fn of(row: &impl Columns) -> sqlx::Result<Entry> {
        Ok(Entry {
            fingerprint: row.read("fingerprint")?,
            answer: row.read("answer")?,
            made_at: row.read("made_at")?,
            over: row.read("over")?,
        })
    }
}

/// The statement that makes a savepoint, or rolls back to it.
pub fn savepoint(no: u64, back: bool) -> String {
    let verb = if back { "rollback to savepoint" } else { "savepoint" };
    format!("{verb} rowlock_once_{no}")
}
