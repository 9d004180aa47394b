//! How the transaction of a handler that returned is closed: settled, committed, and what became of that found out.

use std::time::Duration;

use super::{
    hand::{Cut, InHand},
    relay::Relay,
    run::{COMMITTED, Env, Finished, settle, within},
};
use crate::{
    error::{Error, Result},
    event::Skipped,
    fault::point,
    handle::{Fail, How},
    root::Backend,
    state::Ended,
    store::{Opening, Resolved, SettledIn, Settlement, Store},
};

/// Settles in the handler's transaction and commits it.
pub(crate) async fn close<DB: Backend>(
    env: &Env<DB>,
    mut held: DB::Held,
    settlement: Settlement,
    skipped: Option<Skipped>,
    job: &InHand,
    relay: &mut Relay<'_, DB>,
) -> Finished {
    let store = env.rowlock.store();
    point!("before-settle");
    let limit = env.timing.lease;
    if DB::passes_on(store, &held, &settlement)
        && let Some(next) = relay.pick(env.timing)
        && let Some(passed) = pass_on::<DB>(env, &mut held, &settlement, next).await
    {
        point!("after-commit");
        return match passed {
            Ok(SettledIn::Applied { woken }) => {
                relay.pass(held);
                committed(store, &woken, settlement, skipped)
            }
            Ok(SettledIn::LeaseLost) => Finished::LeaseLost,
            Ok(SettledIn::NotOurs) => by_hand(held, job),
            Err(error) => {
                let holder = DB::holder(&held);
                drop(held);
                // Others have time for it.
                relay.put_back();
                job.doubt(true);
                match error.is_answer() || ended(env, holder, job).await {
                    true => resolve(env, error, settlement, skipped, job).await,
                    false => Finished::Cut,
                }
            }
        };
    }
    let settled = within(limit, DB::settle_in(store, &mut held, &settlement)).await;
    let woken = match settled {
        Ok(SettledIn::Applied { woken }) => woken,
        Ok(SettledIn::LeaseLost) => return Finished::LeaseLost,
        Ok(SettledIn::NotOurs) => return by_hand(held, job),
        Err(error) => {
            // No commit was sent, so the transaction is over or will be; the engine's write waits for its locks.
            drop(held);
            return not_committed(error, settlement, skipped, job);
        }
    };
    point!("before-commit");
    let answer = within(limit, DB::commit(store, held)).await;
    point!("after-commit");
    match answer {
        Ok(()) => committed(store, &woken, settlement, skipped),
        Err(error) => resolve(env, error, settlement, skipped, job).await,
    }
}

/// Closes it and opens the next one's in one string, where that can be done.
async fn pass_on<DB: Backend>(
    env: &Env<DB>,
    held: &mut DB::Held,
    settlement: &Settlement,
    next: Opening,
) -> Option<Result<SettledIn>> {
    let passed = DB::pass_on(env.rowlock.store(), held, settlement, next)?;
    point!("before-commit");
    Some(within(env.timing.lease, passed).await)
}

fn committed(store: &impl Store, woken: &[i64], settlement: Settlement, skipped: Option<Skipped>) -> Finished {
    store.wake(woken);
    Finished::Settled {
        ended: settlement.ended,
        skipped,
        error: settlement.error,
    }
}

/// User code ended the transaction it was given; what it wrote may stand.
fn by_hand<H>(held: H, job: &InHand) -> Finished {
    drop(held);
    settle(job.ending.retired(COMMITTED.into()))
}

/// Waits until what was sent on a connection that broke has run or never will: until then the row says nothing. `false`
/// when the worker stops before that.
async fn ended<DB: Backend>(env: &Env<DB>, holder: i64, job: &InHand) -> bool {
    let mut wait = Duration::from_millis(5);
    loop {
        match env.rowlock.store().ended(holder).await {
            Ok(true) => return true,
            Ok(false) => {}
            Err(error) => {
                tracing::debug!(
                    job = job.token.id,
                    "cannot tell yet whether a connection has ended, asking again: {}",
                    error.cause()
                );
            }
        }
        if job.why() == Some(Cut::Stopped) {
            return false;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    }
}

/// The reply to a commit was an error or none: look what happened, never guess.
async fn resolve<DB: Backend>(
    env: &Env<DB>,
    error: Error,
    settlement: Settlement,
    skipped: Option<Skipped>,
    job: &InHand,
) -> Finished {
    job.doubt(true);
    match what_became(env, job).await {
        None => Finished::Cut,
        // Recovery ended the lease: the token's only outcome is not this attempt's own.
        Some(Resolved::Lost | Resolved::Ended(Ended::Lost)) => Finished::LeaseLost,
        Some(Resolved::Ended(ended)) => Finished::Settled {
            ended,
            skipped,
            error: None,
        },
        Some(Resolved::StillLeased) => not_committed(error, settlement, skipped, job),
    }
}

/// What became of the commit of this job's transaction; `None` when the worker stops before it is known.
pub(crate) async fn what_became<DB: Backend>(env: &Env<DB>, job: &InHand) -> Option<Resolved> {
    let mut wait = Duration::from_millis(20);
    loop {
        match env.rowlock.store().resolve(job.token).await {
            Ok(resolved) => {
                let committed = matches!(resolved, Resolved::Ended(ended) if ended != Ended::Lost);
                (env.resolved)(job.token, committed);
                job.doubt(false);
                return Some(resolved);
            }
            Err(again) => {
                tracing::debug!(
                    job = job.token.id,
                    "the outcome of a commit is not known yet, asking again: {}",
                    again.cause()
                );
                // Not even the lease's end says what happened to the commit; only a stopping worker leaves it at that.
                if job.why() == Some(Cut::Stopped) {
                    return None;
                }
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(Duration::from_secs(1));
            }
        }
    }
}

/// The handler's transaction rolled back at its very end: a deferred constraint, a deadlock, a broken connection.
///
/// Of a handler that was content nothing is left, so its attempt failed with what the database said. One that had ended
/// in any other way wrote nothing but the record of it, and that is written once more, with its own words. The one
/// exception is work found to be done already or changed by a transaction that could not be fitted in with the others:
/// what it saw may never have been so.
fn not_committed(error: Error, settlement: Settlement, skipped: Option<Skipped>, job: &InHand) -> Finished {
    drop(job.take_hooks());
    let fail = Fail::from(error);
    let kept = match skipped {
        Some(_) => fail.how != How::RetrySoon,
        None => settlement.ended != Ended::Done,
    };
    match kept {
        true => Finished::Settle { settlement, skipped },
        false => settle(job.ending.failed(fail)),
    }
}
