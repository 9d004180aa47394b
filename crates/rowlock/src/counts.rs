//! The operations of the hot path as the worker calls them, one by one, for the program that counts their instructions.
//!
//! They are called below the loop, because the loop's timers and threads would be counted with them. Nothing of this is
//! compiled for users: it needs the private feature `__counts`.

use std::time::Duration;

use crate::{
    backoff::Backoff,
    enqueue::JobOptions,
    error::{Error, Result},
    job::{Draft, Job, Limits, kind_no, queue_no},
    lease::{Claimed, WorkerId},
    root::{Backend, Rowlock},
    settle::Ending,
    store::{ClaimAsk, ClaimReply, Cursor, Settlement, Store, Stretch},
};

/// Numbers that go into text have as many digits in every run.
const WORKER: WorkerId = WorkerId(1_234_567_890_123_456_789);

/// Jobs, checked and encoded.
pub struct Drafts(Vec<Draft>);

impl Drafts {
    /// From typed jobs to what the enqueue statements take.
    ///
    /// # Errors
    /// As [`Rowlock::enqueue`] before any SQL.
    pub fn of<J: Job>(jobs: &[J]) -> Result<Drafts> {
        let (chosen, limits) = (JobOptions::new(), Limits::new());
        let drafts = jobs.iter().map(|job| chosen.draft(job, &limits));
        Ok(Drafts(drafts.collect::<Result<_>>()?))
    }

    /// From payloads back to typed jobs, as a worker reads them.
    ///
    /// # Errors
    /// What [`Job::decode`] says.
    pub fn decode<J: Job>(&self) -> std::result::Result<Vec<J>, String> {
        self.0
            .iter()
            .map(|draft| J::decode(draft.version, &draft.payload))
            .collect()
    }
}

/// Jobs under a lease.
pub struct Claims(Vec<Claimed>);

/// One worker's operations on one database.
pub struct Verbs<DB: Backend> {
    rowlock: Rowlock<DB>,
}

impl<DB: Backend> Verbs<DB> {
    /// Registers the worker; the schema must be there.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn new(rowlock: Rowlock<DB>) -> Result<Verbs<DB>> {
        let lease = Duration::from_secs(3600);
        rowlock.store().register(WORKER, "counts", lease, &[]).await?;
        Ok(Verbs { rowlock })
    }

    /// Returns how many were put in.
    ///
    /// # Errors
    /// As [`Rowlock::enqueue_now`].
    pub async fn enqueue(&self, drafts: &Drafts) -> Result<usize> {
        Ok(self.rowlock.store().enqueue(&drafts.0).await?.len())
    }

    /// Takes up to `max` due jobs of one kind.
    ///
    /// # Errors
    /// [`Error::Database`], and [`Error::NotFound`] when the worker was declared dead.
    pub async fn claim<J: Job>(&self, max: i32) -> Result<Claims> {
        let queue_no = queue_no(J::QUEUE);
        let ask = ClaimAsk {
            worker: WORKER,
            queues: vec![(queue_no, max)],
            stretches: vec![Stretch {
                queue_no,
                kind_no: kind_no(J::KIND, J::VERSION),
                priority: J::PRIORITY,
                from: Cursor::START,
            }],
            alone: false,
            bound: Vec::new(),
        };
        match self.rowlock.store().claim(&ask).await? {
            ClaimReply::Jobs(jobs) => Ok(Claims(jobs)),
            ClaimReply::Dead | ClaimReply::Moved => Err(Error::NotFound("the worker that counts".into())),
        }
    }

    /// Ends every attempt as done, with a small result, in one commit; returns how many were recorded.
    ///
    /// # Errors
    /// [`Error::Database`].
    pub async fn settle(&self, claims: &Claims) -> Result<usize> {
        let done = |claimed| Ending::of(claimed, Backoff::DEFAULT).done(Some("{\"ok\":true}".into()), Vec::new());
        let ends: Vec<Settlement> = claims.0.iter().map(done).collect();
        let stand = self.rowlock.store().settle(&ends).await?;
        Ok(stand.into_iter().filter(|stands| *stands).count())
    }
}

impl Claims {
    /// How many there are whose body was found.
    pub fn whole(&self) -> usize {
        self.0.iter().filter(|claimed| claimed.body.is_some()).count()
    }
}
