//! The ledger: what was done once, by key, in the transaction that did it.
//!
//! The unique key decides. A twin's insert waits for the open transaction that holds the key; what it finds after the
//! wait is read by a statement of its own, because the insert's snapshot is older than what it waited for.

use std::time::Duration;

use jiff::Timestamp;

use super::{
    Fut,
    rows::{Columns, Noun},
};
use crate::key::{Fingerprint, Hold};

/// No period ends later, so that adding it to a time cannot overflow.
const PERIOD_MAX: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// What a caller of `once` asks for; its key has been checked.
#[derive(Clone, Debug)]
pub struct Ask {
    pub key: String,
    pub fingerprint: Option<Fingerprint>,
    pub hold: Hold,
    /// The longest wait for an open twin, where that is not the connection's own to say.
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
    /// The key is this transaction's.
    First(Mine),
    /// Somebody else committed under this key.
    Seen(Entry),
}

/// An entry of this transaction's own.
#[derive(Clone, Copy, Debug)]
pub struct Mine {
    /// Tells it from a later one.
    pub made_at: Timestamp,
    /// Whether what the transaction merely walks past counts as read.
    pub serializable: bool,
}

/// A committed entry.
#[derive(Clone, Debug)]
pub struct Entry {
    pub fingerprint: Option<Vec<u8>>,
    /// JSON; `None` when the first stored no answer.
    pub answer: Option<String>,
    pub made_at: Timestamp,
    /// Its period has passed: the next caller is first again.
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

/// The ledger's verbs on a caller's own connection, inside its transaction.
pub trait Ledger<C>: Send + Sync {
    /// What begins a transaction that is going to write.
    const BEGIN: &'static str;

    /// Takes the key, or says what is stored under it. Waits for an open twin.
    fn take<'a>(&'a self, conn: &'a mut C, ask: &'a Ask) -> Fut<'a, Taken>;
    /// Stores the answer beside the key; `false` when the entry is not this transaction's.
    fn store<'a>(&'a self, conn: &'a mut C, key: &'a str, mine: Mine, answer: &'a str) -> Fut<'a, bool>;
    /// What is stored under a key, without taking it or waiting for anyone.
    fn look<'a>(&'a self, conn: &'a mut C, key: &'a str) -> Fut<'a, Option<Entry>>;

    /// Makes a savepoint that sqlx does not count: a transaction that is dropped then still rolls back as a whole.
    /// The number tells it from others in the same transaction.
    fn mark<'a>(&'a self, conn: &'a mut C, no: u64) -> Fut<'a, ()>;
    /// Back to that savepoint.
    fn back<'a>(&'a self, conn: &'a mut C, no: u64) -> Fut<'a, ()>;
}
