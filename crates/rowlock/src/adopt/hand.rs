//! A row that this worker has claimed.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use uuid::Uuid;

use super::rows::Rows;
use crate::{
    attempt::{
        Bond,
        hand::{Held, InHand, Names, Session, lock},
    },
    job::number,
    lease::{Token, WorkerId},
    settle::Ending,
    state::Ended,
    store::{
        Settlement,
        postgres::adopt::{ClaimedRow, RowEnd, RowToken},
    },
    table::row_uid,
};

/// A row from its claim to its end.
pub(crate) struct RowInHand {
    /// The row in the form that attempts use. Its token marks the row's transaction and span; the claim itself is
    /// `token`.
    pub(super) hand: InHand,
    pub(super) token: RowToken,
    pub(super) uid: Uuid,
    pub(super) due_at: Timestamp,
    lease: Duration,
    /// When the last renewal that wrote the row was sent. A row that another transaction has locked is held, but not
    /// written.
    written: Mutex<Instant>,
    /// The end that the handler asked for when it was done.
    done_as: Mutex<RowEnd>,
    /// Ledger keys of external calls for which a person must find out whether they happened.
    pub(super) doubts: Mutex<Vec<String>>,
}

impl RowInHand {
    pub(super) fn new(
        rows: &Rows,
        claimed: &ClaimedRow,
        names: Names,
        (sent, lease): (Instant, Duration),
        bond: Bond,
    ) -> Arc<RowInHand> {
        let id = &claimed.token.id;
        let count = |attempts: i64| i32::try_from(attempts).unwrap_or(i32::MAX);
        let attempt = count(claimed.attempts.saturating_add(1));
        let ending = Ending {
            token: Token {
                id: id.parse().unwrap_or_else(|_| number(id)),
                epoch: attempt.into(),
                worker: WorkerId::random(),
            },
            attempt,
            attempts_max: count(claimed.max_attempts),
            backoff: rows.backoff,
            probe: !bond.tries.is_empty(),
            member: None,
            of_row: true,
        };
        let waited = claimed.claimed_at.duration_since(claimed.due_at);
        let session = Session::new(ending.token.worker, Some(sent));
        let mut hand = InHand::new(ending, rows.time_limit, names, session, bond);
        hand.waited = Duration::try_from(waited).unwrap_or_default();
        Arc::new(RowInHand {
            hand,
            uid: row_uid(rows.table.identity, id),
            due_at: claimed.due_at,
            token: claimed.token.clone(),
            lease,
            written: Mutex::new(sent),
            done_as: Mutex::new(RowEnd::Done),
            doubts: Mutex::default(),
        })
    }

    /// The row's columns for this end.
    pub(super) fn end_of(&self, settlement: &Settlement) -> RowEnd {
        let error = settlement.error.clone();
        match settlement.ended {
            Ended::Done => lock(&self.done_as).clone(),
            Ended::Cancelled => RowEnd::Cancelled {
                error: error.unwrap_or_default(),
            },
            Ended::Retired => RowEnd::Retired {
                counted: self.hand.ending.is_last(),
                error: error.unwrap_or_default(),
                doubts: lock(&self.doubts).clone(),
            },
            Ended::Retried | Ended::Deferred | Ended::Released | Ended::Lost => RowEnd::Back {
                counted: !settlement.ended.gives_attempt_back(),
                delay: settlement.delay,
                // A row that never began has no error.
                error: error.filter(|_| settlement.ended != Ended::Released),
            },
        }
    }

    /// How the row ends if its handler succeeds.
    pub(super) fn done_as(&self, end: RowEnd) {
        *lock(&self.done_as) = end;
    }

    /// Whether others may have claimed the row by now.
    pub(super) fn is_claim_over(&self) -> bool {
        self.hand.session().is_unrenewed_for(self.lease)
    }

    /// Whether the row should be written again: its last renewal is this old, and its handler was not cut off.
    pub(super) fn needs_renewal(&self, age: Duration) -> bool {
        lock(&self.written).elapsed() >= age && !self.hand.cut.is_cancelled()
    }

    /// A renewal that was sent then was answered; it may have written the row.
    pub(super) fn renew(&self, sent: Instant, written: bool) {
        self.hand.session().renew(sent);
        if written {
            let mut at = lock(&self.written);
            *at = sent.max(*at);
        }
    }
}

impl Held for RowInHand {
    fn hand(&self) -> &InHand {
        &self.hand
    }
}
