//! The claiming side of the loop: claim as many jobs as there are free slots for, hand them out, wait for a reason to
//! claim again.
//!
//! Every wait here has a time limit: a notification is a hint, and a lost one must cost a moment, never a stall.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use super::{leases::JobShared, settler, turnover::Turnover};
use crate::{
    attempt::hand::{Cut, InHand, Session},
    backoff::Backoff,
    claim::{Pace, Planner},
    error::Result,
    event::Event,
    fault::{mutant, point},
    lease::{Claimed, Token},
    settle::Ending,
    store::{ClaimReply, Settlement, breaker::ProbeReply},
};

/// How often a worker with no job in the way looks for jobs that must run alone; and how long such a job must have been
/// due before a busy worker stops claiming other jobs for it.
const ALONE_EVERY: Duration = Duration::from_secs(1);
const ALONE_PATIENCE: Duration = Duration::from_secs(1);
/// How long such jobs may follow one another once no other job is in the way. A worker that dies may leave hundreds of
/// them, and waiting for the other jobs takes longer than most of them do.
const ALONE_SERIES: Duration = Duration::from_secs(1);

/// How often a worker sends due probes.
const PROBE_EVERY: Duration = Duration::from_millis(200);

/// Puts claimed jobs in line for a slot of their queue. Names the breakers that they probe, each with its version.
pub(crate) type Dispatch = Box<dyn Fn(Vec<Claimed>, &Arc<Session>, &[(String, i64)]) + Send + Sync>;

pub(crate) struct Claimer {
    pub(crate) shared: Arc<JobShared>,
    pub(crate) planner: Planner,
    pub(crate) queues: Vec<Arc<Turnover>>,
    pub(crate) dispatch: Dispatch,
    pub(crate) state: State,
}

/// What the loop remembers between two claims.
pub(crate) struct State {
    pace: Pace,
    /// A claim failed, so this worker may hold jobs that it does not know of.
    suspect: bool,
    checked_at: Instant,
    check_took: Duration,
    /// There was a notification since the last claim.
    woken: bool,
    /// When to look for jobs that must run alone again.
    alone_at: Option<Instant>,
    /// One has just run, and the other jobs have their turn.
    resting: bool,
    /// Since when this worker finishes its jobs to make way for a job that must run alone.
    clearing: Option<Instant>,
    /// The last look was made with jobs in the way and skipped jobs that have not waited long; look again once none is
    /// in the way.
    busy_look: bool,
    /// The job that runs alone here, and since when.
    alone: Option<(Token, Instant)>,
    /// Since when such jobs run here one after the other.
    series: Option<Instant>,
    failing: Duration,
    /// When a breaker may be probed again.
    probe_at: Option<Instant>,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            pace: Pace::new(),
            suspect: false,
            checked_at: Instant::now(),
            check_took: Duration::ZERO,
            woken: false,
            alone_at: None,
            resting: false,
            clearing: None,
            busy_look: false,
            alone: None,
            series: None,
            failing: Duration::ZERO,
            probe_at: None,
        }
    }
}

impl Claimer {
    pub(crate) async fn run(mut self) {
        while !self.shared.stopping.is_cancelled() {
            let session = self.shared.session();
            if session.cut.is_cancelled() {
                let shared = self.shared.clone();
                self.pause(Duration::from_millis(50), shared.session_began.notified())
                    .await;
                continue;
            }
            self.planner.heed(self.shared.pauses.now());
            if self.state.suspect || self.state.checked_at.elapsed() >= self.check_every() {
                self.check_own_leases(&session).await;
            }
            if self.serve_alone(&session).await || self.serve_probes(&session).await {
                continue;
            }
            self.claim_once(&session).await;
        }
    }

    /// Waits, at most this long, for `reason`, a notification or the stop.
    async fn pause(&mut self, limit: Duration, reason: impl Future<Output = ()>) {
        tokio::select! {
            () = tokio::time::sleep(limit) => {}
            () = reason => {}
            () = self.shared.woken.notified() => {
                self.state.woken = true;
                self.state.pace.woken(Instant::now());
            }
            () = self.shared.stopping.cancelled() => {}
        }
    }

    async fn claim_once(&mut self, session: &Arc<Session>) {
        let free = self.free();
        if free.is_empty() {
            self.wait_for_room().await;
            return;
        }
        let asked_at = Instant::now();
        let reach = self.planner.reach(asked_at);
        let ask = self.planner.ask(session.worker, &free, reach);
        let jobs = match self.shared.store.claim(&ask).await {
            Ok(ClaimReply::Jobs(jobs)) => jobs,
            Ok(ClaimReply::Dead) => return self.heard_dead(session).await,
            Ok(ClaimReply::Moved) => return self.heard_of_move().await,
            Err(error) => return self.failed(&error).await,
        };
        point!("after-claim");
        self.state.failing = Duration::ZERO;
        self.planner.learn(&jobs, reach, asked_at, Instant::now());
        let full = is_full(&ask.queues, &jobs);
        if jobs.is_empty() {
            let hands_free = self.shared.in_the_way() == 0;
            let woken = std::mem::take(&mut self.state.woken);
            let busy_look = hands_free && std::mem::take(&mut self.state.busy_look);
            if std::mem::take(&mut self.state.resting) || busy_look || (woken && self.state.alone_at.is_some()) {
                // No other job needs the time, or the notification was for these: continue with the jobs that must run
                // alone.
                self.state.alone_at = None;
                return;
            }
            let wait = self.state.pace.empty(Instant::now());
            return self.pause(wait, std::future::pending()).await;
        }
        self.state.pace.found();
        self.state.woken = false;
        self.hand_out(jobs, session, &[]).await;
        if !full {
            self.pause(Pace::FLOW, std::future::pending()).await;
        }
    }

    /// Claims as many probes as allowed, where breakers' cooldowns are over. `true`: this took the turn.
    async fn serve_probes(&mut self, session: &Arc<Session>) -> bool {
        let now = Instant::now();
        if !self.shared.breakers.known.any_due() || self.state.probe_at.is_some_and(|at| now < at) {
            return false;
        }
        self.state.probe_at = Some(now + PROBE_EVERY);
        for alone in [false, true] {
            let free = self.free();
            if free.is_empty() || (alone && self.shared.in_the_way() > 0) {
                continue;
            }
            for (names, ask) in self.planner.ask_probes(session.worker, &free, alone) {
                let reply = self
                    .shared
                    .store
                    .claim_probe(&names, &ask, &self.shared.settings.name)
                    .await;
                let (tried, jobs) = match reply {
                    Ok(ProbeReply::Claimed { tried, reply }) => match reply {
                        ClaimReply::Jobs(jobs) => (tried, jobs),
                        ClaimReply::Dead => {
                            self.heard_dead(session).await;
                            return true;
                        }
                        ClaimReply::Moved => {
                            self.heard_of_move().await;
                            return true;
                        }
                    },
                    Ok(ProbeReply::Full | ProbeReply::NotNow) => continue,
                    Err(error) => {
                        self.failed(&error).await;
                        return true;
                    }
                };
                let Some(first) = jobs.first() else { continue };
                point!("after-claim");
                let first = first.token;
                self.hand_out(jobs, session, &tried).await;
                if alone {
                    self.state.alone = Some((first, Instant::now()));
                    return true;
                }
            }
        }
        false
    }

    async fn heard_dead(&mut self, session: &Arc<Session>) {
        if !mutant!("told to be dead and goes on") {
            session.stop(Cut::DeclaredDead);
        }
        self.beat_now().await;
    }

    /// The watch goes on under another id; claimed jobs may or may not have survived.
    async fn heard_of_move(&mut self) {
        self.state.suspect = true;
        self.beat_now().await;
    }

    async fn beat_now(&mut self) {
        self.shared.beat_now.notify_one();
        let shared = self.shared.clone();
        self.pause(Duration::from_millis(100), shared.session_began.notified())
            .await;
    }

    async fn failed(&mut self, error: &crate::Error) {
        self.state.suspect = true;
        if self.state.failing.is_zero() {
            tracing::warn!("claim failed, retrying: {}", error.cause());
        }
        self.state.failing = (self.state.failing * 2).clamp(Duration::from_millis(50), Duration::from_secs(1));
        let wait = self.state.failing.mul_f64(0.75 + 0.5 * fastrand::f64());
        self.pause(wait, std::future::pending()).await;
    }

    /// Queues with free capacity, and how much.
    fn free(&self) -> Vec<(i64, i32)> {
        if self.shared.is_behind() {
            return Vec::new();
        }
        let rooms = self.queues.iter().map(|queue| (queue.queue_no, queue.room()));
        let pauses = self.shared.pauses.now();
        let rooms = rooms.filter(|(queue_no, room)| *room > 0 && !pauses.stop_queue(*queue_no));
        rooms
            .map(|(queue_no, room)| (queue_no, i32::try_from(room).unwrap_or(i32::MAX)))
            .collect()
    }

    /// Starts the claimed jobs, or hands them back when the session ended before the reply came.
    async fn hand_out(&mut self, jobs: Vec<Claimed>, session: &Arc<Session>, tried: &[(String, i64)]) {
        for queue in &self.queues {
            let of_queue = jobs.iter().filter(|job| job.queue_no == queue.queue_no).count();
            if of_queue > 0 {
                self.shared.emit(Event::Claimed {
                    queue: queue.queue.clone(),
                    jobs: of_queue,
                });
            }
        }
        if session.cut.is_cancelled() || self.shared.is_lease_ending() {
            let back: Vec<Settlement> = jobs.iter().map(|j| released(j, "claim reply came too late")).collect();
            if let Err(error) = self.shared.store.settle(&back).await {
                tracing::debug!(
                    "could not release jobs that were claimed too late, leaving them to recovery: {}",
                    error.cause()
                );
                self.state.suspect = true;
            }
            // Whatever prevents the renewal of the lease, claiming at full speed does not help.
            return self.pause(Duration::from_millis(100), std::future::pending()).await;
        }
        (self.dispatch)(jobs, session, tried);
    }

    /// How often to check without a reason. The check passes every dead lease that an old transaction keeps, so it gets
    /// a fiftieth of the time. After a failed claim the check runs immediately.
    fn check_every(&self) -> Duration {
        (self.shared.timing.lease / 3).max(self.state.check_took * 50)
    }

    /// Finds leases whose claim reply was lost: the database says that they are ours, but this worker does not know
    /// them.
    async fn check_own_leases(&mut self, session: &Arc<Session>) {
        let asked_at = Instant::now();
        let mut tokens = Vec::new();
        let mut found = Ok(());
        for session in self.shared.earlier() {
            found = found.and(self.check_earlier(&session, &mut tokens).await);
        }
        let of_session = |job: &Arc<InHand>| job.token.worker == session.worker;
        let in_hand: Vec<Arc<InHand>> = self.shared.in_hand().into_iter().filter(of_session).collect();
        let listed = self.shared.store.own_leases(session.worker, self.state.suspect).await;
        if let Err(error) = found.and(listed.map(|listed| tokens.extend(listed))) {
            tracing::debug!("could not list own leases, retrying: {}", error.cause());
            // Try again after the next claim attempt; until then the periodic check remains.
            self.state.checked_at = Instant::now();
            return;
        }
        self.state.suspect = false;
        self.state.checked_at = Instant::now();
        self.state.check_took = asked_at.elapsed();
        for job in in_hand.into_iter().filter(|job| !tokens.contains(&job.token)) {
            self.withdraw(job);
        }
        let unknown: Vec<Token> = tokens.into_iter().filter(|t| !self.shared.holds(*t)).collect();
        if unknown.is_empty() {
            return;
        }
        let back: Vec<Settlement> = unknown.iter().map(|t| reply_lost(*t)).collect();
        match self.shared.store.settle(&back).await {
            Ok(applied) => {
                let jobs = applied.into_iter().filter(|a| *a).count();
                if jobs == 0 {
                    // They were settled between the list and the check.
                    return;
                }
                tracing::warn!(jobs, "the reply to a claim was lost; its jobs were released");
                self.shared.emit(Event::ClaimReplyLost { jobs });
            }
            Err(_) => self.state.suspect = true,
        }
    }

    /// Stops a job whose lease an operator has ended. Its backend is ended too, so that it keeps no row lock.
    fn withdraw(&self, job: Arc<InHand>) {
        if !job.has_started() {
            return job.stop(Cut::DeclaredDead);
        }
        // A job whose handler has returned is being settled, or was settled a moment ago.
        if !self.shared.holds(job.token) || !job.condemn() {
            return;
        }
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let holder = job.holder.load(std::sync::atomic::Ordering::Relaxed);
            if holder != 0
                && let Err(error) = shared.store.cut(holder).await
            {
                tracing::warn!(
                    job = job.token.id,
                    "could not end the backend of a cancelled job: {}",
                    error.cause()
                );
            }
            job.stop(Cut::TimeLimit);
            settler::announce_lost(&shared, &*job);
        });
    }

    /// Stops the jobs that a failover took from an earlier session, and ends the session when no job is left in it.
    async fn check_earlier(&self, session: &Session, tokens: &mut Vec<Token>) -> Result<()> {
        let of_session = |job: &Arc<InHand>| job.token.worker == session.worker;
        let in_hand: Vec<Arc<InHand>> = self.shared.in_hand().into_iter().filter(of_session).collect();
        let listed = self.shared.store.own_leases(session.worker, false).await?;
        for job in in_hand
            .iter()
            .filter(|job| !listed.contains(&job.token) && !job.is_over())
        {
            job.stop(Cut::DeclaredDead);
        }
        if in_hand.is_empty() && listed.is_empty() {
            self.shared.store.leave(session.worker).await?;
            self.shared.drop_earlier(session.worker);
        }
        tokens.extend(listed);
        Ok(())
    }

    /// After a worker was lost, its jobs run one at a time and alone, so that a job that kills its worker does not use
    /// up its neighbours' attempts. `true`: this took the turn.
    async fn serve_alone(&mut self, session: &Arc<Session>) -> bool {
        let lease = self.shared.timing.lease;
        if let Some((token, since)) = self.state.alone {
            if self.shared.holds(token) {
                // A job that has run longer than a lease did not kill its worker immediately; others may run beside it.
                return since.elapsed() < lease && self.wait_for_room().await;
            }
            self.state.alone = None;
            let series = *self.state.series.get_or_insert(since);
            if series.elapsed() < ALONE_SERIES && self.shared.in_the_way() == 0 {
                let open = self.open();
                if self.claim_alone(session, &open).await {
                    return true;
                }
            }
            // The other jobs get as much time as these took, unless they do not need it.
            self.state.series = None;
            self.state.resting = true;
            self.state.alone_at = Some(Instant::now() + series.elapsed().min(lease));
        }
        if let Some(since) = self.state.clearing {
            if self.shared.in_the_way() > 0 && since.elapsed() < lease {
                return self.wait_for_room().await;
            }
            self.state.clearing = None;
            let open = self.open();
            return self.claim_alone(session, &open).await;
        }
        let now = Instant::now();
        if self.state.alone_at.is_some_and(|at| now < at) {
            return false;
        }
        self.state.alone_at = Some(now + ALONE_EVERY);
        self.state.resting = false;
        let busy = self.shared.in_the_way() > 0;
        self.state.busy_look = busy;
        let (queues, patience) = match busy {
            true => (self.clearable(), ALONE_PATIENCE),
            false => (self.open(), Duration::ZERO),
        };
        let lanes = self.planner.lanes_of(&queues);
        let due = !lanes.is_empty() && matches!(self.shared.store.alone_due(&lanes, patience).await, Ok(true));
        if due && busy {
            // Nothing new is claimed until no job is in the way.
            self.state.clearing = Some(now);
            return true;
        }
        due && self.claim_alone(session, &queues).await
    }

    /// Queues in which a job could start now.
    fn open(&self) -> Vec<i64> {
        let open = self.queues.iter().filter(|queue| queue.taken() < queue.concurrency);
        open.map(|queue| queue.queue_no).collect()
    }

    /// Queues in which a job could start once no job is in the way. Waiting jobs do not matter; handlers that run for
    /// long do.
    fn clearable(&self) -> Vec<i64> {
        let long = |queue: &Turnover| self.shared.long_running(queue.queue_no);
        let clearable = self.queues.iter().filter(|queue| long(queue) < queue.concurrency);
        clearable.map(|queue| queue.queue_no).collect()
    }

    async fn wait_for_room(&mut self) -> bool {
        let shared = self.shared.clone();
        self.pause(Duration::from_millis(250), shared.freed.notified()).await;
        true
    }

    async fn claim_alone(&mut self, session: &Arc<Session>, open: &[i64]) -> bool {
        for queue_no in open {
            let ask = self.planner.ask_alone(session.worker, *queue_no);
            match self.shared.store.claim(&ask).await {
                Ok(ClaimReply::Jobs(jobs)) if jobs.is_empty() => continue,
                Ok(ClaimReply::Jobs(jobs)) => {
                    point!("after-claim");
                    self.state.alone = jobs.first().map(|j| (j.token, Instant::now()));
                    self.hand_out(jobs, session, &[]).await;
                }
                Ok(ClaimReply::Dead) => self.heard_dead(session).await,
                Ok(ClaimReply::Moved) => self.heard_of_move().await,
                Err(error) => self.failed(&error).await,
            }
            return true;
        }
        // Another worker took them.
        false
    }
}

/// Whether a queue returned as many jobs as were requested, so that there may be more.
fn is_full(asked: &[(i64, i32)], jobs: &[Claimed]) -> bool {
    let mut came: HashMap<i64, i32> = HashMap::new();
    for job in jobs {
        *came.entry(job.queue_no).or_default() += 1;
    }
    asked
        .iter()
        .any(|(queue_no, places)| came.get(queue_no).is_some_and(|came| came >= places))
}

fn released(job: &Claimed, why: &str) -> Settlement {
    Ending::of(job, Backoff::DEFAULT).released(why)
}

fn reply_lost(token: Token) -> Settlement {
    let ending = Ending {
        token,
        attempt: 1,
        attempts_max: 1,
        backoff: Backoff::DEFAULT,
        probe: false,
        member: None,
        of_row: false,
    };
    ending.released("claim reply lost")
}
