//! The watch: beats, recovery, time limits and upkeep, on a thread and runtime of their own.
//!
//! A handler that blocks its executor cannot stop it. Beats have a connection that nothing else uses.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::{breaker, hand::Shared, settler};
use crate::{
    attempt::{
        self,
        hand::{Cut, InHand, Session},
    },
    error::{Result, chain},
    event::Event,
    fault::mutant,
    lease::WorkerId,
    pause::Pauses,
    recover,
    store::{Since, Store, Sweep, Timing, setting},
};

/// How often time limits and the lease's end are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How often waiting jobs and groups are swept, and how many in one commit.
pub(super) const SWEEP_EVERY: Duration = Duration::from_millis(800);
const SWEEP_SPREAD: f64 = 1.2;
const SWEEP_MAX: i32 = 500;
/// Looking their names up is done as often, unless it costs more than a twentieth of the time.
const NAMES_COST_SHARE: u32 = 20;
/// A look-up that failed says little about its cost; it is not put off for longer than this.
const NAMES_FAILED_MAX: Duration = Duration::from_secs(30);
/// How often what people have paused, and where the breakers stand, is looked at; it counts within a second.
const CHANGES_EVERY: Duration = Duration::from_millis(400);
const UPKEEP_EVERY: Duration = Duration::from_secs(600);

/// Runs the watch until `stop`; the thread ends by itself then.
pub(crate) fn start(
    shared: Arc<Shared>,
    woken: Arc<Notify>,
    stop: CancellationToken,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name("rowlock-watch".into()).spawn(move || {
        runtime.block_on(async {
            let beats: Arc<dyn Store> = shared.store.separate_connections().into();
            let rest: Arc<dyn Store> = shared.store.separate_connections().into();
            tokio::select! {
                () = beat(&shared, &*beats) => {}
                () = look(&shared, &rest) => {}
                () = recover_always(&shared, &*rest) => {}
                () = sweep_waits(&shared, &*rest) => {}
                () = heed_pauses(&shared, &*rest, &woken) => {}
                () = breaker::heed(&shared, &*rest, &woken) => {}
                () = upkeep(&shared, &*rest) => {}
                () = stop.cancelled() => {}
            }
        });
        // A connection still trying to close must not hold the process.
        runtime.shutdown_background();
    })
}

async fn beat(shared: &Arc<Shared>, store: &dyn Store) {
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
                // The server before may have been the one that answered.
                next = Instant::now();
            }
            Ok(true) => {
                shared.acked(sent);
                if session.cut.is_cancelled() {
                    shared.renew(session.worker);
                }
                next = sent + every;
            }
            Ok(false) => {
                if !mutant!("told to be dead and goes on") {
                    session.end(Cut::DeclaredDead);
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

/// Reads what is paused.
async fn heed_pauses(shared: &Shared, store: &dyn Store, woken: &Notify) {
    let complaint = "could not read pauses, using the last known state";
    look_again(woken, complaint, async || {
        Ok(shared.pauses.set(Pauses::of(setting::pauses(store).await?)))
    })
    .await;
}

/// Looks again and again at what people may change, and has the claimer look at once after a change. While it cannot be
/// read, what was known before goes on counting.
pub(super) async fn look_again(woken: &Notify, complaint: &'static str, look: impl AsyncFn() -> Result<bool>) {
    let mut failing = false;
    loop {
        tokio::time::sleep(CHANGES_EVERY).await;
        match look().await {
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

/// Whether the session's worker is alive; those from before a failover are renewed beside it.
async fn beat_each(shared: &Shared, store: &dyn Store, session: &Session) -> Result<bool> {
    let alive = store.beat(session.worker).await?;
    for earlier in shared.earlier() {
        if !store.beat(earlier.worker).await? {
            earlier.end(Cut::DeclaredDead);
            shared.drop_earlier(earlier.worker);
        }
    }
    Ok(alive)
}

/// The database has failed over and may have lost its last commits; ids and epochs of jobs in hand can be given out again.
/// Under another id no new token is like an old one. Jobs in hand go on, except those whose transaction was on the server
/// before.
async fn move_on(shared: &Arc<Shared>, store: &dyn Store, before: &Session) {
    let (worker, _) = registered(shared, store).await;
    shared.succeed(worker);
    tracing::warn!(worker = %worker, before = %before.worker, "the database has failed over; claiming under a new id");
    for job in shared.in_hand() {
        let holder = job.holder.load(std::sync::atomic::Ordering::Relaxed);
        if holder != 0 && store.failed_over(Since::Opened(holder)) {
            job.end(Cut::FailedOver);
        }
    }
}

async fn register_anew(shared: &Arc<Shared>, store: &dyn Store) {
    let (worker, sent) = registered(shared, store).await;
    shared.acked(sent);
    shared.renew(worker);
}

/// A new id, and when it was asked for.
async fn registered(shared: &Shared, store: &dyn Store) -> (WorkerId, Instant) {
    loop {
        let worker = WorkerId::random();
        let sent = Instant::now();
        match store.register(worker, &shared.name, shared.timing.lease, &[]).await {
            Ok(()) => return (worker, sent),
            Err(error) => {
                tracing::warn!("could not register, retrying: {}", error.cause());
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn look(shared: &Arc<Shared>, store: &Arc<dyn Store>) {
    let mut every = tokio::time::interval(LOOK_EVERY);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        every.tick().await;
        let now = Instant::now();
        let session = shared.session();
        if shared.lease_ending(now) && !session.cut.is_cancelled() {
            for session in shared.sessions() {
                session.end(Cut::LeaseEnding);
            }
            tracing::warn!(worker = %session.worker, "the lease could not be renewed in time; handlers were stopped");
            shared.emit(Event::CutOff);
        }
        for job in shared.in_hand() {
            if let Some(problem) = job.overdue(now, shared.tx_cap)
                && job.condemn()
            {
                tokio::spawn(end_hung(shared.clone(), store.clone(), job, problem));
            }
        }
    }
}

/// Ends a hung handler, and records the failure from here: its own runtime may be the one that hangs.
async fn end_hung(shared: Arc<Shared>, store: Arc<dyn Store>, job: Arc<InHand>, problem: String) {
    let settlement = attempt::end_hung(&*store, &job, problem).await;
    let mut sent_before = false;
    loop {
        match store.settle(std::slice::from_ref(&settlement)).await {
            Ok(applied) => {
                let applied = applied.first() == Some(&true)
                    || (sent_before && settler::committed_earlier(&*store, &settlement, &shared.gone).await);
                return match applied {
                    true => settler::settled(&shared, &job, settlement.ended, None, settlement.error),
                    false => settler::lost(&shared, &job),
                };
            }
            Err(error) => {
                tracing::debug!(
                    job = job.token.id,
                    "could not record the failure of a hung handler yet: {}",
                    error.cause()
                );
                sent_before = true;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        }
    }
}

async fn recover_always(shared: &Shared, store: &dyn Store) {
    let mut recovery = recover::Recovery::new(shared.timing.lease);
    loop {
        tokio::time::sleep(recovery.pause()).await;
        let may_judge = !shared.lease_ending(Instant::now());
        match recovery.round(store, may_judge).await {
            Ok(expired) => {
                for lease in expired {
                    tracing::info!(job = lease.token.id, worker = %lease.token.worker, "worker lost; lease ended");
                    shared.emit(Event::Expired {
                        id: lease.token.id,
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

/// When the next sweep of waiting jobs comes, and from when on it looks their names up again. Limits are found by their
/// index; names are looked up job by job, which may take its time.
struct Pace {
    wait: Duration,
    names_at: Instant,
}

impl Pace {
    /// A full round has more behind it.
    fn swept(&mut self, full: bool, names: bool, start: Instant, took: Duration) {
        self.wait = if full { Duration::ZERO } else { SWEEP_EVERY };
        if names && !full {
            self.names_at = start + took * NAMES_COST_SHARE;
        }
    }

    /// Never at once again, whatever the round before was: the database may be away, or the look-up too much for it.
    fn failed(&mut self, names: bool, start: Instant, took: Duration) {
        self.wait = SWEEP_EVERY;
        if names {
            self.names_at = start + took + (took * NAMES_COST_SHARE).min(NAMES_FAILED_MAX);
        }
    }
}

/// Ends waits whose limit has passed, and those that a completion in another open transaction did not see.
async fn sweep_waits(shared: &Shared, store: &dyn Store) {
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
                id: over.id,
                queue: over.queue,
                kind: over.kind,
                ended: over.ended,
                reason: over.reason,
            });
        }
        // Told before anything else is waited for: it has happened.
        if swept.groups
            && let Err(error) = store.sweep(Sweep::Groups, SWEEP_MAX).await
        {
            tracing::warn!("could not sweep groups, retrying: {}", error.cause());
        }
        if swept.cases {
            match store.sweep(Sweep::Cases, SWEEP_MAX).await {
                // A full round has more behind it.
                Ok(named) if named.moved >= SWEEP_MAX as usize => pace.wait = Duration::ZERO,
                Ok(_) => {}
                Err(error) => tracing::warn!("could not group cases by error, retrying: {}", error.cause()),
            }
        }
    }
}

async fn upkeep(shared: &Shared, store: &dyn Store) {
    // Spread, so that a fleet started at once does not do it at once.
    let mut wait = UPKEEP_EVERY.mul_f64(0.05 + 0.1 * fastrand::f64());
    loop {
        tokio::time::sleep(wait).await;
        match store.maintain(&shared.retention).await {
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

/// The inequalities that the protocol rests on.
pub(crate) fn check_timing(timing: Timing) -> crate::Result<()> {
    let lease = timing.lease;
    if lease < Duration::from_secs(2) || lease > Duration::from_secs(3600) {
        return Err(crate::Error::Config(format!(
            "lease {lease:?} is out of range (2 s to 1 h, default 15 s)"
        )));
    }
    let (beat, cut_off) = (lease / 3, super::hand::cut_off(lease));
    if beat >= cut_off || timing.lock > lease / 2 {
        return Err(crate::Error::Config(format!(
            "lease {lease:?}: the heartbeat ({beat:?}) must come before the cut-off ({cut_off:?}), and locks ({:?}) \
             must end within half of the lease",
            timing.lock
        )));
    }
    Ok(())
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

    #[test]
    fn the_timing_inequalities_are_checked() {
        let ok = |secs| check_timing(Timing::of_lease(Duration::from_secs(secs)));
        assert!(ok(2).is_ok() && ok(15).is_ok() && ok(3600).is_ok());
        assert!(ok(1).is_err() && ok(3601).is_err());
        let lease = Duration::from_secs(15);
        assert!(check_timing(Timing { lease, lock: lease }).is_err());
    }
}
