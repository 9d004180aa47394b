//! What the parts of a worker share, for a worker on queues and for one on a user's table.
//!
//! Shared between the runtime that runs handlers and the thread that watches over them, so everything here is quick and
//! never waits.

use std::{
    collections::HashMap,
    future::Future,
    ops::Deref,
    sync::{Arc, Mutex, Weak},
    time::Duration,
};

use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    breaker::{BreakerNews, Breakers},
    settings::Settings,
};
use crate::{
    attempt::{
        Env,
        hand::{Cut, Held, lock},
    },
    error::{Error, Result},
    event::{Event, emit},
    lease::Token,
    pause,
    root::{Backend, Rowlock},
    store::{Resolved, Settlement, Store, Timing},
};

/// Jobs whose after-commit hooks run at the same time. Hooks beyond this are dropped; otherwise a slow external system
/// would fill the memory of a fast worker.
pub(crate) const HOOKS_MAX: usize = 1000;

/// How a worker holds what it has claimed: jobs under the lease of its id, or rows with one claim each.
///
/// The loop around attempts is the same for both. The two differ in how a claim is renewed, and where its end is
/// written and looked up.
pub(crate) trait Claims: Sized + Send + Sync + 'static {
    /// A claimed job or row.
    type Held: Held;
    type Store: Clone + Send + Sync + 'static;

    /// Whether the end of an attempt can be looked up at any later time.
    const LOGS_ENDS: bool;

    fn store(&self) -> &Self::Store;

    fn engine(store: &Self::Store) -> &dyn Store;

    /// The same store with separate connections.
    fn separate(store: &Self::Store) -> Self::Store;

    /// Writes ends; returns for each whether its token still held.
    fn settle(
        &self,
        store: &Self::Store,
        held: &[Arc<Self::Held>],
        ends: &[Settlement],
    ) -> impl Future<Output = Result<Vec<bool>>> + Send;

    /// Whether an end that was written without an answer was committed.
    fn resolve(
        &self,
        store: &Self::Store,
        held: &Self::Held,
        end: &Settlement,
    ) -> impl Future<Output = Result<Resolved>> + Send;

    /// Whether an end that met this error is left to recovery instead of written again.
    fn abandons(&self, held: &Self::Held, error: &Error) -> bool;

    /// Passes on what an attempt's end says about its dependencies.
    fn tell_breakers(shared: &Shared<Self>, news: Vec<BreakerNews>) -> impl Future<Output = ()> + Send;

    /// Stops all handlers, also of a claim that is under way.
    fn stop_all(shared: &Shared<Self>, why: Cut);

    /// Stops handlers whose claim others may soon take.
    fn cut_late(shared: &Shared<Self>);

    /// What the watch does beside time limits, pauses and breakers: renewal and recovery at least.
    fn watch(shared: &Arc<Shared<Self>>, beats: &Self::Store, rest: &Self::Store) -> impl Future<Output = ()>;

    /// Signs off from the database, after the last end is written.
    fn leave(shared: &Shared<Self>) -> impl Future<Output = ()> + Send;
}

/// What the parts of one worker share.
pub(crate) struct Shared<C: Claims> {
    pub(crate) claims: C,
    pub(crate) settings: Settings,
    pub(crate) timing: Timing,
    pub(crate) tx_cap: Option<std::time::Duration>,
    pub(crate) stopping: CancellationToken,
    /// The worker is over; nothing waits any longer.
    pub(crate) gone: CancellationToken,
    /// There may be something to claim.
    pub(crate) woken: Notify,
    /// A slot became free, or a job or row was released.
    pub(crate) freed: Notify,
    /// After-commit hooks that run.
    pub(crate) hooks: TaskTracker,
    /// For how many more jobs hooks may run.
    pub(crate) hooks_left: Arc<Semaphore>,
    /// What is paused.
    pub(crate) pauses: pause::KnownPauses,
    /// The breakers that its kinds are bound to.
    pub(crate) breakers: Breakers,
    /// For tasks that outlive the call that starts them.
    pub(crate) me: Weak<Shared<C>>,
    in_hand: Mutex<HashMap<Token, Arc<C::Held>>>,
}

impl<C: Claims> Deref for Shared<C> {
    type Target = C;

    fn deref(&self) -> &C {
        &self.claims
    }
}

impl<C: Claims> Shared<C> {
    pub(crate) fn new<DB: Backend>(
        claims: C,
        settings: Settings,
        pauses: pause::KnownPauses,
        breakers: Breakers,
    ) -> Arc<Shared<C>> {
        let timing = settings.timing();
        Arc::new_cyclic(|me| Shared {
            claims,
            settings,
            timing,
            tx_cap: DB::EXCLUSIVE.then_some(timing.lease / 3),
            stopping: CancellationToken::new(),
            gone: CancellationToken::new(),
            woken: Notify::new(),
            freed: Notify::new(),
            hooks: TaskTracker::new(),
            hooks_left: Arc::new(Semaphore::new(HOOKS_MAX)),
            pauses,
            breakers,
            me: me.clone(),
            in_hand: Mutex::default(),
        })
    }

    /// What an attempt needs from this worker.
    pub(crate) fn env<DB: Backend>(self: &Arc<Self>, rowlock: Rowlock<DB>) -> Env<DB> {
        let (resolved, told) = (self.clone(), self.clone());
        Env {
            rowlock,
            timing: self.timing,
            resolved: Box::new(move |token, committed| resolved.commit_resolved(token, committed)),
            emit: Arc::new(move |event| told.emit(event)),
        }
    }

    pub(crate) fn emit(&self, event: Event) {
        emit(event, &self.settings.counters, &self.settings.listeners);
    }

    pub(crate) fn commit_resolved(&self, token: Token, committed: bool) {
        let Token { id, epoch, .. } = token;
        self.emit(Event::CommitResolved {
            id: id.into(),
            epoch,
            committed,
        });
    }

    pub(crate) fn take(&self, held: Arc<C::Held>) {
        lock(&self.in_hand).insert(held.hand().token, held);
    }

    pub(crate) fn let_go(&self, token: Token) {
        lock(&self.in_hand).remove(&token);
        self.freed.notify_one();
    }

    pub(crate) fn holds(&self, token: Token) -> bool {
        lock(&self.in_hand).contains_key(&token)
    }

    pub(crate) fn in_hand(&self) -> Vec<Arc<C::Held>> {
        lock(&self.in_hand).values().cloned().collect()
    }

    /// How many jobs or rows in hand are like this.
    pub(crate) fn count(&self, like: impl Fn(&C::Held) -> bool) -> usize {
        lock(&self.in_hand).values().filter(|held| like(held)).count()
    }

    /// How long a claimed job may wait for a slot here, while another worker may have a free one.
    pub(crate) fn slot_patience(&self) -> Duration {
        self.timing.lease / 3
    }
}
