//! Sessions whose transactions the test opens, holds and ends, and the view from outside: who waits for whom.

use std::time::Duration;

use proof::bed::{Database, postgres_servers, until};
use rowlock::postgres::Rowlock;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

use super::explain::as_engine;

/// One race's own database, and a connection that only looks.
pub(crate) struct Bed {
    pub(crate) url: String,
    pub(crate) rowlock: Rowlock,
    pub(crate) eye: PgConnection,
}

/// Runs one race on each PostgreSQL of the run, on a fresh database with the schema in place. The database of a race
/// that failed is kept, to look at.
pub(crate) async fn on_each_server(case: &str, race: impl AsyncFn(Bed)) {
    for server in postgres_servers() {
        let database = Database::fresh(&server, case).await.unwrap();
        let rowlock = Rowlock::open(&database.url).unwrap();
        let bed = Bed {
            url: database.url.clone(),
            rowlock,
            eye: Session::open(&database.url).await.pg,
        };
        // Steps that wait are tasks beside the race, and need not be `Send`.
        tokio::task::LocalSet::new().run_until(race(bed)).await;
        database.remove().await.unwrap();
    }
}

impl Bed {
    /// A session outside any transaction.
    pub(crate) async fn session(&self) -> Session {
        Session::open(&self.url).await
    }

    /// One number from the database, as it is committed.
    pub(crate) async fn count(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.eye).await.unwrap()
    }

    /// How many rows a job has in each of ready, lease and case, and its closing outcomes: `[1, 0, 0]` means ready.
    pub(crate) async fn places(&mut self, id: i64) -> [i64; 3] {
        let place = "select array[
            (select count(*) from rowlock.ready where id = $1),
            (select count(*) from rowlock.lease where id = $1),
            (select count(*) from rowlock.case_file where id = $1)]";
        let counts: Vec<i64> = sqlx::query_scalar(place)
            .bind(id)
            .fetch_one(&mut self.eye)
            .await
            .unwrap();
        counts.try_into().unwrap()
    }

    /// The outcomes of a job's attempts, oldest first.
    pub(crate) async fn outcomes(&mut self, id: i64) -> Vec<String> {
        let outcomes = sqlx::query_scalar("select outcome from rowlock.outcome where id = $1 order by epoch");
        outcomes.bind(id).fetch_all(&mut self.eye).await.unwrap()
    }

    /// Waits until the backend waits for a lock, by the server's word.
    pub(crate) async fn blocked(&mut self, pid: i32) {
        let eye = tokio::sync::Mutex::new(&mut self.eye);
        until("a step to wait for a lock", Duration::from_secs(20), || async {
            let waits = sqlx::query_scalar("select cardinality(pg_blocking_pids($1)) > 0").bind(pid);
            let waits: bool = waits.fetch_one(&mut **eye.lock().await).await.unwrap();
            waits.then_some(())
        })
        .await;
    }
}

/// A backend whose transaction the test steers.
pub(crate) struct Session {
    pub(crate) pg: PgConnection,
    pub(crate) pid: i32,
}

impl Session {
    pub(crate) async fn open(url: &str) -> Session {
        let mut pg = PgConnection::connect(url).await.unwrap();
        // The engine's plans, since it is its statements that race.
        as_engine(&mut pg).await;
        // A step that waits although it must not is an error, not a hanging test.
        sqlx::raw_sql("set lock_timeout = '30s'")
            .execute(&mut pg)
            .await
            .unwrap();
        let pid = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut pg)
            .await
            .unwrap();
        Session { pg, pid }
    }

    pub(crate) async fn run(&mut self, sql: &'static str) {
        sqlx::raw_sql(sql).execute(&mut self.pg).await.unwrap();
    }

    pub(crate) async fn begin(&mut self) {
        self.run("begin isolation level read committed").await;
    }

    pub(crate) async fn commit(&mut self) {
        self.run("commit").await;
    }

    pub(crate) async fn rollback(&mut self) {
        self.run("rollback").await;
    }

    /// Starts a step that is expected to wait; the session comes back with its answer.
    pub(crate) fn start<T: Send + 'static>(
        mut self,
        step: impl AsyncFnOnce(&mut PgConnection) -> T + Send + 'static,
    ) -> JoinHandle<(Session, T)>
    where
        Self: Sized,
    {
        tokio::task::spawn_local(async move {
            let answer = step(&mut self.pg).await;
            (self, answer)
        })
    }
}
