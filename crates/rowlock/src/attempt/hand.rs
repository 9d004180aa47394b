//! What a worker holds: a claimed job or row, and the session under whose id it is held.
//!
//! Shared between the runtime that runs handlers and the thread that watches over them, so everything here is quick and
//! never waits.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use tokio_util::sync::CancellationToken;

use super::Bond;
use crate::{
    event::{Event, Skipped},
    fault::mutant,
    handle::{Fail, Hook},
    lease::{Claimed, Token, WorkerId},
    settle::Ending,
    state::Ended,
    store::Settlement,
    trace,
};

/// Why a handler was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It ran longer than its kind may; the watch has recorded the failure.
    TimeLimit,
    /// The lease could not be renewed in time, so the handler stops before another worker may start the job.
    LeaseEnding,
    /// The worker was declared dead, or the job was cancelled by hand: the job no longer belongs to the worker.
    DeclaredDead,
    /// A failover abandoned the server that holds its transaction.
    FailedOver,
    /// The worker stopped and the grace period is over.
    Stopped,
}

/// The time in which a claim is valid: of a worker's id with all its jobs, or of one row.
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) cut: CancellationToken,
    why: Mutex<Option<Cut>>,
    /// When the last answered renewal was sent; `None` in a test rig, where nothing is renewed.
    renewed: Mutex<Option<Instant>>,
}

impl Session {
    /// A session whose claim was sent at this time.
    pub(crate) fn new(worker: WorkerId, sent: Option<Instant>) -> Arc<Session> {
        Arc::new(Session {
            worker,
            cut: CancellationToken::new(),
            why: Mutex::new(None),
            renewed: Mutex::new(sent),
        })
    }

    /// Stops all handlers of the session. The first reason stays.
    pub(crate) fn stop(&self, why: Cut) {
        lock(&self.why).get_or_insert(why);
        self.cut.cancel();
    }

    /// A renewal that was sent at this time was answered.
    pub(crate) fn renew(&self, sent: Instant) {
        let mut renewed = lock(&self.renewed);
        *renewed = renewed.map(|before| before.max(sent));
    }

    pub(crate) fn renewed(&self) -> Option<Instant> {
        *lock(&self.renewed)
    }

    /// Whether the last renewal is at least this long ago.
    pub(crate) fn is_unrenewed_for(&self, time: Duration) -> bool {
        self.renewed().is_some_and(|renewed| renewed.elapsed() >= time)
    }

    /// Whether handlers must stop now: the lease may end before the next renewal is answered.
    pub(crate) fn is_ending(&self, lease: Duration) -> bool {
        self.is_unrenewed_for(cut_off(lease)) && !mutant!("failed beats ignored")
    }
}

/// How long after sending its last answered renewal a worker stops its handlers.
pub(crate) fn cut_off(lease: Duration) -> Duration {
    lease.saturating_sub(Duration::from_secs(1).max(lease / 10))
}

/// The names that spans and events give.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    pub(crate) queue: Arc<str>,
    pub(crate) queue_no: i64,
    pub(crate) worker: Arc<str>,
    pub(crate) kind: String,
}

/// One claimed job or row.
pub(crate) struct InHand {
    pub(crate) token: Token,
    pub(crate) names: Names,
    pub(crate) ending: Ending,
    pub(crate) limit: Duration,
    pub(crate) cut: CancellationToken,
    session: Arc<Session>,
    why: Mutex<Option<Cut>>,
    started: Mutex<Option<Instant>>,
    over: AtomicBool,
    /// Since when its handler holds a transaction.
    tx_since: Mutex<Option<Instant>>,
    /// The backend to end when it hangs; 0 while there is none.
    pub(crate) holder: Arc<AtomicI64>,
    /// The hooks to run once its commit is known to have happened.
    hooks: Mutex<Vec<Hook>>,
    /// Its commit was sent, and the result is not known yet.
    in_doubt: AtomicBool,
    pub(crate) bond: Bond,
    /// From when it was due to when it was claimed.
    pub(crate) waited: Duration,
    trace: Option<String>,
    /// The span of its handler's run.
    span: Mutex<Option<tracing::Span>>,
}

/// A claimed job or row, with the extra state of its kind of claim.
pub(crate) trait Held: Send + Sync + 'static {
    fn hand(&self) -> &InHand;
}

impl Held for InHand {
    fn hand(&self) -> &InHand {
        self
    }
}

impl InHand {
    /// A leased job.
    pub(crate) fn of_job(
        claimed: &Claimed,
        ending: Ending,
        limit: Duration,
        names: Names,
        session: Arc<Session>,
        bond: Bond,
    ) -> Arc<InHand> {
        let waited = claimed.claimed_at.duration_since(claimed.due_at);
        let hand = InHand::new(ending, limit, names, session, bond);
        Arc::new(InHand {
            waited: waited.try_into().unwrap_or_default(),
            trace: claimed.body.as_ref().and_then(|b| b.trace.clone()),
            ..hand
        })
    }

    pub(crate) fn new(ending: Ending, limit: Duration, names: Names, session: Arc<Session>, bond: Bond) -> InHand {
        InHand {
            token: ending.token,
            names,
            ending,
            limit,
            cut: session.cut.child_token(),
            session,
            why: Mutex::new(None),
            started: Mutex::new(None),
            over: AtomicBool::new(false),
            tx_since: Mutex::new(None),
            holder: Arc::default(),
            hooks: Mutex::default(),
            in_doubt: AtomicBool::new(false),
            bond,
            waited: Duration::ZERO,
            trace: None,
            span: Mutex::default(),
        }
    }

    /// Whether there may have been an attempt before this one.
    pub(super) fn is_repeated(&self) -> bool {
        self.ending.is_repeated()
    }

    /// What its handler's `Fail` becomes.
    pub(crate) fn failed(&self, fail: Fail) -> Settlement {
        self.bond.failed(&self.ending, fail)
    }

    /// Opens the span of its handler's run.
    pub(crate) fn show(&self) -> tracing::Span {
        let (names, attempt) = (&self.names, self.ending.attempt);
        let of = (&*names.queue, &*names.worker);
        let span = trace::attempt(of, self.token, &names.kind, attempt, self.trace.as_deref());
        *lock(&self.span) = Some(span.clone());
        span
    }

    /// The span, with how the handler ended; the span closes when it is dropped.
    pub(crate) fn shown(&self) -> Option<tracing::Span> {
        lock(&self.span).take()
    }

    /// Its end has committed like this.
    pub(crate) fn settled(&self, ended: Ended, skipped: Option<Skipped>, error: Option<String>) -> Event {
        let failed = matches!(ended, Ended::Retried | Ended::Retired);
        trace::ended(self.shown(), ended.as_str(), failed, error.as_deref());
        Event::Settled {
            id: self.token.id.into(),
            queue: self.names.queue.clone(),
            kind: self.names.kind.clone(),
            attempt: self.ending.attempt,
            epoch: self.token.epoch,
            ended,
            skipped,
            waited: self.waited,
            took: self.took(),
            error,
        }
    }

    /// Its claim was lost and the result dropped.
    pub(crate) fn lost(&self) -> Event {
        trace::ended(self.shown(), "lease lost", true, None);
        Event::LeaseLost {
            id: self.token.id.into(),
            queue: self.names.queue.clone(),
            kind: self.names.kind.clone(),
            attempt: self.ending.attempt,
            epoch: self.token.epoch,
        }
    }

    pub(crate) fn keep_hooks(&self, hooks: Vec<Hook>) {
        *lock(&self.hooks) = hooks;
    }

    pub(crate) fn take_hooks(&self) -> Vec<Hook> {
        std::mem::take(&mut lock(&self.hooks))
    }

    pub(crate) fn start(&self) {
        *lock(&self.started) = Some(Instant::now());
    }

    /// The user's code is over, and so is its time limit. Settling has separate limits, and another job may soon use
    /// the connection. `false` when the watch had condemned the attempt before.
    pub(crate) fn returned(&self) -> bool {
        let why = lock(&self.why);
        if *why == Some(Cut::TimeLimit) {
            return false;
        }
        self.over.store(true, Ordering::Relaxed);
        self.holder.store(0, Ordering::Relaxed);
        true
    }

    /// Runs once more in the same attempt, because the transaction that it shared did not commit.
    pub(crate) fn start_over(&self) {
        drop(self.take_hooks());
        trace::ended(self.shown(), "undone", false, None);
        self.bond.start_over();
        *lock(&self.tx_since) = None;
        *lock(&self.started) = None;
        self.over.store(false, Ordering::Relaxed);
    }

    pub(crate) fn doubt(&self, doubt: bool) {
        self.in_doubt.store(doubt, Ordering::Relaxed);
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::Relaxed)
    }

    /// Whether its handler has run for this long.
    pub(crate) fn is_long(&self, lease: Duration) -> bool {
        lock(&self.started).is_some_and(|at| at.elapsed() >= lease)
    }

    pub(crate) fn took(&self) -> Duration {
        lock(&self.started).map(|at| at.elapsed()).unwrap_or_default()
    }

    pub(crate) fn has_started(&self) -> bool {
        lock(&self.started).is_some()
    }

    /// Its time is over: the handler's result is dropped, and the watch records how it ended. Its connection stays
    /// untouched until the watch has checked it. `false` when the handler has returned already.
    pub(crate) fn condemn(&self) -> bool {
        let mut why = lock(&self.why);
        if self.over.load(Ordering::Relaxed) {
            return false;
        }
        *why = Some(Cut::TimeLimit);
        true
    }

    /// Whether its handler has returned.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// The session that it is held under.
    pub(crate) fn session(&self) -> &Arc<Session> {
        &self.session
    }

    /// Stops this handler alone.
    pub(crate) fn stop(&self, why: Cut) {
        lock(&self.why).get_or_insert(why);
        self.cut.cancel();
    }

    pub(crate) fn why(&self) -> Option<Cut> {
        (*lock(&self.why)).or(*lock(&self.session.why))
    }

    /// Whether its handler has run, or has held a transaction, for longer than it may. `Some` names which.
    pub(crate) fn overdue(&self, now: Instant, tx_cap: Option<Duration>) -> Option<String> {
        // The session's reason does not count: a handler that blocks its thread outlives the session it was cut off
        // with.
        if lock(&self.why).is_some() || self.over.load(Ordering::Relaxed) {
            return None;
        }
        let past = |at: Option<Instant>, limit: Duration| at.is_some_and(|at| now.duration_since(at) > limit);
        if past(*lock(&self.started), self.limit) {
            return Some(format!("handler ran longer than its time limit of {:?}", self.limit));
        }
        let cap = tx_cap?;
        let holding = self.holder.load(Ordering::Relaxed) != 0;
        let mut since = lock(&self.tx_since);
        if holding && since.is_none() {
            *since = Some(now);
        }
        past(*since, cap)
            .then(|| format!("handler held its transaction longer than {cap:?}, which blocks every other writer"))
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
