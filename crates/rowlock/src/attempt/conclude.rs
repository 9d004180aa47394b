//! Turns how the user's code ended into how the attempt ends.

use std::{sync::atomic::Ordering, time::Duration};

use super::{
    COMMITTED, Claim, Env, Finished, Next, Nobody,
    close::close,
    guard::Body,
    hand::{Cut, InHand},
    settle, within,
};
use crate::{
    fault::{mutant, point},
    handle::{Done, DroppedTx, Fail, How},
    root::Backend,
    store::{Settlement, Store, batch::Parted},
};

/// `called` says whether this job or row may have made external calls.
pub(super) async fn conclude<DB: Backend>(
    claim: &impl Claim<DB>,
    body: Body<DB>,
    dropped: DroppedTx<DB>,
    called: bool,
    next: &mut impl Next<DB>,
) -> Finished {
    let (env, hand) = (claim.env(), claim.hand());
    let holder = hand.holder.load(Ordering::Relaxed);
    if !hand.returned() {
        // The cut-off won. Keep the connection until the watch has checked whether user code committed on it.
        hand.cut.cancelled().await;
        drop(dropped.take());
        return Finished::Cut;
    }
    let fail = match body {
        Body::Cut => return cut_off(env, holder, dropped, hand).await,
        Body::Returned(Ok(done)) => match succeeded(claim, done, next).await {
            Ok(finished) => return finished,
            Err(fail) => fail,
        },
        Body::Returned(Err(fail)) if called && fail.skipped().is_some() => not_quietly(claim, fail).await,
        Body::Returned(Err(fail)) => fail,
        Body::Panicked(text) => Fail::retry(format!("handler panicked: {text}")),
    };
    if fail.how == How::LeaseLost {
        drop(dropped.take());
        return Finished::LeaseLost;
    }
    let skipped = fail.skipped();
    let settlement = hand.failed(fail);
    let Some(mut held) = dropped.take() else {
        return Finished::Settle { settlement, skipped };
    };
    point!("before-failure");
    match DB::part(env.rowlock.store(), &mut held, false, true).await {
        Ok(Parted::Fine) => close(claim, held, settlement, skipped, &mut Nobody).await,
        Ok(Parted::NotOurs | Parted::Spoilt(_)) => {
            drop(held);
            settle(
                hand.ending
                    .retired(format!("{COMMITTED}; then: {}", settlement.error.unwrap_or_default())),
            )
        }
        // The connection is gone or stuck; its transaction rolls back by itself.
        Err(_) => Finished::Settle { settlement, skipped },
    }
}

/// Ends an attempt that was cut off. Its connection is not used again, because a statement may be under way on it.
pub(crate) async fn cut_off<DB: Backend>(
    env: &Env<DB>,
    holder: i64,
    dropped: DroppedTx<DB>,
    hand: &InHand,
) -> Finished {
    let committed = hand.why() != Some(Cut::DeclaredDead) && ended_by_hand(env, holder).await;
    drop(dropped.take());
    match committed {
        true => settle(hand.ending.retired(format!("{COMMITTED}; then: it was stopped"))),
        false => Finished::Cut,
    }
}

/// Whether user code had ended the transaction of a handler that was cut off. If the database does not answer soon, the
/// lease is probably ending too, and the attempt counts as failed.
pub(crate) async fn ended_by_hand<DB: Backend>(env: &Env<DB>, holder: i64) -> bool {
    let limit = Duration::from_secs(1).min(env.timing.lease / 10);
    holder != 0 && matches!(within(limit, env.rowlock.store().cut(holder)).await, Ok(cut) if cut.by_hand)
}

/// Ends a hung handler's backend, so that it keeps no row lock, then drops the handler. The caller writes the
/// settlement, from another thread than the handler's, because the handler may block its own thread.
pub(crate) async fn end_hung(store: &dyn Store, hand: &InHand, problem: String) -> Settlement {
    let holder = hand.holder.load(Ordering::Relaxed);
    let mut committed = false;
    if holder != 0 {
        match store.cut(holder).await {
            Ok(cut) => committed = cut.by_hand,
            Err(error) => tracing::warn!(
                job = hand.token.id,
                "could not end the backend of a hung handler: {}",
                error.cause()
            ),
        }
    }
    if !mutant!("overdue handler runs on") {
        hand.stop(Cut::TimeLimit);
    }
    match committed {
        true => hand.ending.retired(format!("{COMMITTED}; then: {problem}")),
        false => hand.ending.failed(Fail::retry(problem)),
    }
}

/// `AlreadyHandled` settles as done, unless external calls were made. Then the attempt ends in a case, because nothing
/// would record those calls.
async fn not_quietly<DB: Backend>(claim: &impl Claim<DB>, fail: Fail) -> Fail {
    let made = match within(claim.env().timing.lease, claim.calls()).await {
        Ok(made) => made,
        Err(error) => return Fail::from(error),
    };
    match made.is_empty() {
        true => fail,
        false => Fail::retire(format!(
            "external calls were made but are not recorded ({}): {}",
            made.join(", "),
            fail.text
        )),
    }
}

async fn succeeded<DB: Backend>(
    claim: &impl Claim<DB>,
    done: Done<DB>,
    next: &mut impl Next<DB>,
) -> std::result::Result<Finished, Fail> {
    let hand = claim.hand();
    if done.token != hand.token {
        let problem = "the handler returned another job's transaction";
        return Ok(settle(hand.ending.retired(problem.into())));
    }
    let settlement = hand.ending.done(done.result, done.next);
    hand.keep_hooks(done.hooks);
    claim.succeeded(done.row);
    match done.held {
        None => Ok(settle(settlement)),
        Some(handed) => match handed.arrive() {
            Some(held) => Ok(close(claim, held, settlement, None, next).await),
            None => Err(Fail::retry("the handler's connection was lost")),
        },
    }
}
