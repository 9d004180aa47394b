//! Many concurrent workers, and jobs that kill them: nobody gets what another has, nobody's death costs more than its
//! lease, and one bad job does not take its neighbours down with it.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use proof::{
    bed::until,
    scene::{Scene, all_servers, on_each},
    victim::{Abort, Hold, LEASE, Orders, PATIENCE, Plain, Quick, Slow, Victim},
};
use rowlock::{
    Ended::{Done, Lost, Released},
    State,
};

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");

const DONE: &str = "select count(*) from rowlock.outcome where outcome = 'done'";
const LOST: &str = "select count(*) from rowlock.outcome where outcome = 'lost'";

/// Orders for draining: a long lease, because what is shown must hold without a drainer being declared dead, or handing
/// back what waited for a slot for a third of it, on a slow machine.
fn drainer(scene: &Scene) -> Orders {
    Orders {
        workers: 4,
        concurrency: 16,
        connections: Some(2),
        lease_ms: 120_000,
        starts: Some(scene.starts_file()),
        quiet: true,
        ..scene.orders()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn sixteen_workers_drain_fifty_thousand_jobs_in_disjoint_sets() -> Result<()> {
    let case = "fleet::sixteen_workers_drain_fifty_thousand_jobs_in_disjoint_sets";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let (staged, atomic) = (45_000, 5_000);
        scene.enqueue_all(vec![Plain {}; atomic]).await?;
        scene.enqueue_all(vec![Quick {}; staged]).await?;
        let jobs = (staged + atomic) as i64;
        let victims: Result<Vec<Victim>> = (0..4).map(|_| scene.victim(&drainer(&scene), None)).collect();
        scene.until_number(DONE, jobs, PATIENCE * 2).await;
        for victim in &mut victims? {
            victim.stop().await?;
        }

        let claims = "select count(*) from rowlock.outcome";
        let claimed = "select count(distinct id) from rowlock.outcome where epoch = 1 and attempt = 1";
        for count in [claims, claimed] {
            let seen = scene.number(count).await?;
            ensure!(seen == jobs, "{count} gives {seen}, not {jobs}");
        }
        let starts = scene.starts()?;
        ensure!(starts.len() as i64 == jobs, "{} jobs were started", starts.len());
        ensure!(starts.values().all(|n| *n == 1), "a job was started twice");
        for count in ["select count(*) from ledger", "select count(distinct job) from ledger"] {
            let seen = scene.number(count).await?;
            ensure!(seen == atomic as i64, "{count} gives {seen}, not {atomic}");
        }
        scene.at_rest().await
    })
    .await
}

/// Restarts a victim whenever it dies, until `done`; how often it died by `abort`.
async fn supervise(scene: &Scene, orders: &Orders, done: impl AsyncFn() -> bool) -> Result<(usize, Victim)> {
    let mut aborted = 0;
    let started = Instant::now();
    loop {
        let mut victim = scene.victim(orders, None)?;
        let died = loop {
            if victim.has_ended() {
                break true;
            }
            if done().await {
                break false;
            }
            ensure!(started.elapsed() < PATIENCE, "not over in time:\n{}", victim.tail());
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        if !died {
            return Ok((aborted, victim));
        }
        ensure!(victim.was_aborted(), "a victim died otherwise:\n{}", victim.tail());
        aborted += 1;
        ensure!(aborted < 20, "there is no end to it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_that_aborts_its_process_starts_attempts_max_times_and_becomes_a_case() -> Result<()> {
    let case = "fleet::a_job_that_aborts_its_process_starts_attempts_max_times_and_becomes_a_case";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let bad = scene.enqueue(Abort { ms: 0 }).await?;
        let orders = Orders {
            starts: Some(scene.starts_file()),
            ..scene.orders()
        };
        let is_case = async || scene.observe().case(bad).await.is_ok_and(|case| case.is_some());
        let (aborted, mut last) = supervise(&scene, &orders, is_case).await?;
        ensure!(aborted == 3, "it killed {aborted} workers");

        // The one that filed the case lives, and serves others.
        let good = scene.enqueue(Plain {}).await?;
        scene.until_finished(good).await;
        last.stop().await?;
        ensure!(scene.starts()?.get(&bad) == Some(&3), "starts: {:?}", scene.starts()?);
        ensure!(
            scene.outcomes(bad).await? == [Lost; 3],
            "{:?}",
            scene.outcomes(bad).await?
        );
        let case = scene.observe().case(bad).await?.context("it is a case")?;
        ensure!((case.attempt, case.attempts_max) == (3, 3), "{case:?}");
        let history = case.history.as_array().map(Vec::len);
        ensure!(history == Some(3), "the case tells of {history:?} attempts");
        ensure!(scene.observe().cases(10).await?.len() == 1, "there are other cases");
        scene.at_rest().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_aborting_job_among_ninety_nine_good_ones_ends_alone_as_a_case() -> Result<()> {
    let case = "fleet::one_aborting_job_among_ninety_nine_good_ones_ends_alone_as_a_case";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        // All hundred are in one worker's hands when the bad one strikes.
        let mut good = scene.enqueue_all(vec![Slow { ms: 1_000 }; 50]).await?;
        let bad = scene.enqueue(Abort { ms: 400 }).await?;
        good.extend(scene.enqueue_all(vec![Slow { ms: 1_000 }; 49]).await?);
        let orders = Orders {
            concurrency: 100,
            prefetch: Some(0),
            connections: Some(10),
            starts: Some(scene.starts_file()),
            ..scene.orders()
        };
        let over = async || {
            let is_case = scene.observe().case(bad).await.is_ok_and(|case| case.is_some());
            is_case && scene.number(DONE).await.is_ok_and(|done| done == 99)
        };
        let (aborted, mut last) = supervise(&scene, &orders, over).await?;
        last.stop().await?;
        ensure!(aborted == 3, "it killed {aborted} workers");
        ensure!(scene.starts()?.get(&bad) == Some(&3), "starts: {:?}", scene.starts()?);
        ensure!(
            scene.outcomes(bad).await? == [Lost; 3],
            "{:?}",
            scene.outcomes(bad).await?
        );
        for id in good {
            let (outcomes, state) = (
                scene.outcomes(id).await?,
                scene.observe().job(id).await?.map(|job| job.state),
            );
            ensure!(state == Some(State::Finished), "job {id} is {state:?}");
            ensure!(outcomes == [Lost, Done], "job {id} ended {outcomes:?}");
            ensure!(
                scene.provider.effects(id) == 1,
                "job {id} had {} effects",
                scene.provider.effects(id)
            );
        }
        for count in ["select count(*) from ledger", "select count(distinct job) from ledger"] {
            ensure!(
                scene.number(count).await? == 99,
                "{count} gives {}",
                scene.number(count).await?
            );
        }
        ensure!(scene.observe().cases(100).await?.len() == 1, "there are other cases");
        scene.at_rest().await
    })
    .await
}

/// A lease that even a busy machine renews in time.
const HOLDERS_LEASE: Duration = Duration::from_secs(5);

fn holder(scene: &Scene) -> Orders {
    Orders {
        queue: "held".into(),
        concurrency: 20,
        lease_ms: HOLDERS_LEASE.as_millis() as u64,
        ..scene.orders()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_dead_workers_jobs_are_claimable_within_its_lease_and_a_second_while_others_drain() -> Result<()> {
    let case = "fleet::a_dead_workers_jobs_are_claimable_within_its_lease_and_a_second_while_others_drain";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        // Before anybody holds a lease: on SQLite one large commit delays every heartbeat. In parts, because no
        // commit may keep the others from their turn for as long as a lease.
        for _ in 0..40 {
            scene.enqueue_all(vec![Quick {}; 10_000]).await?;
        }
        let held = scene.enqueue_all(vec![Hold {}; 20]).await?;
        let mut dying = scene.victim(&holder(&scene), None)?;
        scene
            .until_number("select count(*) from rowlock.lease", 20, PATIENCE)
            .await;
        let orders = Orders {
            workers: 2,
            ..drainer(&scene)
        };
        let drainers = [scene.victim(&orders, None)?, scene.victim(&orders, None)?];
        let heir = scene.victim(&holder(&scene), None)?;
        until("the backlog to be drained", PATIENCE, async || {
            scene.number(DONE).await.is_ok_and(|done| done > 1_000).then_some(())
        })
        .await;
        ensure!(
            scene.number(LOST).await? == 0,
            "it was lost before it was killed:\n{}",
            dying.tail()
        );
        let killed_at = Timestamp::now();
        dying.kill()?;
        scene.until_number(LOST, 20, PATIENCE).await;
        let left = scene
            .number("select count(*) from rowlock.ready where not alone")
            .await?;
        ensure!(left > 0, "the backlog was drained before");

        // SQLite sees a stale worker twice before it believes it.
        let twice = if scene.database.is_sqlite() {
            HOLDERS_LEASE / 3
        } else {
            Duration::ZERO
        };
        let mut slowest = Duration::ZERO;
        for id in &held {
            let lost = scene
                .attempts(*id)
                .await?
                .first()
                .context("its attempt ended")?
                .ended_at;
            slowest = slowest.max(lost.duration_since(killed_at).try_into()?);
        }
        println!(
            "{}: claimable {slowest:?} after the kill, {left} jobs waiting",
            scene.database.label()
        );
        ensure!(
            slowest <= HOLDERS_LEASE + twice + Duration::from_secs(1),
            "claimable only {slowest:?} after the kill"
        );
        for id in held {
            scene.until_finished(id).await;
        }
        drop((drainers, heir));
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn workers_of_one_name_do_not_disturb_each_other() -> Result<()> {
    let case = "fleet::workers_of_one_name_do_not_disturb_each_other";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let orders = Orders {
            name: Some("one name".into()),
            queue: "held".into(),
            concurrency: 1,
            prefetch: Some(0),
            starts: Some(scene.starts_file()),
            ..scene.orders()
        };
        let dies = scene.enqueue(Hold {}).await?;
        let mut first = scene.victim(&orders, None)?;
        until("the first to hold its job", PATIENCE, async || {
            scene.starts().ok()?.get(&dies).copied()
        })
        .await;
        let lives = scene.enqueue(Hold {}).await?;
        let orders = Orders {
            lease_ms: scene.heirs().lease_ms,
            ..orders
        };
        let mut second = scene.victim(&orders, None)?;
        until("the second to hold its job", PATIENCE, async || {
            scene.starts().ok()?.get(&lives).copied()
        })
        .await;
        let names = scene.number("select count(distinct name) from rowlock.worker").await?;
        let workers = scene.number("select count(distinct worker) from rowlock.lease").await?;
        ensure!((names, workers) == (1, 2), "{names} names, {workers} workers");

        // Restarted immediately under the same name: its lease ends all the same, and the other's does not.
        first.kill()?;
        let mut third = scene.victim(&orders, None)?;
        scene.until_finished(dies).await;
        ensure!(
            scene.outcomes(dies).await? == [Lost, Done],
            "{:?}",
            scene.outcomes(dies).await?
        );
        ensure!(
            scene.outcomes(lives).await?.is_empty(),
            "{:?}",
            scene.outcomes(lives).await?
        );
        second.stop().await?;
        third.stop().await?;
        ensure!(
            scene.outcomes(lives).await? == [Done],
            "{:?}",
            scene.outcomes(lives).await?
        );
        ensure!(
            second.events("declared_dead").is_empty(),
            "the second was declared dead"
        );
        ensure!(scene.starts()?.get(&lives) == Some(&1), "starts: {:?}", scene.starts()?);
        scene.at_rest().await
    })
    .await
}

/// Takes the job for the only worker there is, as its claim would have, without its knowing.
async fn claim_without_its_knowing(scene: &Scene, id: i64) -> Result<()> {
    let now = if scene.database.is_sqlite() {
        Timestamp::now().as_microsecond().to_string()
    } else {
        "clock_timestamp()".to_owned()
    };
    let columns = "attempts_max, queue_no, kind_no, alone, priority";
    let claim = format!(
        "begin; insert into rowlock.lease (id, epoch, worker, attempt, claimed_at, {columns}) \
         select id, epoch + 1, (select id from rowlock.worker), attempt + 1, {now}, {columns} \
         from rowlock.ready where id = {id}; delete from rowlock.ready where id = {id}; commit"
    );
    scene.run(&claim).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lease_whose_claim_reply_was_lost_is_found_and_released_without_burning_an_attempt() -> Result<()> {
    let case = "fleet::a_lease_whose_claim_reply_was_lost_is_found_and_released_without_burning_an_attempt";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let mut only = scene.victim(&scene.orders(), None)?;
        scene
            .until_number("select count(*) from rowlock.worker", 1, PATIENCE)
            .await;
        let id = scene.enqueue_later(&Plain {}, Duration::from_secs(3600)).await?;
        claim_without_its_knowing(&scene, id).await?;

        scene.until_finished(id).await;
        let reported = only.reports("claim_reply_lost").await;
        only.stop().await?;
        ensure!(reported["jobs"] == 1, "{reported}");
        let attempts = scene.attempts(id).await?;
        let told: Vec<_> = attempts.iter().map(|a| (a.epoch, a.attempt, a.outcome)).collect();
        ensure!(told == [(1, 1, Released), (2, 1, Done)], "{told:?}");
        let released = attempts.first().context("it was released")?;
        ensure!(released.error.as_deref() == Some("claim reply lost"), "{released:?}");
        let took: Duration = released.ended_at.duration_since(released.started_at).try_into()?;
        ensure!(took < LEASE / 3 + Duration::from_secs(1), "it took {took:?} to find");
        ensure!(
            scene.number("select count(*) from ledger").await? == 1,
            "it did not happen once"
        );
        scene.at_rest().await
    })
    .await
}
