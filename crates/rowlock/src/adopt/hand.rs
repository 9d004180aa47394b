//! A claimed row in this worker's hands.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use uuid::Uuid;

use super::Settings;
use crate::{
    attempt::{
        Bond,
        hand::{Cut, InHand, Names, Session, lock},
    },
    job::{Job, number, queue_no},
    lease::{Token, WorkerId},
    settle::Ending,
    state::Ended,
    store::{
        Settlement,
        postgres::adopt::{AdoptedTable, ClaimedRow, RowEnd, RowToken},
    },
    table::{RetiredRow, row_uid},
};

/// A row from its claim to its end.
pub(crate) struct RowInHand {
    /// The row on the road of an attempt. Its token marks the row's transaction and span; the claim itself is `token`.
    pub(super) hand: InHand,
    pub(super) token: RowToken,
    pub(super) uid: Uuid,
    pub(super) due_at: Timestamp,
    /// When the last answered claim or beat was sent.
    renewed: Mutex<Instant>,
    /// The same, only of those that wrote the row: a row that somebody has locked is not written.
    written: Mutex<Instant>,
    /// What its handler asked for when it was done.
    done_as: Mutex<RowEnd>,
    /// Ledger keys of external calls for which a person must find out whether they happened.
    pub(super) doubts: Mutex<Vec<String>>,
}

impl RowInHand {
    pub(super) fn new(
        table: &AdoptedTable,
        settings: &Settings,
        claimed: &ClaimedRow,
        sent: Instant,
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
            backoff: settings.backoff,
            probe: !bond.tries.is_empty(),
            member: None,
            of_row: true,
        };
        let names = Names {
            queue: table.queue.clone(),
            queue_no: queue_no(&table.queue),
            worker: settings.name.as_str().into(),
            kind: RetiredRow::KIND.to_owned(),
        };
        let waited = claimed.claimed_at.duration_since(claimed.due_at);
        let session = Session::new(ending.token.worker);
        let mut hand = InHand::new(ending, settings.time_limit, names, session, bond);
        hand.waited = Duration::try_from(waited).unwrap_or_default();
        Arc::new(RowInHand {
            hand,
            uid: row_uid(table.identity, id),
            due_at: claimed.due_at,
            token: claimed.token.clone(),
            renewed: Mutex::new(sent),
            written: Mutex::new(sent),
            done_as: Mutex::new(RowEnd::Done),
            doubts: Mutex::default(),
        })
    }

    /// How the row's columns say this end.
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

    /// Stops the handler; whether this was the first reason.
    pub(super) fn end(&self, why: Cut) -> bool {
        let first = !self.hand.cut.is_cancelled();
        self.hand.end(why);
        first
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
}
