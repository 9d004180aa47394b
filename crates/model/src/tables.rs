//! What each step writes to the tables, each as one commit. The statements are those of the library's `sql` folder, and
//! where an outcome leads is asked of the library's own table.

use crate::{
    Protocol,
    bug::Bug,
    outcome::{self, Ended, State},
    world::{Lease, Outcome, Pulse, Row, Token, Tx, World},
};

impl Protocol {
    pub(crate) fn enqueue(&self, world: &mut World, job: usize) {
        let job = &mut world.jobs[job];
        job.put += 1;
        job.ready = Some(Row { epoch: 0, attempt: 0 });
    }

    /// The attempt is counted and the epoch raised in the commit that makes the lease.
    pub(crate) fn take(&self, world: &mut World, worker: usize, job: usize) -> Option<Token> {
        let job = &mut world.jobs[job];
        let row = job.ready.take()?;
        let epoch = row.epoch + u8::from(!self.has(Bug::EpochKept));
        let attempt = row.attempt + u8::from(!self.has(Bug::AttemptAtSettle));
        if self.has(Bug::ClaimKeepsReady) {
            job.ready = Some(Row { epoch, attempt });
        }
        let token = Token { epoch, worker };
        job.leases.push(Lease {
            token,
            attempt,
            locked: false,
        });
        job.started += 1;
        job.epoch_max = job.epoch_max.max(Some(epoch));
        Some(token)
    }

    /// The lease that a handler's settlement finds.
    pub(crate) fn matched(&self, world: &World, job: usize, token: Token) -> Option<usize> {
        let fits = |lease: &Lease| lease.token == token || self.has(Bug::SettleById);
        world.jobs[job].leases.iter().position(fits)
    }

    /// The commit of a handler's transaction; `lease` is what its settlement matched.
    pub(crate) fn commit(&self, world: &mut World, job_no: usize, token: Token, lease: Option<usize>) {
        let job = &mut world.jobs[job_no];
        job.writes += 1;
        if self.has(Bug::SettleApart) {
            return;
        }
        if let Some(lease) = lease {
            job.leases.remove(lease);
        }
        if self.has(Bug::ClaimKeepsReady) {
            job.ready = None;
        }
        job.outcomes.push(Outcome {
            token,
            ended: Ended::Done,
        });
        job.done += 1;
        if let Some(next) = self.bounds.next_of(job_no)
            && !self.has(Bug::LinkApart)
        {
            self.enqueue(world, next);
        }
    }

    /// Ends a lease without its effect. `None` picks the outcome of a failure.
    pub(crate) fn end(&self, world: &mut World, job: usize, lease: usize, ended: Option<Ended>) {
        let job = &mut world.jobs[job];
        let Lease { token, mut attempt, .. } = job.leases.remove(lease);
        if self.has(Bug::AttemptAtSettle) && ended.is_none() {
            attempt += 1;
        }
        let max = self.bounds.attempts_max;
        let ended = ended.unwrap_or_else(|| outcome::failed(attempt.into(), max.into()));
        job.outcomes.push(Outcome { token, ended });
        let place = outcome::after(ended, attempt.into(), max.into());
        if self.has(Bug::ClaimKeepsReady) {
            job.ready = None;
        }
        if ended.gives_attempt_back() {
            attempt -= u8::from(!self.has(Bug::AttemptAtSettle));
            job.started -= 1;
        }
        let epoch = token.epoch;
        job.stand(place, Row { epoch, attempt });
    }

    /// Settles an attempt as failed, by its token; `false` where that no longer holds.
    pub(crate) fn settle_failed(&self, world: &mut World, job: usize, token: Token) -> bool {
        let lease = world.jobs[job].leases.iter().position(|lease| lease.token == token);
        let Some(lease) = lease else { return false };
        self.end(world, job, lease, None);
        true
    }

    /// Takes the lock of a transaction that is over off its lease.
    pub(crate) fn unlock(&self, world: &mut World, job: usize) {
        world.jobs[job].leases.iter_mut().for_each(|lease| lease.locked = false);
    }

    /// Ends the lease of a dead worker; the attempt stays counted.
    pub(crate) fn expire(&self, world: &mut World, no: usize) {
        let dead = |lease: &Lease| !lease.locked && world.workers[lease.token.worker].pulse == Pulse::Dead;
        if !self.has(Bug::RecoveryOverwrites) {
            if let Some(lease) = world.jobs[no].leases.iter().position(dead) {
                self.end(world, no, lease, Some(Ended::Lost));
            }
            return;
        }
        let job = &mut world.jobs[no];
        job.noted = false;
        job.leases.clear();
        let (attempt, epoch) = (job.started, job.epoch_max.unwrap_or(0));
        let place = outcome::after(Ended::Lost, attempt.into(), self.bounds.attempts_max.into());
        (job.ready, job.case) = (None, None);
        job.stand(place, Row { epoch, attempt });
    }

    /// Puts a case back with all its attempts; the epoch goes on rising.
    pub(crate) fn reopen(&self, world: &mut World, job: usize) {
        let job = &mut world.jobs[job];
        let row = job.case.take();
        let epoch = match self.has(Bug::EpochReset) {
            true => 0,
            false => row.map(|row| row.epoch).or(job.epoch_max).unwrap_or(0),
        };
        job.stand(State::Ready, Row { epoch, attempt: 0 });
        job.started = 0;
        job.audits += u8::from(!self.has(Bug::ReopenUnaudited));
        world.left.reopens -= 1;
    }

    /// Whether a transaction that matched no lease goes on to commit.
    pub(crate) fn after_settling(&self, lease: Option<usize>) -> Tx {
        match lease.is_some() || self.has(Bug::CommitAnyway) {
            true => Tx::Settled,
            false => Tx::Refused,
        }
    }
}
