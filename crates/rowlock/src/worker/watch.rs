//! The watch: renewal, recovery, time limits and upkeep, on a separate thread and runtime.
//!
//! A handler that blocks its executor cannot stop the watch. Heartbeats have a connection that nothing else uses.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{
    breaker,
    leases::JobShared,
    settler::{self, ToSettle},
    shared::{Claims, Shared},
};
use crate::{
    attempt::{
        self,
        hand::{Cut, Held, Session},
    },
    error::{Error, Result, chain},
    event::Event,
    fault::mutant,
    lease::WorkerId,
    pause::Pauses,
    recover,
    store::{Since, Store, Sweep, setting},
};

/// How often time limits and the ends of leases are checked.
const LIMITS_EVERY: Duration = Duration::from_millis(50);
/// How often waiting jobs and groups are swept, and how many in one commit.
pub(super) const SWEEP_EVERY: Duration = Duration::from_millis(800);
const SWEEP_SPREAD: f64 = 1.2;
const SWEEP_MAX: i32 = 500;
/// Names are looked up as often, unless that costs more than a twentieth of the time.
const NAMES_COST_SHARE: u32 = 20;
/// The cost of a failed look-up is not known; the next one is not delayed for longer than this.
const NAMES_FAILED_MAX: Duration = Duration::from_secs(30);
/// How often pauses and breakers are read. A change must take effect within a second.
const CHANGES_EVERY: Duration = Duration::from_millis(400);
const UPKEEP_EVERY: Duration = Duration::from_secs(600);

/// Runs the watch until `stop`; then the thread ends by itself.
pub(crate) fn start<C: Claims>(shared: Arc<Shared<C>>, stop: CancellationToken) -> Result<()> {
    let started = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let started = started.and_then(|runtime| {
        std::thread::Builder::new().name("rowlock-watch".into()).spawn(move || {
            runtime.block_on(watch(&shared, &stop));
            // A connection that is still closing must not hold the process.
            runtime.shutdown_background();
        })
    });
    match started {
        Ok(_) => Ok(()),
        Err(error) => Err(Error::Config(format!("could not start the watch thread: {error}"))),
    }
}

async fn watch<C: Claims>(shared: &Arc<Shared<C>>, stop: &CancellationToken) {
    let (beats, rest) = (C::separate(shared.store()), C::separate(shared.store()));
    tokio::select! {
        () = C::watch(shared, &beats, &rest) => {}
        () = watch_limits(shared, &rest) => {}
        () = watch_pauses(shared, C::engine(&rest)) => {}
        () = breaker::watch_breakers(shared, C::engine(&rest)) => {}
        () = stop.cancelled() => {}
    }
}

/// Reads what is paused.
async fn watch_pauses<C: Claims>(shared: &Shared<C>, store: &dyn Store) {
    let complaint = "could not read pauses, using the last known state";
    read_again(&shared.woken, complaint, async || {
        Ok(shared.pauses.set(Pauses::of(setting::pauses(store).await?)))
    })
    .await;
}

/// Reads periodically what operators may change, and notifies the claimer after a change. While it cannot be read, the
/// last known state is used.
pub(super) async fn read_again(woken: &Notify, complaint: &'static str, read: impl AsyncFn() -> Result<bool>) {
    let mut failing = false;
    loop {
        tokio::time::sleep(CHANGES_EVERY).await;
        match read().await {
            Ok(changed) => {
                failing = false;
                if changed {
                    woken.notify_one();
                }
            }
            Err(error) if !failing => {
                failing = true;
                tracing::warn!("{complaint}: {}", error.cause());
            }
            Err(_) => {}
        }
    }
}

/// Stops handlers whose time is over, and those whose claim others may soon take.
async fn watch_limits<C: Claims>(shared: &Arc<Shared<C>>, store: &C::Store) {
    let mut every = tokio::time::interval(LIMITS_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        C::cut_late(shared);
        for job in shared.in_hand() {
            if let Some(problem) = job.hand().overdue(Instant::now(), shared.tx_cap)
                && job.hand().condemn()
            {
                tokio::spawn(end_hung(shared.clone(), store.clone(), job, problem));
            }
        }
    }
}

/// Ends a hung handler, and records the failure on this thread, because the handler's own runtime may hang.
async fn end_hung<C: Claims>(shared: Arc<Shared<C>>, store: C::Store, job: Arc<C::Held>, problem: String) {
    let settlement = attempt::end_hung(C::engine(&store), job.hand(), problem).await;
    let end = ToSettle {
        settlement,
        skipped: None,
        job,
    };
    settler::write(&shared, &store, vec![end]).await;
}

/// What only a worker on queues does: heartbeats, recovery, sweeps and upkeep.
pub(super) async fn watch_leases(shared: &Arc<JobShared>, beats: &dyn Store, rest: &dyn Store) {
    tokio::select! {
        () = beat(shared, beats) => {}
        () = recover_always(shared, rest) => {}
        () = sweep_waits(shared, rest) => {}
        () = upkeep(shared, rest) => {}
    }
}

async fn beat(shared: &Arc<JobShared>, store: &dyn Store) {
    let every = shared.timing.lease / 3;
    let mut next = Instant::now() + every;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(next.into()) => {}
            () = shared.beat_now.notified() => {}
        }
        let session = shared.session();
        let sent = Instant::now();
        match beat_each(shared, store, &session).await {
            Ok(true) if store.failed_over(Since::Registered(session.worker)) => {
                move_on(shared, store, &session).await;
                // The answer may have come from the previous server.
                next = Instant::now();
            }
            Ok(true) => {
                for session in shared.sessions() {
                    session.renew(sent);
                }
                if session.cut.is_cancelled() {
                    shared.start_session(session.worker, sent);
                }
                next = sent + every;
            }
            Ok(false) => {
                if !mutant!("told to be dead and goes on") {
                    session.stop(Cut::DeclaredDead);
                }
                tracing::warn!(worker = %session.worker, "declared dead by another worker; continuing under a new id");
                shared.emit(Event::DeclaredDead);
                register_anew(shared, store).await;
                next = Instant::now() + every;
            }
            Err(error) => {
                tracing::warn!("heartbeat failed, retrying: {}", error.cause());
                next = Instant::now() + (every / 5).min(Duration::from_millis(500));
            }
        }
    }
}

/// Whether the session's worker is alive; sessions from before a failover are renewed too.
async fn beat_each(shared: &JobShared, store: &dyn Store, session: &Session) -> Result<bool> {
    let alive = store.beat(session.worker).await?;
    for earlier in shared.earlier() {
        if !store.beat(earlier.worker).await? {
            earlier.stop(Cut::DeclaredDead);
            shared.drop_earlier(earlier.worker);
        }
    }
    Ok(alive)
}

/// The database has failed over and may have lost its last commits, so it can reissue the ids and epochs of claimed
/// jobs. Under another worker id no new token equals an old one. Claimed jobs go on, except those whose transaction was
/// on the previous server.
async fn move_on(shared: &Arc<JobShared>, store: &dyn Store, before: &Session) {
    let (worker, _) = registered(shared, store).await;
    shared.succeed(worker);
    tracing::warn!(worker = %worker, before = %before.worker, "the database has failed over; claiming under a new id");
    for job in shared.in_hand() {
        let holder = job.holder.load(std::sync::atomic::Ordering::Relaxed);
        if holder != 0 && store.failed_over(Since::Opened(holder)) {
            job.stop(Cut::FailedOver);
        }
    }
}

async fn register_anew(shared: &Arc<JobShared>, store: &dyn Store) {
    let (worker, sent) = registered(shared, store).await;
    shared.start_session(worker, sent);
}

/// A new id, and when it was requested.
async fn registered(shared: &JobShared, store: &dyn Store) -> (WorkerId, Instant) {
    loop {
        let worker = WorkerId::random();
        let sent = Instant::now();
        match store
            .register(worker, &shared.settings.name, shared.timing.lease, &[])
            .await
        {
            Ok(()) => return (worker, sent),
            Err(error) => {
                tracing::warn!("could not register, retrying: {}", error.cause());
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn recover_always(shared: &JobShared, store: &dyn Store) {
    let mut recovery = recover::Recovery::new(shared.timing.lease);
    loop {
        tokio::time::sleep(recovery.pause()).await;
        let may_judge = !shared.is_lease_ending();
        match recovery.round(store, may_judge).await {
            Ok(expired) => {
                for lease in expired {
                    tracing::info!(job = lease.token.id, worker = %lease.token.worker, "worker lost; lease ended");
                    shared.emit(Event::Expired {
                        id: lease.token.id.into(),
                        queue: lease.queue,
                        kind: lease.kind,
                        worker: lease.token.worker,
                        silent: lease.silent,
                        retired: lease.retired,
                    });
                }
            }
            Err(_) if mutant!("recovery gives up") => return std::future::pending().await,
            Err(error) => tracing::warn!("recovery failed, retrying: {}", chain(&error)),
        }
    }
}

/// When the next sweep of waiting jobs comes, and from when on it looks names up again. Limits are found by an index;
/// names are looked up job by job, which may take long.
struct Pace {
    wait: Duration,
    names_at: Instant,
}

impl Pace {
    /// After a full round there is more to do.
    fn swept(&mut self, full: bool, names: bool, start: Instant, took: Duration) {
        self.wait = if full { Duration::ZERO } else { SWEEP_EVERY };
        if names && !full {
            self.names_at = start + took * NAMES_COST_SHARE;
        }
    }

    /// Never immediately again, whatever the last round was: the database may be away, or overloaded by the look-up.
    fn failed(&mut self, names: bool, start: Instant, took: Duration) {
        self.wait = SWEEP_EVERY;
        if names {
            self.names_at = start + took + (took * NAMES_COST_SHARE).min(NAMES_FAILED_MAX);
        }
    }
}

/// Ends waits whose limit has passed, and those that a completion in another open transaction did not see.
async fn sweep_waits(shared: &JobShared, store: &dyn Store) {
    let mut pace = Pace {
        wait: SWEEP_EVERY,
        names_at: Instant::now(),
    };
    loop {
        tokio::time::sleep(pace.wait.mul_f64(0.8 + (SWEEP_SPREAD - 0.8) * fastrand::f64())).await;
        let start = Instant::now();
        let names = start >= pace.names_at;
        let swept = match store.sweep(Sweep::Waits { names }, SWEEP_MAX).await {
            Ok(swept) => swept,
            Err(error) => {
                tracing::warn!("could not sweep waiting jobs, retrying: {}", error.cause());
                pace.failed(names, start, start.elapsed());
                continue;
            }
        };
        let full = swept.moved.max(swept.over.len()) >= SWEEP_MAX as usize;
        pace.swept(full, names, start, start.elapsed());
        for over in swept.over {
            tracing::info!(
                job = over.id,
                kind = over.kind,
                "{}: {}",
                over.ended.as_str(),
                over.reason
            );
            shared.emit(Event::WaitOver {
                id: over.id.into(),
                queue: over.queue,
                kind: over.kind,
                ended: over.ended,
                reason: over.reason,
            });
        }
        // Reported before waiting for anything else, because it has happened.
        if swept.groups
            && let Err(error) = store.sweep(Sweep::Groups, SWEEP_MAX).await
        {
            tracing::warn!("could not sweep groups, retrying: {}", error.cause());
        }
        if swept.cases {
            match store.sweep(Sweep::Cases, SWEEP_MAX).await {
                // After a full round there is more to do.
                Ok(named) if named.moved >= SWEEP_MAX as usize => pace.wait = Duration::ZERO,
                Ok(_) => {}
                Err(error) => tracing::warn!("could not group cases by error, retrying: {}", error.cause()),
            }
        }
    }
}

async fn upkeep(shared: &JobShared, store: &dyn Store) {
    // Spread, so that workers that start together do not all do it at the same time.
    let mut wait = UPKEEP_EVERY.mul_f64(0.05 + 0.1 * fastrand::f64());
    loop {
        tokio::time::sleep(wait).await;
        match store.maintain(&shared.settings.retention).await {
            Ok(swept) => {
                tracing::debug!(?swept, "maintenance done");
                if swept.cases > 0 {
                    tracing::warn!(
                        cases = swept.cases,
                        "removed open cases that were older than their retention"
                    );
                    shared.emit(Event::CasesRemoved { cases: swept.cases });
                }
            }
            Err(error) => tracing::warn!("maintenance failed, retrying later: {}", chain(&error)),
        }
        wait = UPKEEP_EVERY.mul_f64(0.75 + 0.5 * fastrand::f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_jobs_are_swept_every_second_at_least() {
        assert!(SWEEP_EVERY.mul_f64(SWEEP_SPREAD) < Duration::from_secs(1));
    }

    #[test]
    fn a_sweep_that_fails_after_a_full_round_is_not_repeated_at_once() {
        let (start, second) = (Instant::now(), Duration::from_secs(1));
        let mut pace = Pace {
            wait: SWEEP_EVERY,
            names_at: start,
        };
        pace.swept(true, true, start, second);
        assert_eq!(
            (pace.wait, pace.names_at),
            (Duration::ZERO, start),
            "more is to be done"
        );
        pace.failed(true, start, second);
        assert_eq!((pace.wait, pace.names_at), (SWEEP_EVERY, start + 21 * second));
        pace.failed(false, start, 5 * second);
        assert_eq!(pace.names_at, start + 21 * second, "no name was looked up");
        pace.failed(true, start, 10 * second);
        assert_eq!(
            pace.names_at,
            start + 40 * second,
            "an outage puts it off for so long and no longer"
        );
        pace.swept(false, true, start, second);
        assert_eq!((pace.wait, pace.names_at), (SWEEP_EVERY, start + 20 * second));
    }
}
