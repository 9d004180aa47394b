//! Where the cases happen: a fresh database, a proxy before its server, and workers that know only the proxy.

use std::{
    future::Future,
    sync::{Arc, Mutex},
    time::Duration,
};

use proof::{
    bed::{Database, Server},
    proxy::{CommitCuts, Kind, Proxy},
};
use rowlock::{
    Backoff, Counters, Ended, Event, Job, State, atomic,
    postgres::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio_util::sync::CancellationToken;

/// The application name of connections that run handlers.
pub(crate) const HANDLER: &str = "rowlock handler";

/// Soon over, and long enough for a machine that is busy with other cases.
pub(crate) const LEASE: Duration = Duration::from_secs(3);

/// Longer than any case waits: such a delay ends when the proxy is calm.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(3600);

pub(crate) struct Site {
    pub(crate) database: Database,
    pub(crate) proxy: Arc<Proxy>,
    /// Not through the proxy.
    pub(crate) rowlock: Rowlock,
}

impl Site {
    /// With nothing but an empty ledger in its database.
    pub(crate) async fn bare(server: &Server, case: &str) -> Site {
        Site::on(Database::bare(server, case).await.unwrap()).await
    }

    /// Ready for jobs.
    pub(crate) async fn migrated(server: &Server, case: &str) -> Site {
        Site::on(Database::fresh(server, case).await.unwrap()).await
    }

    async fn on(database: Database) -> Site {
        proof::bed::show_log();
        let seed = fastrand::u64(..);
        println!("seed {seed}");
        let site = Site {
            proxy: Arc::new(Proxy::before(&database.url, seed).await.unwrap()),
            rowlock: Rowlock::open(&database.url).unwrap(),
            database,
        };
        site.run("create table ledger (job bigint not null)").await;
        site
    }

    pub(crate) async fn end(self) {
        // The workers that share it have stopped; the database is removed with connections open.
        if let Some(proxy) = Arc::into_inner(self.proxy) {
            proxy.stop().await;
        }
        self.database.remove().await.unwrap();
    }

    /// The database through the proxy.
    pub(crate) fn url(&self) -> String {
        self.proxy.url(&self.database.url).unwrap()
    }

    pub(crate) async fn through(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.unwrap()
    }

    pub(crate) async fn direct(&self) -> PgConnection {
        PgConnection::connect(&self.database.url).await.unwrap()
    }

    pub(crate) async fn run(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        sqlx::raw_sql(sql).execute(&mut self.direct().await).await.unwrap();
    }

    pub(crate) async fn count(&self, sql: &str) -> i64 {
        count(&self.database.url, sql).await
    }

    pub(crate) async fn enqueue(&self, jobs: usize) -> Vec<i64> {
        self.rowlock.enqueue_all_now(vec![Note {}; jobs]).await.unwrap()
    }

    /// How the job's attempts ended, oldest first.
    pub(crate) async fn ends(&self, id: i64) -> Vec<Ended> {
        let attempts = self.rowlock.observe().attempts(id).await.unwrap();
        attempts.iter().map(|attempt| attempt.outcome).collect()
    }

    /// A worker through the proxy with one slot and nothing in line behind it: each COMMIT travels alone.
    pub(crate) fn one_by_one(&self) -> Worker<Told> {
        self.worker(&self.url(), 1, 0, 1)
    }

    /// A worker through the proxy with one slot, that begins when so many jobs are in line for it: the COMMIT of each
    /// travels with the beginning of the next one.
    pub(crate) fn in_line(&self, jobs: usize) -> Worker<Told> {
        self.worker(&self.url(), 1, jobs, jobs)
    }

    /// The same, with connections that the worker cannot find any more to end them.
    pub(crate) fn in_line_under_another_name(&self, jobs: usize) -> Worker<Told> {
        self.told(&self.url(), 1, jobs, jobs, true)
    }

    /// A worker whose first handler waits until the worker holds so many jobs.
    pub(crate) fn worker(&self, url: &str, slots: usize, ahead: usize, in_hand: usize) -> Worker<Told> {
        self.told(url, slots, ahead, in_hand, false)
    }

    fn told(&self, url: &str, slots: usize, ahead: usize, in_hand: usize, renames: bool) -> Worker<Told> {
        let told = Told {
            url: self.database.url.clone(),
            in_hand,
            renames,
            begun: Arc::default(),
        };
        Worker::new(&Rowlock::open(url).unwrap())
            .queue("default", slots)
            .prefetch(ahead)
            .grace(Duration::from_secs(5))
            .state(told)
            .handle(atomic(note).backoff(AT_ONCE))
    }

    /// Runs the worker until each of these jobs is finished.
    pub(crate) async fn work(&self, worker: Worker<Told>, ids: &[i64]) -> Running {
        let running = Running::start(worker);
        self.until_finished(ids).await;
        running
    }

    pub(crate) async fn until_finished(&self, ids: &[i64]) {
        for id in ids {
            until("every job to finish", async || {
                let job = self.rowlock.observe().job(*id).await.unwrap().unwrap();
                assert_ne!(job.state, State::Case, "job {id} became a case");
                job.state == State::Finished
            })
            .await;
        }
    }

    /// Every job has written the ledger once and has one outcome "done"; nothing is left lying about.
    pub(crate) async fn each_happened_once(&self, ids: &[i64]) {
        let jobs = i64::try_from(ids.len()).unwrap();
        for sql in [
            "select count(*) from ledger",
            "select count(distinct job) from ledger",
            "select count(*) from rowlock.outcome where outcome = 'done'",
            "select count(distinct id) from rowlock.outcome where outcome = 'done'",
        ] {
            assert_eq!(self.count(sql).await, jobs, "{sql}");
        }
        for left in ["rowlock.lease", "rowlock.ready", "rowlock.case_file"] {
            assert_eq!(self.count(&format!("select count(*) from {left}")).await, 0, "{left}");
        }
        let open = "select count(*) from pg_stat_activity \
                    where datname = current_database() and state like 'idle in transaction%'";
        until("no transaction to be open", async || self.count(open).await == 0).await;
    }

    /// How many jobs failed an attempt before they were done.
    pub(crate) async fn tried_again(&self) -> i64 {
        self.count("select count(*) from rowlock.outcome where outcome = 'retried'")
            .await
    }

    /// Waits until so many COMMITs of handlers were cut, and the server's word on each was heard.
    pub(crate) async fn until_cut(&self, n: usize) -> CommitCuts {
        let cuts = || self.proxy.commit_cuts(Some(HANDLER));
        until("the server's word on every cut COMMIT", async || {
            let cuts = cuts();
            cuts.unknown == 0 && cuts.committed + cuts.not_committed >= n
        })
        .await;
        cuts()
    }

    pub(crate) fn happened(&self, kind: Kind) -> usize {
        self.proxy.counts().get(&kind).copied().unwrap_or(0)
    }
}

/// The orders of handlers.
pub(crate) struct Told {
    pub(crate) url: String,
    in_hand: usize,
    renames: bool,
    begun: Arc<Mutex<bool>>,
}

pub(crate) async fn count(url: &str, sql: &str) -> i64 {
    let mut conn = PgConnection::connect(url).await.unwrap();
    let sql = AssertSqlSafe(sql.to_owned());
    let count = sqlx::query_scalar(sql).fetch_one(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    count
}

#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "note", attempts = 25)]
pub(crate) struct Note {}

/// Writes one ledger row, which no index keeps from being doubled.
async fn note(cx: Ctx<Told>, _: Note, mut tx: Tx) -> Outcome {
    let told = cx.state();
    let first = !std::mem::replace(&mut *told.begun.lock().unwrap(), true);
    if first && told.in_hand > 1 {
        let in_hand = i64::try_from(told.in_hand).unwrap();
        until("all to be in line", async || {
            count(&told.url, "select count(*) from rowlock.lease").await == in_hand
        })
        .await;
    }
    write(&mut tx, cx.id()).await?;
    if told.renames {
        let rename = sqlx::query("set local application_name = 'another'");
        rename.execute(&mut *tx).await?;
    }
    tx.done().ok()
}

pub(crate) async fn write(tx: &mut Tx, job: i64) -> Result<(), sqlx::Error> {
    let row = sqlx::query("insert into ledger (job) values ($1)").bind(job);
    row.execute(&mut **tx).await.map(drop)
}

/// Next to no wait between attempts.
pub(crate) const AT_ONCE: Backoff = Backoff::new()
    .base(Duration::from_millis(1))
    .max(Duration::from_millis(2));

/// A worker running in this process.
pub(crate) struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<rowlock::Result<()>>,
    pub(crate) counters: Arc<Counters>,
    resolved: Arc<Mutex<Vec<(i64, bool)>>>,
}

impl Running {
    pub(crate) fn start<A: Send + Sync + 'static>(worker: Worker<A>) -> Running {
        let (stop, counters) = (CancellationToken::new(), worker.counters());
        let resolved: Arc<Mutex<Vec<(i64, bool)>>> = Arc::default();
        let kept = resolved.clone();
        let worker = worker.on_event(move |event| {
            if let Event::CommitResolved { id, committed, .. } = event {
                kept.lock().unwrap().push((*id, *committed));
            }
        });
        let stopped = stop.clone();
        let task = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
        Running {
            stop,
            task,
            counters,
            resolved,
        }
    }

    pub(crate) async fn stop(self) -> Stopped {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
        let resolved = self.resolved.lock().unwrap().clone();
        assert_eq!(self.counters.commits_resolved(), resolved.len() as u64);
        Stopped {
            counters: self.counters,
            resolved,
        }
    }
}

/// What a worker has to tell in the end.
pub(crate) struct Stopped {
    pub(crate) counters: Arc<Counters>,
    /// The jobs whose commit was looked up, and whether it was found.
    pub(crate) resolved: Vec<(i64, bool)>,
}

/// Waits for a state of the database or the counters, with a limit.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut check: impl FnMut() -> F) {
    proof::bed::until(what, Duration::from_secs(60), || {
        let check = check();
        async move { check.await.then_some(()) }
    })
    .await;
}

/// Makes a test of each case, run at such a site on every PostgreSQL of the run.
macro_rules! cases {
    ($site:ident: $($name:ident),* $(,)?) => { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
        async fn $name() {
            for server in proof::bed::postgres_servers() {
                let case = concat!(module_path!(), "::", stringify!($name));
                let site = crate::proxy::site::Site::$site(&server, case).await;
                super::$name(&site).await;
                site.end().await;
            }
        }
    )* };
}
pub(crate) use cases;
