//! One attempt, from its handler's first instruction to its end: begin → guard → conclude → close → resolve.
//!
//! Leased jobs and claimed rows of a user's table take the same path. The two differ only in where their end is written
//! and looked up, which is the trait [`Claim`].
//!
//! Whatever happens in the handler, exactly one of these follows: the end committed in the handler's own transaction; a
//! settlement waits to be written by the engine; the claim was lost; or the handler was cut off and other code records
//! the cut-off. This is [`Finished`].

mod begin;
mod bond;
mod close;
mod conclude;
mod guard;
pub(crate) mod hand;
mod resolve;

use std::{future::Future, time::Duration};

use crate::{
    error::{Error, Result},
    event::Skipped,
    handle::{Emit, RowAfter},
    lease::Token,
    root::{Backend, Rowlock},
    state::Ended,
    store::{Opening, Resolved, SettledIn, Settlement, Timing},
};

pub(crate) use self::{
    begin::{Decoding, atomic, begun, outside, staged},
    bond::Bond,
    conclude::{cut_off, end_hung, ended_by_hand},
    guard::{Body, decoding, guarded},
    resolve::what_became,
};

/// Why a handler that ended its transaction by hand is never retried: its writes may be committed.
pub(crate) const COMMITTED: &str = "handler committed its own transaction";

/// What is left to do after an attempt.
#[derive(Debug)]
pub(crate) enum Finished {
    /// Committed in the handler's own transaction.
    Settled {
        ended: Ended,
        skipped: Option<Skipped>,
        error: Option<String>,
    },
    /// The engine must write this settlement, on a separate connection.
    Settle {
        settlement: Settlement,
        skipped: Option<Skipped>,
    },
    /// The token no longer holds; nothing of this attempt remains.
    LeaseLost,
    /// Cut off from outside; `InHand::why` says what follows.
    Cut,
}

/// What an attempt needs from its worker.
pub(crate) struct Env<DB: Backend> {
    pub(crate) rowlock: Rowlock<DB>,
    pub(crate) timing: Timing,
    /// Called when it is known whether an unanswered commit happened.
    pub(crate) resolved: Box<dyn Fn(Token, bool) + Send + Sync>,
    /// Called for events in the middle of an attempt.
    pub(crate) emit: Emit,
}

/// What an attempt runs: a job under a lease, or a claimed row of a user's table.
pub(crate) trait Claim<DB: Backend>: Sync {
    fn env(&self) -> &Env<DB>;

    fn hand(&self) -> &hand::InHand;

    /// The handler succeeded; the argument says what to do with its row.
    fn succeeded(&self, _: RowAfter) {}

    /// Writes the end in the handler's transaction, only if the token still holds.
    fn settle_in(&self, held: &mut DB::Held, settlement: &Settlement)
    -> impl Future<Output = Result<SettledIn>> + Send;

    /// Whether an unanswered commit happened. Waits for the transaction that may still commit it.
    fn resolve(&self, settlement: &Settlement) -> impl Future<Output = Result<Resolved>> + Send;

    /// Whether it can no longer be found out if a commit happened.
    fn gives_up(&self) -> bool;

    /// The external calls that this and earlier attempts made, in words.
    fn calls(&self) -> impl Future<Output = Result<Vec<String>>> + Send;
}

/// The attempt that uses the connection next, in the same round trip as the commit.
pub(crate) trait Next<DB: Backend>: Send {
    /// The transaction that the previous attempt opened for this attempt.
    fn begun(&mut self) -> Option<DB::Held>;

    /// The transaction to open with this attempt's commit, if another attempt is next.
    fn pick(&mut self, timing: Timing) -> Option<Opening>;

    /// The next transaction is open.
    fn pass(&mut self, held: DB::Held);

    /// The next transaction was not opened, or not in time.
    fn put_back(&mut self);
}

/// No attempt is next.
pub(crate) struct Nobody;

impl<DB: Backend> Next<DB> for Nobody {
    fn begun(&mut self) -> Option<DB::Held> {
        None
    }

    fn pick(&mut self, _: Timing) -> Option<Opening> {
        None
    }

    fn pass(&mut self, _: DB::Held) {}

    fn put_back(&mut self) {}
}

/// An end that the engine writes.
pub(crate) fn settle(settlement: Settlement) -> Finished {
    Finished::Settle {
        settlement,
        skipped: None,
    }
}

/// Gives up on the database after this time, with an error that does not tell whether the work happened.
pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Database {
            doing: "settle",
            source: sqlx::Error::PoolTimedOut,
        }),
    }
}
