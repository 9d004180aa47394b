//! An attempt at a leased job: what is decoded, where its end is written, where it is looked up.

use std::sync::Arc;

use crate::{
    attempt::{
        self, Body, Claim, Decoding, Env, Finished, Next,
        hand::{Cut, InHand},
        settle,
    },
    effect::{EffectFilter, EffectState},
    error::Result,
    fault::point,
    handle::{
        Attempt, DroppedTx, Fail, Tx,
        atomic::{Decoded, Handler, HandlerFuture, Shape},
    },
    lease::Claimed,
    root::Backend,
    store::{Inspect, Open, Opening, Resolved, SettledIn, Settlement, Store, journal::EffectQuery},
};

/// A job under its lease.
pub(crate) struct Leased<'a, DB: Backend> {
    pub(crate) env: &'a Env<DB>,
    pub(crate) job: &'a InHand,
}

impl<DB: Backend> Claim<DB> for Leased<'_, DB> {
    fn env(&self) -> &Env<DB> {
        self.env
    }

    fn hand(&self) -> &InHand {
        self.job
    }

    async fn settle_in(&self, held: &mut DB::Held, settlement: &Settlement) -> Result<SettledIn> {
        DB::settle_in(self.env.rowlock.store(), held, settlement).await
    }

    async fn resolve(&self, _: &Settlement) -> Result<Resolved> {
        self.env.rowlock.store().resolve(self.job.token).await
    }

    /// The outcome log keeps the answer, so the question stays open only if the worker stops.
    fn gives_up(&self) -> bool {
        self.job.why() == Some(Cut::Stopped)
    }

    async fn calls(&self) -> Result<Vec<String>> {
        let filter = EffectFilter {
            job: Some(self.job.token.id.into()),
            ..EffectFilter::default()
        };
        let effects = self.env.rowlock.store().effects(EffectQuery::Filter(&filter)).await?;
        let made = effects.iter().filter(|effect| effect.state != EffectState::Undone);
        let words = made.map(|effect| format!("effect {} {:?} {}", effect.no, effect.name, effect.state.as_str()));
        Ok(words.collect())
    }
}

/// Runs one attempt of a job.
pub(crate) async fn run<DB: Backend>(
    env: &Env<DB>,
    handler: &Handler<DB>,
    claimed: &Claimed,
    attempt: Attempt,
    job: &InHand,
    next: &mut impl Next<DB>,
) -> Finished {
    let claim = Leased { env, job };
    match decoded(env, handler, claimed, attempt.clone(), job) {
        Ok(Decoding::Atomic(decoded)) => attempt::atomic(&claim, decoded, handler.level, attempt, next).await,
        Ok(Decoding::Staged(ready)) => attempt::staged(&claim, ready, handler.level).await,
        Err(finished) => *finished,
    }
}

/// The job's body, if there is one to run; otherwise how the job ends.
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
        // Two names have the same first eight bytes of their hash: report this instead of running the wrong code.
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

/// A handler with its job decoded, or how the job ends without it.
fn decoded<DB: Backend>(
    env: &Env<DB>,
    handler: &Handler<DB>,
    claimed: &Claimed,
    attempt: Attempt,
    job: &InHand,
) -> std::result::Result<Decoding<DB>, Box<Finished>> {
    let body = runnable(handler, claimed, job)?;
    let decoded = attempt::decoding(|| match &handler.shape {
        Shape::Atomic(decode) => decode(body, attempt, &env.rowlock).map(Decoding::Atomic),
        Shape::Staged(decode) => decode(body, attempt, &env.rowlock).map(Decoding::Staged),
    });
    decoded.map_err(|problem| Box::new(settle(job.ending.retired(problem))))
}

/// The same, for a handler that takes a transaction.
pub(crate) fn decoded_atomic<DB: Backend>(
    env: &Env<DB>,
    handler: &Handler<DB>,
    claimed: &Claimed,
    attempt: Attempt,
    job: &InHand,
) -> std::result::Result<Decoded<DB>, Box<Finished>> {
    match decoded(env, handler, claimed, attempt, job)? {
        Decoding::Atomic(decoded) => Ok(decoded),
        Decoding::Staged(_) => {
            let problem = "a staged handler has no transaction to run in";
            Err(Box::new(settle(job.ending.retired(problem.into()))))
        }
    }
}

/// Runs the user's code and drops its result, as a crash right before the commit would. Its external calls have
/// happened; nothing else of it is in the database. `Err` is how the handler itself failed.
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
    let dropped = DroppedTx::new();
    let running: HandlerFuture<DB> = match &handler.shape {
        Shape::Atomic(decode) => {
            let decoded = decode(body, attempt.clone(), &env.rowlock).map_err(Fail::retire)?;
            let opening = Opening {
                token: job.token,
                timing: env.timing,
                level: handler.level,
            };
            let held = DB::begin(env.rowlock.store(), Open::Handler(opening)).await?;
            let tx = Tx::new(held, dropped.clone(), attempt, env.rowlock.clone());
            Box::pin(async move { decoded(tx).await })
        }
        Shape::Staged(decode) => {
            let ready = decode(body, attempt, &env.rowlock).map_err(Fail::retire)?;
            let outside = attempt::outside(&Leased { env, job }, dropped.clone(), Arc::default(), handler.level);
            Box::pin(async move { ready(outside).await })
        }
    };
    let result = match attempt::guarded(running, job).await {
        Body::Returned(outcome) => outcome.map(drop),
        Body::Panicked(text) => Err(Fail::retry(format!("handler panicked: {text}"))),
        Body::Cut => Err(Fail::retry("cut off")),
    };
    drop(dropped.take());
    result
}
