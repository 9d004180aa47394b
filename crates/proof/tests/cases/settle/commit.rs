//! Settle: the outcome, the writes and the next link in one commit; every end leaves one row, and its due time in it.

use std::time::Duration;

use anyhow::Context;
use jiff::Timestamp;
use rowlock::{Applied, Backoff, Ended, Fail, State};

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{AT_ONCE, Bed, Note, Running, fail, note, until, write};

const HOUR: Duration = Duration::from_secs(3600);

async fn an_atomic_job_commits_its_writes_with_its_outcome(bed: &Bed) {
    let id = bed.note("hello").await;
    let counters = bed.work(bed.worker().handle(rowlock::atomic(note)), &[id]).await;

    assert_eq!((bed.ledger().await, counters.settled(Ended::Done)), (1, 1));
    let job = bed.job(id).await;
    assert_eq!(
        (job.state, job.last_outcome, job.attempt),
        (State::Finished, Some(Ended::Done), 1)
    );
}

async fn a_result_is_stored_with_the_outcome(bed: &Bed) {
    let id = bed.note("x").await;
    let found = serde_json::json!({"n": 7, "text": "é"});
    let answer = found.clone();
    let handler = move |_: Ctx, _: Note, tx: Tx| {
        let done = tx.done().result(&answer).ok();
        async { done }
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler)), &[id]).await;
    assert_eq!(bed.job(id).await.result, Some(found.clone()));
    assert_eq!(bed.attempts(id).await[0].result, Some(found));
}

async fn a_refused_result_fails_the_attempt_and_writes_nothing(bed: &Bed) {
    let id = bed.rowlock.enqueue_now(Note::new("x")).attempts(1).await.unwrap().id();
    let handler = |cx: Ctx, _: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "gone").await?;
        tx.done().result(&"a\0b").ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler)), &[id]).await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert!(case.reason.starts_with("result: "), "{}", case.reason);
    assert_eq!(bed.ledger().await, 0);
}

/// How far ahead of its last end the job is due.
fn delay(job: &rowlock::observe::JobView) -> Duration {
    let delay = job.due_at.unwrap().duration_since(job.last_ended_at.unwrap());
    Duration::try_from(delay).unwrap()
}

async fn a_retry_stores_its_backoff_in_the_row(bed: &Bed) {
    let (first, fourth) = (
        bed.note("first").await,
        bed.rowlock.enqueue_now(Note::new("fourth")).attempts(9),
    );
    let fourth = fourth.await.unwrap().id();
    bed.run(&format!("update rowlock.ready set attempt = 3 where id = {fourth}"))
        .await;
    let backoff = Backoff::new().base(Duration::from_secs(100)).max(HOUR);
    let failing = |_: Ctx, job: Note, _tx: Tx| async move { fail(format!("{} failed", job.text)) };
    let running = Running::start(bed.worker().handle(rowlock::atomic(failing).backoff(backoff)));
    until("both to fail", async || running.counters.settled(Ended::Retried) == 2).await;
    running.stop().await;

    for (id, attempt, middle_s) in [(first, 1, 100), (fourth, 4, 800)] {
        let job = bed.job(id).await;
        assert_eq!(
            (job.state, job.attempt, job.last_outcome),
            (State::Ready, attempt, Some(Ended::Retried))
        );
        let (low, high) = (
            Duration::from_secs(middle_s * 3 / 4),
            Duration::from_secs(middle_s * 5 / 4),
        );
        assert!(
            (low..=high).contains(&delay(&job)),
            "attempt {attempt}: {:?}",
            delay(&job)
        );
        assert!(job.last_error.unwrap().ends_with("failed"));
    }
}

async fn a_handler_may_choose_the_delay_of_its_retry(bed: &Bed) {
    let id = bed.note("x").await;
    let failing = |_: Ctx, _: Note, _tx: Tx| async { fail(Fail::retry_after(HOUR, "rate limit")) };
    bed.work_attempts(bed.worker().handle(rowlock::atomic(failing)), id, 1)
        .await;
    let job = bed.job(id).await;
    assert_eq!(
        (delay(&job), job.attempt, job.last_error.as_deref()),
        (HOUR, 1, Some("rate limit"))
    );
}

/// A job may be deferred without end, and its case must still be written.
async fn a_case_keeps_the_first_and_the_last_fifty_of_a_long_history(bed: &Bed) {
    let id = bed.note("x").await;
    let before = "insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
        with recursive n (no) as (select 1 union all select no + 1 from n where no < 150)
        select j.id, n.no, 1, 0, 'deferred', j.created_at, j.created_at from rowlock.job j cross join n";
    bed.run(before).await;
    bed.run("update rowlock.ready set epoch = 150").await;
    let failing = |_: Ctx, _: Note, _tx: Tx| async move { fail("no".to_owned()) };
    bed.work(bed.worker().handle(rowlock::atomic(failing).backoff(AT_ONCE)), &[id])
        .await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    let history = case.history.as_array().unwrap();
    let epochs: Vec<i64> = history.iter().map(|e| e["epoch"].as_i64().unwrap()).collect();
    assert_eq!(epochs, (1..=50).chain(104..=153).collect::<Vec<i64>>());
    let left_out: Vec<_> = history.iter().filter(|e| e.get("left_out").is_some()).collect();
    assert_eq!(left_out.len(), 1);
    assert_eq!(
        (left_out[0]["epoch"].as_i64(), left_out[0]["left_out"].as_i64()),
        (Some(104), Some(53))
    );
}

async fn an_exhausted_job_becomes_a_case_with_its_whole_history(bed: &Bed) {
    let id = bed.note("x").await;
    let failing =
        |cx: Ctx, _: Note, _tx: Tx| async move { fail(format!("try {} of {}", cx.attempt(), cx.attempts_max())) };
    bed.work(bed.worker().handle(rowlock::atomic(failing).backoff(AT_ONCE)), &[id])
        .await;

    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert_eq!(
        (case.reason.as_str(), case.attempt, case.attempts_max),
        ("try 3 of 3", 3, 3)
    );
    assert_eq!((case.kind.as_str(), case.queue.as_str()), ("note", "default"));
    let history = case.history.as_array().unwrap();
    assert_eq!(history.len(), 3);
    for (i, (entry, outcome)) in history.iter().zip(["retried", "retried", "retired"]).enumerate() {
        let n = i as i64 + 1;
        assert_eq!((entry["attempt"].as_i64(), entry["epoch"].as_i64()), (Some(n), Some(n)));
        assert_eq!(entry["outcome"], outcome);
        assert_eq!(entry["error"], format!("try {n} of 3"));
        let time = |field: &str| entry[field].as_str().unwrap().parse::<Timestamp>().unwrap();
        assert!(time("started_at") <= time("ended_at"));
        assert!(entry["worker"].as_i64().is_some());
    }
    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Retried, Ended::Retired]);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 0);
}

async fn a_deferred_attempt_is_given_back(bed: &Bed) {
    let id = bed.rowlock.enqueue_now(Note::new("x")).attempts(1).await.unwrap().id();
    let patient = |cx: Ctx, _: Note, tx: Tx| async move {
        if cx.epoch() < 4 {
            return fail(Fail::defer(Duration::from_millis(5)));
        }
        tx.done().ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(patient)), &[id]).await;
    assert_eq!(
        bed.ends(id).await,
        [Ended::Deferred, Ended::Deferred, Ended::Deferred, Ended::Done]
    );
    let job = bed.job(id).await;
    assert_eq!((job.attempt, job.epoch, job.state), (1, 4, State::Finished));
}

async fn a_handler_may_retire_or_cancel_whatever_attempts_are_left(bed: &Bed) {
    let (retired, cancelled) = (bed.note("retire").await, bed.note("cancel").await);
    let ends = |_: Ctx, job: Note, _tx: Tx| async move {
        match job.text.as_str() {
            "retire" => fail(Fail::retire("sold out")),
            _ => fail(Fail::cancel("order withdrawn")),
        }
    };
    bed.work(bed.worker().handle(rowlock::atomic(ends)), &[retired, cancelled])
        .await;

    assert_eq!(bed.ends(retired).await, [Ended::Retired]);
    assert_eq!(
        bed.rowlock.observe().case(retired).await.unwrap().unwrap().reason,
        "sold out"
    );
    let job = bed.job(cancelled).await;
    assert_eq!((job.state, job.last_outcome), (State::Finished, Some(Ended::Cancelled)));
    assert_eq!(job.last_error.as_deref(), Some("order withdrawn"));
    assert!(bed.rowlock.observe().case(cancelled).await.unwrap().is_none());
}

async fn only_done_keeps_what_the_handler_wrote(bed: &Bed) {
    let ends = ["retry", "error", "defer", "cancel", "retire", "done"];
    let ids = bed.rowlock.enqueue_all_now(ends.map(Note::new)).await.unwrap();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        match job.text.as_str() {
            "retry" => fail(Fail::retry_after(HOUR, "retry")),
            "error" => fail(std::io::Error::other("error")),
            "defer" => fail(Fail::defer(HOUR)),
            "cancel" => fail(Fail::cancel("cancel")),
            "retire" => fail(Fail::retire("retire")),
            _ => tx.done().ok(),
        }
    };
    let hourly = Backoff::new().base(HOUR).max(HOUR);
    let running = Running::start(bed.worker().handle(rowlock::atomic(handler).backoff(hourly)));
    for id in &ids {
        until("one end of each", async || bed.attempts(*id).await.len() == 1).await;
    }
    running.stop().await;
    assert_eq!(bed.count("select count(*) from ledger where note <> 'done'").await, 0);
    assert_eq!(bed.ledger().await, 1);
}

async fn a_nul_in_the_error_text_does_not_break_the_failure_path(bed: &Bed) {
    let atomic = bed.note("a").await;
    let staged = bed.rowlock.enqueue_now(super::Other { n: 1 }).await.unwrap().id();
    let worker = bed.worker().handle(rowlock::atomic(|_: Ctx, _: Note, _tx: Tx| async {
        fail(Fail::retire("bad\0byte"))
    }));
    let worker = worker.handle(rowlock::staged(|_: Staged, _: super::Other| async {
        fail(Fail::retire("bad\0byte"))
    }));
    bed.work(worker, &[atomic, staged]).await;
    for id in [atomic, staged] {
        let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
        assert_eq!(case.reason, "bad\u{2400}byte");
    }
}

async fn a_huge_error_text_is_cut(bed: &Bed) {
    let id = bed.note("x").await;
    let loud = |_: Ctx, _: Note, _tx: Tx| async { fail(Fail::retire("é".repeat(200_000))) };
    bed.work(bed.worker().handle(rowlock::atomic(loud)), &[id]).await;
    let error = bed.job(id).await.last_error.unwrap();
    assert!(
        error.len() < 9000 && error.starts_with("éé") && error.ends_with("(cut)"),
        "{} bytes",
        error.len()
    );
}

/// One settlement that the database cannot store would be sent again and again, with all that wait behind it.
async fn an_absurd_delay_does_not_hold_up_other_settlements(bed: &Bed) {
    let absurd = [bed.note("defer").await, bed.note("retry").await];
    let handler = |_: Staged, job: Note| async move {
        match job.text.as_str() {
            "defer" => fail(Fail::defer(Duration::MAX)),
            _ => fail(Fail::retry_after(Duration::MAX, "never again")),
        }
    };
    let worker = bed
        .worker()
        .handle(rowlock::staged(handler))
        .handle(rowlock::staged(|cx: Staged, _: super::Other| async { cx.done().ok() }));
    let running = Running::start(worker);
    until("both to run", async || running.counters.claimed() == 2).await;
    let other = bed.rowlock.enqueue_now(super::Other { n: 1 }).await.unwrap().id();
    until("the other job to settle", async || {
        bed.job(other).await.state == State::Finished
    })
    .await;
    running.stop().await;
    for id in absurd {
        let job = bed.job(id).await;
        assert_eq!((job.state, bed.attempts(id).await.len()), (State::Ready, 1));
        assert!(delay(&job) > HOUR);
    }
}

async fn a_constraint_that_fails_at_commit_is_recorded_and_retried(bed: &Bed) {
    bed.run("create table parent (id bigint primary key)").await;
    bed.run("create table child (parent bigint not null references parent (id) deferrable initially deferred)")
        .await;
    let id = bed.note("x").await;
    let adopt = |cx: Ctx, _: Note, mut tx: Tx| async move {
        sqlx::query("insert into child (parent) values (7)")
            .execute(&mut *tx)
            .await?;
        if cx.attempt() == 2 {
            sqlx::query("insert into parent (id) values (7)")
                .execute(&mut *tx)
                .await?;
        }
        // The handler is content both times; the database refuses the first one's commit.
        tx.done().ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(adopt).backoff(AT_ONCE)), &[id])
        .await;

    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
    assert_eq!(bed.count("select count(*) from child").await, 1);
    let error = bed.attempts(id).await[0].error.clone().unwrap();
    assert!(error.to_lowercase().contains("foreign key"), "{error}");
    let code = if bed.database.is_sqlite() { "787" } else { "23503" };
    assert!(error.contains(code), "the database's code {code} is not in: {error}");
}

async fn take(cx: &Ctx, tx: &mut Tx, wrapped: bool) -> Result<(), Fail> {
    write(tx, cx.id(), "gone").await?;
    let updated = sqlx::query("update ledger set note = 'taken' where job = -1")
        .execute(&mut **tx)
        .await?;
    if wrapped {
        updated
            .applied()
            .context("taking the row")
            .context("handling the job")
            .map_err(Fail::from)?;
    } else {
        updated.applied()?;
    }
    Ok(())
}

async fn nothing_left_to_do_settles_as_done_quietly_and_is_counted(bed: &Bed) {
    let ids = [bed.note("plain").await, bed.note("wrapped").await];
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        take(&cx, &mut tx, job.text == "wrapped").await?;
        tx.done().ok()
    };
    let counters = bed.work(bed.worker().handle(rowlock::atomic(handler)), &ids).await;

    assert_eq!((counters.already_handled(), counters.settled(Ended::Done)), (2, 2));
    assert_eq!(bed.ledger().await, 0, "its writes are rolled back");
    for id in ids {
        assert_eq!(bed.ends(id).await, [Ended::Done]);
        assert_eq!(bed.job(id).await.last_error, None);
    }
}

/// Moves the user on from `new`, and does the work that must be done once.
async fn welcome(cx: Ctx, _: Note, mut tx: Tx) -> Outcome {
    let welcome = "update users set status = 'welcomed' where id = 1 and status = 'new'";
    sqlx::query(welcome).execute(&mut *tx).await?.applied()?;
    // Long enough for the other to arrive at the same row.
    tokio::time::sleep(Duration::from_millis(50)).await;
    write(&mut tx, cx.id(), "welcome").await?;
    tx.done().ok()
}

async fn the_same_work_twice_at_once_is_done_once_and_the_other_is_told(bed: &Bed) {
    bed.run("create table users (id bigint primary key, status text not null)")
        .await;
    bed.run("insert into users (id, status) values (1, 'new')").await;
    let ids = bed
        .rowlock
        .enqueue_all_now([Note::new("1"), Note::new("1")])
        .await
        .unwrap();
    let counters = bed.work(bed.worker().handle(rowlock::atomic(welcome)), &ids).await;

    assert_eq!(bed.ledger().await, 1);
    assert_eq!((counters.settled(Ended::Done), counters.already_handled()), (2, 1));
    assert_eq!(
        bed.count("select count(*) from users where status = 'welcomed'").await,
        1
    );
}

mod tests {
    super::super::cases!(
        an_atomic_job_commits_its_writes_with_its_outcome,
        a_result_is_stored_with_the_outcome,
        a_refused_result_fails_the_attempt_and_writes_nothing,
        a_retry_stores_its_backoff_in_the_row,
        a_handler_may_choose_the_delay_of_its_retry,
        an_exhausted_job_becomes_a_case_with_its_whole_history,
        a_case_keeps_the_first_and_the_last_fifty_of_a_long_history,
        a_deferred_attempt_is_given_back,
        a_handler_may_retire_or_cancel_whatever_attempts_are_left,
        only_done_keeps_what_the_handler_wrote,
        a_nul_in_the_error_text_does_not_break_the_failure_path,
        a_huge_error_text_is_cut,
        an_absurd_delay_does_not_hold_up_other_settlements,
        a_constraint_that_fails_at_commit_is_recorded_and_retried,
        nothing_left_to_do_settles_as_done_quietly_and_is_counted,
        the_same_work_twice_at_once_is_done_once_and_the_other_is_told,
    );
}
