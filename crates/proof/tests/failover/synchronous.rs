//! The standby has every commit that was acknowledged.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use proof::{
    bed::{postgres_servers, until},
    cluster::Replication,
    victim::{Gated, Numbered, Orders, PATIENCE, Victim},
};
use rowlock::{Ended, postgres::Rowlock};

use super::world::{World, meanwhile, rows, under_way};

/// Attempts that were done, by their tokens.
const ENDS: &str = "select id, epoch, worker from rowlock.outcome where outcome = 'done'";

/// Commits that wait for the standby at the end of a handler's transaction. A few may have got there before it was cut
/// off.
const HANGING: &str = "select count(*) from pg_stat_activity \
                       where wait_event = 'SyncRep' and application_name = 'rowlock handler'";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_acknowledged_job_is_lost_or_doubled_when_a_synchronous_standby_takes_over_under_load() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let case = "failover::no_acknowledged_job_is_lost_or_doubled_when_a_synchronous_standby_takes_over_under_load";
    let mut world = World::start(case, Replication::Synchronous).await?;
    let victims: Result<Vec<Victim>> = (0..3).map(|_| world.old.victim(&world.orders(), None)).collect();
    let mut victims = victims?;
    let url = world.url();
    let acknowledged = meanwhile(&url, async {
        under_way(&world.old, 300).await;
        // From here on nothing is acknowledged any more; what is committed all the same stays behind the fence.
        world.pair.cut_off_standby().await?;
        world.pair.until_on_primary(HANGING, 8).await;
        let promoted = world.fail_over().await?;

        world.resumes(promoted).await?;
        let done = world.new.number(super::world::DONE).await?;
        under_way(&world.new, done + 300).await;
        Ok(())
    })
    .await?;
    world.drain(&mut victims).await?;

    world.each_once().await?;
    world.none_lost(acknowledged).await?;
    world.pair.open_primary().await?;
    let here: BTreeSet<(i64, i64, i64)> = rows(&world.new, ENDS).await?.into_iter().collect();
    let behind: Vec<(i64, i64, i64)> = rows(&world.old, ENDS).await?;
    let behind = behind.iter().filter(|end| !here.contains(end)).count();
    println!("{behind} attempts were done on the old primary alone, behind its fence");
    ensure!(behind > 0, "no commit was caught between the two servers");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_handler_outside_its_transactions_goes_on_through_a_failover_that_lost_nothing() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let case = "failover::a_handler_outside_its_transactions_goes_on_through_a_failover_that_lost_nothing";
    let mut world = World::start(case, Replication::Synchronous).await?;
    // Longer than a failover takes: a worker that cannot renew in time stops its handlers.
    let orders = Orders {
        lease_ms: 15_000,
        ..world.orders()
    };
    let mut victim = world.old.victim(&orders, None)?;
    let rowlock = Rowlock::open(&world.url())?;
    let gate = world.new.folder().join("gate");
    let job = Gated {
        no: 1,
        gate: gate.clone(),
    };
    let id = rowlock.enqueue_now(job).await?.id();
    let leased = format!("select count(*) from rowlock.lease where id = {id}");
    world.new.until_number(&leased, 1, PATIENCE).await;
    world.fail_over().await?;

    // Under another id it does new work beside it.
    let next = until("an enqueue", PATIENCE, async || {
        rowlock.enqueue_now(Numbered { no: 2 }).await.ok()
    });
    world.new.until_finished(next.await.id()).await;
    let ids = "select count(*) from rowlock.worker where not dead";
    ensure!(world.new.number(ids).await? == 2, "the id of its lease is not renewed");
    ensure!(world.new.number(&leased).await? == 1, "it has lost its lease");
    std::fs::write(&gate, "")?;
    world.new.until_finished(id).await;
    let outcomes = world.new.outcomes(id).await?;
    ensure!(outcomes == [Ended::Done], "{outcomes:?}");
    world.new.until_number(ids, 1, PATIENCE).await;
    victim.stop().await?;
    world.each_once().await
}
