//! These tests use real files, each in its own directory. Time is the test's own clock, so that no test waits for time
//! to pass.

mod cases;
mod flow;
mod handlers;
mod recovery;
mod schema;
mod waits;
mod waking;

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{ConnectOptions, SqliteConnection, sqlite::SqliteConnectOptions};
use tempfile::TempDir;
use uuid::Uuid;

use super::SqliteStore;
use crate::{
    case::CaseView,
    error::Result,
    job::{Draft, Due, kind_no, queue_no},
    key::Enqueued,
    lease::{Claimed, Token, WorkerId},
    observe::JobView,
    retention::Retention,
    state::{self, Ended, State},
    store::{
        ClaimAsk, ClaimReply, Clock, Cursor, InTx, Inspect, Isolation, Open, Opening, Operate, Settlement, Store,
        Stretch, Timing,
        action::{Action, Verdict},
        cases::CaseQuery,
        sqlite::in_tx::Held,
        views::JobQuery,
    },
};

const LEASE: Duration = Duration::from_secs(15);

/// A migrated file with one store on it, and the clock that all its stores use.
struct Rig {
    dir: TempDir,
    clock: Clock,
    store: SqliteStore,
}

impl Rig {
    async fn new() -> Rig {
        let rig = Rig::bare();
        rig.store.migrate(&[]).await.unwrap();
        rig
    }

    fn bare() -> Rig {
        let dir = TempDir::new().unwrap();
        let clock = Clock::default();
        clock.set(Timestamp::from_second(1_700_000_000).unwrap());
        let store = SqliteStore::new(options(&dir), Timing::of_lease(LEASE), clock.clone());
        Rig { dir, clock, store }
    }

    /// A store with its own connections, as another process would have.
    fn another(&self) -> SqliteStore {
        self.another_waiting(Timing::of_lease(LEASE))
    }

    fn another_waiting(&self, timing: Timing) -> SqliteStore {
        SqliteStore::new(options(&self.dir), timing, self.clock.clone())
    }

    /// A connection of the user's own.
    async fn conn(&self) -> SqliteConnection {
        options(&self.dir).connect().await.unwrap()
    }

    fn forward(&self, by: Duration) {
        self.clock.set(self.clock.now().unwrap() + by);
    }

    async fn worker(&self) -> WorkerId {
        let worker = WorkerId::random();
        self.store.register(worker, "test", LEASE, &[]).await.unwrap();
        worker
    }

    async fn count(&self, table: &str) -> i64 {
        let sql = format!("select count(*) from {table}");
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql))
            .fetch_one(&mut self.conn().await)
            .await
            .unwrap()
    }

    /// One job, enqueued and claimed.
    async fn claimed(&self, draft: Draft) -> Claimed {
        let worker = self.worker().await;
        self.store.enqueue(&[draft]).await.unwrap();
        claim(&self.store, worker, 1).await.pop().unwrap()
    }
}

/// The single-row queries of `dyn Store`.
impl SqliteStore {
    async fn job(&self, id: i64) -> Result<Option<JobView>> {
        (self as &dyn Store).job(id).await
    }

    async fn case(&self, id: i64) -> Result<Option<CaseView>> {
        (self as &dyn Store).case(id).await
    }

    async fn chain(&self, id: i64) -> Result<Vec<JobView>> {
        self.jobs(JobQuery::Chain(id)).await
    }

    async fn reopen(&self, id: i64, actor: &str) -> Result<bool> {
        Ok(self.act(Action::Reopen { id }, actor).await? == Verdict::Done)
    }
}

/// The request to open a handler's transaction.
fn handler(token: Token, timing: Timing) -> Open {
    Open::Handler(Opening {
        token,
        timing,
        level: Isolation::ReadCommitted,
    })
}

/// The ids of what was enqueued, in input order.
fn ids_of(put: Vec<Enqueued>) -> Vec<i64> {
    put.iter().map(|put| put.id().0).collect()
}

/// A retention that keeps this much history, and everything else for ever.
fn kept(history: Duration) -> Retention {
    Retention::new()
        .history(history)
        .cases_for_ever()
        .keys_for_ever()
        .audit_for_ever()
}

fn options(dir: &TempDir) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(dir.path().join("jobs.db"))
        .create_if_missing(true)
}

fn draft(payload: &str) -> Draft {
    Draft {
        uid: Uuid::now_v7(),
        kind: "charge".into(),
        version: 1,
        queue: "orders".into(),
        priority: 3,
        attempts_max: 3,
        payload: payload.into(),
        tags: None,
        due: Due::In(Duration::ZERO),
        expires_at: None,
        chain: None,
        position: 0,
        if_retired: None,
        trace: None,
        wait: None,
        group: None,
        key: None,
    }
}

fn numbered(n: i64) -> Draft {
    draft(&n.to_string())
}

fn stretch(priority: i16) -> Stretch {
    Stretch {
        queue_no: queue_no("orders"),
        kind_no: kind_no("charge", 1),
        priority,
        from: Cursor::START,
    }
}

fn ask(worker: WorkerId, places: i32) -> ClaimAsk {
    ClaimAsk {
        worker,
        queues: vec![(queue_no("orders"), places)],
        stretches: (1..=5).map(stretch).collect(),
        alone: false,
        bound: Vec::new(),
    }
}

async fn claim_by(store: &SqliteStore, ask: &ClaimAsk) -> Vec<Claimed> {
    match store.claim(ask).await.unwrap() {
        ClaimReply::Jobs(jobs) => jobs,
        other => panic!("{other:?}"),
    }
}

async fn claim(store: &SqliteStore, worker: WorkerId, places: i32) -> Vec<Claimed> {
    claim_by(store, &ask(worker, places)).await
}

/// How an attempt ended, with what follows from it by `state.rs`.
fn settlement(claimed: &Claimed, ended: Ended) -> Settlement {
    Settlement {
        token: claimed.token,
        ended,
        to: state::after(ended, claimed.attempt, claimed.attempts_max),
        delay: Duration::ZERO,
        error: None,
        result: None,
        next: Vec::new(),
        turn: None,
    }
}

async fn settle(store: &SqliteStore, claimed: &Claimed, ended: Ended) -> bool {
    store.settle(&[settlement(claimed, ended)]).await.unwrap()[0]
}

async fn state_of(store: &SqliteStore, id: i64) -> State {
    store.job(id).await.unwrap().unwrap().state
}

fn payload(claimed: &Claimed) -> &str {
    &claimed.body.as_ref().unwrap().payload
}

fn stale(token: Token) -> Token {
    Token {
        epoch: token.epoch + 1,
        ..token
    }
}
