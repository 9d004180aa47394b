//! Where victims work: a fresh database with a ledger, a provider, and the questions that the suites ask at the end.

use std::{
    collections::HashMap,
    future::Future,
    path::{Path, PathBuf},
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rowlock::{
    Admin, Ended, Job, NamedJob, State,
    observe::{AttemptView, Observe},
    operate::Operate,
};
use tokio::task::{JoinSet, LocalSet};

use crate::{
    base::Base,
    bed::{Database, Server, postgres_servers, sqlite_server, until},
    provider::Provider,
    rows,
    victim::{Orders, PATIENCE, Victim},
};

/// SQLite and every PostgreSQL of this run.
///
/// # Panics
/// As [`postgres_servers`].
pub fn all_servers() -> Vec<Server> {
    [sqlite_server(), postgres_servers()].concat()
}

/// Runs a case on each of these servers, at the same time. The database of a failed one is left for a look.
///
/// # Errors
/// The first error of the case, with the server's label.
pub async fn on_each<F, Fut>(servers: Vec<Server>, exe: &'static str, name: &str, case: F) -> Result<()>
where
    F: Fn(Rc<Scene>) -> Fut,
    Fut: Future<Output = Result<()>> + 'static,
{
    // On this thread alone: what a case waits for happens in other processes.
    let local = LocalSet::new();
    let mut running = JoinSet::new();
    for server in servers {
        let scene = Rc::new(Scene::new(&server, name, exe).await?);
        let case = case(scene.clone());
        let whole = async move {
            case.await.with_context(|| format!("on {}", server.label))?;
            let scene = Rc::into_inner(scene).context("a case keeps nothing")?;
            scene.database.remove().await
        };
        running.spawn_local_on(whole, &local);
    }
    local
        .run_until(async {
            while let Some(ended) = running.join_next().await {
                ended??;
            }
            Ok(())
        })
        .await
}

/// One case's database and provider.
pub struct Scene {
    /// The database.
    pub database: Database,
    /// The outside system.
    pub provider: Provider,
    admin: Admin,
    exe: &'static str,
    folder: tempfile::TempDir,
}

impl Scene {
    /// Makes one; `exe` is the victim's program.
    ///
    /// # Errors
    /// The server could not be reached.
    pub async fn new(server: &Server, name: &str, exe: &'static str) -> Result<Scene> {
        Scene::on(Database::fresh(server, name).await?, exe).await
    }

    /// Makes one on a fresh database.
    ///
    /// # Errors
    /// The server could not be reached.
    pub async fn on(database: Database, exe: &'static str) -> Result<Scene> {
        let scene = Scene::found(database, exe).await?;
        scene
            .run("create table ledger (job bigint not null, note text not null)")
            .await?;
        scene
            .run("create table account (id bigint primary key, balance bigint not null)")
            .await?;
        scene.run("insert into account (id, balance) values (1, 0)").await?;
        Ok(scene)
    }

    /// A scene on a database that another one was made on, such as its copy on a standby.
    ///
    /// # Errors
    /// The provider does not start.
    pub async fn found(database: Database, exe: &'static str) -> Result<Scene> {
        Ok(Scene {
            admin: Admin::open(&database.url, "rowlock")?,
            database,
            provider: Provider::start().await?,
            exe,
            folder: tempfile::tempdir()?,
        })
    }

    /// Orders for a victim on this scene.
    pub fn orders(&self) -> Orders {
        Orders {
            provider: Some(self.provider.address()),
            ..Orders::new(&self.database.url)
        }
    }

    /// Orders for a victim that stops at a point and is killed there. A machine that is busy with other things must not
    /// end its lease before. The next owner waits for that end, so the lease is no longer than needed.
    pub fn doomed(&self) -> Orders {
        Orders {
            lease_ms: 6_000,
            ..self.orders()
        }
    }

    /// Orders for a victim that takes over: whatever the machine does, nobody declares it dead meanwhile. How soon it
    /// finds the dead does not hang on its own lease.
    pub fn heirs(&self) -> Orders {
        Orders {
            lease_ms: 20_000,
            ..self.orders()
        }
    }

    /// Starts a victim.
    ///
    /// # Errors
    /// The program could not be started.
    pub fn victim(&self, orders: &Orders, point: Option<&str>) -> Result<Victim> {
        Victim::start(self.exe, orders, point)
    }

    /// A file for victims to note in which job they started at which epoch.
    pub fn starts_file(&self) -> PathBuf {
        self.folder.path().join("starts")
    }

    /// How often each job was started.
    ///
    /// # Errors
    /// A line does not read.
    pub fn starts(&self) -> Result<HashMap<i64, usize>> {
        let mut starts = HashMap::new();
        for line in std::fs::read_to_string(self.starts_file()).unwrap_or_default().lines() {
            let (id, _epoch) = line
                .split_once(' ')
                .with_context(|| format!("a start reads {line:?}"))?;
            *starts.entry(id.parse()?).or_default() += 1;
        }
        Ok(starts)
    }

    /// Enqueues one job.
    ///
    /// # Errors
    /// The database refused it.
    pub async fn enqueue<J: Job>(&self, job: J) -> Result<i64> {
        self.enqueue_all(vec![job])
            .await?
            .first()
            .copied()
            .context("an enqueue gives an id")
    }

    /// Enqueues many jobs in one commit.
    ///
    /// # Errors
    /// The database refused them.
    pub async fn enqueue_all<J: Job>(&self, jobs: Vec<J>) -> Result<Vec<i64>> {
        let url = &self.database.url;
        Ok(if self.database.is_sqlite() {
            rowlock::sqlite::Rowlock::open(url)?.enqueue_all_now(jobs).await?
        } else {
            rowlock::postgres::Rowlock::open(url)?.enqueue_all_now(jobs).await?
        })
    }

    /// Enqueues one job that is due after a while.
    ///
    /// # Errors
    /// The database refused it.
    pub async fn enqueue_later<J: Job>(&self, job: &J, delay: Duration) -> Result<i64> {
        let named = NamedJob::new(J::KIND, serde_json::to_string(job)?).after(delay);
        Ok(self.admin.enqueue(named).await?.id())
    }

    /// The library's own reading verbs.
    pub fn observe(&self) -> Observe {
        self.admin.observe()
    }

    /// The library's own verbs for people.
    pub fn operate(&self) -> Operate {
        self.admin.operate()
    }

    /// A folder that goes with the scene.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a statement on a separate connection. Tables of the library are written as on PostgreSQL.
    ///
    /// # Errors
    /// The database's.
    pub async fn run(&self, sql: &str) -> Result<()> {
        let mut base = Base::connect(&self.database.url).await?;
        base.run(sql).await?;
        base.close().await
    }

    /// The one number that a query gives. Tables of the library are written as on PostgreSQL.
    ///
    /// # Errors
    /// The database's.
    pub async fn number(&self, sql: &str) -> Result<i64> {
        let mut base = Base::connect(&self.database.url).await?;
        let number = base.number(sql).await?;
        base.close().await?;
        Ok(number)
    }

    /// What a query for one text gives.
    ///
    /// # Errors
    /// The database's.
    pub async fn text(&self, sql: &str) -> Result<String> {
        let mut base = Base::connect(&self.database.url).await?;
        let found = rows!(&mut base, sql, (String,))?;
        base.close().await?;
        let (text,) = found.into_iter().next().context("no row")?;
        Ok(text)
    }

    /// Every row of the ledger: the job, and its note.
    ///
    /// # Errors
    /// The database's.
    pub async fn ledger(&self) -> Result<Vec<(i64, String)>> {
        let mut base = Base::connect(&self.database.url).await?;
        let rows = rows!(&mut base, "select job, note from ledger", (i64, String))?;
        base.close().await?;
        Ok(rows)
    }

    /// Waits until this query gives this number.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn until_number(&self, sql: &str, wanted: i64, limit: Duration) {
        let start = Instant::now();
        loop {
            let seen = self.number(sql).await;
            if seen.as_ref().is_ok_and(|n| *n == wanted) {
                return;
            }
            assert!(
                start.elapsed() < limit,
                "waited {limit:?} for {wanted} from {sql}; last seen: {seen:?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Waits until the job is finished, and so is every job of its chain.
    ///
    /// # Panics
    /// When it is not in time.
    pub async fn until_finished(&self, id: i64) {
        until(&format!("job {id} and its links to finish"), PATIENCE, async || {
            let chain = self.observe().chain(id).await.ok()?;
            (!chain.is_empty() && chain.iter().all(|job| job.state == State::Finished)).then_some(())
        })
        .await;
    }

    /// A job's ended attempts, oldest first.
    ///
    /// # Errors
    /// The database's.
    pub async fn attempts(&self, id: i64) -> Result<Vec<AttemptView>> {
        Ok(self.observe().attempts(id).await?)
    }

    /// How a job's attempts ended, oldest first.
    ///
    /// # Errors
    /// The database's.
    pub async fn outcomes(&self, id: i64) -> Result<Vec<Ended>> {
        Ok(self.attempts(id).await?.iter().map(|a| a.outcome).collect())
    }

    /// Checks that nothing is left lying about: no lease, nothing ready, no transaction open.
    ///
    /// # Errors
    /// Something is.
    ///
    /// # Panics
    /// When a transaction stays open.
    pub async fn at_rest(&self) -> Result<()> {
        for place in ["lease", "ready"] {
            let left = self.number(&format!("select count(*) from rowlock.{place}")).await?;
            ensure!(left == 0, "{left} rows left in {place}");
        }
        let twice = "select count(*) from (select id, epoch from rowlock.outcome group by 1, 2 having count(*) > 1) t";
        ensure!(self.number(twice).await? == 0, "an attempt ended twice");
        if !self.database.is_sqlite() {
            let open = "select count(*) from pg_stat_activity \
                        where datname = current_database() and state like 'idle in transaction%'";
            self.until_number(open, 0, PATIENCE).await;
        }
        Ok(())
    }
}
