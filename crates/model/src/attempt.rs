//! What an attempt's process and its transaction do in a step.

use crate::{
    Protocol,
    bug::Bug,
    world::{Mind, Run, Seen, Tx, Wire, World},
};

impl Protocol {
    /// Deletes the lease by its token, in the handler's transaction. No row: everything is rolled back.
    pub(crate) fn settle(&self, world: &mut World, no: usize) {
        let run = world.runs[no];
        let lease = self.matched(world, run.job, run.token);
        if let Some(lease) = lease {
            world.jobs[run.job].leases[lease].locked = true;
        }
        let tx = self.after_settling(lease);
        world.runs[no].tx = tx;
        if tx == Tx::Refused {
            refused(world, no);
        }
    }

    /// The server carries out what was sent.
    pub(crate) fn land(&self, world: &mut World, no: usize) {
        let run = world.runs[no];
        let lease = self.matched(world, run.job, run.token);
        let tx = match run.wire {
            Some(Wire::SettleAndCommit) => self.after_settling(lease),
            _ => Tx::Settled,
        };
        world.runs[no].wire = None;
        world.runs[no].tx = tx;
        if tx == Tx::Settled {
            world.runs[no].tx = Tx::Committed;
            self.commit(world, run.job, run.token, lease);
        }
    }

    pub(crate) fn abort(&self, world: &mut World, no: usize) {
        let run = world.runs[no];
        if run.tx == Tx::Settled {
            self.unlock(world, run.job);
        }
        world.runs[no].tx = Tx::Aborted;
        world.runs[no].wire = None;
    }

    /// An error says no more than a missing reply does, but for the one that the settlement raises itself.
    pub(crate) fn hear(&self, world: &mut World, no: usize) {
        let run = &mut world.runs[no];
        match run.tx {
            Tx::Committed => tell(run, true),
            Tx::Refused => refused(world, no),
            _ => run.mind = Mind::Doubt,
        }
    }

    /// Two statements: the first waits for the lock on the lease, the second sees what was committed by then.
    pub(crate) fn look(&self, world: &mut World, no: usize) {
        let run = world.runs[no];
        let lease = world.jobs[run.job].lease_of(run.token).copied();
        let done = world.jobs[run.job].says_done(run.token);
        match self.bug {
            Some(Bug::OneStatement) if lease.is_some_and(|lease| lease.locked) => world.runs[no].mind = Mind::Asking,
            Some(Bug::OneStatement) if run.mind == Mind::Asking && lease.is_none() => resolved(world, no, false),
            Some(Bug::AssumeDone) => resolved(world, no, true),
            Some(Bug::AssumeFailed) => resolved(world, no, false),
            _ => resolved(world, no, done),
        }
        if lease.is_some() && world.runs[no].told == Some(false) {
            world.runs[no].mind = Mind::Failing;
        }
    }

    /// The commit is known to have failed; where recovery was faster, there is nothing left to settle.
    pub(crate) fn fail_after_doubt(&self, world: &mut World, no: usize) {
        let run = world.runs[no];
        self.settle_failed(world, run.job, run.token);
        world.runs[no].mind = Mind::Over;
    }

    /// The body's writes are rolled back, and the failure is written in their place.
    pub(crate) fn fail(&self, world: &mut World, no: usize) {
        let run = world.runs[no];
        let wrote = run.tx == Tx::Open;
        if !self.settle_failed(world, run.job, run.token) {
            return refused(world, no);
        }
        if wrote && self.has(Bug::FailureKeepsWrite) {
            world.jobs[run.job].writes += 1;
        }
        world.runs[no].tx = Tx::Aborted;
        world.runs[no].mind = Mind::Over;
    }
}

fn tell(run: &mut Run, committed: bool) {
    run.told = Some(committed);
    run.mind = Mind::Over;
}

/// A lost lease is a value: the attempt is over and nothing of it remains.
fn refused(world: &mut World, no: usize) {
    let run = &mut world.runs[no];
    run.tx = Tx::Refused;
    tell(run, false);
    world.seen = Seen::Refused;
}

fn resolved(world: &mut World, no: usize, committed: bool) {
    tell(&mut world.runs[no], committed);
    world.seen = match committed {
        true => Seen::FoundCommitted,
        false => Seen::FoundNotCommitted,
    };
}
