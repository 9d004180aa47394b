//! What the parts of a worker share: what is in hand, and the sessions under whose ids it is held.
//!
//! Shared between the runtime that runs handlers and the thread that watches over them, so everything here is quick and
//! never waits.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::breaker::Breakers;
use crate::{
    attempt::hand::{InHand, Session, lock},
    event::{Counters, Event, Listener, emit},
    fault::mutant,
    lease::{Token, WorkerId},
    pause::Known,
    retention::Retention,
    store::{Store, Timing},
};

/// Jobs whose after-commit hooks run at once. A hook is a hint: beyond this they are dropped, or a system outside that
/// answers slowly would fill the memory of a worker that does not.
pub(crate) const HOOKS_MAX: usize = 1000;

/// Ends that may wait to be written before claiming pauses.
const UNSETTLED_MAX: usize = 2000;

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
        emit(event, &self.counters, &self.listeners);
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
        lock(&self.hand).insert(job.token, job);
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
        let long = |job: &&Arc<InHand>| job.names.queue_no == queue_no && job.is_long(lease);
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
