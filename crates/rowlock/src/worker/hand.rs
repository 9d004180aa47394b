//! What is in this worker's hands, and the session under whose id it holds it.
//!
//! Shared between the runtime that runs handlers and the thread that watches over them, so everything here is quick and
//! never waits.

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    breaker::{Bond, Breakers},
    turnover::Turnover,
};
use crate::{
    event::{Counters, Event, Listener},
    fault::mutant,
    handle::{Fail, Hook},
    lease::{Claimed, Token, WorkerId},
    pause::Known,
    retention::Retention,
    settle::Ending,
    store::{Settlement, Store, Timing},
    trace,
};

/// Jobs whose after-commit hooks run at once. A hook is a hint: beyond this they are dropped, or a system outside that
/// answers slowly would fill the memory of a worker that does not.
pub(crate) const HOOKS_MAX: usize = 1000;

/// Ends that may wait to be written before claiming pauses.
const UNSETTLED_MAX: usize = 2000;

/// Why a handler was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It ran longer than its kind may; the watch has recorded the failure.
    TimeLimit,
    /// The lease could not be renewed in time, so it stops before anyone else may start.
    LeaseEnding,
    /// The worker was declared dead, or the job was cancelled by hand: it is not its any more.
    DeclaredDead,
    /// The server that it has its transaction on was left in a failover.
    FailedOver,
    /// The worker stopped and the grace period is over.
    Stopped,
}

/// The time in which a worker's id is good.
pub(crate) struct Session {
    pub(crate) worker: WorkerId,
    pub(crate) cut: CancellationToken,
    why: Mutex<Option<Cut>>,
}

impl Session {
    pub(crate) fn new(worker: WorkerId) -> Arc<Session> {
        Arc::new(Session {
            worker,
            cut: CancellationToken::new(),
            why: Mutex::new(None),
        })
    }

    /// Ends it, with all its handlers. The first reason stays.
    pub(crate) fn end(&self, why: Cut) {
        lock(&self.why).get_or_insert(why);
        self.cut.cancel();
    }
}

/// One claimed job.
pub(crate) struct InHand {
    pub(crate) token: Token,
    pub(crate) kind: String,
    pub(crate) queue: Arc<Turnover>,
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
    /// What its handler wants run once its commit is known to have happened.
    hooks: Mutex<Vec<Hook>>,
    /// Its commit was sent, and nobody knows yet what became of it.
    in_doubt: AtomicBool,
    pub(crate) bond: Bond,
    /// From when it was due to when it was claimed.
    pub(crate) waited: Duration,
    trace: Option<String>,
    /// What shows its handler's run.
    span: Mutex<Option<tracing::Span>>,
}

impl InHand {
    pub(crate) fn new(
        claimed: &Claimed,
        ending: Ending,
        limit: Duration,
        queue: Arc<Turnover>,
        session: Arc<Session>,
        bond: Bond,
    ) -> Arc<InHand> {
        Arc::new(InHand {
            token: claimed.token,
            kind: claimed.body.as_ref().map(|b| b.kind.clone()).unwrap_or_default(),
            queue,
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
            waited: claimed
                .claimed_at
                .duration_since(claimed.due_at)
                .try_into()
                .unwrap_or_default(),
            trace: claimed.body.as_ref().and_then(|b| b.trace.clone()),
            span: Mutex::default(),
        })
    }

    /// What its handler's `Fail` becomes.
    pub(crate) fn failed(&self, fail: Fail) -> Settlement {
        self.bond.failed(&self.ending, fail)
    }

    /// Shows its handler's run from here on.
    pub(crate) fn show(&self) -> tracing::Span {
        let names = (&*self.queue.queue, &*self.queue.worker);
        let span = trace::attempt(
            names,
            self.token,
            &self.kind,
            self.ending.attempt,
            self.trace.as_deref(),
        );
        *lock(&self.span) = Some(span.clone());
        span
    }

    /// The span with how it ended; it is over once that is dropped.
    pub(crate) fn shown(&self) -> Option<tracing::Span> {
        lock(&self.span).take()
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

    /// The user's code is over, so that its time limit is too; settling has limits of its own, and the connection may
    /// soon be another job's. `false` when the watch had condemned it before.
    pub(crate) fn returned(&self) -> bool {
        let why = lock(&self.why);
        if *why == Some(Cut::TimeLimit) {
            return false;
        }
        self.over.store(true, Ordering::Relaxed);
        self.holder.store(0, Ordering::Relaxed);
        true
    }

    /// It is to run once more in the same attempt, because the transaction that it shared did not commit.
    pub(crate) fn again(&self) {
        drop(self.take_hooks());
        trace::ended(self.shown(), "undone", false, None);
        self.bond.again();
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

    fn is_long(&self, lease: Duration) -> bool {
        lock(&self.started).is_some_and(|at| at.elapsed() >= lease)
    }

    pub(crate) fn took(&self) -> Duration {
        lock(&self.started).map(|at| at.elapsed()).unwrap_or_default()
    }

    pub(crate) fn has_started(&self) -> bool {
        lock(&self.started).is_some()
    }

    /// Its time is over: whatever its handler still returns is dropped, and the watch records how it ended. Its
    /// connection is left alone until the watch has looked at it. `false` when the handler has returned already.
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

    /// Cuts this job alone.
    pub(crate) fn end(&self, why: Cut) {
        lock(&self.why).get_or_insert(why);
        self.cut.cancel();
    }

    pub(crate) fn why(&self) -> Option<Cut> {
        (*lock(&self.why)).or(*lock(&self.session.why))
    }

    /// Whether its handler has run, or has held a transaction, for longer than it may. `Some` names which.
    pub(crate) fn overdue(&self, now: Instant, tx_cap: Option<Duration>) -> Option<String> {
        // The session's reason does not count: a handler that blocks its thread outlives the session it was cut off with.
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

/// What the parts of one worker share.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) timing: Timing,
    pub(crate) name: String,
    pub(crate) tx_cap: Option<Duration>,
    pub(crate) retention: Retention,
    pub(crate) stopping: CancellationToken,
    /// The worker is over; nobody waits for anything any more.
    pub(crate) gone: CancellationToken,
    pub(crate) counters: Arc<Counters>,
    pub(crate) listeners: Vec<Listener>,
    /// A place became free.
    pub(crate) freed: Notify,
    /// The claimer was told that this worker is dead, or that the database has failed over.
    pub(crate) beat_now: Notify,
    /// A new session began.
    pub(crate) renewed: Notify,
    /// After-commit hooks under way.
    pub(crate) hooks: TaskTracker,
    /// For how many more jobs they may be.
    pub(crate) hooks_left: Arc<Semaphore>,
    /// What people have stopped.
    pub(crate) pauses: Known,
    /// What its kinds are bound to.
    pub(crate) breakers: Breakers,
    /// For what outlives the call that starts it.
    pub(crate) me: Weak<Shared>,
    session: Mutex<Arc<Session>>,
    /// Those from before a failover whose jobs may still be in hand.
    earlier: Mutex<Vec<Arc<Session>>>,
    acked: Mutex<Instant>,
    hand: Mutex<HashMap<Token, Arc<InHand>>>,
    /// Ends that wait to be written.
    unsettled: AtomicUsize,
}

impl Shared {
    #[allow(clippy::too_many_arguments, reason = "built once, by the worker alone")]
    pub(crate) fn new(
        store: Arc<dyn Store>,
        timing: Timing,
        name: String,
        tx_cap: Option<Duration>,
        retention: Retention,
        counters: Arc<Counters>,
        listeners: Vec<Listener>,
        worker: WorkerId,
        pauses: Known,
        breakers: Breakers,
    ) -> Arc<Shared> {
        Arc::new_cyclic(|me| Shared {
            store,
            timing,
            name,
            tx_cap,
            retention,
            stopping: CancellationToken::new(),
            gone: CancellationToken::new(),
            counters,
            listeners,
            freed: Notify::new(),
            beat_now: Notify::new(),
            renewed: Notify::new(),
            hooks: TaskTracker::new(),
            hooks_left: Arc::new(Semaphore::new(HOOKS_MAX)),
            pauses,
            breakers,
            me: me.clone(),
            session: Mutex::new(Session::new(worker)),
            earlier: Mutex::default(),
            acked: Mutex::new(Instant::now()),
            hand: Mutex::default(),
            unsettled: AtomicUsize::new(0),
        })
    }

    pub(crate) fn emit(&self, event: Event) {
        self.counters.add(&event);
        event.log();
        for listener in &self.listeners {
            if catch_unwind(AssertUnwindSafe(|| listener(&event))).is_err() {
                tracing::error!(?event, "an event listener panicked; the worker continues");
            }
        }
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        lock(&self.session).clone()
    }

    /// Goes on under this id with a clean slate.
    pub(crate) fn renew(&self, worker: WorkerId) {
        *lock(&self.session) = Session::new(worker);
        self.renewed.notify_waiters();
    }

    /// Claims under this id from now on. What is in hand under the one before stays good while that is renewed.
    pub(crate) fn succeed(&self, worker: WorkerId) {
        let before = std::mem::replace(&mut *lock(&self.session), Session::new(worker));
        lock(&self.earlier).push(before);
        self.renewed.notify_waiters();
    }

    /// Those from before a failover.
    pub(crate) fn earlier(&self) -> Vec<Arc<Session>> {
        lock(&self.earlier).clone()
    }

    /// One of them is over.
    pub(crate) fn drop_earlier(&self, worker: WorkerId) {
        lock(&self.earlier).retain(|session| session.worker != worker);
    }

    /// Every session that may have jobs in hand.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        let mut sessions = self.earlier();
        sessions.push(self.session());
        sessions
    }

    /// The last acknowledged beat was sent then.
    pub(crate) fn acked(&self, sent: Instant) {
        *lock(&self.acked) = sent;
    }

    /// Whether handlers must stop now: the lease may end before the next beat is heard.
    pub(crate) fn lease_ending(&self, now: Instant) -> bool {
        now.duration_since(*lock(&self.acked)) >= cut_off(self.timing.lease) && !mutant!("failed beats ignored")
    }

    pub(crate) fn take(&self, job: Arc<InHand>) {
        job.queue.took_one();
        lock(&self.hand).insert(job.token, job);
    }

    /// Its body is over, whether or not its end is written yet, so that its slot is another's.
    pub(crate) fn body_over(&self, job: &InHand) {
        job.queue.let_one_go();
        self.freed.notify_one();
    }

    pub(crate) fn drop_job(&self, token: Token) {
        lock(&self.hand).remove(&token);
        self.freed.notify_one();
    }

    /// So many ends more wait to be written, or fewer.
    pub(crate) fn settling(&self, jobs: usize) {
        self.unsettled.fetch_add(jobs, Ordering::Relaxed);
    }

    pub(crate) fn settled(&self, jobs: usize) {
        self.unsettled.fetch_sub(jobs, Ordering::Relaxed);
    }

    /// Whether ends come faster than they can be written: then nothing more is claimed for a while.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsettled.load(Ordering::Relaxed) >= UNSETTLED_MAX
    }

    pub(crate) fn holds(&self, token: Token) -> bool {
        lock(&self.hand).contains_key(&token)
    }

    pub(crate) fn in_hand(&self) -> Vec<Arc<InHand>> {
        lock(&self.hand).values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        lock(&self.hand).len()
    }

    /// Jobs that a job which must run alone should wait for: those not started yet or not long at it.
    pub(crate) fn in_the_way(&self) -> usize {
        let lease = self.timing.lease;
        lock(&self.hand).values().filter(|job| !job.is_long(lease)).count()
    }

    /// Jobs of this queue that are long at it.
    pub(crate) fn long_at_it(&self, queue_no: i64) -> usize {
        let lease = self.timing.lease;
        let long = |job: &&Arc<InHand>| job.queue.queue_no == queue_no && job.is_long(lease);
        lock(&self.hand).values().filter(long).count()
    }

    /// How long a claimed job may wait for a slot here, while another worker may have one.
    pub(crate) fn line_limit(&self) -> Duration {
        self.timing.lease / 3
    }
}

/// How long after sending its last acknowledged beat a worker stops its handlers.
pub(crate) fn cut_off(lease: Duration) -> Duration {
    lease.saturating_sub(Duration::from_secs(1).max(lease / 10))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
