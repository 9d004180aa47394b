//! Verify where it is to be used: beside workers, producers and operators, on long tables, and after retention.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use rowlock::{
    BegunByHand, Fail, Hold, Job, NotDone, OnUnknown, Retention, State, atomic,
    effect::{EffectFilter, Resolution},
    observe::{CaseFilter, CheckState, Invariant, VerifyLimits},
    staged,
};
use serde::{Deserialize, Serialize};

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{AT_ONCE, Bed, Note, Other, Running, fail, retention::policy::Rigged, rules::verify, until, vanish};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Ends in every way there is.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "storm", attempts = 3)]
struct Storm {
    links: u8,
}

async fn storm(_cx: Ctx, job: Storm, tx: Tx) -> Outcome {
    match fastrand::u8(0..12) {
        0 => fail("again"),
        1 => fail(Fail::defer(Duration::from_millis(1))),
        2 => fail(Fail::retire("no")),
        3 => fail(Fail::cancel("not needed")),
        4 => panic!("out of the blue"),
        5 | 6 if job.links > 0 => tx.done().then(Storm { links: job.links - 1 }).ok(),
        _ => tx.done().result(&1).ok(),
    }
}

/// Calls outside with every kind of end, and settles whatever came of it.
async fn call(cx: Staged, _: Other) -> Outcome {
    let park = fastrand::bool();
    let how = if park { OnUnknown::Park } else { OnUnknown::RetryWithKey };
    let called = cx.effect("call", |_| async {
        match fastrand::u8(0..4) {
            0 => Err(NotDone::because("refused").into()),
            1 => Err(Fail::retry("no answer")),
            _ => Ok(1),
        }
    });
    match called.on_unknown(how).await {
        Err(error) if park => fail(error),
        // The doubt stays listed.
        _ => cx.done().ok(),
    }
}

/// Enqueues plain, keyed and waiting jobs, and completes names, without an end.
async fn produce(bed: &Bed) {
    for n in 0_u64.. {
        let put = bed.rowlock.enqueue_all_now((0..10).map(|_| Storm { links: 2 }));
        put.await.unwrap();
        let _ = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap();
        let keyed = bed
            .rowlock
            .enqueue_now(Storm { links: 0 })
            .key(format!("key:{}", n % 50));
        let _ = keyed.hold(Hold::WhileOpen).await.unwrap();
        let name = format!("name:{n}");
        let waits = bed.rowlock.enqueue_now(Storm { links: 0 }).waits_for(&name);
        let _ = waits.wait_limit(Duration::from_millis(300)).await.unwrap();
        if n % 2 == 0 {
            let mut own = bed.conn().await;
            let _ = bed
                .rowlock
                .complete(&mut BegunByHand::new(&mut own), &name, "yes")
                .await
                .unwrap();
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Reopens cases and resolves doubts, without an end. Others may be faster.
async fn operate(bed: &Bed) {
    let (look, operate) = (bed.rowlock.observe(), bed.rowlock.operate());
    loop {
        for case in look.cases(&CaseFilter::new().limit(20)).await.unwrap() {
            let _ = operate.reopen(case.id, "tess").await;
        }
        let doubtful = EffectFilter::new().doubtful().limit(5);
        for effect in look.effects(&doubtful).await.unwrap() {
            let _ = operate.resolve_effect(effect.no, Resolution::NotHappened, "tess").await;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn a_healthy_database_never_alarms_while_everything_goes_on(bed: &Bed) {
    let worker = || {
        bed.hasty_worker()
            .handle(atomic(storm).backoff(AT_ONCE))
            .handle(staged(call).backoff(AT_ONCE))
    };
    let running = [Running::start(worker()), Running::start(worker())];
    let (start, over) = (Instant::now(), AtomicBool::new(false));
    let look = async {
        let mut times = 0;
        while times < 40 || start.elapsed() < Duration::from_secs(6) {
            let seen = verify(bed).await;
            assert!(
                seen.holds(),
                "look {times}: {:?}",
                seen.that(CheckState::Broken).collect::<Vec<_>>()
            );
            times += 1;
        }
        over.store(true, Ordering::Relaxed);
    };
    let die = async {
        while !over.load(Ordering::Relaxed) {
            vanish(worker(), tokio::time::sleep(Duration::from_millis(700))).await;
        }
    };
    tokio::select! {
        () = async { tokio::join!(look, die); } => {}
        () = produce(bed) => {}
        () = operate(bed) => {}
    }
    let lost = "select count(*) from rowlock.outcome where outcome = 'lost'";
    until("a lost attempt", async || bed.count(lost).await > 0).await;
    for running in running {
        running.stop().await;
    }
    let seen = verify(bed).await;
    assert!(seen.holds(), "at rest: {seen:?}");
    for check in &seen.checks {
        let blind = [
            Invariant::Owners,
            Invariant::Leases,
            Invariant::Waits,
            Invariant::Ledger,
        ];
        assert!(
            check.looked > 0 || blind.contains(&check.invariant),
            "{check:?} saw nothing"
        );
    }
}

/// So many jobs, ready, by hand.
async fn backlog(bed: &Bed, jobs: i64) {
    let body = "uid, kind, version, queue, priority, attempts_max, payload, position, created_at";
    let fill = match bed.database.is_sqlite() {
        true => format!(
            "with recursive s (n) as (select 1 union all select n + 1 from s where n < {jobs})
             insert into rowlock_job ({body})
               select lower(hex(randomblob(18))), 'note', 1, 'none', 3, 3, '{{}}', 0, 1 from s;
             insert into rowlock_ready select id, 1, 1, 0, 3, 1, 0, 0, 3 from rowlock_job"
        ),
        false => format!(
            "insert into rowlock.job (id, {body})
               select nextval('rowlock.job_id'), gen_random_uuid(), 'note', 1, 'none', 3, 3, '{{}}', 0, 'epoch'
               from generate_series(1, {jobs});
             insert into rowlock.ready select 1, 1, false, 3, 'epoch', id, 0, 0, 3 from rowlock.job"
        ),
    };
    bed.run_as_it_is(&fill).await;
}

async fn a_check_that_runs_out_of_time_says_so_and_the_others_go_on(bed: &Bed) {
    backlog(bed, 50_000).await;
    let hasty = VerifyLimits::new().time(Duration::from_millis(5));
    let seen = bed.rowlock.observe().verify(&hasty).await.unwrap();
    let places = seen.checks.iter().find(|c| c.invariant == Invariant::Places).unwrap();
    assert_eq!(
        (places.state, places.looked, places.whole),
        (CheckState::NotFinished, 0, false)
    );
    assert!(!seen.holds());
    assert_eq!(seen.checks.len(), Invariant::ALL.len());
    assert_eq!(seen.that(CheckState::Broken).count(), 0);
    let seen = verify(bed).await;
    assert!(seen.holds(), "with more time: {seen:?}");
}

async fn no_more_rows_are_looked_at_than_allowed_and_the_newest_first(bed: &Bed) {
    backlog(bed, 100).await;
    let oldest = bed.count("select min(id) from rowlock.ready").await;
    bed.run(&format!("delete from rowlock.job where id = {oldest}")).await;
    let of = async |rows: i64| {
        let limits = VerifyLimits::new().rows(rows);
        let mut seen = bed.rowlock.observe().verify(&limits).await.unwrap();
        let at = seen
            .checks
            .iter()
            .position(|c| c.invariant == Invariant::Bodies)
            .unwrap();
        seen.checks.swap_remove(at)
    };
    let part = of(10).await;
    assert_eq!((part.state, part.looked, part.whole), (CheckState::Holds, 10, false));
    let all = of(1000).await;
    assert_eq!((all.state, all.looked, all.whole), (CheckState::Broken, 100, true));
    assert_eq!(all.breaches[0].job, Some(oldest.into()));
}

async fn only_a_few_breaches_are_shown_and_all_are_counted(bed: &Bed) {
    backlog(bed, 20).await;
    bed.run("delete from rowlock.job").await;
    let seen = verify(bed).await;
    let bodies = seen.that(CheckState::Broken).next().unwrap();
    assert_eq!((bodies.invariant, bodies.broken), (Invariant::Bodies, 20));
    assert_eq!(bodies.breaches.len(), 5);
    assert!(bodies.breaches.is_sorted_by_key(|b| b.job), "{bodies:?}");
}

async fn what_retention_removed_is_not_missed(bed: &Bed) {
    let rigged = Rigged::empty(bed).await;
    let Rigged { rig, tables } = rigged;
    let ends = |cx: Ctx, job: Note, tx: Tx| async move {
        match (job.text.as_str(), cx.attempt()) {
            ("case", _) => fail(Fail::retire("no")),
            ("later", 1) => fail(Fail::retry_after(100 * DAY, "much later")),
            _ => tx.done().ok(),
        }
    };
    let doubt = |cx: Staged, _: Other| async move {
        let _: Result<i32, Fail> = cx.effect("call", |_| async { Err(Fail::retry("no answer")) }).await;
        cx.done().ok()
    };
    let rigged = Rigged {
        rig: rig.handle(atomic(ends)).handle(staged(doubt)),
        tables,
    };
    let observe = rigged.rig.rowlock().observe();
    let holds = async |when: &str| {
        let seen = observe.verify(&VerifyLimits::new()).await.unwrap();
        assert!(seen.holds(), "{when}: {seen:?}");
    };
    for text in ["done", "case", "later"] {
        let put = rigged.rig.rowlock().enqueue_now(Note::new(text)).key(text);
        let _ = put.hold(Hold::ForEver).await.unwrap();
    }
    let doubtful = rigged.rig.rowlock().enqueue_now(Other { n: 1 }).await.unwrap().id();
    for _ in 0..4 {
        rigged.rig.run_once().await.unwrap();
    }
    holds("before").await;
    let keep = Retention::new().keys_for_ever();
    for (days, removed) in [(15, 0), (60, 0), (30, 1)] {
        assert_eq!(rigged.pass(days * DAY, keep).await, removed);
        holds(&format!("{days} days on")).await;
        rigged.rig.enqueue(Note::new("new")).await.unwrap();
        rigged.rig.run_once().await.unwrap();
        holds("with a new job").await;
    }
    assert_eq!(
        rigged.state(doubtful).await,
        Some(State::Finished),
        "its doubt keeps it"
    );
    let jobs = "select count(*) from rowlock.job";
    assert!(rigged.count(jobs).await <= 3, "the others are gone");
}

mod tests {
    super::super::cases!(
        a_healthy_database_never_alarms_while_everything_goes_on,
        a_check_that_runs_out_of_time_says_so_and_the_others_go_on,
        no_more_rows_are_looked_at_than_allowed_and_the_newest_first,
        only_a_few_breaches_are_shown_and_all_are_counted,
        what_retention_removed_is_not_missed,
    );
}
