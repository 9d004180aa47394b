//! Opens what a handler needs and runs the handler: a transaction for an atomic one, an `Outside` for a staged one.

use std::{
    future::Future,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::{Claim, Finished, Next, Nobody, conclude::conclude, guard::guarded, hand::InHand, settle};
use crate::{
    error::Result,
    handle::{
        Attempt, DroppedTx, Fail, Held,
        atomic::{Decoded, Ready, open},
        staged::Outside,
    },
    root::Backend,
    store::{Isolation, Open, Opening},
};

/// A handler with its job or row decoded.
pub(crate) enum Decoding<DB: Backend> {
    Atomic(Decoded<DB>),
    Staged(Ready<DB>),
}

/// Runs an atomic handler in a transaction, and settles in it.
pub(crate) async fn atomic<DB: Backend>(
    claim: &impl Claim<DB>,
    decoded: Decoded<DB>,
    level: Isolation,
    attempt: Attempt,
    next: &mut impl Next<DB>,
) -> Finished {
    let (env, hand) = (claim.env(), claim.hand());
    let opening = Opening {
        token: hand.token,
        timing: env.timing,
        level,
    };
    let held = match next.begun() {
        Some(held) => held,
        None => match begun(DB::begin(env.rowlock.store(), Open::Handler(opening)), hand).await {
            Ok(held) => held,
            Err(finished) => return *finished,
        },
    };
    hand.holder.store(DB::holder(&held), Ordering::Relaxed);
    // The time limit starts here, not while waiting for a connection.
    hand.start();
    let (dropped, tx) = open(held, attempt, &env.rowlock);
    let outcome = guarded(Box::pin(async move { decoded(tx).await }), hand).await;
    conclude(claim, outcome, dropped, false, next).await
}

/// Runs a staged handler, which opens a transaction itself if it needs one.
pub(crate) async fn staged<DB: Backend>(claim: &impl Claim<DB>, ready: Ready<DB>, level: Isolation) -> Finished {
    let hand = claim.hand();
    hand.start();
    let (dropped, called) = (DroppedTx::new(), Arc::new(AtomicBool::new(false)));
    let outside = outside(claim, dropped.clone(), called.clone(), level);
    let outcome = guarded(Box::pin(async move { ready(outside).await }), hand).await;
    // Earlier attempts may have made calls too.
    let called = called.load(Ordering::Relaxed) || hand.is_repeated();
    conclude(claim, outcome, dropped, called, &mut Nobody).await
}

/// What a staged handler borrows.
pub(crate) fn outside<DB: Backend>(
    claim: &impl Claim<DB>,
    dropped: DroppedTx<DB>,
    called: Arc<AtomicBool>,
    level: Isolation,
) -> Outside<DB> {
    let (env, hand) = (claim.env(), claim.hand());
    let (session, cut, lease) = (hand.session().clone(), hand.cut.clone(), env.timing.lease);
    let held: Held = Arc::new(move || !cut.is_cancelled() && !session.is_ending(lease));
    Outside {
        dropped,
        called,
        timing: env.timing,
        level,
        holder: hand.holder.clone(),
        time_limit: hand.limit,
        emit: env.emit.clone(),
        held,
    }
}

/// The transaction that was asked for, or how the attempt ends without one.
pub(crate) async fn begun<T>(
    begin: impl Future<Output = Result<T>>,
    hand: &InHand,
) -> std::result::Result<T, Box<Finished>> {
    let begun = tokio::select! {
        begun = begin => begun,
        () = hand.cut.cancelled() => return Err(Box::new(Finished::Cut)),
    };
    begun.map_err(|error| {
        // The delay keeps a server that is out of connections from being asked again and again.
        let delay = Duration::from_secs(1).mul_f64(0.5 + fastrand::f64());
        let why = format!("could not begin: {}", Fail::from(error).text);
        Box::new(settle(hand.ending.released_for(delay, &why)))
    })
}
