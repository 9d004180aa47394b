//! A claimed row on the road of an attempt: what is decoded, where its end is written, where it is looked up.

use std::{sync::Arc, time::Duration};

use sqlx::Postgres;

use super::{
    hand::RowInHand,
    handle::{Handler, RowAttempt},
    run::Shared,
};
use crate::{
    attempt::{
        self, Claim, Decoding, Env, Finished, Nobody,
        hand::{Cut, InHand},
    },
    error::Result,
    event::Skipped,
    fault::point,
    handle::{Attempt, Fail, Held},
    state::Ended,
    store::{
        InTx, Isolation, Resolved, SettledIn, Settlement,
        postgres::{
            PgStore,
            adopt::{ClaimedRow, Ending, Settled, refused},
        },
    },
    trace,
    worker::cut_off,
};

/// The pause before an end that could not be written is written again.
const AGAIN: Duration = Duration::from_millis(100);

/// A row under its claim.
struct RowClaim<'a> {
    shared: &'a Shared,
    row: &'a Arc<RowInHand>,
}

impl Claim<Postgres> for RowClaim<'_> {
    fn env(&self) -> &Env<Postgres> {
        &self.shared.env
    }

    fn hand(&self) -> &InHand {
        &self.row.hand
    }

    fn held(&self) -> Held {
        let (row, limit) = (self.row.clone(), cut_off(self.shared.timing.lease));
        Arc::new(move || row.renewed().elapsed() < limit)
    }

    async fn settle_in(&self, held: &mut <Postgres as InTx>::Held, settlement: &Settlement) -> Result<SettledIn> {
        let (end, marker) = (self.row.end_of(settlement), self.row.hand.token.to_string());
        let ending = Ending {
            row: &self.row.token,
            end: &end,
            marker: Some(&marker),
        };
        let store = &self.shared.store;
        let settled = store.settle_row_in(&self.shared.table, held, ending);
        Ok(match settled.await? {
            Settled::Applied => SettledIn::Applied { woken: Vec::new() },
            Settled::Lost => SettledIn::LeaseLost,
            Settled::NotOurs => SettledIn::NotOurs,
        })
    }

    async fn resolve(&self, settlement: &Settlement) -> Result<Resolved> {
        resolve(self.shared, &self.shared.store, self.row, settlement).await
    }

    /// A row has no log of outcomes: once others may claim it, its columns say nothing about this attempt.
    fn gives_up(&self) -> bool {
        self.row.renewed().elapsed() >= self.shared.timing.lease
    }

    /// Calls of earlier attempts are not listed: the ledger finds a call by its name alone.
    async fn calls(&self) -> Result<Vec<String>> {
        let used = self.row.used();
        Ok(used.iter().map(|name| format!("effect {name:?}")).collect())
    }
}

/// A row that is in hand, until it is not.
pub(super) async fn attempt(shared: &Arc<Shared>, claimed: ClaimedRow, row: &Arc<RowInHand>) {
    let permit = tokio::select! {
        biased;
        () = row.hand.cut.cancelled() => None,
        () = shared.stopping.cancelled() => None,
        permit = shared.slots.clone().acquire_owned() => permit.ok(),
    };
    let finished = match &permit {
        Some(_) => run(shared, &claimed, row).await,
        None => match row.hand.why() {
            Some(Cut::DeclaredDead) => Finished::LeaseLost,
            Some(Cut::LeaseEnding) => Finished::Cut,
            _ => attempt::settle(row.hand.ending.released("worker stopped before it started")),
        },
    };
    finish(shared, row, finished).await;
}

async fn run(shared: &Arc<Shared>, claimed: &ClaimedRow, row: &Arc<RowInHand>) -> Finished {
    let ending = &row.hand.ending;
    if claimed.attempts >= claimed.max_attempts {
        // Set so by hand, or left so by another program. Without a case nobody would ever claim the row.
        let problem = format!(
            "{} of {} attempts are already used; lower the row's attempts to run it again",
            claimed.attempts, claimed.max_attempts
        );
        return attempt::settle(ending.retired(problem));
    }
    if !row.hand.bond.admitted(&shared.breakers.known) {
        return attempt::settle(ending.released("its breaker opened before it started"));
    }
    let given = RowAttempt {
        row: row.clone(),
        shared: shared.clone(),
    };
    point!("before-handler");
    let decoded = attempt::decoding(|| match &shared.handler {
        Handler::Atomic(decode) => decode(&claimed.row, given).map(Decoding::Atomic),
        Handler::Staged(decode) => decode(&claimed.row, given).map(Decoding::Staged),
    });
    let (claim, level) = (RowClaim { shared, row }, Isolation::ReadCommitted);
    match decoded {
        Ok(Decoding::Atomic(decoded)) => attempt::atomic(&claim, decoded, level, plain(shared, row), &mut Nobody).await,
        Ok(Decoding::Staged(ready)) => attempt::staged(&claim, ready, level).await,
        Err(problem) => attempt::settle(ending.retired(problem)),
    }
}

/// The attempt as jobs have it, for the transaction that the two share.
pub(super) fn plain(shared: &Shared, row: &RowInHand) -> Attempt {
    let InHand {
        token, ending, names, ..
    } = &row.hand;
    Attempt {
        token: *token,
        uid: row.uid,
        attempt: ending.attempt,
        attempts_max: ending.attempts_max,
        chain: token.id,
        position: 0,
        queue: names.queue.to_string(),
        created_at: row.due_at,
        recovered: false,
        trace: None,
        stopping: shared.stopping.clone(),
    }
}

/// Sees to it that an attempt's end is written and announced.
async fn finish(shared: &Shared, row: &Arc<RowInHand>, finished: Finished) {
    match finished {
        Finished::Settled { ended, skipped, error } => settled(shared, row, ended, skipped, error).await,
        Finished::Settle { settlement, skipped } => record(shared, &shared.store, row, settlement, skipped).await,
        Finished::LeaseLost => lost(shared, row),
        Finished::Cut => match row.hand.why() {
            // The watch records it.
            Some(Cut::TimeLimit) => {}
            Some(Cut::DeclaredDead) => lost(shared, row),
            Some(Cut::Stopped) if !row.hand.is_in_doubt() => {
                let fail = Fail::retry("worker stopped before the handler finished");
                record(shared, &shared.store, row, row.hand.failed(fail), None).await;
            }
            _ => dropped(row),
        },
    }
}

/// Writes an end on a connection of the engine's, until that is done or the claim is over.
pub(super) async fn record(
    shared: &Shared,
    store: &PgStore,
    row: &Arc<RowInHand>,
    settlement: Settlement,
    skipped: Option<Skipped>,
) {
    let end = row.end_of(&settlement);
    let mut sent_before = false;
    loop {
        let cause = match store.settle_row(&shared.table, &row.token, &end).await {
            Ok(Settled::Applied) => return settled(shared, row, settlement.ended, skipped, settlement.error).await,
            // The reply to an earlier try may have been lost, not the claim.
            Ok(_) if sent_before => match resolve(shared, store, row, &settlement).await {
                Ok(Resolved::Ended(ended)) => return settled(shared, row, ended, skipped, settlement.error).await,
                Ok(Resolved::Lost) => return lost(shared, row),
                Ok(Resolved::StillLeased) => "the claim still stands".to_owned(),
                Err(error) => error.cause(),
            },
            Ok(_) => return lost(shared, row),
            // The table would refuse it again, from recovery too perhaps. The claim stays until somebody fixes the row.
            Err(error) if refused(&error) => {
                shared.refused.tell(&shared.table.queue, &row.token.id, &error);
                return dropped(row);
            }
            Err(error) => error.cause(),
        };
        sent_before = true;
        if row.renewed().elapsed() >= shared.timing.lease {
            let id = &row.token.id;
            tracing::warn!(id, "could not settle a row, leaving it to recovery: {cause}");
            return dropped(row);
        }
        tracing::debug!("could not settle a row, retrying: {cause}");
        tokio::time::sleep(AGAIN).await;
    }
}

/// What became of an end that was not answered.
async fn resolve(shared: &Shared, store: &PgStore, row: &RowInHand, settlement: &Settlement) -> Result<Resolved> {
    let end = row.end_of(settlement);
    let found = store.look_at_row(&shared.table, &row.token, &end).await?;
    Ok(match found {
        None => Resolved::StillLeased,
        Some(Settled::Applied) => Resolved::Ended(settlement.ended),
        Some(Settled::Lost | Settled::NotOurs) => Resolved::Lost,
    })
}

/// The end committed. Until the breakers have heard of it the row keeps its slot: the next row begins with what this one
/// found out.
async fn settled(shared: &Shared, row: &RowInHand, ended: Ended, skipped: Option<Skipped>, error: Option<String>) {
    let said = shared.breakers.said_by(&row.hand, ended, skipped, error.as_deref());
    shared.emit(row.hand.settled(ended, skipped, error));
    shared.teller.tell(said).await;
}

/// The claim was lost and the result dropped.
fn lost(shared: &Shared, row: &RowInHand) {
    shared.emit(row.hand.lost());
}

/// Nobody here can write the end any more; recovery will.
fn dropped(row: &RowInHand) {
    trace::ended(row.hand.shown(), Ended::Lost.as_str(), true, None);
}

/// Ends a hung handler's backend, so that it keeps no row lock, then drops the handler, and records the failure from the
/// watch's thread: the handler's own runtime may be the one that hangs.
pub(super) async fn end_hung(shared: Arc<Shared>, store: PgStore, row: Arc<RowInHand>, problem: String) {
    let settlement = attempt::end_hung(&store, &row.hand, problem).await;
    record(&shared, &store, &row, settlement, None).await;
}
