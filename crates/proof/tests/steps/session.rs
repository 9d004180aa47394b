//! Sessions whose transactions the test opens, holds and ends, and the view from outside: who waits for whom.

use std::time::Duration;

use proof::bed::{Database, Server, until};
use rowlock::postgres::Rowlock;
use sqlx::{Connection, PgConnection};
use tokio::task::JoinHandle;

/// One race's own database, and a connection that only looks.
pub(crate) struct Bed {
    pub(crate) url: String,
    pub(crate) rowlock: Rowlock,
    pub(crate) eye: PgConnection,
    _database: Database,
}

impl Bed {
    /// A fresh database with the schema in place.
    pub(crate) async fn new(server: &Server, case: &str) -> Bed {
        let database = Database::fresh(server, case).await.unwrap();
        let rowlock = Rowlock::open(&database.url).unwrap();
        rowlock.migrate().await.unwrap();
        Bed {
            url: database.url.clone(),
            rowlock,
            eye: Session::open(&database.url).await.pg,
            _database: database,
        }
    }

    /// A session outside any transaction.
    pub(crate) async fn session(&self) -> Session {
        Session::open(&self.url).await
    }

    /// One number from the database, as it stands committed.
    pub(crate) async fn count(&mut self, sql: &'static str) -> i64 {
        sqlx::query_scalar(sql).fetch_one(&mut self.eye).await.unwrap()
    }

    /// How often a job stands in each of ready, lease and case, and its closing outcomes: `[1, 0, 0]` means ready.
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

/// Makes a test of each race, run on every PostgreSQL of the run.
macro_rules! races {
    ($($name:ident),* $(,)?) => {
        mod tests {
            $(
                #[tokio::test(flavor = "current_thread")]
                async fn $name() {
                    for server in proof::bed::postgres_servers() {
                        let case = concat!(module_path!(), "::", stringify!($name));
                        let bed = crate::steps::session::Bed::new(&server, case).await;
                        tokio::task::LocalSet::new().run_until(super::$name(bed)).await;
                    }
                }
            )*
        }
    };
}
pub(crate) use races;
