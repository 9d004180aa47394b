//! The doctor: it names what stops jobs, with a fix for each problem, and says so if there is none.

use rowlock::{
    Breaker, Fail, atomic,
    breaker::Force,
    observe::{Finding, Health},
    operate::Target,
    staged,
};

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{Bed, Note, Running, until};

pub(crate) async fn finding(bed: &Bed, check: &str) -> Finding {
    let findings = bed.rowlock.observe().doctor().await.unwrap();
    let names: Vec<&str> = findings.iter().map(|finding| finding.check).collect();
    let found = findings.iter().find(|finding| finding.check == check);
    found
        .unwrap_or_else(|| panic!("{check} is not among {names:?}"))
        .clone()
}

fn is(finding: &Finding, health: Health, said: &str, mend: &str) {
    assert_eq!(finding.health, health, "{finding:?}");
    assert!(finding.said.contains(said), "{finding:?}");
    assert!(
        finding.mend.as_deref().unwrap_or_default().contains(mend),
        "{finding:?}"
    );
}

async fn who_is_well_is_told_so(bed: &Bed) {
    let running = Running::start(
        bed.worker()
            .handle(atomic(async |_: Ctx, _: Note, tx: Tx| tx.done().ok())),
    );
    until("the worker to be known", async || {
        !bed.rowlock.observe().status().await.unwrap().workers.is_empty()
    })
    .await;
    let findings = bed.rowlock.observe().doctor().await.unwrap();
    for finding in &findings {
        // Others use the server too, and may leave anything open.
        if !["connections", "oldest transaction"].contains(&finding.check) {
            assert_eq!((finding.health, &finding.mend), (Health::Ok, &None), "{finding:?}");
        }
    }
    is(&finding(bed, "workers").await, Health::Ok, "1 at work, 0 jobs due", "");
    is(&finding(bed, "rules").await, Health::Ok, "all hold", "");
    running.stop().await;
}

async fn a_history_that_nobody_removes_is_told(bed: &Bed) {
    is(
        &finding(bed, "retention").await,
        Health::Ok,
        "the history reaches back 0 days",
        "",
    );
    let old = match bed.database.is_sqlite() {
        true => "insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
                 values (1, 1, 1, 1, 'done', 0, (unixepoch() - 100 * 86400) * 1000000)",
        false => "do $$ begin execute 'create table rowlock.outcome_' || to_char((now() at time zone 'utc')::date - 100, 'YYYYMMDD')
                  || ' partition of rowlock.outcome for values from (' || quote_literal((now() at time zone 'utc')::date - 100)
                  || ') to (' || quote_literal((now() at time zone 'utc')::date - 99) || ')'; end $$",
    };
    bed.run_as_it_is(old).await;
    let found = finding(bed, "retention").await;
    is(
        &found,
        Health::Warn,
        "the history reaches back 100 days",
        "rowlock prune --finished 14d",
    );
}

async fn due_jobs_and_nobody_at_work_is_a_failure(bed: &Bed) {
    is(
        &finding(bed, "workers").await,
        Health::Warn,
        "0 at work, 0 jobs due",
        "start a worker",
    );
    bed.note("x").await;
    is(
        &finding(bed, "workers").await,
        Health::Fail,
        "0 at work, 1 job due",
        "start a worker",
    );
}

async fn what_is_due_and_nobody_takes_is_named(bed: &Bed) {
    let running = Running::start(
        bed.worker()
            .handle(atomic(async |_: Ctx, _: Note, tx: Tx| tx.done().ok())),
    );
    until("the worker to be known", async || {
        !bed.rowlock.observe().status().await.unwrap().workers.is_empty()
    })
    .await;
    let put = bed.rowlock.enqueue_now(Note::new("x")).queue("night");
    assert!(put.await.unwrap().is_new());
    let claims = async || {
        let findings = bed.rowlock.observe().doctor().await.unwrap();
        findings.into_iter().find(|finding| finding.check == "claims")
    };
    assert_eq!(claims().await, None, "just now it may wait");
    bed.run(match bed.database.is_sqlite() {
        true => "update rowlock.ready set due_at = due_at - 60000000",
        false => "update rowlock.ready set due_at = due_at - interval '1 minute'",
    })
    .await;
    let found = claims().await.unwrap();
    is(
        &found,
        Health::Warn,
        "nobody takes it: note in night",
        "start a worker that serves",
    );
    let night = Target::queue("night");
    assert!(bed.rowlock.operate().pause(&night, "tess").await.unwrap());
    assert_eq!(claims().await, None, "a pause is why");
    running.stop().await;
}

async fn doubt(cx: Staged, _: Note) -> Outcome {
    let call = cx.effect("charge", |_| async {
        Err::<i32, _>(Fail::retire("the line went dead"))
    });
    call.park().await?;
    cx.done().ok()
}

async fn what_waits_for_a_person_is_named_with_the_command_for_it(bed: &Bed) {
    for (check, said) in [("cases", "none is open"), ("effects", "none"), ("pauses", "nothing")] {
        is(&finding(bed, check).await, Health::Ok, said, "");
    }
    let id = bed.note("x").await;
    let worker = bed.worker().handle(staged(doubt).breaker("bank", Breaker::after(5)));
    bed.work(worker, &[id]).await;
    bed.rowlock
        .operate()
        .pause(&Target::queue("night"), "tess")
        .await
        .unwrap();
    is(
        &finding(bed, "cases").await,
        Health::Warn,
        "1 waits for somebody",
        "rowlock cases",
    );
    is(
        &finding(bed, "effects").await,
        Health::Warn,
        "1 outside call may or may not have happened",
        "rowlock effects",
    );
    is(
        &finding(bed, "pauses").await,
        Health::Warn,
        "queue night",
        "rowlock resume",
    );
    assert!(
        bed.rowlock
            .operate()
            .force_breaker("bank", Force::Open, "tess")
            .await
            .unwrap()
    );
    is(
        &finding(bed, "breakers").await,
        Health::Warn,
        "bank is open",
        "rowlock breaker",
    );
}

async fn an_index_that_is_gone_is_a_drift_of_the_schema(bed: &Bed) {
    bed.run("drop index rowlock.job_chain").await;
    let found = finding(bed, "rules").await;
    is(
        &found,
        Health::Fail,
        "the schema is not as it was made: indexes",
        "rowlock migrate --sql",
    );
}

mod tests {
    super::super::cases!(
        who_is_well_is_told_so,
        a_history_that_nobody_removes_is_told,
        due_jobs_and_nobody_at_work_is_a_failure,
        what_is_due_and_nobody_takes_is_named,
        what_waits_for_a_person_is_named_with_the_command_for_it,
        an_index_that_is_gone_is_a_drift_of_the_schema,
    );
}
