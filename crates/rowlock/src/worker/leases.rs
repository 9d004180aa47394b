//! Jobs under the lease of a worker's id: its sessions, and where the ends of jobs are written.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Instant,
};

use tokio::sync::{Notify, mpsc::UnboundedSender};

use super::{
    breaker::BreakerNews,
    shared::{Claims, Shared},
    watch,
};
use crate::{
    attempt::hand::{Cut, InHand, Session, lock},
    error::{Error, Result},
    event::Event,
    lease::WorkerId,
    store::{Resolved, Settlement, Store},
};

/// How many ends may wait to be written before claiming pauses.
const UNSETTLED_MAX: usize = 2000;

/// What a worker on queues shares.
pub(crate) type JobShared = Shared<Leases>;

/// The leases of one worker.
pub(crate) struct Leases {
    pub(crate) store: Arc<dyn Store>,
    /// The claimer learned that this worker is dead, or that the database has failed over.
    pub(crate) beat_now: Notify,
    /// A new session began.
    pub(crate) session_began: Notify,
    news: UnboundedSender<BreakerNews>,
    session: Mutex<Arc<Session>>,
    /// Sessions from before a failover whose jobs may still be in hand.
    earlier: Mutex<Vec<Arc<Session>>>,
    /// Ends that wait to be written.
    unsettled: AtomicUsize,
}

impl Leases {
    /// Starts under this id, which was registered a moment ago.
    pub(crate) fn new(store: Arc<dyn Store>, worker: WorkerId, news: UnboundedSender<BreakerNews>) -> Leases {
        Leases {
            store,
            beat_now: Notify::new(),
            session_began: Notify::new(),
            news,
            session: Mutex::new(Session::new(worker, Some(Instant::now()))),
            earlier: Mutex::default(),
            unsettled: AtomicUsize::new(0),
        }
    }

    pub(crate) fn session(&self) -> Arc<Session> {
        lock(&self.session).clone()
    }

    /// Starts a session under this id, which a renewal sent at this time confirmed.
    pub(crate) fn start_session(&self, worker: WorkerId, sent: Instant) {
        *lock(&self.session) = Session::new(worker, Some(sent));
        self.session_began.notify_waiters();
    }

    /// Claims under this id from now on. Claimed jobs of the previous id stay valid while that id is renewed.
    pub(crate) fn succeed(&self, worker: WorkerId) {
        let mut session = lock(&self.session);
        let next = Session::new(worker, session.renewed());
        let before = std::mem::replace(&mut *session, next);
        drop(session);
        lock(&self.earlier).push(before);
        self.session_began.notify_waiters();
    }

    /// Sessions from before a failover.
    pub(crate) fn earlier(&self) -> Vec<Arc<Session>> {
        lock(&self.earlier).clone()
    }

    pub(crate) fn drop_earlier(&self, worker: WorkerId) {
        lock(&self.earlier).retain(|session| session.worker != worker);
    }

    /// Every session that may have jobs in hand.
    pub(crate) fn sessions(&self) -> Vec<Arc<Session>> {
        let mut sessions = self.earlier();
        sessions.push(self.session());
        sessions
    }

    /// This many more ends wait to be written.
    pub(super) fn add_unsettled(&self, jobs: usize) {
        self.unsettled.fetch_add(jobs, Ordering::Relaxed);
    }

    pub(super) fn subtract_unsettled(&self, jobs: usize) {
        self.unsettled.fetch_sub(jobs, Ordering::Relaxed);
    }

    /// Whether ends come faster than they can be written; claiming then pauses.
    pub(crate) fn is_behind(&self) -> bool {
        self.unsettled.load(Ordering::Relaxed) >= UNSETTLED_MAX
    }

    pub(super) fn send_news(&self, news: Vec<BreakerNews>) {
        for news in news {
            // Without a receiver the worker is over, and the news is no longer needed.
            let _ = self.news.send(news);
        }
    }
}

impl JobShared {
    /// Whether handlers must stop now: the lease may end before the next heartbeat is answered.
    pub(crate) fn is_lease_ending(&self) -> bool {
        self.session().is_ending(self.timing.lease)
    }

    /// How many jobs a job that must run alone has to wait for: those not started yet or not running for long.
    pub(crate) fn in_the_way(&self) -> usize {
        self.count(|job| !job.is_long(self.timing.lease))
    }

    /// How many jobs of this queue run for longer than the lease.
    pub(crate) fn long_running(&self, queue_no: i64) -> usize {
        self.count(|job| job.names.queue_no == queue_no && job.is_long(self.timing.lease))
    }
}

impl Claims for Leases {
    type Held = InHand;
    type Store = Arc<dyn Store>;

    const LOGS_ENDS: bool = true;

    fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    fn engine(store: &Arc<dyn Store>) -> &dyn Store {
        &**store
    }

    fn separate(store: &Arc<dyn Store>) -> Arc<dyn Store> {
        store.separate_connections().into()
    }

    async fn settle(&self, store: &Arc<dyn Store>, _: &[Arc<InHand>], ends: &[Settlement]) -> Result<Vec<bool>> {
        store.settle(ends).await
    }

    async fn resolve(&self, store: &Arc<dyn Store>, job: &InHand, _: &Settlement) -> Result<Resolved> {
        store.resolve(job.token).await
    }

    fn abandons(&self, _: &InHand, _: &Error) -> bool {
        false
    }

    /// News is batched, because many attempts may end at the same moment.
    async fn tell_breakers(shared: &JobShared, news: Vec<BreakerNews>) {
        shared.send_news(news);
    }

    fn stop_all(shared: &JobShared, why: Cut) {
        for session in shared.sessions() {
            session.stop(why);
        }
    }

    fn cut_late(shared: &JobShared) {
        let session = shared.session();
        if session.is_ending(shared.timing.lease) && !session.cut.is_cancelled() {
            Leases::stop_all(shared, Cut::LeaseEnding);
            tracing::warn!(worker = %session.worker, "the lease could not be renewed in time; handlers were stopped");
            shared.emit(Event::CutOff);
        }
    }

    async fn watch(shared: &Arc<JobShared>, beats: &Arc<dyn Store>, rest: &Arc<dyn Store>) {
        watch::watch_leases(shared, &**beats, &**rest).await;
    }

    async fn leave(shared: &JobShared) {
        let mut left = Ok(());
        for session in shared.sessions() {
            left = left.and(shared.store.leave(session.worker).await);
        }
        if let Err(error) = left {
            tracing::debug!(
                "could not unregister the worker, its row ends with its lease: {}",
                error.cause()
            );
        } else if let Err(error) = shared.store.forget_dead().await {
            tracing::debug!(
                "could not remove the worker's row, leaving it to recovery: {}",
                error.cause()
            );
        }
    }
}
