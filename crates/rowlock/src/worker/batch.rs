//! A batch: jobs of one kind that run one after another in one transaction and share its commit.
//!
//! Each job runs under its own savepoint, unless the user disabled savepoints. A job that fails is rolled back alone,
//! and its failure is settled with the others' success. Some problems roll the whole transaction back: a lost lease, a
//! deadlock, a commit that fails, a connection that breaks, a handler that hangs or ends the transaction by hand. Then
//! every job that did not commit is run again, in its own transaction and under the same token; this does not count as
//! an attempt.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use super::{
    crew::{self, JobLine, WaitingJob},
    leased::{Leased, decoded_atomic},
    leases::JobShared,
};
use crate::{
    attempt::{self, Body, COMMITTED, Env, Finished, Nobody, hand::InHand, within},
    error::Error,
    event::{Event, Skipped},
    fault::point,
    handle::{
        Attempt, Fail, How,
        atomic::{Decoded, Handler, open},
    },
    lease::Token,
    root::Backend,
    state::Ended,
    store::{
        Open, Opening, Resolved, Settlement, Store, TxEnd,
        batch::{Parted, SettledShared},
    },
};

/// Called with each job's end, as soon as it is known.
pub(super) type Tell<'a> = &'a (dyn Fn(Finished, Arc<InHand>) + Send + Sync);

/// Runs the first job, and with it as many waiting jobs of its kind as fit; returns how many ran.
pub(super) async fn run<DB: Backend>(
    shared: &JobShared,
    env: &Env<DB>,
    line: &JobLine<DB>,
    first: WaitingJob<DB>,
    tell: Tell<'_>,
) -> usize {
    let handler = first.handler.clone();
    let mut batch = Batch {
        shared,
        env,
        line,
        tell,
        handler: &handler,
        began: Instant::now(),
        taken: 1,
        ran: Vec::new(),
        settlements: Vec::new(),
    };
    let undone = batch.together(first).await;
    let taken = batch.taken;
    let Some(undone) = undone.filter(|undone| !undone.again.is_empty()) else {
        return taken;
    };
    let jobs = undone.again.len();
    tracing::info!(
        kind = &*handler.kind,
        jobs,
        why = undone.why,
        "batch rolled back; running its jobs one by one"
    );
    shared.emit(Event::BatchUndone {
        kind: handler.kind.to_string(),
        jobs,
        reason: undone.why,
    });
    for waiting in undone.again {
        waiting.job.start_over();
        let finished = crew::run_in_own_transaction(shared, env, &waiting, &mut Nobody).await;
        tell(finished, waiting.job);
    }
    taken
}

/// A shared transaction that did not commit, and the jobs that must run again.
struct Undone<DB: Backend> {
    again: Vec<WaitingJob<DB>>,
    why: String,
}

struct Batch<'a, DB: Backend> {
    shared: &'a JobShared,
    env: &'a Env<DB>,
    line: &'a JobLine<DB>,
    tell: Tell<'a>,
    handler: &'a Arc<Handler<DB>>,
    began: Instant,
    taken: usize,
    /// The jobs whose ends wait for the commit, in the same order as `settlements`.
    ran: Vec<(WaitingJob<DB>, Option<Skipped>)>,
    settlements: Vec<Settlement>,
}

/// How a handler's part in the transaction ended.
enum Part<DB: Backend> {
    /// The handler gave the connection back.
    Over(DB::Held, End),
    /// The connection is gone, and the transaction with it; this is the end of the job.
    Gone(Finished),
    /// Another transaction was in the way: the locks of the whole batch may be the reason.
    InTheWay(DB::Held, String),
}

enum End {
    Done(Settlement),
    Failed(Settlement, Option<Skipped>),
    LeaseLost,
}

impl<'a, DB: Backend> Batch<'a, DB> {
    /// `None`: the end of every job is reported.
    async fn together(&mut self, first: WaitingJob<DB>) -> Option<Undone<DB>> {
        let (mut current, mut decoded) = self.decoded(first)?;
        let marker = current.job.token;
        let opening = Opening {
            token: marker,
            timing: self.env.timing,
            level: self.handler.level,
        };
        let begin = DB::begin(self.env.rowlock.store(), Open::Shared(opening));
        let mut held = match attempt::begun(begin, &current.job).await {
            Ok(held) => held,
            Err(finished) => {
                (self.tell)(*finished, current.job);
                return None;
            }
        };
        // The time limit starts here, not while waiting for a connection.
        self.began = Instant::now();
        loop {
            let end = match self.part(held, &current, decoded).await {
                Part::Over(back, end) => {
                    held = back;
                    end
                }
                Part::Gone(finished) => {
                    let why = format!("job {} broke the shared transaction", current.job.token.id);
                    (self.tell)(finished, current.job);
                    return self.undone(None, None, why);
                }
                Part::InTheWay(held, why) => {
                    // If the connection does not come back, its locks end with it.
                    let _ = within(
                        self.env.timing.lock,
                        DB::end(self.env.rowlock.store(), held, TxEnd::RollBack),
                    )
                    .await;
                    return self.undone(Some(current), None, why);
                }
            };
            point!("in-batch");
            let next = self.next();
            let ended = match self.handler.batch.savepoints {
                true => self.end_part(&mut held, current, end, next.is_some()).await,
                false => self.end_unparted(&mut held, current, end, next.is_some()).await,
            };
            if let Err(undone) = ended {
                drop(held);
                let (current, why) = *undone;
                return self.undone(current, next.map(|(next, _)| next), why);
            }
            match next {
                Some(next) => (current, decoded) = next,
                None => return self.commit(held, marker).await,
            }
        }
    }

    /// The job ready to run; otherwise its end is reported.
    fn decoded(&self, waiting: WaitingJob<DB>) -> Option<(WaitingJob<DB>, Decoded<DB>)> {
        let attempt = Attempt::of(&waiting.claimed, self.shared.stopping.clone());
        match decoded_atomic(self.env, self.handler, &waiting.claimed, attempt, &waiting.job) {
            Ok(decoded) => Some((waiting, decoded)),
            Err(finished) => {
                (self.tell)(*finished, waiting.job);
                None
            }
        }
    }

    /// Another waiting job, while the batch has space and time for it.
    fn next(&mut self) -> Option<(WaitingJob<DB>, Decoded<DB>)> {
        let batch = self.handler.batch;
        while self.taken < batch.jobs_max
            && self.began.elapsed() < batch.within
            && !self.shared.stopping.is_cancelled()
            && !self.shared.is_lease_ending()
        {
            let waiting = self.line.take_another(self.handler)?;
            self.taken += 1;
            if let Some(ready) = self.decoded(waiting) {
                return Some(ready);
            }
        }
        None
    }

    /// Runs one handler.
    async fn part(&self, held: DB::Held, waiting: &WaitingJob<DB>, decoded: Decoded<DB>) -> Part<DB> {
        let (env, job) = (self.env, &waiting.job);
        let holder = DB::holder(&held);
        job.holder.store(holder, Ordering::Relaxed);
        job.start();
        let attempt = Attempt::of(&waiting.claimed, self.shared.stopping.clone());
        let (slot, tx) = open(held, attempt, &env.rowlock);
        let body = attempt::guarded(Box::pin(async move { decoded(tx).await }), job).await;
        if !job.returned() {
            // The cut-off won. The watch checks the connection first, and records how the job ended.
            job.cut.cancelled().await;
            drop(slot.take());
            return Part::Gone(Finished::Cut);
        }
        let fail = match body {
            Body::Cut => return Part::Gone(attempt::cut_off(env, holder, slot, job).await),
            Body::Returned(Ok(done)) if done.token != job.token => {
                let problem = "the handler returned another job's transaction";
                return Part::Gone(attempt::settle(job.ending.retired(problem.into())));
            }
            Body::Returned(Ok(done)) => {
                let settlement = job.ending.done(done.result, done.next);
                job.keep_hooks(done.hooks);
                match done.held.and_then(|handed| handed.arrive()) {
                    Some(held) => return Part::Over(held, End::Done(settlement)),
                    None => Fail::retry("the handler's connection was lost"),
                }
            }
            Body::Returned(Err(fail)) => fail,
            Body::Panicked(text) => Fail::retry(format!("handler panicked: {text}")),
        };
        match slot.take() {
            Some(held) => failed(held, fail, job),
            None => {
                // Other code holds the connection, and with it the row locks of all jobs before this one.
                attempt::ended_by_hand(env, holder).await;
                Part::Gone(kept_from(fail, job))
            }
        }
    }

    /// Keeps or rolls back what the handler wrote, and opens the next job's part. `Err`: the transaction is over, and
    /// the job must run again with the others unless its end is reported.
    async fn end_part(
        &mut self,
        held: &mut DB::Held,
        current: WaitingJob<DB>,
        mut end: End,
        more: bool,
    ) -> Result<(), Box<(Option<WaitingJob<DB>>, String)>> {
        let (store, limit) = (self.env.rowlock.store(), self.env.timing.lease);
        let keep = matches!(end, End::Done(_));
        if !keep {
            point!("before-failure");
        }
        let mut parted = within(limit, DB::part(store, held, keep, more)).await;
        if let Ok(Parted::Spoilt(error)) = parted {
            drop(current.job.take_hooks());
            end = End::Failed(current.job.ending.failed(Fail::from(error)), None);
            parted = within(limit, DB::part(store, held, false, more)).await;
        }
        match (parted, end) {
            (Ok(Parted::Fine), End::LeaseLost) => (self.tell)(Finished::LeaseLost, current.job),
            (Ok(Parted::Fine), End::Done(settlement)) => self.keep(current, settlement, None),
            (Ok(Parted::Fine), End::Failed(settlement, skipped)) => self.keep(current, settlement, skipped),
            (Ok(Parted::NotOurs | Parted::Spoilt(_)), end) => {
                let why = format!("job {}: {COMMITTED}", current.job.token.id);
                (self.tell)(attempt::settle(current.job.ending.retired(by_hand(end))), current.job);
                return Err(Box::new((None, why)));
            }
            // This job did not cause the error, and nothing was committed.
            (Err(error), End::Done(_)) => return Err(Box::new((Some(current), Fail::from(error).text))),
            (Err(error), End::Failed(settlement, skipped)) => {
                (self.tell)(Finished::Settle { settlement, skipped }, current.job);
                return Err(Box::new((None, Fail::from(error).text)));
            }
            (Err(error), End::LeaseLost) => {
                (self.tell)(Finished::LeaseLost, current.job);
                return Err(Box::new((None, Fail::from(error).text)));
            }
        }
        Ok(())
    }

    /// Without savepoints nothing can be rolled back alone. If a job is not done, every job is run again, and that run
    /// decides how the job ends.
    async fn end_unparted(
        &mut self,
        held: &mut DB::Held,
        current: WaitingJob<DB>,
        end: End,
        more: bool,
    ) -> Result<(), Box<(Option<WaitingJob<DB>>, String)>> {
        let again = |current: WaitingJob<DB>, why: String| {
            drop(current.job.take_hooks());
            Err(Box::new((Some(current), why)))
        };
        let settlement = match end {
            End::Done(settlement) => settlement,
            End::Failed(settlement, _) => return again(current, settlement.error.unwrap_or_default()),
            End::LeaseLost => return again(current, "the lease of a job was lost".into()),
        };
        if !more {
            // There is one savepoint for all jobs; releasing it also removes the seal.
            let store = self.env.rowlock.store();
            match within(self.env.timing.lease, DB::part(store, held, true, false)).await {
                Ok(Parted::Fine) => {}
                Ok(Parted::Spoilt(error)) | Err(error) => return again(current, Fail::from(error).text),
                Ok(Parted::NotOurs) => return again(current, COMMITTED.into()),
            }
        }
        self.keep(current, settlement, None);
        Ok(())
    }

    fn keep(&mut self, waiting: WaitingJob<DB>, settlement: Settlement, skipped: Option<Skipped>) {
        self.ran.push((waiting, skipped));
        self.settlements.push(settlement);
    }

    /// No job's work is kept: those that ran, this one, and one that was about to run.
    fn undone(
        &mut self,
        current: Option<WaitingJob<DB>>,
        next: Option<WaitingJob<DB>>,
        why: String,
    ) -> Option<Undone<DB>> {
        let ran = self.ran.drain(..).map(|(waiting, _)| waiting);
        let again = ran.chain(current).chain(next).collect();
        Some(Undone { again, why })
    }

    /// Settles every job in the transaction and commits it.
    async fn commit(&mut self, mut held: DB::Held, marker: Token) -> Option<Undone<DB>> {
        let (store, limit) = (self.env.rowlock.store(), self.env.timing.lease);
        point!("before-settle");
        let settled = DB::settle_shared(store, &mut held, &marker, &self.settlements);
        let woken = match within(limit, settled).await {
            Ok(SettledShared::Applied { woken }) => woken,
            Ok(SettledShared::Lost(holds)) => {
                let _ = within(self.env.timing.lock, DB::end(store, held, TxEnd::RollBack)).await;
                return self.without_the_lost(&holds);
            }
            Ok(SettledShared::NotOurs) => return self.undone(None, None, COMMITTED.into()),
            // No commit was sent, so the transaction is over or will be.
            Err(error) => {
                drop(held);
                return self.undone(None, None, Fail::from(error).text);
            }
        };
        point!("before-commit");
        let committed = within(limit, DB::end(store, held, TxEnd::Commit)).await;
        point!("after-commit");
        if let Err(error) = committed {
            return self.resolve(error).await;
        }
        store.wake(&woken);
        for ((waiting, skipped), settlement) in self.ran.drain(..).zip(self.settlements.drain(..)) {
            let (ended, error) = (settlement.ended, settlement.error);
            (self.tell)(Finished::Settled { ended, skipped, error }, waiting.job);
        }
        None
    }

    /// The transaction also contains the writes of jobs whose lease was lost, so it cannot commit.
    fn without_the_lost(&mut self, holds: &[bool]) -> Option<Undone<DB>> {
        let mut again = Vec::new();
        let mut lost = 0;
        for ((waiting, _), holds) in self.ran.drain(..).zip(holds) {
            if *holds {
                again.push(waiting);
            } else {
                lost += 1;
                (self.tell)(Finished::LeaseLost, waiting.job);
            }
        }
        let why = format!("the lease of {lost} of its jobs was lost");
        Some(Undone { again, why })
    }

    /// The reply to the commit was an error or missing: look up what happened to each job.
    async fn resolve(&mut self, error: Error) -> Option<Undone<DB>> {
        let mut again = Vec::new();
        for ((waiting, skipped), settlement) in self.ran.drain(..).zip(self.settlements.drain(..)) {
            let leased = Leased {
                env: self.env,
                job: &waiting.job,
            };
            let finished = match attempt::what_became(&leased, &settlement).await {
                None => Finished::Cut,
                Some(Resolved::Lost | Resolved::Ended(Ended::Lost)) => Finished::LeaseLost,
                Some(Resolved::Ended(ended)) => Finished::Settled {
                    ended,
                    skipped,
                    error: None,
                },
                Some(Resolved::StillLeased) => {
                    again.push(waiting);
                    continue;
                }
            };
            (self.tell)(finished, waiting.job);
        }
        let why = Fail::from(error).text;
        Some(Undone { again, why })
    }
}

/// A handler that failed and gave its connection back.
fn failed<DB: Backend>(held: DB::Held, fail: Fail, job: &InHand) -> Part<DB> {
    match fail.how {
        How::RetrySoon => Part::InTheWay(held, fail.text),
        How::LeaseLost => Part::Over(held, End::LeaseLost),
        _ => {
            let skipped = fail.skipped();
            Part::Over(held, End::Failed(job.failed(fail), skipped))
        }
    }
}

/// A handler that failed and did not give its connection back.
fn kept_from(fail: Fail, job: &InHand) -> Finished {
    if fail.how == How::LeaseLost {
        return Finished::LeaseLost;
    }
    let skipped = fail.skipped();
    Finished::Settle {
        settlement: job.failed(fail),
        skipped,
    }
}

/// The case's text for a handler that ended the transaction by hand.
fn by_hand(end: End) -> String {
    match end {
        End::Failed(settlement, _) => format!("{COMMITTED}; then: {}", settlement.error.unwrap_or_default()),
        End::Done(_) | End::LeaseLost => COMMITTED.into(),
    }
}
