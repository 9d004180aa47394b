//! External calls of staged handlers: the intent is committed before the call, the reply after it, and a later attempt
//! gets the stored reply without a call.
//!
//! A call that ends without a reply (an error, a time-out, a panic, a crash, a lost lease) leaves a doubt, unless the
//! error says that the effect did not happen. Each effect sets what to do about a doubt. The key that the external
//! system gets is the same on every attempt, by construction.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    time::Duration,
};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use uuid::Uuid;

use super::{Fail, journal::Effects};
use crate::{
    effect::{Begun, CallEnd, EffectState, Intent, Known, Noted, OnUnknown, Policy, Verdict},
    error::Result,
    fault::{mutant, point},
    key::Fingerprint,
};

/// The latest deadline: every database must be able to store the time.
const LIMIT_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// How often an effect that changes concurrently is read again.
const LOOKS_MAX: usize = 5;

/// The name of one effect of one job for the external system; pass it on as the idempotency key.
///
/// The key derives from what was fixed when the job was enqueued and from the effect's name, and from nothing else: not
/// from the attempt, the epoch, the time or a number that a failover could reissue.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EffectKey(String);

impl EffectKey {
    pub(crate) fn new(uid: Uuid, name: &str) -> EffectKey {
        EffectKey(format!("{uid}:{name}"))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EffectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<EffectKey> for String {
    fn from(key: EffectKey) -> String {
        key.0
    }
}

type Calling<'a, T> = Pin<Box<dyn Future<Output = std::result::Result<T, Fail>> + Send + 'a>>;
type Call<'a, T> = Box<dyn FnOnce(EffectKey) -> Calling<'a, T> + Send + 'a>;

/// An external call that is being configured; await it. See [`Staged::effect`](crate::Staged::effect).
///
/// ```
/// use std::time::Duration;
/// use rowlock::{Job, NotDone, Verdict, staged, sqlite::{Outcome, Staged, TestRig}};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Job)]
/// struct PayOut { cents: i64 }
///
/// async fn pay_out(cx: Staged, job: PayOut) -> Outcome {
///     let attempt = cx.attempt();
///     let transfer: String = cx
///         .effect("transfer", |_key| async move {
///             match attempt {
///                 1 => Err(NotDone::because("connection refused").into()), // it never left: called again
///                 _ => Err::<String, anyhow::Error>(anyhow::anyhow!("no answer")), // nobody knows
///             }
///         })
///         .request(&job.cents)
///         .timeout(Duration::from_secs(10))
///         .ask(|_key| async { Ok::<_, std::io::Error>(Verdict::Happened("transfer 1".to_owned())) })
///         .await?;
///     cx.done().result(&transfer).ok()
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # tokio::runtime::Runtime::new()?.block_on(async {
/// let rig = TestRig::sqlite().await?.handle(staged(pay_out));
/// rig.enqueue(PayOut { cents: 800 }).await?;
/// for _ in 0..2 {
///     rig.run_once().await?.expect(rowlock::Ended::Retried);
///     rig.advance(Duration::from_secs(10));
/// }
/// let ran = rig.run_once().await?.expect_done();
/// assert_eq!(ran.job.and_then(|job| job.result), Some("transfer 1".into()));
/// # rig.close().await?; Ok(()) })
/// # }
/// ```
#[must_use = "an effect does nothing until it is awaited"]
pub struct Effect<'a, T> {
    effects: &'a Effects,
    name: String,
    call: Call<'a, T>,
    ask: Option<Call<'a, Verdict<T>>>,
    policy: Policy,
    fingerprint: Result<Option<Fingerprint>>,
    limit: Option<Duration>,
}

crate::debug::debug_fields!([T] Effect<'_, T>, "Effect", name, policy, limit);

fn boxed<'a, T, F, Fut, E>(f: F) -> Call<'a, T>
where
    F: FnOnce(EffectKey) -> Fut + Send + 'a,
    Fut: Future<Output = std::result::Result<T, E>> + Send + 'a,
    T: 'a,
    E: Into<Fail> + 'a,
{
    Box::new(|key| {
        let called = f(key);
        Box::pin(async { called.await.map_err(Into::into) })
    })
}

impl<'a, T> Effect<'a, T> {
    pub(crate) fn new<F, Fut, E>(effects: &'a Effects, name: &str, f: F) -> Effect<'a, T>
    where
        F: FnOnce(EffectKey) -> Fut + Send + 'a,
        Fut: Future<Output = std::result::Result<T, E>> + Send + 'a,
        T: 'a,
        E: Into<Fail> + 'a,
    {
        Effect {
            effects,
            name: name.to_owned(),
            call: boxed(f),
            ask: None,
            policy: Policy::Retry,
            fingerprint: Ok(None),
            limit: None,
        }
    }

    /// What to do when it is unknown whether the effect happened.
    pub fn on_unknown(mut self, on_unknown: OnUnknown) -> Self {
        self.policy = on_unknown.into();
        self
    }

    /// Never calls again while it is unknown whether the effect happened: the job becomes a case that shows the open
    /// intent, and a person resolves it. For external systems that do not honour keys.
    pub fn park(self) -> Self {
        self.on_unknown(OnUnknown::Park)
    }

    /// Asks the external system whether the effect happened, before a later attempt acts on a doubt. The reconciler's
    /// verdict is final; while the reconciler does not know, attempts fail and later ones ask again.
    pub fn ask<F, Fut, E>(mut self, reconciler: F) -> Self
    where
        F: FnOnce(EffectKey) -> Fut + Send + 'a,
        Fut: Future<Output = std::result::Result<Verdict<T>, E>> + Send + 'a,
        T: 'a,
        E: Into<Fail> + 'a,
    {
        self.policy = Policy::Ask;
        self.ask = Some(boxed(reconciler));
        self
    }

    /// The request to the external system. An attempt with another request under the same name becomes a case, instead
    /// of getting the reply to a different request.
    pub fn request<Q: Serialize + ?Sized>(mut self, request: &Q) -> Self {
        self.fingerprint = Fingerprint::of(&self.name, request).map(Some);
        self
    }

    /// How long the call may take; after that the call is dropped and its effect is in doubt. Without a timeout, the
    /// handler's time limit ends the call and the attempt.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit = Some(timeout);
        self
    }
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> IntoFuture for Effect<'a, T> {
    type Output = std::result::Result<T, Fail>;
    type IntoFuture = Pin<Box<dyn Future<Output = std::result::Result<T, Fail>> + Send + 'a>>;

    fn into_future(mut self) -> Self::IntoFuture {
        Box::pin(async move {
            let mut intent = self.intent()?;
            point!("before-effect");
            let open = match self.begin(&mut intent).await? {
                Start::Reply(reply) => return Ok(reply),
                Start::Call(open) => open,
            };
            point!("after-intent");
            if let Some(fail) = stood_still(self.effects, &intent).await {
                return Err(fail);
            }
            let answered = limited(self.limit, &intent.name, (self.call)(intent.effect_key())).await;
            point!("before-reply");
            match answered {
                Ok(reply) => happened(self.effects, &intent, open, reply).await,
                Err(fail) => Err(failed(self.effects, &intent, open, fail).await),
            }
        })
    }
}

/// An effect whose call has no end yet.
#[derive(Clone, Copy)]
struct Open {
    no: i64,
    since: Timestamp,
}

enum Start<T> {
    Call(Open),
    Reply(T),
}

impl<T: Serialize + DeserializeOwned> Effect<'_, T> {
    fn key(&self) -> EffectKey {
        let attempt = &self.effects.attempt;
        if mutant!("attempt in the effect key") {
            return EffectKey(format!("{}:{}:{}", attempt.uid, self.name, attempt.attempt));
        }
        EffectKey::new(attempt.uid, &self.name)
    }

    /// Refuses what would be wrong on every attempt.
    fn intent(&mut self) -> std::result::Result<Intent, Fail> {
        self.effects.claim_name(&self.name)?;
        let fingerprint = std::mem::replace(&mut self.fingerprint, Ok(None));
        Ok(Intent {
            token: self.effects.attempt.token,
            name: self.name.clone(),
            key: self.key().into(),
            policy: self.policy,
            fingerprint: fingerprint.map_err(|error| Fail::retire(format!("effect {:?}: {error}", self.name)))?,
            limit: self.limit.unwrap_or(self.effects.time_limit).min(LIMIT_MAX),
            again: self.policy == Policy::Retry,
        })
    }

    /// Commits the intent, or finds out why there is nothing to call.
    async fn begin(&mut self, intent: &mut Intent) -> std::result::Result<Start<T>, Fail> {
        for _ in 0..LOOKS_MAX {
            let known = match self.effects.begin_call(intent.clone()).await? {
                Begun::LeaseLost => return Err(Fail::lease_lost()),
                Begun::Go { no, since, doubted } => {
                    if doubted {
                        self.effects.tell_doubt(no, &intent.name);
                    }
                    return Ok(Start::Call(Open { no, since }));
                }
                Begun::Known(known) => known,
            };
            let open = Open {
                no: known.no,
                since: known.since,
            };
            let step = step(&known, intent);
            if matches!(step, Step::Park | Step::Ask) && known.state == "open" {
                self.effects.tell_doubt(known.no, &intent.name);
            }
            match step {
                Step::LookAgain => {}
                Step::Replay => return replay(self.effects, &intent.name, &known).map(Start::Reply),
                Step::Conflict => return Err(conflict(&known, intent)),
                Step::Park => {
                    let why = known.error.as_deref();
                    let why = why.unwrap_or("the attempt that made the call ended without a reply");
                    return Err(self.effects.parked(intent, open, why));
                }
                Step::Ask => match self.verdict(intent, open).await? {
                    Some(reply) => {
                        let reply = happened(self.effects, intent, open, reply).await?;
                        return Ok(Start::Reply(reply));
                    }
                    None => intent.again = true,
                },
            }
        }
        Err(Fail::retry(format!("effect {:?} keeps changing", intent.name)))
    }

    /// Asks the reconciler; `None` when the effect did not happen.
    async fn verdict(&mut self, intent: &Intent, open: Open) -> std::result::Result<Option<T>, Fail> {
        let Some(ask) = self.ask.take() else {
            return Err(Fail::retire(format!(
                "effect {:?} has no reconciler; report this as a bug",
                intent.name
            )));
        };
        match limited(self.limit, &intent.name, ask(intent.effect_key())).await? {
            Verdict::Happened(reply) => Ok(Some(reply)),
            Verdict::NotHappened => Ok(None),
            Verdict::Unknown => {
                let why = "the reconciler does not know whether the call happened";
                Err(Fail::retry(self.effects.doubt(intent, open, why)))
            }
        }
    }
}

impl Effects {
    fn doubt(&self, intent: &Intent, open: Open, why: &str) -> String {
        self.journal.doubt(intent, open.no, open.since, why)
    }

    /// The failure of an attempt whose effect must not be called again before a person has decided.
    fn parked(&self, intent: &Intent, open: Open, why: &str) -> Fail {
        self.journal.parked(intent);
        Fail::retire(self.doubt(intent, open, why))
    }
}

impl Intent {
    fn effect_key(&self) -> EffectKey {
        EffectKey(self.key.clone())
    }

    fn call_end(&self, state: EffectState, reply: Option<String>, error: Option<String>) -> CallEnd {
        CallEnd {
            token: self.token,
            name: self.name.clone(),
            state,
            reply,
            error,
        }
    }
}

/// What to do about an effect that is already known.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Replay,
    Conflict,
    Park,
    Ask,
    /// The effect changed between two reads.
    LookAgain,
}

fn step(known: &Known, intent: &Intent) -> Step {
    let other = |held: Fingerprint| intent.fingerprint.is_some_and(|given| given != held);
    match known.state.as_str() {
        "undone" => Step::LookAgain,
        _ if known.fingerprint.is_some_and(other) => Step::Conflict,
        "replied" => Step::Replay,
        _ if intent.again => Step::LookAgain,
        _ if intent.policy == Policy::Ask => Step::Ask,
        _ => Step::Park,
    }
}

async fn limited<R>(limit: Option<Duration>, name: &str, calling: Calling<'_, R>) -> std::result::Result<R, Fail> {
    let Some(limit) = limit else {
        return calling.await;
    };
    let answered = tokio::time::timeout(limit, calling).await;
    answered.unwrap_or_else(|_| Err(Fail::retry(format!("effect {name:?} got no reply within {limit:?}"))))
}

fn replay<T: DeserializeOwned>(effects: &Effects, name: &str, known: &Known) -> std::result::Result<T, Fail> {
    let reply = serde_json::from_str(known.reply.as_deref().unwrap_or("null")).map_err(|error| {
        Fail::retire(format!(
            "the stored reply of effect {} cannot be read: {error}; deploy code that can read it, then reopen the case",
            shown(known.no, name)
        ))
    })?;
    effects.tell_replay(known.no, name);
    Ok(reply)
}

/// Stores the reply. A reply that has arrived is stored even when no caller waits for it any more.
async fn happened<T: Serialize + DeserializeOwned>(
    effects: &Effects,
    intent: &Intent,
    open: Open,
    reply: T,
) -> std::result::Result<T, Fail> {
    let json = match effects.written(&reply) {
        Ok(json) => json,
        Err(problem) => {
            let why = format!("the call returned, but its reply cannot be stored: {problem}");
            let fail = Fail::retire(effects.doubt(intent, open, &why));
            return Err(uncertain(effects, intent, open, why, fail).await);
        }
    };
    match effects
        .end_call(intent.call_end(EffectState::Replied, Some(json), None))
        .await?
    {
        Noted::Yes => {
            point!("after-reply");
            Ok(reply)
        }
        Noted::LeaseLost => Err(Fail::lease_lost()),
        // A person was faster than the reconciler.
        Noted::Otherwise(known) if known.state == "replied" => replay(effects, &intent.name, &known),
        Noted::Otherwise(known) => Err(Fail::retry(format!(
            "effect {} was resolved as {} in the meantime",
            shown(known.no, &intent.name),
            known.state
        ))),
    }
}

/// Records that the call failed; returns what the attempt fails with.
async fn failed(effects: &Effects, intent: &Intent, open: Open, fail: Fail) -> Fail {
    if fail.not_done {
        let end = intent.call_end(EffectState::Undone, None, Some(fail.text.clone()));
        return effects.recorded(end, fail).await;
    }
    let why = fail.text.clone();
    let fail = match intent.policy {
        Policy::Park => Fail {
            dependency: fail.dependency,
            ..effects.parked(intent, open, &why)
        },
        Policy::Retry | Policy::Ask => fail,
    };
    uncertain(effects, intent, open, why, fail).await
}

async fn uncertain(effects: &Effects, intent: &Intent, open: Open, why: String, fail: Fail) -> Fail {
    if effects.journal.keeps_failures() || intent.policy == Policy::Park {
        effects.tell_doubt(open.no, &intent.name);
    }
    let end = intent.call_end(EffectState::Uncertain, None, Some(super::clean(why)));
    effects.recorded(end, fail).await
}

/// A process that was frozen between its intent and its call may resume when its lease is over and its doubt is already
/// resolved. So the call is made only while the lease is surely held.
async fn stood_still(effects: &Effects, intent: &Intent) -> Option<Fail> {
    if (effects.held)() {
        return None;
    }
    let why = format!(
        "effect {:?} was not called: the worker was frozen before the call",
        intent.name
    );
    let end = intent.call_end(EffectState::Undone, None, Some(why.clone()));
    Some(effects.recorded(end, Fail::retry(why)).await)
}

fn conflict(known: &Known, intent: &Intent) -> Fail {
    let print = |print: Option<Fingerprint>| print.map(|p| p.to_string()).unwrap_or_default();
    Fail::retire(format!(
        "effect {} was begun with a different request (stored: {}; given: {}); the request of an effect must not \
         change between attempts",
        shown(known.no, &intent.name),
        print(known.fingerprint),
        print(intent.fingerprint)
    ))
}

/// How error messages name an effect. The effects of a row have no number.
fn shown(no: i64, name: &str) -> String {
    match no {
        0 => format!("{name:?}"),
        no => format!("{no} {name:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_depends_on_the_job_and_the_name_alone() {
        let (a, b) = (Uuid::now_v7(), Uuid::now_v7());
        assert_eq!(EffectKey::new(a, "charge"), EffectKey::new(a, "charge"));
        assert_ne!(EffectKey::new(a, "charge"), EffectKey::new(b, "charge"));
        assert_ne!(EffectKey::new(a, "charge"), EffectKey::new(a, "refund"));
    }
}
