//! Closes the transaction of a handler that returned: settles in it and commits.

use super::{
    COMMITTED, Claim, Finished, Next,
    hand::InHand,
    resolve::{not_committed, quiet, resolve},
    settle, within,
};
use crate::{
    error::Result,
    event::Skipped,
    fault::point,
    root::Backend,
    store::{SettledIn, Settlement, Store, TxEnd},
};

/// Settles in the handler's transaction and commits it.
pub(super) async fn close<DB: Backend>(
    claim: &impl Claim<DB>,
    mut held: DB::Held,
    settlement: Settlement,
    skipped: Option<Skipped>,
    next: &mut impl Next<DB>,
) -> Finished {
    let (env, hand) = (claim.env(), claim.hand());
    let (store, limit) = (env.rowlock.store(), env.timing.lease);
    point!("before-settle");
    if let Some(passed) = pass_on(claim, &mut held, &settlement, next).await {
        point!("after-commit");
        return match passed {
            Ok(SettledIn::Applied { woken }) => {
                next.pass(held);
                committed(store, &woken, settlement, skipped)
            }
            Ok(SettledIn::LeaseLost) => Finished::LeaseLost,
            Ok(SettledIn::NotOurs) => by_hand(held, hand),
            Err(error) => {
                let holder = DB::holder(&held);
                drop(held);
                // Resolving may take long; another task can run the next job meanwhile.
                next.put_back();
                hand.doubt(true);
                match error.is_answer() || quiet(claim, holder).await {
                    true => resolve(claim, error, settlement, skipped).await,
                    false => Finished::Cut,
                }
            }
        };
    }
    let settled = within(limit, claim.settle_in(&mut held, &settlement)).await;
    let woken = match settled {
        Ok(SettledIn::Applied { woken }) => woken,
        Ok(SettledIn::LeaseLost) => return Finished::LeaseLost,
        Ok(SettledIn::NotOurs) => return by_hand(held, hand),
        Err(error) => {
            // No commit was sent, so the transaction rolls back. The engine's own write waits for its locks.
            drop(held);
            return not_committed(error, settlement, skipped, hand);
        }
    };
    point!("before-commit");
    let answer = within(limit, DB::end(store, held, TxEnd::Commit)).await;
    point!("after-commit");
    match answer {
        Ok(()) => committed(store, &woken, settlement, skipped),
        Err(error) => resolve(claim, error, settlement, skipped).await,
    }
}

/// Commits and opens the next attempt's transaction in one round trip, where the database can do that.
async fn pass_on<DB: Backend>(
    claim: &impl Claim<DB>,
    held: &mut DB::Held,
    settlement: &Settlement,
    next: &mut impl Next<DB>,
) -> Option<Result<SettledIn>> {
    let env = claim.env();
    let passed = DB::pass_on(env.rowlock.store(), held, settlement, &mut || next.pick(env.timing))?;
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

/// User code ended the transaction it was given; its writes may be committed.
fn by_hand<H>(held: H, hand: &InHand) -> Finished {
    drop(held);
    settle(hand.ending.retired(COMMITTED.into()))
}
