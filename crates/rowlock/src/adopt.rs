//! A table of the user's own, worked off with the whole protocol: claims in batches, a token on every write, attempts,
//! backoff, retirement with a case, recovery, breakers, telemetry. PostgreSQL only.
//!
//! The row stays the user's: the claim is in its own columns, and what is done with it can be read and steered by plain
//! SQL. What a job has in Rowlock's tables a row has in these columns: the lease is `claimed_at`, renewed while a
//! handler runs; the token is `claim_token`, new with every claim. Nothing of Rowlock's schema is touched on the way of
//! a row that succeeds.

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

/// A table of your own that is ready to be worked off.
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
    /// Looks whether the table is ready, and takes it into use. The name is exact, with its schema where that is not in
    /// the search path: `app.email_snoozes`.
    ///
    /// # Errors
    /// [`Error::Config`] with the missing statements when it needs a migration; [`Error::Conflict`] when it cannot be
    /// adopted as it is; [`Error::NotFound`] when there is no such table; [`Error::Invalid`] for a bad name; what
    /// [`Rowlock::check_schema`] says. Cancel-safe.
    pub async fn open(rowlock: &Rowlock<Postgres>, table: &str, columns: Columns) -> Result<Adopted> {
        rowlock.check_schema().await?;
        let table = rowlock.store().open_table(&TableName::parse(table)?, &columns).await?;
        Ok(Adopted {
            rowlock: rowlock.clone(),
            table: Arc::new(table),
        })
    }

    /// Looks at a table and says what it has and what it needs. Changes nothing; Rowlock's own schema need not be
    /// there.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such table; [`Error::Invalid`] for a bad name or one column for two parts.
    /// Cancel-safe.
    pub async fn inspect(rowlock: &Rowlock<Postgres>, table: &str, columns: &Columns) -> Result<Inspection> {
        rowlock.store().inspect_table(&TableName::parse(table)?, columns).await
    }

    /// Runs what [`Inspection::migration`] lists, each statement in a commit of its own; returns what ran. Nothing of
    /// the table's own is changed or dropped, and running it again does nothing.
    ///
    /// # Errors
    /// [`Error::Conflict`] when something is in the way that no migration of ours mends; [`Error::Database`], with what
    /// ran before it left in place: run it again. Cancel safety: dropped half-way, the statement under way may or may
    /// not have run; run it again.
    pub async fn migrate(rowlock: &Rowlock<Postgres>, table: &str, columns: &Columns) -> Result<Vec<String>> {
        rowlock.store().migrate_table(&TableName::parse(table)?, columns).await
    }

    /// The queue under which its metrics, cases and pauses go: the table's name, with the schema unless that is
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

/// A worker on an adopted table in the making. `run_until` runs it.
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
    /// What the handler can reach through its context. Set it before the handler, which is typed by it.
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
    /// Handles each row with this: `worker.handle(atomic(remind).backoff(…))`. A table has one handler.
    pub fn handle(mut self, handler: Handler<A>) -> Self {
        self.handlers.push(handler);
        self
    }

    /// How many rows are handled at once (16 unless set; 1 to 1000). As many again may be claimed ahead of them.
    pub fn slots(mut self, slots: usize) -> Self {
        self.slots = slots;
        self
    }

    /// A name for people, which `claimed_by` shows.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.settings.name = clean(name.into());
        self
    }

    /// How old a claim may grow without being renewed before any worker takes the row away (60 s unless set; 2 s to 1
    /// h). Claims are renewed when a third of it has passed, so rows that are handled sooner are never written for it.
    /// Every worker of a table must have the same.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How long handlers may go on after the stop (30 s unless set).
    pub fn grace(mut self, grace: Duration) -> Self {
        self.settings.grace = grace;
        self
    }

    /// How long a row may be due at most before an idle worker notices (1 s unless set; 10 ms to 1 min).
    pub fn poll(mut self, every: Duration) -> Self {
        self.poll = every;
        self
    }

    /// How long history, cases and keys are kept in the whole database, as
    /// [`Worker::retention`](crate::Worker::retention) says it: a row worker does the upkeep like any other, so give it
    /// what the others have.
    pub fn retention(mut self, retention: Retention) -> Self {
        self.settings.retention = retention;
        self
    }

    /// Calls this for every event, after the commit that made it so. Keep it quick: it runs on the worker's tasks.
    pub fn on_event(mut self, listener: impl Fn(&Event) + Send + Sync + 'static) -> Self {
        self.settings.listen(listener);
        self
    }

    /// Running totals; keep the handle, the worker is consumed by running it.
    pub fn counters(&self) -> Arc<Counters> {
        self.settings.counters.clone()
    }

    /// Runs until `stop` resolves, then stops in good order: no more claims, rows that were not begun are given back
    /// without an attempt, running handlers are told and given the grace period. Once started it survives any outage of
    /// the database.
    ///
    /// # Errors
    /// Before it starts: a contradiction in its settings, a schema that does not fit, a database out of reach.
    ///
    /// Cancel safety: dropped, its handlers are dropped with it, and their rows are recovered by others after the
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
        // The worker is gone with this, so that the reopener stops too.
        let _ = reopener.await;
        Ok(())
    }
}
