//! A worker process is frozen with SIGSTOP past its lease and set going again with SIGCONT. Meanwhile another has taken
//! the job over; the frozen one finds that its lease is lost, and nothing it did counts.
//!
//! On SQLite only staged handlers may be frozen: one frozen inside an atomic handler holds the file's only write lock,
//! and everybody waits for it.

use std::{
    rc::Rc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use proof::{
    bed::postgres_servers,
    scene::{Scene, all_servers, on_each},
    victim::{Atomic, Batched, LEASE, Orders, PATIENCE, Parked, Plain, Staged, Victim},
};
use rowlock::Ended::{Done, Lost, Retired};
use sqlx::{ConnectOptions, Connection, sqlite::SqliteConnectOptions};

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");

/// How long a takeover may take beyond the lease: the recovery's round, and a process to start.
const TAKEOVER: Duration = Duration::from_secs(4);

/// Freezes it at a moment when it holds no lock that everybody needs. On SQLite its heartbeat may hold the write lock
/// for an instant, and a process frozen right then would stop all the others, as it says in the documentation.
async fn freeze(scene: &Scene, victim: &mut Victim) -> Result<()> {
    loop {
        victim.freeze().await?;
        if !scene.database.is_sqlite() || write_lock_is_free(scene).await? {
            return Ok(());
        }
        victim.thaw()?;
    }
}

async fn write_lock_is_free(scene: &Scene) -> Result<bool> {
    let options: SqliteConnectOptions = scene.database.url.parse()?;
    let mut conn = options.busy_timeout(Duration::ZERO).connect().await?;
    let free = sqlx::raw_sql("begin immediate; rollback")
        .execute(&mut conn)
        .await
        .is_ok();
    conn.close().await?;
    Ok(free)
}

/// One job, frozen at `point` past the lease and taken over; then the frozen one goes on.
async fn frozen_past_its_lease(scene: &Scene, id: i64, point: &'static str) -> Result<()> {
    let mut first = scene.victim(&scene.orders(), Some(point))?;
    first.stands_at(point).await?;
    freeze(scene, &mut first).await?;
    let frozen_at = Instant::now();

    let mut second = scene.victim(&scene.heirs(), None)?;
    scene.until_finished(id).await;
    let took = frozen_at.elapsed();
    ensure!(took < LEASE + TAKEOVER, "the takeover took {took:?}");
    second.stop().await?;

    first.thaw()?;
    first.go_on()?;
    let lost = first.reports("lease_lost").await;
    ensure!(
        (lost["id"].as_i64(), lost["attempt"].as_i64()) == (Some(id), Some(1)),
        "{lost}"
    );
    ensure!(
        scene.outcomes(id).await? == [Lost, Done],
        "{:?}",
        scene.outcomes(id).await?
    );
    goes_on_under_a_new_id(scene, &mut first, id).await?;
    first.stop().await?;
    scene.at_rest().await
}

/// The thawed worker does new jobs, and not under the id that was declared dead.
async fn goes_on_under_a_new_id(scene: &Scene, first: &mut Victim, lost: i64) -> Result<()> {
    first.reports("declared_dead").await;
    let new = scene.enqueue(Plain {}).await?;
    scene.until_finished(new).await;
    let old = scene
        .attempts(lost)
        .await?
        .first()
        .context("the lost attempt is on record")?
        .worker;
    let attempts = scene.attempts(new).await?;
    ensure!(
        attempts.iter().all(|a| a.worker != old),
        "the dead id {old} was used again"
    );
    ensure!(attempts.iter().map(|a| a.outcome).eq([Done]), "{attempts:?}");
    let rows = scene
        .number(&format!("select count(*) from ledger where job = {new}"))
        .await?;
    ensure!(rows == 1, "{rows} ledger rows of the new job");
    Ok(())
}

async fn once_in_the_ledger(scene: &Scene, id: i64) -> Result<()> {
    let rows = scene
        .number(&format!("select count(*) from ledger where job = {id}"))
        .await?;
    let follows = scene
        .number("select count(*) from ledger where note = 'follow'")
        .await?;
    ensure!(
        (rows, follows) == (1, 1),
        "{rows} ledger rows, {follows} of the next link"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_frozen_in_an_atomic_handler_keeps_no_row_lock_and_loses() -> Result<()> {
    let case = "freeze::a_worker_frozen_in_an_atomic_handler_keeps_no_row_lock_and_loses";
    on_each(postgres_servers(), VICTIM, case, |scene| {
        frozen_atomic(scene, "mid-handler")
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_frozen_between_its_settle_and_its_commit_loses() -> Result<()> {
    let case = "freeze::a_worker_frozen_between_its_settle_and_its_commit_loses";
    on_each(postgres_servers(), VICTIM, case, |scene| {
        frozen_atomic(scene, "before-commit")
    })
    .await
}

async fn frozen_atomic(scene: Rc<Scene>, point: &'static str) -> Result<()> {
    let id = scene.enqueue(Atomic { account: 1 }).await?;
    let mut first = scene.victim(&scene.orders(), Some(point))?;
    first.stands_at(point).await?;
    freeze(&scene, &mut first).await?;
    let frozen_at = Instant::now();
    // The row that the frozen handler has updated is free again before its lease ends.
    let touch = "set lock_timeout = '10s'; update account set balance = balance where id = 1";
    scene.run(touch).await?;
    ensure!(
        frozen_at.elapsed() < LEASE,
        "the row was locked for {:?}",
        frozen_at.elapsed()
    );

    let mut second = scene.victim(&scene.heirs(), None)?;
    scene.until_finished(id).await;
    let took = frozen_at.elapsed();
    ensure!(took < LEASE + TAKEOVER, "the takeover took {took:?}");
    second.stop().await?;

    first.thaw()?;
    first.go_on()?;
    first.reports("lease_lost").await;
    goes_on_under_a_new_id(&scene, &mut first, id).await?;
    first.stop().await?;
    ensure!(
        scene.outcomes(id).await? == [Lost, Done],
        "{:?}",
        scene.outcomes(id).await?
    );
    let balance = scene.number("select balance from account where id = 1").await?;
    ensure!(balance == 1, "the account stands at {balance}");
    once_in_the_ledger(&scene, id).await?;
    scene.at_rest().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_frozen_during_its_outside_call_loses_and_the_call_counts_once() -> Result<()> {
    let case = "freeze::a_worker_frozen_during_its_outside_call_loses_and_the_call_counts_once";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let id = scene.enqueue(Staged {}).await?;
        frozen_past_its_lease(&scene, id, "outside").await?;
        let (calls, effects) = (scene.provider.calls(id), scene.provider.effects(id));
        ensure!((calls, effects) == (2, 1), "{calls} calls with {effects} keys");
        once_in_the_ledger(&scene, id).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_reply_of_a_worker_frozen_before_it_is_stored_is_refused() -> Result<()> {
    let case = "freeze::the_reply_of_a_worker_frozen_before_it_is_stored_is_refused";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let id = scene.enqueue(Parked {}).await?;
        let mut first = parked_past_its_lease(&scene, id, "before-reply").await?;
        first.thaw()?;
        first.go_on()?;
        first.reports("lease_lost").await;
        first.stop().await?;
        // It had the receipt in its hands, but the doubt was somebody else's by then.
        let effects = scene
            .number("select count(*) from rowlock.effects where state = 'uncertain'")
            .await?;
        ensure!((effects, scene.provider.calls(id)) == (1, 1), "{effects} doubts");
        Ok(())
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_frozen_between_its_intent_and_its_call_does_not_call_when_it_wakes() -> Result<()> {
    let case = "freeze::a_worker_frozen_between_its_intent_and_its_call_does_not_call_when_it_wakes";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let id = scene.enqueue(Parked {}).await?;
        let mut first = parked_past_its_lease(&scene, id, "after-intent").await?;
        first.thaw()?;
        first.go_on()?;
        first.reports("lease_lost").await;
        first.stop().await?;
        ensure!(scene.provider.calls(id) == 0, "{} calls", scene.provider.calls(id));
        Ok(())
    })
    .await
}

/// Frozen with an open intent until another worker has made a case of the job.
async fn parked_past_its_lease(scene: &Scene, id: i64, point: &'static str) -> Result<Victim> {
    let mut first = scene.victim(&scene.orders(), Some(point))?;
    first.stands_at(point).await?;
    freeze(scene, &mut first).await?;
    let mut second = scene.victim(&scene.heirs(), None)?;
    scene
        .until_number("select count(*) from rowlock.case_file", 1, PATIENCE)
        .await;
    second.stop().await?;
    let outcomes = scene.outcomes(id).await?;
    ensure!(outcomes == [Lost, Retired], "{outcomes:?}");
    Ok(first)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_frozen_before_its_batch_is_written_loses() -> Result<()> {
    let case = "freeze::a_worker_frozen_before_its_batch_is_written_loses";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let id = scene.enqueue(Batched {}).await?;
        frozen_past_its_lease(&scene, id, "before-batch").await?;
        let (calls, effects) = (scene.provider.calls(id), scene.provider.effects(id));
        ensure!((calls, effects) == (1, 1), "{calls} calls with {effects} keys");
        let links = scene
            .number("select count(*) from rowlock.job where kind = 'follow'")
            .await?;
        ensure!(links == 1, "{links} next links");
        Ok(())
    })
    .await
}

/// The frozen worker wakes up while the new owner holds the job: it can neither finish the job nor hand it back.
async fn woken_in_the_middle(scene: Rc<Scene>, id: i64, point: &'static str, calls: usize) -> Result<()> {
    let mut first = scene.victim(&scene.orders(), Some(point))?;
    first.stands_at(point).await?;
    freeze(&scene, &mut first).await?;
    let mut second = scene.victim(&scene.orders(), Some(point))?;
    second.stands_at(point).await?;

    first.thaw()?;
    first.go_on()?;
    first.reports("lease_lost").await;
    first.reports("declared_dead").await;
    first.stop().await?;
    let held = format!("select count(*) from rowlock.lease where id = {id} and epoch = 2");
    ensure!(scene.number(&held).await? == 1, "the new owner's lease is gone");
    second.go_on()?;
    scene.until_finished(id).await;
    second.stop().await?;
    ensure!(second.events("lease_lost").is_empty(), "the new owner lost its lease");
    ensure!(
        scene.outcomes(id).await? == [Lost, Done],
        "{:?}",
        scene.outcomes(id).await?
    );
    let (seen, effects) = (scene.provider.calls(id), scene.provider.effects(id));
    ensure!((seen, effects) == (calls, 1), "{seen} calls with {effects} keys");
    let links = scene
        .number("select count(*) from rowlock.job where kind = 'follow'")
        .await?;
    ensure!(links == 1, "{links} next links");
    scene.at_rest().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_late_worker_cannot_finish_a_job_in_its_new_owners_hands() -> Result<()> {
    let case = "freeze::a_late_worker_cannot_finish_a_job_in_its_new_owners_hands";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let id = scene.enqueue(Batched {}).await?;
        woken_in_the_middle(scene, id, "before-batch", 1).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_late_worker_cannot_hand_back_a_job_in_its_new_owners_hands() -> Result<()> {
    let case = "freeze::a_late_worker_cannot_hand_back_a_job_in_its_new_owners_hands";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let id = scene.enqueue(Staged {}).await?;
        woken_in_the_middle(scene.clone(), id, "outside", 2).await?;
        once_in_the_ledger(&scene, id).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_frozen_after_its_claim_starts_nothing_when_it_wakes() -> Result<()> {
    let case = "freeze::a_worker_frozen_after_its_claim_starts_nothing_when_it_wakes";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let id = scene.enqueue(Staged {}).await?;
        let mut first = scene.victim(&scene.orders(), Some("after-claim"))?;
        first.stands_at("after-claim").await?;
        freeze(&scene, &mut first).await?;
        let mut second = scene.victim(&scene.heirs(), None)?;
        scene.until_finished(id).await;
        second.stop().await?;

        first.thaw()?;
        first.go_on()?;
        goes_on_under_a_new_id(&scene, &mut first, id).await?;
        first.stop().await?;
        ensure!(scene.provider.calls(id) == 1, "{} calls", scene.provider.calls(id));
        ensure!(
            scene.outcomes(id).await? == [Lost, Done],
            "{:?}",
            scene.outcomes(id).await?
        );
        once_in_the_ledger(&scene, id).await?;
        scene.at_rest().await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_frozen_for_less_than_its_lease_loses_nothing() -> Result<()> {
    let case = "freeze::a_worker_frozen_for_less_than_its_lease_loses_nothing";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let mut orders = scene.orders();
        orders.lease_ms = 10_000;
        let id = scene.enqueue(Staged {}).await?;
        let mut first = scene.victim(&orders, Some("outside"))?;
        first.stands_at("outside").await?;
        freeze(&scene, &mut first).await?;
        let second = scene.victim(&orders, None)?;
        let plain = scene.enqueue(Plain {}).await?;
        scene.until_finished(plain).await;
        first.thaw()?;
        first.go_on()?;
        scene.until_finished(id).await;
        drop(second);
        first.stop().await?;
        ensure!(scene.outcomes(id).await? == [Done], "{:?}", scene.outcomes(id).await?);
        ensure!(first.events("lease_lost").is_empty(), "it lost a lease");
        once_in_the_ledger(&scene, id).await
    })
    .await
}

/// Freezes a random one of three workers again and again, wherever it happens to be, for up to twice its lease.
async fn freeze_at_random(victims: &mut [Victim], freezes: usize, seed: u64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..freezes {
        let unlucky = random.usize(0..victims.len());
        victims[unlucky].freeze().await?;
        tokio::time::sleep(LEASE.mul_f64(0.25 + 1.75 * random.f64())).await;
        victims[unlucky].thaw()?;
        tokio::time::sleep(Duration::from_millis(random.u64(50..400))).await;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_happen_once_while_workers_are_frozen_at_random() -> Result<()> {
    let case = "freeze::jobs_happen_once_while_workers_are_frozen_at_random";
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    on_each(all_servers(), VICTIM, case, |scene| async move {
        // More than can be done meanwhile: a frozen worker must be in the middle of a job.
        let atomic = scene.enqueue_all(vec![Atomic { account: 1 }; 2_000]).await?;
        let staged = scene.enqueue_all(vec![Staged {}; 1_000]).await?;
        let batched = scene.enqueue_all(vec![Batched {}; 1_000]).await?;
        let orders = Orders {
            concurrency: 2,
            prefetch: Some(0),
            quiet: true,
            ..scene.orders()
        };
        let mut victims = [0; 3]
            .map(|_| scene.victim(&orders, None))
            .into_iter()
            .collect::<Result<Vec<_>>>()?;
        freeze_at_random(&mut victims, 10, seed).await?;
        let jobs = (atomic.len() + staged.len() + batched.len()) as i64;
        scene
            .until_number(
                "select count(*) from rowlock.outcome where outcome = 'done'",
                2 * jobs,
                PATIENCE * 2,
            )
            .await;
        let late: usize = victims.iter().map(|v| v.events("lease_lost").len()).sum();
        for victim in &mut victims {
            victim.stop().await?;
        }

        println!("{}: {late} results came too late", scene.database.label());
        let rows = 2 * jobs - batched.len() as i64;
        for count in ["select count(*) from ledger", "select count(distinct job) from ledger"] {
            let seen = scene.number(count).await?;
            ensure!(seen == rows, "{count} gives {seen}, not {rows}");
        }
        let balance = scene.number("select balance from account where id = 1").await?;
        ensure!(balance == atomic.len() as i64, "the account stands at {balance}");
        for id in staged.iter().chain(&batched) {
            ensure!(
                scene.provider.effects(*id) == 1,
                "job {id} had {} effects",
                scene.provider.effects(*id)
            );
        }
        scene.at_rest().await
    })
    .await
}
