//! Runs jobs straight from a user's table, with the whole protocol: claims in batches, a token on every write,
//! attempts, backoff, retirement with a case, recovery, breakers, telemetry. PostgreSQL only.
//!
//! The row stays the user's. The claim is in the row's own columns, so plain SQL can read and steer it. These columns
//! hold for a row what Rowlock's tables hold for a job: the lease is `claimed_at`, renewed while a handler runs; the
//! token is `claim_token`, new with every claim. A row that succeeds touches nothing in Rowlock's schema.

mod attempt;
mod claimer;
mod hand;
mod handle;
mod journal;
mod refused;
mod reopen;
mod rows;
mod value;
mod watch;

use std::{future::Future, sync::Arc, time::Duration};

use sqlx::Postgres;
use tokio_util::task::TaskTracker;

pub use self::{
    handle::{
        RowAttempt as Attempt, RowCtx as Ctx, RowDone as Done, RowOutcome as Outcome, RowStaged as Staged, RowTx as Tx,
    },
    value::RowHandler as Handler,
};
use self::{
    refused::RefusedRows,
    rows::{RowCrew, Rows},
};
pub use crate::handle::Effect;
pub use crate::table::{ColumnFound, Columns, Inspection, Part, TableName};
use crate::{
    error::{Error, Result},
    event::{Counters, Event},
    handle::clean,
    retention::Retention,
    root::Rowlock,
    store::postgres::adopt::AdoptedTable,
    worker::{
        line::Line,
        patiently,
        running::Running,
        settings::{Settings, check_timing, declared},
        shared::Shared,
        turnover::Turnover,
    },
};

/// An application table that is ready to be worked off.
///
/// ```no_run
/// use rowlock::{
///     adopt::{self, Adopted, Columns},
///     atomic,
///     postgres::Rowlock,
/// };
/// use sqlx::{FromRow, Row, postgres::PgRow};
///
/// struct Snooze {
///     id: i64,
///     user_email: String,
/// }
///
/// // What `#[derive(sqlx::FromRow)]` writes, with sqlx's feature `derive`.
/// impl FromRow<'_, PgRow> for Snooze {
///     fn from_row(row: &PgRow) -> sqlx::Result<Snooze> {
///         Ok(Snooze { id: row.try_get("id")?, user_email: row.try_get("user_email")? })
///     }
/// }
///
/// async fn remind(_cx: adopt::Ctx, row: Snooze, mut tx: adopt::Tx) -> adopt::Outcome {
///     let insert = sqlx::query("insert into outbox (snooze, mail_to) values ($1, $2)");
///     insert.bind(row.id).bind(row.user_email).execute(&mut *tx).await?;
///     tx.done().ok() // the mail and the row's end are one commit
/// }
///
/// # async fn run() -> rowlock::Result<()> {
/// let rowlock = Rowlock::connect("postgres://app@db/shop").await?;
/// let snoozes = Adopted::open(&rowlock, "email_snoozes", Columns::due("remind_at")).await?;
/// snoozes.worker().handle(atomic(remind)).run_until(std::future::pending()).await
/// # }
/// ```
#[derive(Clone)]
pub struct Adopted {
    rowlock: Rowlock<Postgres>,
    table: Arc<AdoptedTable>,
}

impl std::fmt::Debug for Adopted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adopted")
            .field("queue", &self.table.queue)
            .finish_non_exhaustive()
    }
}

impl Adopted {
    /// Checks whether the table is ready, and takes it into use. The name is exact, with its schema if the schema is
    /// not in the search path: `app.email_snoozes`.
    ///
    /// # Errors
    /// [`Error::Config`] with the missing statements when the table needs a migration; [`Error::Conflict`] when it
    /// cannot be adopted as it is; [`Error::NotFound`] when there is no such table; [`Error::Invalid`] for a bad name;
    /// the errors of [`Rowlock::check_schema`]. Cancel-safe.
    pub async fn open(rowlock: &Rowlock<Postgres>, table: &str, columns: Columns) -> Result<Adopted> {
        rowlock.check_schema().await?;
        let table = rowlock.store().open_table(&TableName::parse(table)?, &columns).await?;
        Ok(Adopted {
            rowlock: rowlock.clone(),
            table: Arc::new(table),
        })
    }

    /// Inspects a table and returns what it has and what it needs. Changes nothing, and does not need Rowlock's schema.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table; [`Error::Invalid`] for a bad name or one column for two parts.
    /// Cancel-safe.
    pub async fn inspect(rowlock: &Rowlock<Postgres>, table: &str, columns: &Columns) -> Result<Inspection> {
        rowlock.store().inspect_table(&TableName::parse(table)?, columns).await
    }

    /// Runs the statements of [`Inspection::migration`], each in a separate commit; returns what ran. Nothing that the
    /// table already has is changed or dropped. Running it again does nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`] when a problem cannot be fixed by our migrations. [`Error::Database`] leaves the statements
    /// that ran before it in place: run it again. Cancel safety: dropped half-way, the current statement may or may not
    /// have run; run it again.
    pub async fn migrate(rowlock: &Rowlock<Postgres>, table: &str, columns: &Columns) -> Result<Vec<String>> {
        rowlock.store().migrate_table(&TableName::parse(table)?, columns).await
    }

    /// The queue name of the table in metrics, cases and pauses: the table's name, with the schema unless that is
    /// `public`.
    pub fn queue(&self) -> &str {
        &self.table.queue
    }

    /// A worker on this table, without state.
    pub fn worker(&self) -> Worker<()> {
        Worker {
            adopted: self.clone(),
            state: Arc::new(()),
            settings: Settings::new(Duration::from_secs(60)),
            slots: 16,
            poll: Duration::from_secs(1),
            handlers: Vec::new(),
        }
    }
}

/// A worker on an adopted table that is being configured. `run_until` runs it.
pub struct Worker<A = ()> {
    adopted: Adopted,
    state: Arc<A>,
    settings: Settings,
    slots: usize,
    poll: Duration,
    handlers: Vec<Handler<A>>,
}

crate::debug::debug_fields!([A] Worker<A>, "Worker", adopted);

impl Worker<()> {
    /// What the handler can reach through its context. Set the state before the handler, because the handler's type
    /// depends on it.
    pub fn state<A: Send + Sync + 'static>(self, state: A) -> Worker<A> {
        Worker {
            adopted: self.adopted,
            state: Arc::new(state),
            settings: self.settings,
            slots: self.slots,
            poll: self.poll,
            handlers: Vec::new(),
        }
    }
}

impl<A: Send + Sync + 'static> Worker<A> {
    /// Handles each row with this handler: `worker.handle(atomic(remind).backoff(…))`. A table has one handler.
    pub fn handle(mut self, handler: Handler<A>) -> Self {
        self.handlers.push(handler);
        self
    }

    /// How many rows are handled at the same time (16 unless set; 1 to 1000). As many again may be claimed ahead of
    /// them.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// A name for people, which `claimed_by` shows.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = clean(name.into());
        self
    }

    /// How old a claim may get without a renewal before any worker takes the row away (60 s unless set; 2 s to 1 h).
    /// Claims are renewed when a third of the lease has passed, so a row that is handled sooner is never renewed. Every
    /// worker of a table must have the same lease.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long handlers may go on after the stop (30 s unless set).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// The longest time until an idle worker notices a due row (1 s unless set; 10 ms to 1 min).
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// How long history, cases and keys are kept in the whole database; see
    /// [`Worker::retention`](crate::Worker::retention). A row worker does the upkeep like any other worker, so give it
    /// the same retention as the others.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Calls the listener for every event, after the event's commit. Keep it quick: it runs on the worker's tasks.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.settings.listen(listener);
        self
    }

    /// Running totals; keep the handle, the worker is consumed by running it.
    pub fn counters(&self) -> Arc<Counters> {
        self.settings.counters.clone()
    }

    /// Runs until `stop` resolves, then shuts down gracefully: claims stop, rows that were not begun are given back
    /// without an attempt, and running handlers are notified and get the grace period. Once started, the worker
    /// survives any outage of the database.
    ///
    /// # Errors
    /// Before it starts: contradictory settings, a schema that does not fit, or an unreachable database.
    ///
    /// Cancel safety: if dropped, its handlers are dropped with it, and other workers recover their rows after the
    /// lease.
    pub async fn run_until(self, stop: impl Future<Output = ()>) -> Result<()> {
        let Worker {
            adopted: Adopted { rowlock, table },
            state,
            mut settings,
            slots,
            poll,
            mut handlers,
        } = self;
        let timing = settings.timing();
        check_timing(timing)?;
        if !(1..=1000).contains(&slots) {
            return Err(Error::Config(format!("slots: {slots} is out of range (1 to 1000)")));
        }
        if !(Duration::from_millis(10)..=Duration::from_secs(60)).contains(&poll) {
            return Err(Error::Config(format!(
                "poll: {poll:?} is out of range (10 ms to 1 min)"
            )));
        }
        settings.retention.check(std::iter::once(reopen::horizon()))?;
        let (count, handler) = (handlers.len(), handlers.pop());
        let Some(handler) = handler.filter(|_| count == 1) else {
            return Err(Error::Config(format!(
                "the row worker has {count} handlers; add one with .handle(…)"
            )));
        };
        settings.breakers.clone_from(&handler.breakers);
        declared(&settings.breakers)?;
        let rowlock = rowlock.for_worker(timing, slots)?;
        patiently(|| rowlock.check_schema()).await?;
        let (pauses, breakers) = settings.prepare(&rowlock).await?;
        let rows = Rows {
            rowlock: rowlock.clone(),
            table,
            backoff: handler.backoff,
            time_limit: handler.time_limit,
            handler: handler.bind(state),
            refused: RefusedRows::default(),
        };
        let names = (&*rows.table.queue.clone(), &*settings.name.clone());
        let queue = Arc::new(Turnover::new(names, slots, 1, Some(slots)));
        let shared = Shared::new::<Postgres>(rows, settings, pauses, breakers);
        let crew = RowCrew {
            env: shared.env(rowlock),
            line: Line::new(queue, &shared),
            shared: shared.clone(),
        };
        let tasks = TaskTracker::new();
        let claimer = claimer::run(Arc::new(crew), poll, tasks.clone());
        let running = Running::start(shared.clone(), tasks, claimer)?;
        let reopener = tokio::spawn(reopen::run(shared));
        stop.await;
        running.stop().await;
        // The worker is gone now, so the reopener stops too.
        let _ = reopener.await;
        Ok(())
    }
}
