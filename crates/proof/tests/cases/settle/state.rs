//! The table in `state.rs` decides; here it is held against what the statements do, for every end and attempt.

use std::time::Duration;

use rowlock::{Ended, Fail, atomic};

use super::db::{Ctx, Tx};
use super::{Bed, Note, Other, Running, fail, until};

/// The table itself, compiled a second time: it has no dependencies, and it is not public.
#[allow(dead_code, reason = "only the decisions are used here")]
#[path = "../../../../rowlock/src/state.rs"]
pub(crate) mod table;

const ATTEMPTS_MAX: i32 = 3;

/// Every attempt of a job with one, two and three attempts.
fn attempts() -> impl Iterator<Item = (i32, i32)> {
    (1..=ATTEMPTS_MAX).flat_map(|most| (1..=most).map(move |attempt| (attempt, most)))
}

/// Compares the place of the job, and how many attempts it has used, with the table.
async fn agrees(bed: &Bed, id: i64, ended: table::Ended, attempt: i32, most: i32) {
    let job = bed.job(id).await;
    let case = format!("{ended:?} of attempt {attempt} of {most}");
    assert_eq!(job.last_outcome.map(Ended::as_str), Some(ended.as_str()), "{case}");
    assert_eq!(
        job.state.as_str(),
        table::after(ended, attempt, most).as_str(),
        "{case}"
    );
    assert_eq!(job.attempt, attempt - i32::from(ended.gives_attempt_back()), "{case}");
    let places = ["waiting", "ready", "lease", "case_file"];
    let mut found = 0;
    for place in places {
        found += bed
            .count(&format!("select count(*) from rowlock.{place} where id = {id}"))
            .await;
    }
    let finished = table::after(ended, attempt, most) == table::State::Finished;
    assert_eq!(
        found,
        i64::from(!finished),
        "{case}: a job is in exactly one place, or finished"
    );
}

async fn every_end_of_a_handler_moves_its_job_where_the_table_says(bed: &Bed) {
    let mut jobs = Vec::new();
    for (attempt, most) in attempts() {
        for text in ["done", "fail", "defer", "retire", "cancel"] {
            let id = bed
                .rowlock
                .enqueue_now(Note::new(text))
                .attempts(most)
                .await
                .unwrap()
                .id();
            bed.run(&format!(
                "update rowlock.ready set attempt = {} where id = {id}",
                attempt - 1
            ))
            .await;
            jobs.push((id, text, attempt, most));
        }
    }
    let hour = Duration::from_secs(3600);
    let handler = move |_: Ctx, job: Note, tx: Tx| async move {
        match job.text.as_str() {
            "done" => tx.done().ok(),
            "fail" => fail(Fail::retry_after(hour, "failed")),
            "defer" => fail(Fail::defer(hour)),
            "retire" => fail(Fail::retire("retired")),
            _ => fail(Fail::cancel("cancelled")),
        }
    };
    let running = Running::start(bed.hasty_worker().handle(atomic(handler)));
    for (id, ..) in &jobs {
        until("one end each", async || !bed.attempts(*id).await.is_empty()).await;
    }
    running.stop().await;
    for (id, text, attempt, most) in jobs {
        let ended = match text {
            "done" => table::Ended::Done,
            "fail" => table::failed(attempt, most),
            "defer" => table::Ended::Deferred,
            "retire" => table::Ended::Retired,
            _ => table::Ended::Cancelled,
        };
        agrees(bed, id, ended, attempt, most).await;
    }
}

/// Jobs of a kind that nobody here handles, leased to this worker as attempt so and so.
async fn leased_to(bed: &Bed, worker: &str) -> Vec<(i64, i32, i32)> {
    let mut jobs = Vec::new();
    for (attempt, most) in attempts() {
        let id = bed
            .rowlock
            .enqueue_now(Other { n: 1 })
            .attempts(most)
            .await
            .unwrap()
            .id();
        bed.run(&format!(
            "begin;
             insert into rowlock.lease
               (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
             select id, 1, {worker}, {attempt}, attempts_max, queue_no, kind_no, alone, priority, due_at
             from rowlock.ready where id = {id};
             delete from rowlock.ready where id = {id};
             commit"
        ))
        .await;
        jobs.push((id, attempt, most));
    }
    jobs
}

async fn recovery_moves_a_lost_job_where_the_table_says(bed: &Bed) {
    let jobs = leased_to(bed, "7").await;
    let running = Running::start(bed.hasty_worker().handle(atomic(super::note)));
    until("the worker to register", async || {
        bed.count("select count(*) from rowlock.worker").await == 1
    })
    .await;
    bed.run(
        "insert into rowlock.worker (id, name, lease_ms, beat, dead, started_at)
         select 7, 'gone', lease_ms, beat, true, started_at from rowlock.worker",
    )
    .await;
    until("every lease to end", async || {
        bed.count("select count(*) from rowlock.lease").await == 0
    })
    .await;
    running.stop().await;
    for (id, attempt, most) in jobs {
        agrees(bed, id, table::Ended::Lost, attempt, most).await;
    }
}

async fn a_released_job_goes_where_the_table_says(bed: &Bed) {
    let running = Running::start(bed.hasty_worker().handle(atomic(super::note)));
    until("the worker to register", async || {
        bed.count("select count(*) from rowlock.worker").await == 1
    })
    .await;
    // It holds leases that it knows nothing of, as after a lost reply: it hands them back.
    let jobs = leased_to(bed, "(select id from rowlock.worker)").await;
    until("every lease to end", async || {
        bed.count("select count(*) from rowlock.lease").await == 0
    })
    .await;
    running.stop().await;
    for (id, attempt, most) in jobs {
        agrees(bed, id, table::Ended::Released, attempt, most).await;
    }
}

mod tests {
    super::super::cases!(
        every_end_of_a_handler_moves_its_job_where_the_table_says,
        recovery_moves_a_lost_job_where_the_table_says,
        a_released_job_goes_where_the_table_says,
    );
}
