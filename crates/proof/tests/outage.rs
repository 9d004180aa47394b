//! The database goes away and comes back, as a whole or connection by connection. The same worker processes carry on,
//! and every job happens once.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use proof::{
    bed::{Database, postgres_servers, until},
    cluster::Cluster,
    scene::{Scene, on_each},
    victim::{Orders, PATIENCE, Plain, Staged, Victim},
};
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");

const DONE: &str = "select count(*) from rowlock.outcome where outcome = 'done'";

const OUTAGE: Duration = Duration::from_secs(20);

fn quiet(scene: &Scene) -> Orders {
    Orders {
        concurrency: 4,
        quiet: true,
        ..scene.orders()
    }
}

/// Enqueues without end, whatever happens, until it is stopped; the ids that the database has acknowledged.
async fn produce(scene: &Scene, stop: &CancellationToken) -> Vec<i64> {
    let mut acknowledged = Vec::new();
    while !stop.is_cancelled() {
        // A failed enqueue may have happened or not; either way its jobs are counted by the database alone.
        acknowledged.extend(scene.enqueue_all(vec![Plain {}; 10]).await.unwrap_or_default());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    acknowledged
}

/// Every job that the database knows is done, once, and the acknowledged ones are among them.
async fn each_once(scene: &Scene, acknowledged: &[i64]) -> Result<()> {
    let jobs = scene.number("select count(*) from rowlock.job").await?;
    let counts = [
        DONE,
        "select count(distinct id) from rowlock.outcome where outcome = 'done'",
        "select count(*) from ledger",
        "select count(distinct job) from ledger",
    ];
    for count in counts {
        let seen = scene.number(count).await?;
        ensure!(seen == jobs, "{count} gives {seen} of {jobs}");
    }
    let ids: Vec<String> = acknowledged.iter().map(i64::to_string).collect();
    let known = scene
        .number(&format!(
            "select count(*) from rowlock.job where id in ({})",
            ids.join(",")
        ))
        .await?;
    ensure!(
        known == ids.len() as i64,
        "{} acknowledged jobs are lost",
        ids.len() as i64 - known
    );
    scene.at_rest().await
}

/// Stops the server for a while, and says how much processor time each worker used meanwhile.
async fn outage(cluster: &mut Cluster, victims: &mut [Victim]) -> Result<()> {
    cluster.crash()?;
    let before: Result<Vec<Duration>> = victims.iter().map(Victim::cpu).collect();
    tokio::time::sleep(OUTAGE).await;
    for (victim, before) in victims.iter_mut().zip(before?) {
        ensure!(
            !victim.has_ended(),
            "a worker did not survive the outage:\n{}",
            victim.tail()
        );
        let used = victim.cpu()?.saturating_sub(before);
        println!("a worker used {used:?} of processor time in an outage of {OUTAGE:?}");
        ensure!(
            used < OUTAGE / 5,
            "a worker used {used:?} in an outage of {OUTAGE:?}:\n{}",
            victim.tail()
        );
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_survive_a_server_stopped_for_twenty_seconds() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let mut cluster = Cluster::start().await?;
    let case = "outage::workers_survive_a_server_stopped_for_twenty_seconds";
    let scene = Scene::on(Database::fresh(&cluster.server(), case).await?, VICTIM).await?;
    let orders = quiet(&scene);
    let victims: Result<Vec<Victim>> = (0..3).map(|_| scene.victim(&orders, None)).collect();
    let mut victims = victims?;
    let pids: Vec<u32> = victims.iter().map(Victim::pid).collect();

    let stop = CancellationToken::new();
    let at_work = async {
        until("work to be under way", PATIENCE, || under_way(&scene, 300)).await;
        outage(&mut cluster, &mut victims).await?;
        cluster.resume().await?;
        let accepting = Instant::now();
        let done = scene.number(DONE).await?;
        until("the first job after the outage", PATIENCE, || {
            under_way(&scene, done + 1)
        })
        .await;
        let first = accepting.elapsed();
        println!("the first job was done {first:?} after the server accepted connections");
        ensure!(
            first <= Duration::from_secs(5),
            "the first job was done only after {first:?}"
        );
        until("work to go on", PATIENCE, || under_way(&scene, done + 300)).await;
        stop.cancel();
        Ok(())
    };
    let (acknowledged, at_work) = tokio::join!(produce(&scene, &stop), async {
        let result = at_work.await;
        stop.cancel();
        result
    });
    at_work?;

    let jobs = scene.number("select count(*) from rowlock.job").await?;
    scene.until_number(DONE, jobs, PATIENCE).await;
    for victim in &mut victims {
        ensure!(!victim.has_ended(), "a worker ended:\n{}", victim.tail());
        victim.stop().await?;
    }
    ensure!(victims.iter().map(Victim::pid).eq(pids), "a worker was replaced");
    each_once(&scene, &acknowledged).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_starts_before_its_server_waits_for_it() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let mut cluster = Cluster::start().await?;
    let case = "outage::a_worker_that_starts_before_its_server_waits_for_it";
    let scene = Scene::on(Database::fresh(&cluster.server(), case).await?, VICTIM).await?;
    let ids = scene.enqueue_all(vec![Plain {}; 5]).await?;
    cluster.crash()?;
    let mut victim = scene.victim(&scene.orders(), None)?;
    // For longer than PgBouncer, by default, refuses everybody after a failed login.
    until("a worker to have asked in vain for 15 s", PATIENCE, || {
        let asked = victim.logged("failed at startup, retrying");
        std::future::ready((asked >= 22 || victim.has_ended()).then_some(()))
    })
    .await;
    ensure!(!victim.has_ended(), "it gave up:\n{}", victim.tail());
    cluster.resume().await?;
    for id in &ids {
        scene.until_finished(*id).await;
    }
    victim.stop().await?;
    each_once(&scene, &ids).await
}

/// Ends one of the workers' backends, whichever, ten times a second until so many jobs are done.
async fn cut_until_done(scene: &Scene, jobs: i64) -> Result<(i64, Duration)> {
    let cut = "select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity \
               where datname = current_database() and application_name like 'rowlock%' order by random() limit 1) one";
    let mut conn = PgConnection::connect(&scene.database.url).await?;
    let started = Instant::now();
    let mut tick = tokio::time::interval(Duration::from_millis(100));
    let mut cuts = 0;
    while sqlx::query_scalar::<_, i64>(DONE).fetch_one(&mut conn).await? < jobs {
        ensure!(started.elapsed() < PATIENCE * 2, "{jobs} jobs were not done in time");
        tick.tick().await;
        cuts += sqlx::query_scalar::<_, i64>(cut).fetch_one(&mut conn).await?;
    }
    Ok((cuts, started.elapsed()))
}

async fn under_way(scene: &Scene, done: i64) -> Option<()> {
    scene.number(DONE).await.is_ok_and(|seen| seen >= done).then_some(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_happen_once_while_connections_are_cut_ten_times_a_second() -> Result<()> {
    let case = "outage::jobs_happen_once_while_connections_are_cut_ten_times_a_second";
    on_each(postgres_servers(), VICTIM, case, |scene| async move {
        // Each staged job is followed by another: two thousand in all.
        let mut ids = scene.enqueue_all(vec![Plain {}; 1_000]).await?;
        let staged = scene.enqueue_all(vec![Staged {}; 500]).await?;
        ids.extend(&staged);
        let orders = Orders {
            concurrency: 1,
            ..quiet(&scene)
        };
        let mut victims = [scene.victim(&orders, None)?, scene.victim(&orders, None)?];
        let (cuts, took) = cut_until_done(&scene, 2_000).await?;
        println!("{}: {cuts} connections cut in {took:?}", scene.database.label());
        ensure!(cuts >= 10, "only {cuts} connections were cut");
        for victim in &mut victims {
            ensure!(!victim.has_ended(), "a worker ended:\n{}", victim.tail());
            victim.stop().await?;
        }
        for id in staged {
            let effects = scene.provider.effects(id);
            ensure!(effects == 1, "job {id} had {effects} effects");
        }
        each_once(&scene, &ids).await.with_context(|| format!("{cuts} cuts"))
    })
    .await
}
