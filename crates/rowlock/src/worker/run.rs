//! One attempt: decode, run the user's code, settle.
//!
//! Whatever happens in the handler, exactly one of these follows: it settled in its own transaction; a settlement waits
//! to be written by the engine; the lease was lost; or it was cut off and someone else records that.

use std::{
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tracing::Instrument;

use super::{
    close::close,
    hand::{Cut, InHand},
    relay::Relay,
};
use crate::{
    effect::{EffectFilter, EffectState},
    error::{Error, Result},
    event::Skipped,
    fault::point,
    handle::{
        Attempt, Done, Emit, Fail, Fragile, Held, How, Outcome, Slot, Tx,
        atomic::{Decoded, Handler, Running, Shape, open},
        panic_text,
        staged::Outside,
    },
    lease::{Claimed, Token},
    root::{Backend, Rowlock},
    state::Ended,
    store::{Isolation, Settlement, Store, Timing, journal::Journal},
};

/// Why a handler that ended its transaction by hand is never retried: what it wrote may stand.
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
    /// The engine must write this, on a connection of its own.
    Settle {
        settlement: Settlement,
        skipped: Option<Skipped>,
    },
    /// The token no longer held; nothing of this attempt remains.
    LeaseLost,
    /// Cut off from outside; the job's `why` says what follows.
    Cut,
}

/// What an attempt needs from its worker.
pub(crate) struct Env<DB: Backend> {
    pub(crate) rowlock: Rowlock<DB>,
    pub(crate) timing: Timing,
    pub(crate) resolved: Box<dyn Fn(Token, bool) + Send + Sync>,
    /// Tells of what happens in the middle of an attempt.
    pub(crate) emit: Emit,
    /// Whether the worker's lease is renewed in time.
    pub(crate) held: Held,
}

/// Whether an attempt surely holds its lease at the moment it is asked.
fn held<DB: Backend>(env: &Env<DB>, job: &InHand) -> Held {
    let (renewed, cut) = (env.held.clone(), job.cut.clone());
    Arc::new(move || !cut.is_cancelled() && renewed())
}

pub(crate) async fn run<DB: Backend>(
    env: &Env<DB>,
    handler: &Handler<DB>,
    claimed: &Claimed,
    attempt: Attempt,
    job: &InHand,
    relay: &mut Relay<'_, DB>,
) -> Finished {
    let decode = match &handler.shape {
        Shape::Atomic(_) => {
            return match decoded(env, handler, claimed, attempt.clone(), job) {
                Ok(decoded) => atomic(env, decoded, handler.level, attempt, job, relay).await,
                Err(finished) => *finished,
            };
        }
        Shape::Staged(decode) => decode,
    };
    let body = match runnable(handler, claimed, job) {
        Ok(body) => body,
        Err(finished) => return *finished,
    };
    match guard(|| decode(body, attempt, &env.rowlock)) {
        Ok(Ok(decoded)) => {
            job.start();
            let (slot, called) = (Slot::new(), Arc::new(AtomicBool::new(false)));
            let outside = Outside {
                slot: slot.clone(),
                called: called.clone(),
                timing: env.timing,
                level: handler.level,
                holder: job.holder.clone(),
                time_limit: handler.time_limit,
                emit: env.emit.clone(),
                held: held(env, job),
            };
            let outcome = guarded(Box::pin(async move { decoded(outside).await }), job).await;
            // Attempts before this one may have called too.
            let called = called.load(Ordering::Relaxed) || job.token.epoch > 1;
            conclude(env, outcome, slot, called, job, &mut Relay::none()).await
        }
        Ok(Err(problem)) | Err(problem) => settle(job.ending.retired(problem)),
    }
}

/// The job's body, if there is one to run; else how it ends.
fn runnable<'c, DB: Backend>(
    handler: &Handler<DB>,
    claimed: &'c Claimed,
    job: &InHand,
) -> std::result::Result<&'c crate::lease::Body, Box<Finished>> {
    let end = |settlement| Err(Box::new(settle(settlement)));
    let Some(body) = &claimed.body else {
        return end(job.ending.retired("the job's body is missing".into()));
    };
    if body.kind != handler.kind {
        // Two names with the same first eight bytes of their hash: told, instead of run by the wrong code.
        let problem = format!(
            "kind {} has the same number as kind {}; rename one",
            body.kind, handler.kind
        );
        return end(job.ending.retired(problem));
    }
    if claimed.expired {
        return end(job.ending.cancelled("expired before it started"));
    }
    point!("before-handler");
    Ok(body)
}

/// An atomic handler with its job decoded, or how the job ends without it.
pub(crate) fn decoded<DB: Backend>(
    env: &Env<DB>,
    handler: &Handler<DB>,
    claimed: &Claimed,
    attempt: Attempt,
    job: &InHand,
) -> std::result::Result<Decoded<DB>, Box<Finished>> {
    let body = runnable(handler, claimed, job)?;
    let problem = match &handler.shape {
        Shape::Atomic(decode) => match guard(|| decode(body, attempt, &env.rowlock)) {
            Ok(Ok(decoded)) => return Ok(decoded),
            Ok(Err(problem)) | Err(problem) => problem,
        },
        Shape::Staged(_) => "a staged handler has no transaction to run in".into(),
    };
    Err(Box::new(settle(job.ending.retired(problem))))
}

/// Runs the user's code and drops what it returns, as a crash right before the commit would. What it did outside has
/// happened; nothing of it is in the database. `Err` is how the handler itself failed.
pub(crate) async fn run_for_nothing<DB: Backend>(
    env: &Env<DB>,
    handler: &Handler<DB>,
    claimed: &Claimed,
    attempt: Attempt,
    job: &InHand,
) -> std::result::Result<(), Fail> {
    let Some(body) = &claimed.body else {
        return Err(Fail::retire("the job's body is missing"));
    };
    let slot = Slot::new();
    let running: Running<DB> = match &handler.shape {
        Shape::Atomic(decode) => {
            let decoded = decode(body, attempt.clone(), &env.rowlock).map_err(Fail::retire)?;
            let held = DB::begin(env.rowlock.store(), &job.token, env.timing, handler.level).await?;
            let tx = Tx::new(held, slot.clone(), attempt, env.rowlock.clone());
            Box::pin(async move { decoded(tx).await })
        }
        Shape::Staged(decode) => {
            let decoded = decode(body, attempt, &env.rowlock).map_err(Fail::retire)?;
            let outside = Outside {
                slot: slot.clone(),
                called: Arc::default(),
                timing: env.timing,
                level: handler.level,
                holder: job.holder.clone(),
                time_limit: handler.time_limit,
                emit: env.emit.clone(),
                held: held(env, job),
            };
            Box::pin(async move { decoded(outside).await })
        }
    };
    let returned = guarded(running, job).await;
    let result = match returned {
        Body::Returned(Ok(done)) => {
            drop(done);
            Ok(())
        }
        Body::Returned(Err(fail)) => Err(fail),
        Body::Panicked(text) => Err(Fail::retry(format!("handler panicked: {text}"))),
        Body::Cut => Err(Fail::retry("cut off")),
    };
    drop(slot.take());
    result
}

/// The transaction that was asked for, or how the job ends without one.
pub(crate) async fn begun<T>(
    begin: impl Future<Output = Result<T>>,
    job: &InHand,
) -> std::result::Result<T, Box<Finished>> {
    let begun = tokio::select! {
        begun = begin => begun,
        () = job.cut.cancelled() => return Err(Box::new(Finished::Cut)),
    };
    begun.map_err(|error| {
        // Not at once again: the server may be out of connections, and must not be hammered for one.
        let delay = Duration::from_secs(1).mul_f64(0.5 + fastrand::f64());
        let why = format!("could not begin: {}", Fail::from(error).text);
        Box::new(settle(job.ending.released_for(delay, &why)))
    })
}

async fn atomic<DB: Backend>(
    env: &Env<DB>,
    decoded: Decoded<DB>,
    level: Isolation,
    attempt: Attempt,
    job: &InHand,
    relay: &mut Relay<'_, DB>,
) -> Finished {
    let held = match relay.take_begun() {
        Some(held) => held,
        None => match begun(DB::begin(env.rowlock.store(), &job.token, env.timing, level), job).await {
            Ok(held) => held,
            Err(finished) => return *finished,
        },
    };
    job.holder.store(DB::holder(&held), Ordering::Relaxed);
    // Its time runs from here: waiting for a connection is not the handler's doing.
    job.start();
    let (slot, tx) = open(held, attempt, &env.rowlock);
    let outcome = guarded(Box::pin(async move { decoded(tx).await }), job).await;
    conclude(env, outcome, slot, false, job, relay).await
}

pub(crate) fn settle(settlement: Settlement) -> Finished {
    Finished::Settle {
        settlement,
        skipped: None,
    }
}

/// How the user's code came to an end.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, on the stack")]
pub(crate) enum Body<DB: Backend> {
    Returned(Outcome<DB>),
    Panicked(String),
    Cut,
}

pub(crate) async fn guarded<DB: Backend>(handler: Running<DB>, job: &InHand) -> Body<DB> {
    let span = job.show();
    tokio::select! {
        biased;
        () = job.cut.cancelled() => Body::Cut,
        outcome = Fragile::new(handler).caught().instrument(span) => match outcome {
            // Whether it was said by `.ok()` or by `Ok(…)`: what was refused on the way fails the attempt.
            Ok(outcome) => Body::Returned(outcome.and_then(Done::ok)),
            Err(text) => Body::Panicked(text),
        },
    }
}

/// `called` says whether there may be outside calls of this job.
async fn conclude<DB: Backend>(
    env: &Env<DB>,
    body: Body<DB>,
    slot: Slot<DB>,
    called: bool,
    job: &InHand,
    relay: &mut Relay<'_, DB>,
) -> Finished {
    let holder = job.holder.load(Ordering::Relaxed);
    if !job.returned() {
        // Too late. The connection stays as it is until the watch has looked whether user code committed on it.
        job.cut.cancelled().await;
        drop(slot.take());
        return Finished::Cut;
    }
    let fail = match body {
        Body::Cut => return cut_off(env, holder, slot, job).await,
        Body::Returned(Ok(done)) => match succeeded(env, done, job, relay).await {
            Ok(finished) => return finished,
            Err(fail) => fail,
        },
        Body::Returned(Err(fail)) if called && fail.skipped().is_some() => not_quietly(env, fail, job).await,
        Body::Returned(Err(fail)) => fail,
        Body::Panicked(text) => Fail::retry(format!("handler panicked: {text}")),
    };
    if fail.how == How::LeaseLost {
        drop(slot.take());
        return Finished::LeaseLost;
    }
    let skipped = fail.skipped();
    let settlement = job.failed(fail);
    let Some(mut held) = slot.take() else {
        return Finished::Settle { settlement, skipped };
    };
    point!("before-failure");
    match DB::back(env.rowlock.store(), &mut held).await {
        Ok(true) => close::<DB>(env, held, settlement, skipped, job, &mut Relay::none()).await,
        Ok(false) => {
            drop(held);
            settle(
                job.ending
                    .retired(format!("{COMMITTED}; then: {}", settlement.error.unwrap_or_default())),
            )
        }
        // The connection is gone or stuck; its transaction rolls back by itself.
        Err(_) => Finished::Settle { settlement, skipped },
    }
}

/// Whatever was under way on it, the connection of a handler that was cut off is not used again.
pub(crate) async fn cut_off<DB: Backend>(env: &Env<DB>, holder: i64, slot: Slot<DB>, job: &InHand) -> Finished {
    let committed = job.why() != Some(Cut::DeclaredDead) && ended_by_hand(env, holder).await;
    drop(slot.take());
    match committed {
        true => settle(job.ending.retired(format!("{COMMITTED}; then: it was stopped"))),
        false => Finished::Cut,
    }
}

/// Work that need not be done any more ends quietly, unless something of it has been done outside: that would be known to
/// nobody.
async fn not_quietly<DB: Backend>(env: &Env<DB>, fail: Fail, job: &InHand) -> Fail {
    let filter = EffectFilter::new().job(job.token.id);
    let limit = env.timing.lease;
    let made = match within(limit, env.rowlock.store().effects(&filter)).await {
        Ok(effects) => effects,
        Err(error) => return Fail::from(error),
    };
    let made = made.iter().filter(|effect| effect.state != EffectState::Undone);
    let made: Vec<String> = made
        .map(|effect| format!("effect {} {:?} {}", effect.no, effect.name, effect.state.as_str()))
        .collect();
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
    env: &Env<DB>,
    done: Done<DB>,
    job: &InHand,
    relay: &mut Relay<'_, DB>,
) -> std::result::Result<Finished, Fail> {
    if done.token != job.token {
        let problem = "the handler returned another job's transaction";
        return Ok(settle(job.ending.retired(problem.into())));
    }
    let settlement = job.ending.done(done.result, done.next);
    job.keep_hooks(done.hooks);
    match done.held {
        None => Ok(Finished::Settle {
            settlement,
            skipped: None,
        }),
        Some(handed) => match handed.arrive() {
            Some(held) => Ok(close::<DB>(env, held, settlement, None, job, relay).await),
            None => Err(Fail::retry("the handler's connection was lost")),
        },
    }
}

/// Whether user code had ended the transaction of a handler that was cut off. Where the database gives no answer at once
/// it likely has no more to say than that the lease is ending, and the attempt counts as failed.
pub(crate) async fn ended_by_hand<DB: Backend>(env: &Env<DB>, holder: i64) -> bool {
    let limit = Duration::from_secs(1).min(env.timing.lease / 10);
    holder != 0 && matches!(within(limit, env.rowlock.store().cut(holder)).await, Ok(true))
}

pub(crate) async fn within<T>(limit: Duration, work: impl Future<Output = Result<T>>) -> Result<T> {
    match tokio::time::timeout(limit, work).await {
        Ok(result) => result,
        Err(_) => Err(Error::Database {
            doing: "settle",
            source: sqlx::Error::PoolTimedOut,
        }),
    }
}

/// Runs user code that may panic.
fn guard<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| format!("decoding panicked: {}", panic_text(&*panic)))
}
