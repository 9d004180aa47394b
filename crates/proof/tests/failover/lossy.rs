//! The standby lacks the last commits that were acknowledged.

use anyhow::{Context, Result, ensure};
use proof::{
    bed::{postgres_servers, until},
    cluster::Replication,
    scene::Scene,
    victim::{Gated, Orders, PATIENCE, Quick, Victim},
};
use rowlock::{Ended, postgres::Rowlock};

use super::world::{DONE, World, effects, meanwhile, numbers, rows, under_way};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_a_lagging_standby_did_not_get_is_lost_whole_and_the_rest_is_done_once() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let case = "failover::what_a_lagging_standby_did_not_get_is_lost_whole_and_the_rest_is_done_once";
    let mut world = World::start(case, Replication::Asynchronous).await?;
    let victims: Result<Vec<Victim>> = (0..2).map(|_| world.old.victim(&world.orders(), None)).collect();
    let mut victims = victims?;
    let url = world.url();
    let acknowledged = meanwhile(&url, async {
        under_way(&world.old, 200).await;
        world.pair.cut_off_standby().await?;
        // More than there were when the standby was cut off, so that some were enqueued and done behind its back.
        let jobs = world.old.number("select count(*) from rowlock.job").await?;
        under_way(&world.old, jobs + 100).await;
        let promoted = world.fail_over().await?;
        world.resumes(promoted).await?;
        let done = world.new.number(DONE).await?;
        under_way(&world.new, done + 300).await;
        Ok(())
    })
    .await?;
    world.drain(&mut victims).await?;
    world.each_once().await?;

    world.pair.open_primary().await?;
    let (old, new) = (numbers(&world.old).await?, numbers(&world.new).await?);
    let lost: Vec<i64> = acknowledged.iter().copied().filter(|no| !new.contains(no)).collect();
    let (first, last) = lost.first().zip(lost.last()).context("nothing was lost")?;
    ensure!(lost.len() >= 100, "only {} jobs were lost", lost.len());
    let between = acknowledged.iter().filter(|no| (first..=last).contains(no)).count();
    ensure!(
        between == lost.len(),
        "what was lost is not the end of what was acknowledged"
    );
    ensure!(lost.iter().all(|no| old.contains(no)), "a job was on neither server");
    let there = effects(&world.new).await?;
    let halves: Vec<&i64> = lost.iter().filter(|no| there.contains(no)).collect();
    ensure!(halves.is_empty(), "effects without their jobs: {halves:?}");
    let done = effects(&world.old).await?;
    let undone = lost.iter().filter(|no| done.contains(no)).count();
    ensure!(undone > 0, "no lost job had been done");
    redone(&world, lost.len(), undone).await
}

/// Jobs that were done behind the standby's back are done again, and ids that were given out there are given out again.
async fn redone(world: &World, lost: usize, undone: usize) -> Result<()> {
    let ends = "select (j.payload::json ->> 'no')::bigint, o.id, o.epoch, o.worker from rowlock.outcome o \
                join rowlock.job j on j.id = o.id where o.outcome = 'done'";
    let old: Vec<(i64, i64, i64, i64)> = rows(&world.old, ends).await?;
    let new: Vec<(i64, i64, i64, i64)> = rows(&world.new, ends).await?;
    let (mut twice, mut reissued) = (0, 0);
    for (no, id, epoch, worker) in new {
        let same = old.iter().find(|(other, ..)| *other == no);
        twice += usize::from(same.is_some_and(|(_, _, e, w)| (*e, *w) != (epoch, worker)));
        let other = old.iter().find(|(other, i, ..)| *i == id && *other != no);
        reissued += usize::from(other.is_some());
        ensure!(
            other.is_none_or(|(_, _, e, w)| (*e, *w) != (epoch, worker)),
            "one token was good for two jobs: {id}.{epoch}.{worker}"
        );
    }
    println!("{lost} jobs lost, {undone} of them done; {twice} others done again; {reissued} ids given out twice");
    ensure!(twice > 0, "no job was done on both servers");
    ensure!(reissued > 0, "no id was given out twice");
    Ok(())
}

/// Enqueues a job that nobody serves.
async fn fill(rowlock: &Rowlock) -> Result<i64> {
    Ok(rowlock.enqueue_now(Quick {}).queue("nowhere").await?.id())
}

/// The lease of a job: its epoch and its worker.
async fn lease(scene: &Scene, id: i64) -> (i64, i64) {
    let sql = format!("select epoch, worker from rowlock.lease where id = {id}");
    until("a lease", PATIENCE, async || rows(scene, &sql).await.ok()?.pop()).await
}

/// Three workers, each on its own queue; the standby knows of all of them. The first two are to stop before they
/// write how their first job ended.
async fn three_workers(world: &World) -> Result<[Victim; 3]> {
    let start = |queue: &str, point| {
        let orders = Orders {
            queue: queue.into(),
            // No worker may lose a lease because the processor is busy.
            lease_ms: 15_000,
            quiet: false,
            ..world.orders()
        };
        world.old.victim(&orders, point)
    };
    let held = Some("before-batch");
    let victims = [start("first", held)?, start("second", held)?, start("third", None)?];
    let known = "select count(*) from rowlock.worker";
    world.new.until_number(known, 3, PATIENCE).await;
    Ok(victims)
}

/// Waits for these jobs; each was done at the first attempt, and nothing else is in the ledger than their effects.
async fn each_done_once(scene: &Scene, jobs: &[(i64, &str)]) -> Result<()> {
    for (id, _) in jobs {
        scene.until_finished(*id).await;
        let outcomes = scene.outcomes(*id).await?;
        ensure!(outcomes == [Ended::Done], "job {id}: {outcomes:?}");
    }
    let mut ledger = scene.ledger().await?;
    ledger.sort_unstable();
    let same = ledger
        .iter()
        .map(|(id, note)| (*id, note.as_str()))
        .eq(jobs.iter().copied());
    ensure!(same, "{ledger:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_token_of_a_lost_claim_fits_the_job_that_got_its_id() -> Result<()> {
    if postgres_servers().is_empty() {
        return Ok(());
    }
    let case = "failover::no_token_of_a_lost_claim_fits_the_job_that_got_its_id";
    let mut world = World::start(case, Replication::Asynchronous).await?;
    let [mut first, mut second, mut third] = three_workers(&world).await?;
    let rowlock = Rowlock::open(&world.url())?;

    world.pair.cut_off_standby().await?;
    // A sequence is ahead of itself on a standby, by a few numbers.
    for _ in 0..100 {
        fill(&rowlock).await?;
    }
    let one = rowlock.enqueue_now(Quick {}).queue("first").await?.id();
    let two = rowlock.enqueue_now(Quick {}).queue("second").await?.id();
    let gate = world.new.folder().join("gate");
    let job = |no| Gated { no, gate: gate.clone() };
    let three = rowlock.enqueue_now(job(3)).queue("third").await?.id();
    lease(&world.old, three).await;
    first.stands_at("before-batch").await?;
    second.stands_at("before-batch").await?;
    let before = [lease(&world.old, one).await, lease(&world.old, two).await];
    world.fail_over().await?;

    // The first call meets a connection that is gone.
    let mut last = until("an enqueue", PATIENCE, async || fill(&rowlock).await.ok()).await;
    while last + 1 < one {
        last = fill(&rowlock).await?;
    }
    // The first worker's own queue, and that of a third.
    for (no, queue, id) in [(1, "first", one), (2, "third", two)] {
        let given = rowlock.enqueue_now(job(no)).queue(queue).await?.id();
        ensure!(given == id, "the id {id} was not given out again: {given}");
    }
    let after = [lease(&world.new, one).await, lease(&world.new, two).await];
    for ((epoch, worker), (new_epoch, new_worker)) in before.into_iter().zip(after) {
        ensure!(
            epoch == new_epoch,
            "the epoch {epoch} was not given out again: {new_epoch}"
        );
        ensure!(
            worker != new_worker,
            "worker {worker} has claimed two jobs under one token"
        );
    }

    first.go_on()?;
    second.go_on()?;
    // What runs for a lease that is not there is stopped without having come to its end.
    for (victim, id) in [(&first, one), (&second, two), (&third, three)] {
        let lost = victim.reports("lease_lost").await;
        ensure!(lost["id"] == id, "{lost}");
    }
    let leased = "select count(*) from rowlock.lease";
    ensure!(
        world.new.number(leased).await? == 2,
        "an old token has ended a new lease"
    );
    std::fs::write(&gate, "")?;
    each_done_once(&world.new, &[(one, "1"), (two, "2")]).await?;
    for victim in [&mut first, &mut second, &mut third] {
        victim.stop().await?;
    }
    world
        .new
        .until_number("select count(*) from rowlock.worker", 0, PATIENCE)
        .await;
    Ok(())
}
