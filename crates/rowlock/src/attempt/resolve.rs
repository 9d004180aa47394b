//! Finds out whether a commit happened when its reply was an error or did not come. The result is looked up, never
//! guessed.

use std::time::Duration;

use super::{Claim, Finished, hand::InHand, settle};
use crate::{
    error::Error,
    event::Skipped,
    handle::{Fail, How},
    root::Backend,
    state::Ended,
    store::{Resolved, Settlement, Store},
};

/// The longest pause between two questions.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Ends an attempt whose commit was not answered, by whether the commit happened.
pub(super) async fn resolve<DB: Backend>(
    claim: &impl Claim<DB>,
    error: Error,
    settlement: Settlement,
    skipped: Option<Skipped>,
) -> Finished {
    match what_became(claim, &settlement).await {
        None => Finished::Cut,
        // Recovery ended the lease: the token's only outcome is not this attempt's own.
        Some(Resolved::Lost | Resolved::Ended(Ended::Lost)) => Finished::LeaseLost,
        Some(Resolved::Ended(ended)) => Finished::Settled {
            ended,
            skipped,
            error: None,
        },
        Some(Resolved::StillLeased) => not_committed(error, settlement, skipped, claim.hand()),
    }
}

/// Whether the commit of this attempt's transaction happened; `None` when this can no longer be found out.
pub(crate) async fn what_became<DB: Backend>(claim: &impl Claim<DB>, settlement: &Settlement) -> Option<Resolved> {
    let hand = claim.hand();
    hand.doubt(true);
    let mut wait = Duration::from_millis(20);
    loop {
        match claim.resolve(settlement).await {
            Ok(resolved) => {
                let committed = matches!(resolved, Resolved::Ended(ended) if ended != Ended::Lost);
                (claim.env().resolved)(hand.token, committed);
                hand.doubt(false);
                return Some(resolved);
            }
            Err(again) => {
                tracing::debug!(
                    job = hand.token.id,
                    "the outcome of a commit is not known yet, asking again: {}",
                    again.cause()
                );
            }
        }
        if claim.gives_up() {
            return None;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}

/// Waits until what was sent on a broken connection has run or never will; until then the rows prove nothing. `false`
/// when this can no longer be found out.
pub(super) async fn quiet<DB: Backend>(claim: &impl Claim<DB>, holder: i64) -> bool {
    let mut wait = Duration::from_millis(5);
    loop {
        match claim.env().rowlock.store().cut(holder).await {
            Ok(cut) if cut.gone => return true,
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(
                    job = claim.hand().token.id,
                    "cannot tell yet whether a connection has ended, asking again: {}",
                    error.cause()
                );
            }
        }
        if claim.gives_up() {
            return false;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT_MAX);
    }
}

/// The handler's transaction rolled back at its very end: a deferred constraint, a deadlock, a broken connection.
///
/// A handler that succeeded has lost its writes, so its attempt failed with the database's error. A handler that ended
/// in any other way wrote only the record of its end, which the engine writes again. The exception is `AlreadyHandled`
/// or `Changed` after a serialisation failure: what the handler saw may never have been true.
pub(super) fn not_committed(error: Error, settlement: Settlement, skipped: Option<Skipped>, hand: &InHand) -> Finished {
    drop(hand.take_hooks());
    let fail = Fail::from(error);
    let kept = match skipped {
        Some(_) => fail.how != How::RetrySoon,
        None => settlement.ended != Ended::Done,
    };
    match kept {
        true => Finished::Settle { settlement, skipped },
        false => settle(hand.ending.failed(fail)),
    }
}
