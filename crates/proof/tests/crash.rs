//! A real worker process is killed with SIGKILL at every named point of both handler shapes. Another takes over, and
//! what the job does has happened once: in the database, at the provider, and down its chain.

use std::{rc::Rc, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use proof::{
    bed::postgres_servers,
    scene::{Scene, all_servers, on_each},
    victim::{Atomic, Batched, Failing, Hooked, Orders, PATIENCE, Parked, Staged, Together, Victim},
};
use rowlock::{
    Admin,
    Ended::{self, Done, Lost, Retired, Retried},
    effect::{EffectFilter, Resolution},
};

const VICTIM: &str = env!("CARGO_BIN_EXE_victim");

const DONE: &str = "select count(*) from rowlock.outcome where outcome = 'done'";

/// What the killed job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Atomic,
    Failing,
    Staged,
    Batched,
    Parked,
}

impl Shape {
    async fn enqueue(self, scene: &Scene) -> Result<i64> {
        match self {
            Shape::Atomic => scene.enqueue(Atomic { account: 1 }).await,
            Shape::Failing => scene.enqueue(Failing {}).await,
            Shape::Staged => scene.enqueue(Staged {}).await,
            Shape::Batched => scene.enqueue(Batched {}).await,
            Shape::Parked => scene.enqueue(Parked {}).await,
        }
    }

    fn goes_outside(self) -> bool {
        matches!(self, Shape::Staged | Shape::Batched | Shape::Parked)
    }

    /// The job's rows in the ledger.
    fn ledger(self) -> i64 {
        if self == Shape::Batched { 0 } else { 1 }
    }
}

/// One job, one killed worker, another that takes over; then everything is counted.
async fn killed_once(
    scene: Rc<Scene>,
    shape: Shape,
    point: &'static str,
    ended: &'static [Ended],
    calls: usize,
) -> Result<()> {
    let id = shape.enqueue(&scene).await?;
    let mut first = scene.victim(&scene.doomed(), Some(point))?;
    first.stands_at(point).await?;
    first.kill()?;

    let mut second = scene.victim(&scene.heirs(), None)?;
    scene.until_finished(id).await;
    second.stop().await?;

    happened_once(&scene, shape, id, ended).await?;
    if shape.goes_outside() {
        let (seen, effects) = (scene.provider.calls(id), scene.provider.effects(id));
        ensure!(
            (seen, effects) == (calls, 1),
            "{seen} calls with {effects} keys, not {calls} with one"
        );
    }
    Ok(())
}

async fn happened_once(scene: &Scene, shape: Shape, id: i64, ended: &[Ended]) -> Result<()> {
    let rows = scene
        .number(&format!("select count(*) from ledger where job = {id}"))
        .await?;
    ensure!(rows == shape.ledger(), "{rows} ledger rows");
    let balance = scene.number("select balance from account where id = 1").await?;
    ensure!(
        balance == i64::from(shape == Shape::Atomic),
        "the account stands at {balance}"
    );
    let chain = scene.observe().chain(id).await?;
    ensure!(chain.len() == 2, "the chain has {} links", chain.len());
    let follows = scene
        .number("select count(*) from rowlock.job where kind = 'follow'")
        .await?;
    let followed = scene
        .number("select count(*) from ledger where note = 'follow'")
        .await?;
    ensure!(
        (follows, followed) == (1, 1),
        "{follows} next links, which happened {followed} times"
    );

    let attempts = scene.attempts(id).await?;
    let outcomes: Vec<Ended> = attempts.iter().map(|a| a.outcome).collect();
    ensure!(outcomes == ended, "attempts ended {outcomes:?}, not {ended:?}");
    let numbers: Vec<i32> = attempts.iter().map(|a| a.attempt).collect();
    ensure!(
        numbers.iter().copied().eq(1..=ended.len() as i32),
        "attempts are numbered {numbers:?}"
    );
    ensure!(
        attempts.iter().all(|a| i64::from(a.attempt) == a.epoch),
        "an epoch was skipped"
    );
    scene.at_rest().await
}

/// A test per point: who is killed where, how its attempts end, and how many external calls it makes.
macro_rules! killed {
    ($($name:ident: $shape:ident at $point:literal ends $ended:expr, calls $calls:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() -> Result<()> {
                let case = concat!("crash::", stringify!($name));
                on_each(all_servers(), VICTIM, case, |scene| killed_once(scene, Shape::$shape, $point, &$ended, $calls)).await
            }
        )*
    };
}

killed! {
    an_atomic_job_killed_after_its_claim_happens_once: Atomic at "after-claim" ends [Lost, Done], calls 0;
    an_atomic_job_killed_before_its_handler_happens_once: Atomic at "before-handler" ends [Lost, Done], calls 0;
    an_atomic_job_killed_after_its_first_write_happens_once: Atomic at "mid-handler" ends [Lost, Done], calls 0;
    an_atomic_job_killed_before_its_settle_happens_once: Atomic at "before-settle" ends [Lost, Done], calls 0;
    an_atomic_job_killed_before_its_commit_happens_once: Atomic at "before-commit" ends [Lost, Done], calls 0;
    an_atomic_job_killed_after_its_commit_is_not_run_again: Atomic at "after-commit" ends [Done], calls 0;

    a_failing_job_killed_before_its_failure_is_recorded_counts_as_lost: Failing at "before-failure" ends [Lost, Done], calls 0;
    a_failing_job_killed_before_its_settle_counts_as_lost: Failing at "before-settle" ends [Lost, Done], calls 0;
    a_failing_job_killed_before_its_commit_counts_as_lost: Failing at "before-commit" ends [Lost, Done], calls 0;
    a_failing_job_killed_after_its_commit_counts_as_failed: Failing at "after-commit" ends [Retried, Done], calls 0;

    a_staged_job_killed_after_its_claim_calls_once: Staged at "after-claim" ends [Lost, Done], calls 1;
    a_staged_job_killed_before_its_handler_calls_once: Staged at "before-handler" ends [Lost, Done], calls 1;
    a_staged_job_killed_before_its_call_calls_once: Staged at "before-effect" ends [Lost, Done], calls 1;
    a_staged_job_killed_after_its_intent_calls_once: Staged at "after-intent" ends [Lost, Done], calls 1;
    a_staged_job_killed_during_its_call_repeats_it_under_the_same_key: Staged at "outside" ends [Lost, Done], calls 2;
    a_staged_job_killed_after_its_call_repeats_it_under_the_same_key: Staged at "before-reply" ends [Lost, Done], calls 2;
    a_staged_job_killed_after_its_reply_is_stored_calls_once: Staged at "after-reply" ends [Lost, Done], calls 1;
    a_staged_job_killed_before_its_settle_happens_once: Staged at "before-settle" ends [Lost, Done], calls 1;
    a_staged_job_killed_before_its_commit_happens_once: Staged at "before-commit" ends [Lost, Done], calls 1;
    a_staged_job_killed_after_its_commit_is_not_run_again: Staged at "after-commit" ends [Done], calls 1;

    a_batched_job_killed_before_its_call_calls_once: Batched at "before-effect" ends [Lost, Done], calls 1;
    a_batched_job_killed_after_its_call_repeats_it_under_the_same_key: Batched at "before-reply" ends [Lost, Done], calls 2;
    a_batched_job_killed_before_its_batch_is_written_happens_once: Batched at "before-batch" ends [Lost, Done], calls 1;
    a_batched_job_killed_after_its_batch_is_written_is_not_run_again: Batched at "after-batch" ends [Done], calls 1;

    a_parked_job_killed_before_its_intent_calls_once: Parked at "before-effect" ends [Lost, Done], calls 1;
    a_parked_job_killed_after_its_reply_is_stored_calls_once: Parked at "after-reply" ends [Lost, Done], calls 1;
}

/// A worker killed with an open intent: the next one makes a case of the job without a call, and a person decides.
async fn parked(scene: Rc<Scene>, point: &'static str, calls: usize) -> Result<()> {
    let id = Shape::Parked.enqueue(&scene).await?;
    let mut first = scene.victim(&scene.doomed(), Some(point))?;
    first.stands_at(point).await?;
    first.kill()?;
    let mut second = scene.victim(&scene.heirs(), None)?;
    scene
        .until_number("select count(*) from rowlock.case_file", 1, PATIENCE)
        .await;
    ensure!(scene.provider.calls(id) == calls, "{} calls", scene.provider.calls(id));

    let doubtful = EffectFilter::new().doubtful();
    let effects = scene.observe().effects(&doubtful).await?;
    let [effect] = &effects[..] else {
        bail!("{effects:?}");
    };
    let case = scene.observe().case(id).await?.context("no case")?;
    for shown in [
        format!("effect {} \"charge\" is in doubt since ", effect.no),
        format!("its idempotency key is {}", effect.key),
        format!("`rowlock effect resolve {} --not-happened`", effect.no),
    ] {
        ensure!(case.reason.contains(&shown), "{shown} is not in: {}", case.reason);
    }
    // The provider's own log decides.
    let happened = match calls {
        0 => Resolution::NotHappened,
        _ => Resolution::Happened(format!("receipt for {}", effect.key).into()),
    };
    let operate = Admin::open(&scene.database.url, "rowlock")?.operate();
    operate.resolve_effect(effect.no, happened, "tess").await?;
    operate.reopen(id, "tess").await?;
    scene.until_finished(id).await;
    second.stop().await?;
    ensure!(scene.provider.calls(id) == 1, "{} calls", scene.provider.calls(id));
    let rows = scene
        .number("select count(*) from ledger where note like 'receipt for %:charge'")
        .await?;
    ensure!(rows == 1, "{rows} ledger rows");
    let outcomes = scene.outcomes(id).await?;
    ensure!(outcomes == [Lost, Retired, Done], "{outcomes:?}");
    scene.at_rest().await
}

macro_rules! parked {
    ($($name:ident: $point:literal, calls $calls:literal;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() -> Result<()> {
                let case = concat!("crash::", stringify!($name));
                on_each(all_servers(), VICTIM, case, |scene| parked(scene, $point, $calls)).await
            }
        )*
    };
}

parked! {
    a_parked_job_killed_after_its_intent_is_a_case_until_resolved: "after-intent", calls 0;
    a_parked_job_killed_during_its_call_is_a_case_until_resolved: "outside", calls 1;
    a_parked_job_killed_before_its_reply_is_stored_is_a_case_until_resolved: "before-reply", calls 1;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hooks_of_a_job_killed_between_its_commit_and_them_are_dropped() -> Result<()> {
    let case = "crash::hooks_of_a_job_killed_between_its_commit_and_them_are_dropped";
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let killed = scene.enqueue(Hooked {}).await?;
        let mut first = scene.victim(&scene.doomed(), Some("after-commit"))?;
        first.stands_at("after-commit").await?;
        first.kill()?;

        let mut second = scene.victim(&scene.heirs(), None)?;
        let lives = scene.enqueue(Hooked {}).await?;
        scene.until_finished(lives).await;
        second.stop().await?;
        for id in [killed, lives] {
            let rows = scene
                .number(&format!("select count(*) from ledger where job = {id}"))
                .await?;
            ensure!(
                (rows, scene.outcomes(id).await?) == (1, vec![Done]),
                "job {id} happened {rows} times"
            );
        }
        let hooks = [killed, lives].map(|id| scene.provider.calls(id));
        ensure!(hooks == [0, 1], "hooks ran {hooks:?} times");
        scene.at_rest().await
    })
    .await
}

/// Makes COMMIT itself take a while on the server: a deferred trigger that sleeps, for the first row only.
async fn slow_commit(scene: &Scene) -> Result<()> {
    let slow = "create table slow (once int); insert into slow values (1); \
        create function sleep_once() returns trigger language plpgsql as $$ begin \
          delete from slow; if found then perform pg_sleep(5); end if; return null; end $$; \
        create constraint trigger sleep after insert on ledger deferrable initially deferred \
          for each row execute function sleep_once()";
    scene.run(slow).await
}

/// The backend in the middle of a COMMIT, when there is one.
const COMMITTING: &str = "select count(*) from pg_stat_activity \
    where datname = current_database() and wait_event = 'PgSleep' and query ilike 'commit%'";

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_killed_while_its_commit_is_under_way_is_not_run_again() -> Result<()> {
    let case = "crash::a_job_killed_while_its_commit_is_under_way_is_not_run_again";
    on_each(postgres_servers(), VICTIM, case, |scene| async move {
        slow_commit(&scene).await?;
        let id = Shape::Atomic.enqueue(&scene).await?;
        let mut first = scene.victim(&scene.doomed(), None)?;
        scene.until_number(COMMITTING, 1, PATIENCE).await;
        // The server has the COMMIT, nobody is left to hear its answer, and it commits all the same.
        first.kill()?;

        let mut second = scene.victim(&scene.heirs(), None)?;
        scene.until_finished(id).await;
        second.stop().await?;
        happened_once(&scene, Shape::Atomic, id, &[Done]).await
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_commit_cut_off_by_the_server_is_looked_up_and_the_job_retried() -> Result<()> {
    let case = "crash::a_commit_cut_off_by_the_server_is_looked_up_and_the_job_retried";
    on_each(postgres_servers(), VICTIM, case, |scene| async move {
        slow_commit(&scene).await?;
        let id = Shape::Atomic.enqueue(&scene).await?;
        let mut only = scene.victim(&scene.doomed(), None)?;
        scene.until_number(COMMITTING, 1, PATIENCE).await;
        let cut = COMMITTING.replace("count(*)", "count(pg_terminate_backend(pid))");
        ensure!(scene.number(&cut).await? == 1, "no commit was cut off");

        scene.until_finished(id).await;
        only.stop().await?;
        let resolved = only.events("commit_resolved");
        let resolved = resolved.first().context("the commit's fate was not looked up")?;
        ensure!(resolved["committed"] == false, "{resolved}");
        happened_once(&scene, Shape::Atomic, id, &[Retried, Done]).await
    })
    .await
}

/// Jobs that share a transaction with each other are lost together, and happen once.
async fn killed_in_a_batch(scene: Rc<Scene>, point: &'static str, ended: &'static [Ended]) -> Result<()> {
    let ids = scene.enqueue_all(vec![Together { account: 1 }; 6]).await?;
    let orders = Orders {
        concurrency: 1,
        batch: Some(6),
        ..scene.doomed()
    };
    let mut first = scene.victim(&orders, Some(point))?;
    first.stands_at(point).await?;
    first.kill()?;
    // On a busy machine the first batch may have fewer than all: what it committed stays, and the others are lost.
    let mut committed = Vec::new();
    for id in &ids {
        committed.push(scene.outcomes(*id).await? == [Done]);
    }
    ensure!(
        committed.contains(&true) == (ended == [Done]),
        "at {point} the commits are {committed:?}"
    );
    let mut second = scene.victim(&orders, None)?;
    for id in &ids {
        scene.until_finished(*id).await;
    }
    second.stop().await?;

    for (id, committed) in ids.iter().zip(committed) {
        let outcomes = scene.outcomes(*id).await?;
        let ended: &[Ended] = if committed { &[Done] } else { &[Lost, Done] };
        ensure!(outcomes == ended, "attempts ended {outcomes:?}, not {ended:?}");
        let links = scene.observe().chain(*id).await?.len();
        ensure!(links == 2, "the chain has {links} links");
    }
    for (count, wanted) in [
        ("select count(*) from ledger where note = 'atomic'", 6),
        ("select count(distinct job) from ledger where note = 'atomic'", 6),
        ("select count(*) from ledger where note = 'follow'", 6),
        ("select balance from account where id = 1", 6),
    ] {
        let seen = scene.number(count).await?;
        ensure!(seen == wanted, "{count} gives {seen}, not {wanted}");
    }
    scene.at_rest().await
}

macro_rules! killed_in_a_batch {
    ($($name:ident: $point:literal ends $ended:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
            async fn $name() -> Result<()> {
                let case = concat!("crash::", stringify!($name));
                on_each(all_servers(), VICTIM, case, |scene| killed_in_a_batch(scene, $point, &$ended)).await
            }
        )*
    };
}

killed_in_a_batch! {
    a_batch_killed_in_its_first_handler_happens_once: "mid-handler" ends [Lost, Done];
    a_batch_killed_between_two_handlers_happens_once: "in-batch" ends [Lost, Done];
    a_batch_killed_before_its_settle_happens_once: "before-settle" ends [Lost, Done];
    a_batch_killed_before_its_commit_happens_once: "before-commit" ends [Lost, Done];
    a_batch_killed_after_its_commit_is_not_run_again: "after-commit" ends [Done];
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_in_batches_happen_once_while_workers_are_killed_at_random() -> Result<()> {
    let case = "crash::jobs_in_batches_happen_once_while_workers_are_killed_at_random";
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    on_each(all_servers(), VICTIM, case, |scene| async move {
        let jobs = scene.enqueue_all(vec![Together { account: 1 }; 4_000]).await?.len() as i64;
        let victims = kill_at_random(&scene, 12, Some(5), seed).await?;
        scene.until_number(DONE, 2 * jobs, PATIENCE * 2).await;
        drop(victims);
        let lost = scene
            .number("select count(*) from rowlock.outcome where outcome = 'lost'")
            .await?;
        println!("{}: {lost} attempts lost", scene.database.label());
        ensure!(lost >= 5, "only {lost} attempts were lost: the pressure was too low");
        for (count, wanted) in [
            ("select count(*) from ledger", 2 * jobs),
            ("select count(distinct job) from ledger", 2 * jobs),
            ("select balance from account where id = 1", jobs),
        ] {
            let seen = scene.number(count).await?;
            ensure!(seen == wanted, "{count} gives {seen}, not {wanted}");
        }
        scene.at_rest().await
    })
    .await
}

/// Kills a random one of three workers again and again, wherever it happens to be, and replaces it immediately.
async fn kill_at_random(scene: &Scene, kills: usize, batch: Option<usize>, seed: u64) -> Result<Vec<Victim>> {
    let mut random = fastrand::Rng::with_seed(seed);
    let orders = Orders {
        concurrency: 3,
        prefetch: Some(1),
        batch,
        quiet: true,
        ..scene.orders()
    };
    let mut victims: Vec<Victim> = (0..3).map(|_| scene.victim(&orders, None)).collect::<Result<_>>()?;
    for _ in 0..kills {
        tokio::time::sleep(Duration::from_millis(random.u64(50..600))).await;
        let unlucky = random.usize(0..victims.len());
        victims[unlucky].kill()?;
        victims[unlucky] = scene.victim(&orders, None)?;
    }
    Ok(victims)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn jobs_happen_once_while_workers_are_killed_at_random() -> Result<()> {
    let case = "crash::jobs_happen_once_while_workers_are_killed_at_random";
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    on_each(all_servers(), VICTIM, case, |scene| async move {
        // Enough that there is always work under way: what is killed must be in the middle of something.
        let atomic = scene.enqueue_all(vec![Atomic { account: 1 }; 1_200]).await?;
        let failing = scene.enqueue_all(vec![Failing {}; 100]).await?;
        let staged = scene.enqueue_all(vec![Staged {}; 800]).await?;
        let batched = scene.enqueue_all(vec![Batched {}; 800]).await?;
        let victims = kill_at_random(&scene, 25, None, seed).await?;
        let jobs = (atomic.len() + failing.len() + staged.len() + batched.len()) as i64;
        scene.until_number(DONE, 2 * jobs, PATIENCE * 2).await;
        drop(victims);

        for count in [
            "select count(*) from rowlock.job",
            "select count(distinct id) from rowlock.outcome where outcome = 'done'",
        ] {
            let seen = scene.number(count).await?;
            ensure!(seen == 2 * jobs, "{count} gives {seen}, not {}", 2 * jobs);
        }
        let lost = scene
            .number("select count(*) from rowlock.outcome where outcome = 'lost'")
            .await?;
        println!("{}: {lost} attempts lost", scene.database.label());
        ensure!(lost >= 5, "only {lost} attempts were lost: the pressure was too low");
        // Batched jobs write nothing, what follows them does.
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
