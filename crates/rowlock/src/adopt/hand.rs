//! A row in this worker's hands.

use std::{
    collections::HashSet,
    sync::{Mutex, MutexGuard, OnceLock, PoisonError, atomic::AtomicI64},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{
    job::number,
    lease::{Token, WorkerId},
    store::postgres::adopt::{AdoptedTable, ClaimedRow, RowToken},
    table::row_uid,
};

/// Why a handler is stopped from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The token matches nothing any more.
    Lost,
    /// The claim could not be renewed and others may soon take it.
    LeaseEnding,
    TimeLimit,
    /// The worker stops, and the grace is over.
    Stopped,
}

pub(crate) struct RowInHand {
    pub(super) token: RowToken,
    pub(super) uid: Uuid,
    pub(super) attempt: i64,
    pub(super) attempts_max: i64,
    pub(super) due_at: Timestamp,
    /// From when it was due to its claim.
    pub(super) waited: Duration,
    /// What its transaction is marked with, and its span.
    pub(super) marker: Token,
    /// What `Store::cut` needs, once there is a connection.
    pub(super) holder: AtomicI64,
    pub(super) cut: CancellationToken,
    why: OnceLock<Why>,
    /// When the last answered claim or beat was sent.
    renewed: Mutex<Instant>,
    /// The same, of those alone that wrote the row: one that somebody has locked is not written.
    written: Mutex<Instant>,
    pub(super) began: OnceLock<Instant>,
    /// Each dependency, with the version it stood at when the row was claimed.
    pub(super) bond: Vec<(String, i64)>,
    /// It was claimed to try those that are not closed.
    pub(super) probe: bool,
    /// Outside calls of which nobody knows whether they happened.
    pub(super) doubts: Mutex<Vec<String>>,
    used: Mutex<HashSet<String>>,
}

pub(super) fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RowInHand {
    pub(super) fn new(
        table: &AdoptedTable,
        claimed: &ClaimedRow,
        sent: Instant,
        bond: Vec<(String, i64)>,
        probe: bool,
    ) -> RowInHand {
        let id = &claimed.token.id;
        let waited = claimed.claimed_at.duration_since(claimed.due_at);
        RowInHand {
            uid: row_uid(table.identity, id),
            attempt: claimed.attempts.saturating_add(1),
            attempts_max: claimed.max_attempts,
            due_at: claimed.due_at,
            waited: Duration::try_from(waited).unwrap_or_default(),
            marker: Token {
                id: id.parse().unwrap_or_else(|_| number(id)),
                epoch: fastrand::i64(1..=i64::MAX),
                worker: WorkerId::random(),
            },
            token: claimed.token.clone(),
            holder: AtomicI64::new(0),
            cut: CancellationToken::new(),
            why: OnceLock::new(),
            renewed: Mutex::new(sent),
            written: Mutex::new(sent),
            began: OnceLock::new(),
            bond,
            probe,
            doubts: Mutex::default(),
            used: Mutex::default(),
        }
    }

    /// Stops its handler; the first reason counts.
    pub(super) fn end(&self, why: Why) -> bool {
        let first = self.why.set(why).is_ok();
        self.cut.cancel();
        first
    }

    pub(super) fn why(&self) -> Option<Why> {
        self.why.get().copied()
    }

    pub(super) fn renewed(&self) -> Instant {
        *lock(&self.renewed)
    }

    pub(super) fn written(&self) -> Instant {
        *lock(&self.written)
    }

    pub(super) fn renew(&self, sent: Instant, written: bool) {
        let newer = |at: &Mutex<Instant>| {
            let mut at = lock(at);
            *at = sent.max(*at);
        };
        newer(&self.renewed);
        if written {
            newer(&self.written);
        }
    }

    /// `false` when an effect of this name was used before in this attempt.
    pub(super) fn uses(&self, name: &str) -> bool {
        lock(&self.used).insert(name.to_owned())
    }
}
