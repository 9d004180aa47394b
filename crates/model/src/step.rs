//! The steps, and who may take which when. Each is one transaction, one message or one thing going wrong; between any
//! two of them everybody else may take theirs.

use crate::{
    Protocol,
    bug::Bug,
    world::{Job, Mind, Process, Pulse, Run, Tx, Wire, World},
};

/// One step. Numbers are places in the lists of [`World`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A producer commits with its data the first job of a chain.
    Enqueue(usize),
    /// A process sends a claim; the server finds its worker row not dead, and holds it.
    Claim(usize),
    /// The claim of a worker takes a job and commits.
    Take {
        /// Its row.
        worker: usize,
        /// What it takes.
        job: usize,
        /// Whether the reply arrives.
        heard: bool,
    },
    /// The claim of this worker ends without a job.
    TakeNothing(usize),
    /// The run deletes its lease by the token, in its transaction.
    Settle(usize),
    /// It sends the commit.
    Send(usize),
    /// It sends settlement and commit in one message.
    PassOn(usize),
    /// The server carries out what the run has sent.
    Land(usize),
    /// The server rolls the run's transaction back.
    Abort(usize),
    /// The reply arrives.
    Hear(usize),
    /// The reply is lost; what was sent may still arrive, or not.
    Cut(usize),
    /// A run in doubt looks at its lease, and then for its outcome.
    Look(usize),
    /// A run that found its lease settles it as failed.
    SettleFailed(usize),
    /// The body fails; the attempt is settled as failed.
    Fail(usize),
    /// The body hangs: its worker settles the attempt as failed on another connection, and the body goes on unknowing.
    TimeLimit(usize),
    /// A process is frozen or cut off for so long that its last heartbeat is older than its lease. Then it goes on as
    /// if nothing had happened.
    Pause(usize),
    /// A process is killed; another takes its place, under a new id.
    Crash(usize),
    /// A process renews its leases, or learns that it was declared dead and registers anew.
    Beat(usize),
    /// A process hands back one of its leases that it knows nothing of.
    Sweep {
        /// Who.
        process: usize,
        /// Whose lease.
        job: usize,
    },
    /// Recovery declares this worker dead.
    MarkDead(usize),
    /// Recovery reads the lease of a dead worker on this job, to act on it later: [`Bug::RecoveryOverwrites`] alone.
    Note(usize),
    /// Recovery ends the lease of a dead worker on this job.
    Expire(usize),
    /// Recovery removes the row of a dead worker that has no leases.
    Forget(usize),
    /// An operator reopens this case.
    Reopen(usize),
}

impl Step {
    /// The run whose process or transaction takes this step.
    pub fn run(self) -> Option<usize> {
        match self {
            Step::Settle(run)
            | Step::Send(run)
            | Step::PassOn(run)
            | Step::Land(run)
            | Step::Abort(run)
            | Step::Hear(run)
            | Step::Cut(run)
            | Step::Look(run)
            | Step::SettleFailed(run)
            | Step::Fail(run)
            | Step::TimeLimit(run) => Some(run),
            _ => None,
        }
    }

    /// Something goes wrong, or somebody decides: what the protocol may not wait for.
    pub fn is_optional(self) -> bool {
        matches!(
            self,
            Step::Pause(_) | Step::Crash(_) | Step::Cut(_) | Step::Take { heard: false, .. } | Step::Reopen(_)
        )
    }
}

impl Protocol {
    /// Hands out every step that can be taken now, always in the same order.
    pub(crate) fn each_step(&self, world: &World, take: &mut dyn FnMut(Step)) {
        for (no, job) in world.jobs.iter().enumerate() {
            self.steps_of_job(world, no, job, take);
        }
        for (no, process) in world.processes.iter().enumerate() {
            self.steps_of_process(world, no, *process, take);
        }
        for worker in 0..world.workers.len() {
            self.steps_of_worker(world, worker, take);
        }
        for (no, run) in world.runs.iter().enumerate() {
            self.steps_of_run(world, no, run, take);
        }
    }

    fn steps_of_job(&self, world: &World, no: usize, job: &Job, take: &mut dyn FnMut(Step)) {
        if no.is_multiple_of(self.bounds.links) && job.put == 0 {
            take(Step::Enqueue(no));
        }
        let dead = |worker: usize| world.workers[worker].pulse == Pulse::Dead;
        let expired = job.leases.iter().any(|lease| !lease.locked && dead(lease.token.worker));
        if self.has(Bug::RecoveryOverwrites) {
            if expired && !job.noted {
                take(Step::Note(no));
            }
            if job.noted && job.leases.iter().all(|lease| !lease.locked) {
                take(Step::Expire(no));
            }
        } else if expired {
            take(Step::Expire(no));
        }
        let reopens = job.case.is_some() || (self.has(Bug::ReopenFinished) && job.is_finished());
        if reopens && world.left.reopens > 0 {
            take(Step::Reopen(no));
        }
    }

    fn steps_of_process(&self, world: &World, no: usize, process: Process, take: &mut dyn FnMut(Step)) {
        if world.left.crashes > 0 {
            take(Step::Crash(no));
        }
        let row = world.workers[process.worker];
        if world.left.pauses > 0 && row.pulse == Pulse::Fresh {
            take(Step::Pause(no));
        }
        if row.pulse != Pulse::Fresh {
            take(Step::Beat(no));
        }
        if row.claiming {
            return;
        }
        let claims = world.workers.iter().filter(|worker| worker.claiming).count();
        let room = world.runs.len() + claims < self.bounds.runs;
        if row.pulse.is_alive() && room && self.is_any_due(world) {
            take(Step::Claim(no));
        }
        if self.has(Bug::NoSweep) {
            return;
        }
        for job in 0..world.jobs.len() {
            if world.unknown_lease(process.worker, job).is_some() {
                take(Step::Sweep { process: no, job });
            }
        }
    }

    fn steps_of_worker(&self, world: &World, no: usize, take: &mut dyn FnMut(Step)) {
        let worker = world.workers[no];
        let process = world.process_of(no);
        match worker.pulse {
            Pulse::Stale => take(Step::MarkDead(no)),
            Pulse::Dead => {
                let holds = |job: &Job| job.leases.iter().any(|lease| lease.token.worker == no);
                let claiming = worker.claiming && !self.has(Bug::ForgetTooSoon);
                if !claiming && !world.jobs.iter().any(holds) {
                    take(Step::Forget(no));
                }
            }
            Pulse::Fresh | Pulse::Forgotten => {}
        }
        if !worker.claiming {
            return;
        }
        let mut nothing = true;
        for (job_no, job) in world.jobs.iter().enumerate() {
            if job.ready.is_none() || self.bounds.next_of(job_no).is_none() {
                continue;
            }
            nothing = false;
            let (worker, job) = (no, job_no);
            if process.is_some() {
                take(Step::Take {
                    worker,
                    job,
                    heard: true,
                });
            }
            if process.is_none() || world.left.cuts > 0 {
                take(Step::Take {
                    worker,
                    job,
                    heard: false,
                });
            }
        }
        if nothing || process.is_none() {
            take(Step::TakeNothing(no));
        }
    }

    fn steps_of_run(&self, world: &World, no: usize, run: &Run, take: &mut dyn FnMut(Step)) {
        if run.wire.is_some() {
            take(Step::Land(no));
        }
        // A connection that broke, a refusal at commit, or a frozen client's idle limit.
        if run.wire.is_some() || run.tx == Tx::Settled {
            take(Step::Abort(no));
        }
        let lease = world.jobs[run.job].lease_of(run.token);
        let waits = lease.is_some_and(|lease| lease.locked);
        match (run.mind, run.tx) {
            (Mind::Running, Tx::Open) => {
                take(Step::Settle(no));
                take(Step::PassOn(no));
                take(Step::Fail(no));
                if lease.is_some() {
                    take(Step::TimeLimit(no));
                }
            }
            (Mind::Running, Tx::Settled) => take(Step::Send(no)),
            (Mind::Running, _) => take(Step::Fail(no)),
            (Mind::Sent, tx) => {
                if tx.is_over() {
                    take(Step::Hear(no));
                }
                if world.left.cuts > 0 {
                    take(Step::Cut(no));
                }
            }
            (Mind::Doubt, _) if self.may_look(run, waits) => take(Step::Look(no)),
            (Mind::Asking, _) if !waits => take(Step::Look(no)),
            (Mind::Failing, _) if !waits => take(Step::SettleFailed(no)),
            (Mind::Doubt | Mind::Asking | Mind::Failing | Mind::Over, _) => {}
        }
    }

    fn is_any_due(&self, world: &World) -> bool {
        let mut jobs = (0..).zip(&world.jobs);
        jobs.any(|(no, job)| job.ready.is_some() && self.bounds.next_of(no).is_some())
    }

    /// Whether a run in doubt asks now. A transaction that has settled is waited for by its lock; where the settlement
    /// itself is on its way nothing is locked, so the connection is ended first, and waited for until it is gone.
    fn may_look(&self, run: &Run, locked: bool) -> bool {
        let under_way = run.wire == Some(Wire::SettleAndCommit);
        match self.bug {
            Some(Bug::AssumeFailed | Bug::AssumeDone) => true,
            Some(Bug::LookWithoutLock | Bug::OneStatement) => !under_way,
            Some(Bug::LookTooSoon) => !locked,
            _ => !locked && !under_way,
        }
    }
}
