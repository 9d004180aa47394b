//! Waiting jobs: nothing runs before its name is completed, in any transaction, and a limit ends
//! what nobody completes.

use std::time::Duration;

use rowlock::{Completed, Ended, Error, JobOptions, State, observe::JobFilter};
use sqlx::Connection;

use super::db::{Ctx, Staged, Tx};
use super::{Bed, Note, Other, Running, Seen, fail, note, settle::state::table, until, write};

const SOON: Duration = Duration::from_millis(100);

async fn waiting(bed: &Bed, name: &str) -> i64 {
    let id = bed.rowlock.enqueue_now(Note::new("x")).waits_for(name).await;
    id.unwrap().id()
}

async fn complete(bed: &Bed, name: &str, answer: &str) -> Completed {
    let mut conn = bed.conn().await;
    bed.rowlock.complete(&mut conn, name, answer).await.unwrap()
}

async fn finished(bed: &Bed, id: i64) {
    until("the job to stand still", async || {
        matches!(bed.job(id).await.state, State::Finished | State::Case)
    })
    .await;
}

/// How many places a job is in.
async fn places(bed: &Bed, id: i64) -> i64 {
    let mut found = 0;
    for place in ["waiting", "ready", "lease", "case_file"] {
        let count = format!("select count(*) from rowlock.{place} where id = {id}");
        found += bed.count(&count).await;
    }
    found
}

async fn a_waiting_job_runs_once_its_name_is_completed_and_reads_the_answer(bed: &Bed) {
    let staged = bed.rowlock.enqueue_now(Other { n: 1 }).waits_for("approval:42").await;
    let (staged, atomic) = (staged.unwrap().id(), waiting(bed, "approval:42").await);
    let seen = Seen::default();
    let (one, other) = (seen.clone(), seen.clone());
    let handler = move |cx: Ctx, _: Note, mut tx: Tx| {
        let seen = one.clone();
        async move {
            let answer: Option<String> = tx.answer().await?;
            seen.push(format!("atomic {answer:?}"));
            write(&mut tx, cx.id(), "approved").await?;
            tx.done().ok()
        }
    };
    let outside = move |mut cx: Staged, _: Other| {
        let seen = other.clone();
        async move {
            let mut read = cx.prepare().await?;
            let answer: Option<String> = read.answer().await?;
            read.commit().await?;
            seen.push(format!("staged {answer:?}"));
            cx.done().ok()
        }
    };
    let running = Running::start(
        bed.worker()
            .handle(rowlock::atomic(handler))
            .handle(rowlock::staged(outside)),
    );
    let sentinel = bed.rowlock.enqueue_now(Note::new("now")).await.unwrap().id();
    finished(bed, sentinel).await;
    for id in [staged, atomic] {
        let job = bed.job(id).await;
        assert_eq!((job.state, job.attempt), (State::Waiting, 0));
        assert_eq!(job.waits_for.as_deref(), Some("approval:42"));
    }
    assert_eq!(
        seen.all(),
        ["atomic None"],
        "a job that waits for nothing has no answer"
    );

    assert_eq!(complete(bed, "approval:42", "by Ada").await, Completed::Now(2));
    finished(bed, staged).await;
    finished(bed, atomic).await;
    running.stop().await;
    let mut all = seen.all();
    all.sort();
    let (a, s) = ("atomic Some(\"by Ada\")".into(), "staged Some(\"by Ada\")".into());
    assert_eq!(all, ["atomic None".to_owned(), a, s]);
    assert_eq!(bed.ends(atomic).await, [Ended::Done]);
}

async fn a_name_completed_before_the_enqueue_lets_the_job_straight_to_ready(bed: &Bed) {
    assert_eq!(complete(bed, "paid:7", "yes").await, Completed::Now(0));
    let id = waiting(bed, "paid:7").await;
    assert_eq!((bed.job(id).await.state, places(bed, id).await), (State::Ready, 1));
    let later = bed.rowlock.enqueue_now(Note::new("later")).waits_for("paid:7");
    let later = later.after(Duration::from_secs(3600)).await.unwrap().id();
    let due = bed.job(later).await.due_at.unwrap();
    assert!(
        due > jiff::Timestamp::now() + jiff::SignedDuration::from_mins(59),
        "{due}"
    );
    bed.work(bed.worker().handle(rowlock::atomic(note)), &[id]).await;
}

async fn a_name_is_completed_once_and_the_first_answer_stays(bed: &Bed) {
    let id = waiting(bed, "a").await;
    assert_eq!(complete(bed, "a", "first").await, Completed::Now(1));
    assert_eq!(complete(bed, "a", "second").await, Completed::Already);
    let handler = |_: Ctx, _: Note, mut tx: Tx| async move {
        let answer: Option<String> = tx.answer().await?;
        tx.done().result(&answer).ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler)), &[id]).await;
    assert_eq!(bed.job(id).await.result, Some("first".into()));
}

async fn a_completion_that_rolls_back_moves_nothing(bed: &Bed) {
    let id = waiting(bed, "a").await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    assert_eq!(bed.rowlock.complete(&mut tx, "a", &1).await.unwrap(), Completed::Now(1));
    tx.rollback().await.unwrap();
    assert_eq!((bed.job(id).await.state, places(bed, id).await), (State::Waiting, 1));
    assert_eq!(bed.count("select count(*) from rowlock.completion").await, 0);

    let mut tx = conn.begin().await.unwrap();
    assert_eq!(bed.rowlock.complete(&mut tx, "a", &1).await.unwrap(), Completed::Now(1));
    tx.commit().await.unwrap();
    assert_eq!((bed.job(id).await.state, places(bed, id).await), (State::Ready, 1));
}

async fn a_completion_belongs_to_a_transaction_that_was_begun_by_hand(bed: &Bed) {
    let id = waiting(bed, "a").await;
    let mut conn = bed.conn().await;
    for (end, moved) in [("rollback", State::Waiting), ("commit", State::Ready)] {
        sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
        assert_eq!(
            bed.rowlock.complete(&mut conn, "a", &1).await.unwrap(),
            Completed::Now(1)
        );
        sqlx::raw_sql(end).execute(&mut conn).await.unwrap();
        assert_eq!((bed.job(id).await.state, places(bed, id).await), (moved, 1), "{end}");
    }
}

async fn a_handler_completes_in_its_own_commit(bed: &Bed) {
    let id = waiting(bed, "step:1").await;
    let first = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let handler = |cx: Ctx, _: Other, mut tx: Tx| async move {
        let completed = cx.rowlock().complete(&mut tx, "step:1", &cx.attempt()).await?;
        if cx.attempt() == 1 {
            return fail("the first attempt takes its completion back");
        }
        tx.done().result(&(completed == Completed::Now(1))).ok()
    };
    let worker = bed
        .worker()
        .handle(rowlock::atomic(handler).backoff(super::AT_ONCE))
        .handle(rowlock::atomic(note));
    bed.work(worker, &[first, id]).await;
    assert_eq!(bed.job(first).await.result, Some(true.into()));
    assert_eq!(
        bed.count("select count(*) from rowlock.completion where name = 'step:1'")
            .await,
        1
    );
}

async fn many_jobs_and_next_links_may_wait(bed: &Bed) {
    let all = bed
        .rowlock
        .enqueue_all_now((0..1500).map(|n| Note::new(&n.to_string())));
    let ids = all.waits_for("go").await.unwrap();
    assert!(ids.is_sorted() && ids.len() == 1500);
    let status = bed.rowlock.observe().status().await.unwrap();
    assert_eq!(
        (status.lanes.len(), status.lanes[0].waiting, status.lanes[0].due),
        (1, 1500, 0)
    );
    let filter = JobFilter::new().state(State::Waiting);
    assert_eq!(bed.rowlock.observe().jobs(&filter).await.unwrap().len(), 100);

    // One next link that waits between two that do not: each has its own place.
    let first = bed.rowlock.enqueue_now(Other { n: 0 }).await.unwrap().id();
    let handler = |_: Ctx, job: Other, tx: Tx| async move {
        if job.n > 0 {
            return tx.done().ok();
        }
        let waits = JobOptions::new().waits_for("go");
        tx.done()
            .then(Other { n: 1 })
            .then_with(Other { n: 2 }, waits)
            .then(Other { n: 3 })
            .ok()
    };
    let running = Running::start(bed.worker().handle(rowlock::atomic(handler)));
    finished(bed, first).await;
    let states = async || {
        let chain = bed.rowlock.observe().chain(first).await.unwrap();
        chain
            .iter()
            .map(|j| (j.payload["n"].as_i64().unwrap(), j.state))
            .collect::<Vec<_>>()
    };
    let all_but_one = [0, 1, 2, 3].map(|n| (n, if n == 2 { State::Waiting } else { State::Finished }));
    until("the links that need not wait", async || states().await == all_but_one).await;
    assert_eq!(complete(bed, "go", "now").await, Completed::Now(1501));
    until("the link that waited", async || {
        states().await.iter().all(|(_, state)| *state == State::Finished)
    })
    .await;
    running.stop().await;
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 1500);
    assert_eq!(bed.count("select count(*) from rowlock.waiting").await, 0);
}

async fn a_wait_past_its_limit_is_retired_with_its_compensation(bed: &Bed) {
    let wait = bed.rowlock.enqueue_now(Note::new("x")).waits_for("approval:1");
    let id = wait.wait_limit(SOON).if_retired(Other { n: 9 }).await.unwrap().id();
    let running = Running::start(bed.worker().handle(rowlock::atomic(note)).handle(rowlock::atomic(
        |_: Ctx, job: Other, tx: Tx| async move { tx.done().result(&job.n).ok() },
    )));
    until("the wait to be over", async || bed.job(id).await.state == State::Case).await;
    until("the compensation to be done", async || {
        let chain = bed.rowlock.observe().chain(id).await.unwrap();
        chain.get(1).is_some_and(|link| link.state == State::Finished)
    })
    .await;
    let counters = running.stop().await;
    assert_eq!((counters.waits_over(), counters.settled(Ended::Retired)), (1, 0));
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert_eq!(
        case.reason,
        "its wait limit passed before this was completed: approval:1"
    );
    assert_eq!((case.attempt, case.history.as_array().unwrap().len()), (0, 1));
    let [over] = bed.attempts(id).await.try_into().unwrap();
    assert_eq!((over.outcome, over.worker, over.attempt), (Ended::Retired, 0, 0));
    assert_eq!(table::after_wait(Some(table::Ended::Retired)), table::State::Case);
    assert_eq!(places(bed, id).await, 1);
    assert_eq!(bed.ledger().await, 0, "its handler never ran");
}

async fn an_expiry_that_comes_first_cancels_and_a_limit_that_comes_first_retires(bed: &Bed) {
    let at = |ms| jiff::Timestamp::now() + jiff::SignedDuration::from_millis(ms);
    let enqueue = async |expires, limit| {
        let wait = bed
            .rowlock
            .enqueue_now(Note::new("x"))
            .waits_for("never")
            .expires(at(expires));
        wait.wait_limit(Duration::from_millis(limit)).await.unwrap().id()
    };
    let cancelled = enqueue(100, 60_000).await;
    let retired = enqueue(60_000, 100).await;
    let only = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("never")
        .expires(at(100));
    let only = only.await.unwrap().id();
    let for_ever = waiting(bed, "never").await;
    let running = Running::start(bed.worker().handle(rowlock::atomic(note)));
    for (id, state, ended) in [
        (
            cancelled,
            table::after_wait(Some(table::Ended::Cancelled)),
            Ended::Cancelled,
        ),
        (only, table::after_wait(Some(table::Ended::Cancelled)), Ended::Cancelled),
        (retired, table::after_wait(Some(table::Ended::Retired)), Ended::Retired),
    ] {
        finished(bed, id).await;
        assert_eq!(bed.job(id).await.state.as_str(), state.as_str());
        assert_eq!(bed.ends(id).await, [ended]);
    }
    running.stop().await;
    let error = bed.job(only).await.last_error.unwrap();
    assert_eq!(error, "expired while waiting for: never");
    assert_eq!(bed.job(for_ever).await.state, State::Waiting);
}

async fn a_reopened_case_waits_again_until_its_name_is_completed(bed: &Bed) {
    let wait = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("late")
        .wait_limit(SOON);
    let (id, other) = (wait.await.unwrap().id(), waiting(bed, "fails").await);
    assert_eq!(complete(bed, "fails", "no").await, Completed::Now(1));
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        let answer: String = tx.answer().await?.unwrap_or_default();
        if answer == "no" && cx.epoch() == 1 {
            return fail(rowlock::Fail::retire("not this time"));
        }
        write(&mut tx, cx.id(), &job.text).await?;
        tx.done().result(&answer).ok()
    };
    let running = Running::start(bed.worker().handle(rowlock::atomic(handler)));
    for case in [id, other] {
        until("both to be cases", async || bed.job(case).await.state == State::Case).await;
        bed.rowlock.operate().reopen(case, "tester").await.unwrap();
    }
    finished(bed, other).await;
    assert_eq!(bed.job(other).await.result, Some("no".into()), "its wait was over");
    let job = bed.job(id).await;
    assert_eq!(
        (job.state, places(bed, id).await),
        (State::Waiting, 1),
        "what it waits for has not come"
    );
    assert_eq!(complete(bed, "late", "better").await, Completed::Now(1));
    finished(bed, id).await;
    running.stop().await;
    assert_eq!(bed.ends(id).await, [Ended::Retired, Ended::Done]);
    assert_eq!(bed.job(id).await.result, Some("better".into()));

    // Completed after the limit: a reopen lets it run immediately.
    let wait = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("later")
        .wait_limit(SOON);
    let id = wait.await.unwrap().id();
    bed.work(bed.worker().handle(rowlock::atomic(note)), &[id]).await;
    assert_eq!(complete(bed, "later", "x").await, Completed::Now(0));
    bed.rowlock.operate().reopen(id, "tester").await.unwrap();
    assert_eq!((bed.job(id).await.state, places(bed, id).await), (State::Ready, 1));
}

async fn a_reopened_case_that_has_expired_is_cancelled_in_its_wait(bed: &Bed) {
    let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(900);
    let wait = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("never")
        .expires(expires);
    let id = wait.wait_limit(Duration::from_millis(1)).await.unwrap().id();
    let running = Running::start(bed.worker().handle(rowlock::atomic(note)));
    until("its limit to pass", async || bed.job(id).await.state == State::Case).await;
    bed.rowlock.operate().reopen(id, "tester").await.unwrap();
    finished(bed, id).await;
    running.stop().await;
    assert_eq!(bed.ends(id).await, [Ended::Retired, Ended::Cancelled]);
}

async fn an_answer_of_another_type_makes_a_case(bed: &Bed) {
    let id = waiting(bed, "a").await;
    let mut conn = bed.conn().await;
    let answer = serde_json::json!({ "by": 7 });
    assert_eq!(
        bed.rowlock.complete(&mut conn, "a", &answer).await.unwrap(),
        Completed::Now(1)
    );
    #[derive(serde::Deserialize)]
    struct Answer {
        by: String,
    }
    let handler = |_: Ctx, _: Note, mut tx: Tx| async move {
        let answer: Option<Answer> = tx.answer().await?;
        tx.done().result(&answer.map(|a| a.by)).ok()
    };
    bed.work(bed.worker().handle(rowlock::atomic(handler)), &[id]).await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert!(
        case.reason
            .starts_with("the answer of the completion cannot be decoded at by: invalid type"),
        "{}",
        case.reason
    );
}

async fn bad_names_and_limits_are_refused_before_any_sql(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let too_long = "x".repeat(251);
    for name in ["", "a\0b", &too_long] {
        let said = bed.rowlock.enqueue(&mut tx, Note::new("x")).waits_for(name).await;
        assert!(
            matches!(said, Err(Error::Invalid { field, .. }) if field == "waits_for"),
            "{name:?}"
        );
        let said = bed.rowlock.complete(&mut tx, name, &1).await;
        assert!(
            matches!(said, Err(Error::Invalid { field, .. }) if field == "name"),
            "{name:?}"
        );
    }
    let said = bed
        .rowlock
        .enqueue(&mut tx, Note::new("x"))
        .wait_limit(SOON)
        .await
        .unwrap_err();
    assert_eq!(said.to_string(), "wait_limit: set without a wait; add waits_for");
    let century = Duration::from_secs(100 * 366 * 24 * 3600);
    let said = bed
        .rowlock
        .enqueue(&mut tx, Note::new("x"))
        .waits_for("a")
        .wait_limit(century)
        .await;
    assert!(matches!(said, Err(Error::Invalid { field, .. }) if field == "wait_limit"));
    let said = bed.rowlock.complete(&mut tx, "a", "a\0b").await.unwrap_err();
    assert!(
        said.to_string().starts_with("answer: a string contains a NUL"),
        "{said}"
    );
    let id = bed
        .rowlock
        .enqueue(&mut tx, Note::new("fine"))
        .waits_for("a")
        .await
        .unwrap()
        .id();
    tx.commit().await.unwrap();
    assert_eq!(bed.job(id).await.state, State::Waiting);
}

mod tests {
    super::super::cases!(
        a_waiting_job_runs_once_its_name_is_completed_and_reads_the_answer,
        a_name_completed_before_the_enqueue_lets_the_job_straight_to_ready,
        a_name_is_completed_once_and_the_first_answer_stays,
        a_completion_that_rolls_back_moves_nothing,
        a_completion_belongs_to_a_transaction_that_was_begun_by_hand,
        a_handler_completes_in_its_own_commit,
        many_jobs_and_next_links_may_wait,
        a_wait_past_its_limit_is_retired_with_its_compensation,
        an_expiry_that_comes_first_cancels_and_a_limit_that_comes_first_retires,
        a_reopened_case_waits_again_until_its_name_is_completed,
        a_reopened_case_that_has_expired_is_cancelled_in_its_wait,
        an_answer_of_another_type_makes_a_case,
        bad_names_and_limits_are_refused_before_any_sql,
    );
}
