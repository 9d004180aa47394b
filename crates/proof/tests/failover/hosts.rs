//! Which of several hosts is written on, and what is said when there is none.

use std::{
    net::TcpListener,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use proof::{
    bed::{postgres_servers, until},
    cluster::{Pair, Replication},
    scene::Scene,
    victim::{Behind, Numbered, Orders, PATIENCE},
};
use rowlock::{Admin, postgres::Rowlock};
use rustix::process::{Pid, Signal, kill_process};

use sqlx::{Connection, PgConnection};

use super::world::{World, host, list, meanwhile, rows, under_way};

/// An address where nobody answers as long as the listener is there, for it takes no connection; and nobody listens
/// then.
fn silent() -> Result<(TcpListener, String)> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let address = listener.local_addr()?.to_string();
    Ok((listener, address))
}

/// What an enqueue by this URL says.
async fn refusal(url: &str) -> Result<String> {
    let enqueued = Rowlock::open(url)?.enqueue_now(Numbered { no: 0 }).await;
    let error = anyhow::Error::new(enqueued.err().context("it was enqueued")?);
    Ok(error.chain().map(ToString::to_string).collect::<Vec<_>>().join(": "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_writable_host_is_found_wherever_it_stands_and_otherwise_each_is_named_with_its_reason() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let case = "failover::the_writable_host_is_found_wherever_it_stands_and_otherwise_each_is_named_with_its_reason";
    let mut world = World::start(case, Replication::Asynchronous).await?;
    let url = world.old.database.url.clone();
    let (primary, standby) = (host(&url), host(&world.new.database.url).to_owned());
    let (_listener, silent_one) = silent()?;
    let (_, closed) = silent()?;

    // Migrations, looks and enqueues take the same way.
    let everywhere = list(&url, &[&standby, &closed, primary]);
    let admin = Admin::open(&everywhere, "rowlock")?;
    admin.migrate().await?;
    admin.check_schema().await?;
    let id = Rowlock::open(&everywhere)?.enqueue_now(Numbered { no: 1 }).await?.id();
    ensure!(admin.observe().job(id).await?.is_some(), "the job cannot be seen");
    ensure!(
        world.old.observe().job(id).await?.is_some(),
        "the job is not on the primary"
    );

    // A heartbeat may take half of the lease, which is less than a host is given to answer.
    let orders = Orders {
        url: list(&url, &[&silent_one, primary]),
        ..world.orders()
    };
    let began = Instant::now();
    let mut victim = world.old.victim(&orders, None)?;
    world.old.until_finished(id).await;
    println!(
        "behind a silent host the first job was done after {:?}",
        began.elapsed()
    );
    victim.stop().await?;

    let said = refusal(&list(&url, &[&standby, &closed])).await?;
    let wanted = format!("no host accepts writes ({standby}: standby, {closed}: Connection refused");
    ensure!(said.contains(&wanted), "{said}");
    read_only(&mut world.pair).await?;
    let said = refusal(&list(&url, &[primary, &standby])).await?;
    let wanted = format!("no host accepts writes ({primary}: read-only, {standby}: standby)");
    ensure!(said.contains(&wanted), "{said}");
    // The only host there is may be looked at.
    let alone = Admin::open(&url, "rowlock")?;
    ensure!(
        alone.observe().job(id).await?.is_some(),
        "a read-only server cannot be read"
    );
    let said = refusal(&url).await?;
    ensure!(said.contains("read-only transaction"), "{said}");
    Ok(())
}

/// The server's clock.
async fn now(scene: &Scene) -> Result<String> {
    let (now,): (String,) = rows(scene, "select now()::text").await?.remove(0);
    Ok(now)
}

/// What an operator does who takes a primary out: every new transaction there is read-only.
async fn read_only(pair: &mut Pair) -> Result<()> {
    pair.run_on_primary("alter system set default_transaction_read_only = on")
        .await?;
    pair.run_on_primary("select pg_reload_conf()").await?;
    pair.until_on_primary(
        "select (current_setting('default_transaction_read_only') = 'on')::int",
        1,
    )
    .await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_leave_a_host_that_became_read_only_and_lose_nothing() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let case = "failover::workers_leave_a_host_that_became_read_only_and_lose_nothing";
    let mut world = World::start(case, Replication::Synchronous).await?;
    let began = now(&world.old).await?;
    let mut victims = [
        world.old.victim(&world.orders(), None)?,
        world.old.victim(&world.orders(), None)?,
    ];
    let url = world.url();
    let acknowledged = meanwhile(&url, async {
        under_way(&world.old, 300).await;
        read_only(&mut world.pair).await?;
        // No connection is cut: each is left by whom it belongs to, also the one that only listens.
        let readers = "select count(*) from pg_stat_activity where application_name like 'rowlock%' \
                       and backend_start between";
        let before = format!("{readers} '{began}' and '{}'", now(&world.old).await?);
        world.old.until_number(&before, 0, PATIENCE).await;
        world.pair.promote_standby().await?;
        world.resumes(Instant::now()).await?;
        under_way(&world.new, 600).await;
        Ok(())
    })
    .await?;
    world.drain(&mut victims).await?;
    world.each_once().await?;
    world.none_lost(acknowledged).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_whose_old_primary_fell_silent_is_stopped_and_its_job_done_on_the_new_one() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let case = "failover::a_handler_whose_old_primary_fell_silent_is_stopped_and_its_job_done_on_the_new_one";
    let mut world = World::start(case, Replication::Synchronous).await?;
    // Renewed on the new primary before it ends, the lease alone would not stop the handler.
    let orders = Orders {
        lease_ms: 15_000,
        concurrency: 1,
        ..world.orders()
    };
    let mut victim = world.old.victim(&orders, None)?;
    let mut ahead = PgConnection::connect(&world.old.database.url).await?;
    sqlx::raw_sql("select pg_advisory_lock(7)").execute(&mut ahead).await?;
    let id = Rowlock::open(&world.url())?.enqueue_now(Behind { no: 7 }).await?.id();
    let waits =
        "select pid from pg_stat_activity where wait_event = 'advisory' and application_name = 'rowlock handler'";
    let (backend,): (i32,) = until("a handler to wait", PATIENCE, async || {
        rows(&world.old, waits).await.ok()?.pop()
    })
    .await;
    // Its backend neither answers nor goes away.
    let process = Pid::from_raw(backend).context("a backend is a process")?;
    kill_process(process, Signal::STOP)?;
    world.pair.fence_primary(&[backend]).await?;
    world.pair.promote_standby().await?;
    let promoted = Instant::now();
    world.new.until_finished(id).await;
    let took = promoted.elapsed();
    println!("the job of a handler that hung was done {took:?} after the promotion");
    ensure!(took < Duration::from_secs(20), "it took {took:?}");
    victim.stop().await?;
    ensure!(world.new.ledger().await? == [(id, "7".into())]);
    kill_process(process, Signal::CONT)?;
    Ok(())
}
