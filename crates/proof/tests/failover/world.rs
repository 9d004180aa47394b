//! A database on two servers, its workers and its producer.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};
use proof::{
    bed::{Database, until},
    cluster::{Pair, Replication},
    scene::Scene,
    victim::{Numbered, Orders, PATIENCE, Victim},
};
use rowlock::postgres::Rowlock;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Postgres, postgres::PgRow};
use tokio_util::sync::CancellationToken;

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");

pub(crate) const DONE: &str = "select count(*) from rowlock.outcome where outcome = 'done'";

/// How soon after the promotion work must have gone on.
const RESUMED_WITHIN: Duration = Duration::from_secs(10);

pub(crate) struct World {
    pub(crate) pair: Pair,
    /// The database on the first primary.
    pub(crate) old: Scene,
    /// The same on the server that follows it and takes over.
    pub(crate) new: Scene,
}

impl World {
    pub(crate) async fn start(case: &str, replication: Replication) -> Result<World> {
        let pair = Pair::start(replication).await?;
        let database = Database::fresh(&pair.primary.server(), case).await?;
        let copy = database.copy_on(&pair.standby.server())?;
        Ok(World {
            pair,
            old: Scene::on(database, VICTIM).await?,
            new: Scene::found(copy, VICTIM).await?,
        })
    }

    /// Both servers, the first primary first.
    pub(crate) fn url(&self) -> String {
        let (old, new) = (&self.old.database.url, &self.new.database.url);
        list(old, &[host(old), host(new)])
    }

    pub(crate) fn orders(&self) -> Orders {
        Orders {
            url: self.url(),
            concurrency: 4,
            quiet: true,
            ..self.old.orders()
        }
    }

    /// Fences the first primary and promotes the other; the moment from which on it takes writes.
    pub(crate) async fn fail_over(&mut self) -> Result<Instant> {
        self.pair.fence_primary(&[]).await?;
        self.pair.promote_standby().await?;
        Ok(Instant::now())
    }

    /// Waits for the first job that is done on the new primary, and says how soon it was.
    pub(crate) async fn resumes(&self, promoted: Instant) -> Result<()> {
        // Nobody can have been as quick as this question.
        let done = self.new.number(DONE).await?;
        under_way(&self.new, done + 1).await;
        let first = promoted.elapsed();
        println!("the first job was done {first:?} after the promotion");
        ensure!(
            first <= RESUMED_WITHIN,
            "work went on only {first:?} after the promotion"
        );
        Ok(())
    }

    /// Waits until every job is done there, and stops the workers, which must be the same as ever.
    pub(crate) async fn drain(&self, victims: &mut [Victim]) -> Result<()> {
        let left = "select (select count(*) from rowlock.job) - (select count(distinct id) from rowlock.outcome \
                    where outcome = 'done')";
        self.new.until_number(left, 0, PATIENCE).await;
        for victim in victims {
            ensure!(!victim.has_ended(), "a worker ended:\n{}", victim.tail());
            victim.stop().await?;
        }
        Ok(())
    }

    /// On the new primary each job is done once, its effect is there once, and there is no effect without its job.
    pub(crate) async fn each_once(&self) -> Result<()> {
        let jobs = self.new.number("select count(*) from rowlock.job").await?;
        for count in [
            DONE,
            "select count(distinct id) from rowlock.outcome where outcome = 'done'",
            "select count(*) from ledger",
            "select count(distinct note) from ledger",
            "select count(distinct job) from ledger",
        ] {
            let seen = self.new.number(count).await?;
            ensure!(seen == jobs, "{count} gives {seen} of {jobs}");
        }
        let strangers = "select count(*) from ledger l where not exists (select from rowlock.job j \
                         where j.id = l.job and j.payload::json ->> 'no' = l.note)";
        ensure!(
            self.new.number(strangers).await? == 0,
            "an effect is not of the job it is under"
        );
        let orphans = "select count(*) from rowlock.outcome o \
                       where not exists (select from rowlock.job j where j.id = o.id)";
        ensure!(self.new.number(orphans).await? == 0, "an outcome has no job");
        self.new.at_rest().await
    }

    /// The effect of every acknowledged job is on the new primary.
    pub(crate) async fn none_lost(&self, acknowledged: Vec<i64>) -> Result<()> {
        let there = effects(&self.new).await?;
        let lost: Vec<i64> = acknowledged.into_iter().filter(|no| !there.contains(no)).collect();
        ensure!(lost.is_empty(), "acknowledged and lost: {lost:?}");
        Ok(())
    }
}

/// The URL with these hosts instead.
pub(crate) fn list(url: &str, hosts: &[&str]) -> String {
    url.replace(host(url), &hosts.join(","))
}

/// The host and port of a URL.
pub(crate) fn host(url: &str) -> &str {
    let (_, rest) = url.split_once('@').unwrap_or(("", url));
    rest.split('/').next().unwrap_or_default()
}

pub(crate) async fn under_way(scene: &Scene, done: i64) {
    until(&format!("{done} jobs to be done"), PATIENCE, async || {
        scene.number(DONE).await.is_ok_and(|seen| seen >= done).then_some(())
    })
    .await;
}

/// Every row of a query.
pub(crate) async fn rows<T>(scene: &Scene, sql: &str) -> Result<Vec<T>>
where
    T: Send + Unpin + for<'r> sqlx::FromRow<'r, PgRow>,
{
    let mut conn = PgConnection::connect(&scene.database.url).await?;
    let rows = sqlx::query_as::<Postgres, T>(AssertSqlSafe(sql))
        .fetch_all(&mut conn)
        .await?;
    conn.close().await?;
    Ok(rows)
}

/// The numbers of the jobs that a database knows.
pub(crate) async fn numbers(scene: &Scene) -> Result<BTreeSet<i64>> {
    let sql = "select (payload::json ->> 'no')::bigint from rowlock.job";
    Ok(rows::<(i64,)>(scene, sql).await?.into_iter().map(|(no,)| no).collect())
}

/// The numbers whose effect is there.
pub(crate) async fn effects(scene: &Scene) -> Result<BTreeSet<i64>> {
    let sql = "select note::bigint from ledger";
    Ok(rows::<(i64,)>(scene, sql).await?.into_iter().map(|(no,)| no).collect())
}

/// Enqueues without end through one handle, whatever happens, until it is stopped; the numbers of the jobs that the
/// database has acknowledged, in the order in which it did.
pub(crate) async fn produce(url: &str, stop: &CancellationToken) -> Result<Vec<i64>> {
    let rowlock = Rowlock::open(url)?;
    let mut acknowledged = Vec::new();
    let mut numbers = 0i64..;
    // So many at first that workers are never without one, then little by little.
    let mut count = 1500;
    while !stop.is_cancelled() {
        let jobs: Vec<Numbered> = numbers.by_ref().take(count).map(|no| Numbered { no }).collect();
        count = 10;
        let given: Vec<i64> = jobs.iter().map(|job| job.no).collect();
        // A failed enqueue may have happened or not; either way its jobs are counted by the database alone.
        if rowlock.enqueue_all_now(jobs).await.is_ok() {
            acknowledged.extend(given);
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(acknowledged)
}

/// Runs this while jobs are produced; what was acknowledged.
pub(crate) async fn meanwhile(url: &str, work: impl Future<Output = Result<()>>) -> Result<Vec<i64>> {
    let stop = CancellationToken::new();
    let (acknowledged, worked) = tokio::join!(produce(url, &stop), async {
        let worked = work.await;
        stop.cancel();
        worked
    });
    worked?;
    acknowledged
}
