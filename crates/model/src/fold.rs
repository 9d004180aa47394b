//! Folds equivalent worlds into one, so that the search has fewer of them to visit.
//!
//! State that no step can see any more is dropped. Processes are alike and worker ids have no meaning, so both are
//! numbered anew after each step, in an order that depends on their state. So the numbers in a path are positions, not
//! names, and an attempt is known by its job and epoch.

use std::cmp::Reverse;

use crate::world::{Mind, Run, Tx, Worker, World};

impl World {
    /// Drops attempts and outcomes that nobody will ever look at.
    pub(crate) fn drop_unseen(&mut self) {
        self.runs.retain_mut(|run| {
            if run.mind == Mind::Over {
                run.process = None;
            }
            // A transaction without locks and without a commit on its way ends unseen.
            let silent = run.wire.is_none() && run.tx != Tx::Settled;
            run.mind != Mind::Over || !silent
        });
        for (no, job) in (0..).zip(&mut self.jobs) {
            let asked = |token| self.runs.iter().any(|run| run.job == no && run.token == token);
            job.outcomes.retain(|outcome| asked(outcome.token));
        }
    }

    /// Puts everything in order and numbers it anew.
    pub fn fold(&mut self) {
        let processes = self.order_of_processes();
        let place = |process: usize| processes.iter().position(|at| *at == process);
        for run in &mut self.runs {
            run.process = run.process.and_then(place);
        }
        self.processes = processes.iter().map(|at| self.processes[*at]).collect();
        self.runs.sort_unstable_by_key(|run| (signature(run), run.token));
        self.number_workers();
    }

    /// Busy ones first.
    fn order_of_processes(&self) -> Vec<usize> {
        let about = |no: usize| {
            let row = self.processes[no].worker;
            let runs = self.runs.iter().filter(|run| run.process == Some(no));
            let mut runs: Vec<_> = runs.map(signature).collect();
            runs.sort_unstable();
            let held = self.jobs.iter().map(|job| {
                let mut own = job.leases.iter().filter(|lease| lease.token.worker == row);
                own.next().map(|lease| lease.token.epoch)
            });
            let held: Vec<_> = held.collect();
            Reverse((self.workers[row].claiming, self.workers[row].pulse, held, runs))
        };
        let mut order: Vec<usize> = (0..self.processes.len()).collect();
        order.sort_by_cached_key(|no| about(*no));
        order
    }

    /// Keeps the worker rows that a process or a lease refers to, in the order in which they are met. A row that only a
    /// token names can be dropped: nothing is left to recover from it.
    fn number_workers(&mut self) {
        let held = self.jobs.iter().flat_map(|job| &job.leases);
        let mut claiming: Vec<usize> = (0..self.workers.len())
            .filter(|no| self.workers[*no].claiming)
            .collect();
        claiming.sort_by_key(|no| self.workers[*no].pulse);
        let seen = self.processes.iter().map(|process| process.worker);
        let seen = seen.chain(held.map(|lease| lease.token.worker)).chain(claiming);
        let mut order = Vec::with_capacity(self.workers.len());
        seen.for_each(|row| meet(&mut order, row));
        let mut workers: Vec<Worker> = order.iter().map(|row| self.workers[*row]).collect();

        self.runs.iter().for_each(|run| meet(&mut order, run.token.worker));
        workers.resize(order.len(), Worker::FORGOTTEN);
        self.workers = workers;
        let place = |row: &mut usize| *row = order.iter().position(|at| at == row).unwrap_or(*row);
        self.processes.iter_mut().for_each(|process| place(&mut process.worker));
        self.runs.iter_mut().for_each(|run| place(&mut run.token.worker));
        for job in &mut self.jobs {
            job.leases.iter_mut().for_each(|lease| place(&mut lease.token.worker));
            job.outcomes
                .iter_mut()
                .for_each(|outcome| place(&mut outcome.token.worker));
        }
    }
}

fn meet(order: &mut Vec<usize>, row: usize) {
    if !order.contains(&row) {
        order.push(row);
    }
}

/// A run without what is only a number.
fn signature(run: &Run) -> impl Ord + use<> {
    (run.job, run.token.epoch, run.mind, run.tx, run.wire, run.told)
}
