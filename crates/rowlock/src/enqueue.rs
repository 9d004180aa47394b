//! Enqueue a job, inside the caller's transaction.
//!
//! `enqueue` takes a transaction, never a bare connection or a pool, so that "not in my transaction" cannot happen by
//! accident. `enqueue_now` commits by itself. Everything is checked before SQL: a bad job leaves the
//! caller's transaction as it was.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    time::Duration,
};

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    error::Result,
    group::Group,
    id::JobId,
    job::{Draft, Due, Job, Limits, Options},
    key::{Enqueued, Hold},
    root::{Backend, InTransaction, Rowlock},
    store::Store,
    trace,
};

/// What may be chosen for one job; every unset option takes the kind's default.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct JobOptions {
    options: Options,
    limits: Limits,
    /// The first wrong option and what is wrong with it; reported when the job is enqueued.
    error: Option<(&'static str, String)>,
}

macro_rules! option_setters {
    ($self:ident => $target:expr) => {
        /// Sends it to this queue.
        pub fn queue(mut $self, queue: impl Into<String>) -> Self {
            $target.set_queue(queue.into());
            $self
        }

        /// 1 runs first, strictly: while there is due work of priority 1, nothing of priority 2 is claimed. A steady
        /// stream of urgent jobs starves the rest, so use 1 rarely.
        pub fn priority(mut $self, priority: i16) -> Self {
            $target.options.priority = Some(priority);
            $self
        }

        /// Due this long from now, by the database's clock.
        pub fn after(mut $self, delay: Duration) -> Self {
            $target.options.due = Some(Due::In(delay));
            $self
        }

        /// Due at this time; a time in the past means now.
        pub fn at(mut $self, at: Timestamp) -> Self {
            $target.options.due = Some(Due::At(at));
            $self
        }

        /// The job is in ready but becomes due only when [`Rowlock::trigger`](crate::Rowlock::trigger) is called: for
        /// jobs that a hint from outside starts, such as a pointer in an SQS queue. After the trigger it is a job like
        /// any other, and its retries need no second hint. You must make sure that the hint comes. Without it, the job
        /// stays where it is, also past its expiry, and stays the head of its group.
        pub fn on_trigger(mut $self) -> Self {
            $target.options.due = Some(Due::OnTrigger);
            $self
        }

        /// Cancelled instead of run if it has not started by then.
        pub fn expires(mut $self, at: Timestamp) -> Self {
            $target.options.expires_at = Some(at);
            $self
        }

        /// How many attempts it gets before it becomes a case.
        pub fn attempts(mut $self, attempts_max: i32) -> Self {
            $target.options.attempts_max = Some(attempts_max);
            $self
        }

        /// A word to find it by.
        pub fn tag(mut $self, tag: impl Into<String>) -> Self {
            $target.options.tags.push(tag.into());
            $self
        }

        /// A job that is enqueued in the commit that retires this one, also when recovery retires it. It is enqueued
        /// once, however often this job is reopened and retired again, and not while a parked effect of this job is in
        /// doubt.
        pub fn if_retired<C: Job>(mut $self, job: C) -> Self {
            $target.set_compensation(&job);
            $self
        }

        /// The trace context of the caller: a W3C `traceparent`, followed by a space and a `tracestate` if there is
        /// one. Unless set, the process's [`Propagator`](crate::trace::Propagator) is asked where the enqueue is
        /// awaited. Every attempt's span links to this context.
        pub fn trace(mut $self, trace: impl Into<String>) -> Self {
            $target.options.trace = Some(trace.into());
            $self
        }

        /// The job is in `waiting` until [`Rowlock::complete`](crate::Rowlock::complete) is called with this name, such
        /// as `approval:42`. It is ready immediately if the name is completed already. Its handler reads the answer
        /// with `answer`.
        pub fn waits_for(mut $self, name: impl Into<String>) -> Self {
            $target.options.waits_for = Some(name.into());
            $self
        }

        /// Waits for this long at most, by the database's clock; then the job is retired, with its compensation if it
        /// has one. Without a limit the job waits until the name is completed or the job expires.
        pub fn wait_limit(mut $self, limit: Duration) -> Self {
            $target.options.wait_limit = Some(limit);
            $self
        }

        /// Runs after every job of this group that was enqueued before it, never beside one, in the whole fleet; other
        /// groups go on meanwhile. See [`Group`] for what happens when the job is retired. Transactions that are open
        /// at the same time have no order. A scheduled job holds the jobs behind it until it is due.
        pub fn group(mut $self, group: impl Into<Group>) -> Self {
            $target.options.group = Some(group.into());
            $self
        }

        /// How long the key is held. The workers' policy decides unless set ([`Hold::Policy`]).
        pub fn hold(mut $self, hold: Hold) -> Self {
            $target.options.hold = Some(hold);
            $self
        }
    };
}

macro_rules! key_setters {
    ($self:ident => $target:expr) => {
        /// The caller's name for the operation, equal on every repeat and unique in the whole schema. While the key is
        /// held, a repeat of the same request creates no second job and gets [`Enqueued::Existing`]; another request
        /// under the key gets [`Error::KeyConflict`](crate::Error::KeyConflict). The key outlives retries, retirement
        /// and reopen.
        pub fn key(mut $self, key: impl Into<String>) -> Self {
            $target.options.key = Some(key.into());
            $self
        }

        /// Distinguishes requests under one key by the kind and this value, instead of by the kind and the payload: for
        /// payloads that differ between repeats, such as by a time.
        pub fn fingerprint<T: Serialize + ?Sized>(mut $self, request: &T) -> Self {
            $target.set_fingerprint(request);
            $self
        }
    };
}

impl JobOptions {
    /// The kind's defaults.
    pub fn new() -> JobOptions {
        JobOptions::default()
    }

    option_setters!(self => self);
    key_setters!(self => self);

    fn set_queue(&mut self, queue: String) {
        self.options.queue = Some(queue);
    }

    fn set_compensation<C: Job>(&mut self, job: &C) {
        match Draft::of(job, Options::default(), &self.limits) {
            Ok(draft) => self.options.if_retired = Some(Box::new(draft)),
            Err(error) => self.refuse("if_retired", error.to_string()),
        }
    }

    fn set_fingerprint<T: Serialize + ?Sized>(&mut self, request: &T) {
        match serde_json::to_string(request) {
            Ok(json) => self.options.fingerprint = Some(json),
            Err(error) => self.refuse("fingerprint", format!("cannot be written as JSON: {error}")),
        }
    }

    fn refuse(&mut self, field: &'static str, problem: String) {
        self.error.get_or_insert((field, problem));
    }

    pub(crate) fn draft<J: Job>(&self, job: &J, limits: &Limits) -> Result<Draft> {
        self.draft_named(job, Named::default(), limits)
    }

    fn draft_named<J: Job>(&self, job: &J, named: Named, limits: &Limits) -> Result<Draft> {
        if let Some((field, problem)) = &self.error {
            return Err(crate::Error::invalid(*field, problem));
        }
        let mut options = self.options.clone();
        options.key = named.key.or(options.key);
        options.group = named.group.or(options.group);
        Draft::of(job, options, limits)
    }
}

/// What differs between the jobs of a batch.
#[derive(Default)]
struct Named {
    key: Option<String>,
    group: Option<Group>,
}

enum Door<'c, DB: Backend> {
    Caller(&'c mut DB::Connection),
    Own,
}

/// An enqueue that is being configured; set options, then `.await` it.
#[must_use = "nothing is enqueued until this is awaited"]
pub struct Enqueue<'c, DB: Backend, J: Job> {
    rowlock: &'c Rowlock<DB>,
    door: Door<'c, DB>,
    job: J,
    chosen: JobOptions,
}

crate::debug::debug_fields!([DB: Backend, J: Job] Enqueue<'_, DB, J>, "Enqueue", chosen);

impl<'c, DB: Backend, J: Job> Enqueue<'c, DB, J> {
    option_setters!(self => self.chosen);
    key_setters!(self => self.chosen);
}

impl<'c, DB: Backend, J: Job> IntoFuture for Enqueue<'c, DB, J> {
    type Output = Result<Enqueued>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        let Enqueue {
            rowlock,
            door,
            job,
            chosen,
        } = self;
        Box::pin(async move {
            // Only when polled, because the trace context of the caller is known then.
            let draft = chosen.draft(&job, rowlock.limits())?;
            drop(job);
            let mut put = put(rowlock, door, vec![draft]).await?;
            put.pop().ok_or_else(|| {
                crate::Error::NotFound("the new job was not returned by the database; report this as a bug".into())
            })
        })
    }
}

/// An enqueue of many jobs that is being configured; options apply to each job.
#[must_use = "nothing is enqueued until this is awaited"]
pub struct EnqueueAll<'c, DB: Backend, J: Job> {
    rowlock: &'c Rowlock<DB>,
    door: Door<'c, DB>,
    jobs: Vec<J>,
    /// Empty, or one for each job.
    keys: Vec<String>,
    /// Empty, or one for each job.
    groups: Vec<Group>,
    chosen: JobOptions,
}

crate::debug::debug_fields!([DB: Backend, J: Job] EnqueueAll<'_, DB, J>, "EnqueueAll", keys, groups, chosen);

impl<'c, DB: Backend, J: Job> EnqueueAll<'c, DB, J> {
    option_setters!(self => self.chosen);

    /// Gives each job a key, as [`Enqueue::key`] does for one, and returns for each whether it is new. A key that comes
    /// twice makes one job.
    pub fn key_by<K: Into<String>>(mut self, key: impl Fn(&J) -> K) -> EnqueueKeyed<'c, DB, J> {
        self.keys = self.jobs.iter().map(|job| key(job).into()).collect();
        EnqueueKeyed(self)
    }

    /// Gives each job its group, as [`Enqueue::group`] does for one.
    pub fn group_by<G: Into<Group>>(mut self, group: impl Fn(&J) -> G) -> Self {
        self.groups = self.jobs.iter().map(|job| group(job).into()).collect();
        self
    }

    fn put(mut self) -> Pin<Box<dyn Future<Output = Result<Vec<Enqueued>>> + Send + 'c>> {
        Box::pin(async move {
            // Only when polled, because the trace context of the caller is known then.
            let drafts = self.drafts()?;
            let (rowlock, door) = (self.rowlock, self.door);
            drop(self.jobs);
            put(rowlock, door, drafts).await
        })
    }

    fn drafts(&mut self) -> Result<Vec<Draft>> {
        let limits = self.rowlock.limits();
        // One for all of them.
        self.chosen.options.trace = self.chosen.options.trace.take().or_else(trace::current);
        let named = |(i, job)| {
            let own = Named {
                key: self.keys.get(i).cloned(),
                group: self.groups.get(i).cloned(),
            };
            let draft = self.chosen.draft_named(job, own, limits);
            draft.map_err(|e| within_batch(i, e))
        };
        self.jobs.iter().enumerate().map(named).collect()
    }
}

impl<'c, DB: Backend, J: Job> IntoFuture for EnqueueAll<'c, DB, J> {
    type Output = Result<Vec<JobId>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        let put = self.put();
        Box::pin(async move { Ok(put.await?.iter().map(Enqueued::id).collect()) })
    }
}

/// An enqueue of many jobs with a key each, being configured.
#[must_use = "nothing is enqueued until this is awaited"]
#[derive(Debug)]
pub struct EnqueueKeyed<'c, DB: Backend, J: Job>(EnqueueAll<'c, DB, J>);

impl<'c, DB: Backend, J: Job> EnqueueKeyed<'c, DB, J> {
    option_setters!(self => self.0.chosen);
}

impl<'c, DB: Backend, J: Job> IntoFuture for EnqueueKeyed<'c, DB, J> {
    type Output = Result<Vec<Enqueued>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        self.0.put()
    }
}

/// Says which job of the batch was refused.
fn within_batch(index: usize, error: crate::Error) -> crate::Error {
    match error {
        crate::Error::Invalid { field, problem } => crate::Error::invalid(format!("jobs[{index}].{field}"), problem),
        other => other,
    }
}

async fn put<DB: Backend>(rowlock: &Rowlock<DB>, door: Door<'_, DB>, drafts: Vec<Draft>) -> Result<Vec<Enqueued>> {
    match door {
        Door::Caller(conn) => DB::enqueue_in(rowlock.store(), conn, &drafts).await,
        Door::Own => rowlock.store().enqueue(&drafts).await,
    }
}

impl<DB: Backend> Rowlock<DB> {
    /// Enqueues in the caller's transaction: `rowlock.enqueue(&mut tx, job).after(delay).await?`. The job exists if and
    /// only if that transaction commits. `tx` is a [`sqlx::Transaction`] or a handler's [`Tx`](crate::Tx); a bare
    /// connection does not compile:
    ///
    /// ```compile_fail,E0277
    /// # #[derive(serde::Serialize, serde::Deserialize, rowlock::Job)]
    /// # #[job(kind = "greet")]
    /// # struct Greet;
    /// # async fn f(rowlock: &rowlock::sqlite::Rowlock, conn: &mut sqlx::SqliteConnection) -> rowlock::Result<()> {
    /// let _ = rowlock.enqueue(conn, Greet).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Invalid`](crate::Error::Invalid) and [`Error::Encode`](crate::Error::Encode) before any SQL, so the
    /// transaction stays good. [`Error::KeyConflict`](crate::Error::KeyConflict) when another request holds the key;
    /// the transaction is as it was. [`Error::TryAgain`](crate::Error::TryAgain) when another transaction is in the way
    /// (a serialisation failure, a deadlock, a busy file): run yours again; [`Error::Database`](crate::Error::Database)
    /// otherwise.
    ///
    /// With a key, the call waits for any open transaction that is about to take the same key, and answers when that
    /// transaction has ended.
    ///
    /// Cancel safety: dropped half-way, the caller's connection is in the middle of a statement; roll back and drop it,
    /// as after any cancelled query.
    pub fn enqueue<'c, J: Job>(&'c self, tx: &'c mut impl InTransaction<DB>, job: J) -> Enqueue<'c, DB, J> {
        Enqueue {
            rowlock: self,
            door: Door::Caller(tx.connection()),
            job,
            chosen: JobOptions::new(),
        }
    }

    /// Enqueues one job and commits, on one of Rowlock's connections.
    ///
    /// # Errors
    /// As [`Rowlock::enqueue`]. After a database error the job may or may not exist.
    ///
    /// Cancel safety: dropped half-way, the job may or may not exist; the connection is not used again.
    pub fn enqueue_now<J: Job>(&self, job: J) -> Enqueue<'_, DB, J> {
        Enqueue {
            rowlock: self,
            door: Door::Own,
            job,
            chosen: JobOptions::new(),
        }
    }

    /// Enqueues many in the caller's transaction, a thousand per statement, all or none; answers in input order.
    ///
    /// # Errors
    /// As [`Rowlock::enqueue`], with the index of the refused job in the field's name.
    ///
    /// Cancel safety: as [`Rowlock::enqueue`].
    pub fn enqueue_all<'c, J: Job>(
        &'c self,
        tx: &'c mut impl InTransaction<DB>,
        jobs: impl IntoIterator<Item = J>,
    ) -> EnqueueAll<'c, DB, J> {
        EnqueueAll {
            rowlock: self,
            door: Door::Caller(tx.connection()),
            jobs: jobs.into_iter().collect(),
            keys: Vec::new(),
            groups: Vec::new(),
            chosen: JobOptions::new(),
        }
    }

    /// Enqueues many jobs and commits, all or none, on one of Rowlock's connections.
    ///
    /// # Errors
    /// As [`Rowlock::enqueue_all`]; after a database error all or none of them exist.
    ///
    /// Cancel safety: as [`Rowlock::enqueue_now`].
    pub fn enqueue_all_now<J: Job>(&self, jobs: impl IntoIterator<Item = J>) -> EnqueueAll<'_, DB, J> {
        EnqueueAll {
            rowlock: self,
            door: Door::Own,
            jobs: jobs.into_iter().collect(),
            keys: Vec::new(),
            groups: Vec::new(),
            chosen: JobOptions::new(),
        }
    }
}
