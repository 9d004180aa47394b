//! Cases that failed alike: one error each, noted on, closed, and reopened a few at a time until the error is back.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rowlock::{Ended, Error, Fail, Group, State, atomic, observe::CaseErrorView};
use tokio::sync::Notify;

use super::db::{Ctx, Tx, Worker};
use super::{AT_ONCE, Bed, Note, Running, fail, note, sql, until, verify::rules::verify};

/// Retires what is not fixed, each job for a reason with its own numbers and names in it.
fn retiring(bed: &Bed, mended: &Arc<AtomicBool>) -> Worker {
    let mended = mended.clone();
    bed.worker().handle(atomic(move |cx: Ctx, job: Note, tx: Tx| {
        let mended = mended.clone();
        async move {
            if mended.load(Ordering::Relaxed) {
                return tx.done().ok();
            }
            let id = cx.id();
            fail(Fail::retire(match job.text.as_str() {
                "order" => format!("order {id} not found after {}.5 s", id % 7),
                "user" => format!("no such user \"user{id}@example.org\""),
                _ => format!("gateway answered 502 to request {:08x}-{id:04}", id * 7919),
            }))
        }
    }))
}

async fn put(bed: &Bed, text: &str, jobs: usize) -> Vec<i64> {
    let jobs = bed.rowlock.enqueue_all_now(vec![Note::new(text); jobs]);
    jobs.await.unwrap()
}

/// The errors of the open cases, once there are so many cases.
async fn errors(bed: &Bed, cases: i64) -> Vec<CaseErrorView> {
    let observe = bed.rowlock.observe();
    until("the cases to be named", async || {
        let errors = observe.case_errors(100).await.unwrap();
        errors.iter().map(|error| error.cases).sum::<i64>() == cases
    })
    .await;
    observe.case_errors(100).await.unwrap()
}

/// So many cases of an error, and its number.
async fn failed(bed: &Bed, text: &str, jobs: usize) -> (Vec<i64>, i64) {
    let ids = put(bed, text, jobs).await;
    let running = Running::start(retiring(bed, &Arc::default()));
    let errors = errors(bed, jobs as i64).await;
    running.stop().await;
    (ids, errors[0].no)
}

/// What the audit says of actions on many jobs, oldest first: verb, jobs, after.
async fn deeds(bed: &Bed) -> Vec<(String, i64, String)> {
    let all = sql("select verb, jobs, after from rowlock.audit where verb like '%error' order by no");
    sqlx::query_as(all).fetch_all(&mut bed.conn().await).await.unwrap()
}

async fn two_thousand_retirements_for_three_errors_are_three_groups(bed: &Bed) {
    for (text, jobs) in [("order", 1200), ("user", 500), ("gateway", 300)] {
        put(bed, text, jobs).await;
    }
    let running = Running::start(retiring(bed, &Arc::default()));
    let errors = errors(bed, 2000).await;
    running.stop().await;
    let told: Vec<(&str, i64, i64)> = errors.iter().map(|e| (e.error.as_str(), e.cases, e.seen)).collect();
    assert_eq!(
        told,
        [
            ("order # not found after # s", 1200, 1200),
            ("no such user \"…\"", 500, 500),
            ("gateway answered # to request …", 300, 300),
        ]
    );
    for error in &errors {
        let cases = bed.rowlock.observe().cases_of_error(error.no, 10_000).await.unwrap();
        assert_eq!(cases.len() as i64, error.cases);
        let (first, last) = (
            cases.iter().map(|c| c.retired_at).min(),
            cases.iter().map(|c| c.retired_at).max(),
        );
        assert_eq!((Some(error.first_seen), Some(error.last_seen)), (first, last));
        assert_eq!(cases.iter().map(|c| c.id).max(), Some(error.newest));
        assert!(cases.iter().all(|case| case.error_no == Some(error.no)));
    }
}

async fn the_cases_of_an_error_are_reopened_at_their_pace_and_no_others(bed: &Bed) {
    let others = put(bed, "user", 3).await;
    let ids = put(bed, "order", 4).await;
    let mended = Arc::new(AtomicBool::new(false));
    let running = Running::start(retiring(bed, &mended));
    let order = errors(bed, 7).await[0].clone();
    mended.store(true, Ordering::Relaxed);
    let began = Instant::now();
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = told.clone();
    let tell = move |reopened| hears.lock().unwrap().push(reopened);
    let ended = bed
        .rowlock
        .operate()
        .reopen_error(order.no, 120, "tess", tell)
        .await
        .unwrap();
    assert_eq!((ended.reopened, ended.left, ended.stopped), (4, 0, None));
    // The first immediately, and one each half second.
    assert!(began.elapsed() >= Duration::from_millis(1500), "{:?}", began.elapsed());
    assert_eq!(told.lock().unwrap().last(), Some(&4));
    for id in &ids {
        until("it to be done", async || bed.job(*id).await.state == State::Finished).await;
    }
    running.stop().await;
    for id in others {
        assert_eq!(bed.job(id).await.state, State::Case);
    }
    let reopens = "select count(*) from rowlock.audit where verb = 'reopen' and actor = 'tess'";
    assert_eq!(bed.count(reopens).await, 4);
    let deeds = deeds(bed).await;
    let deeds: Vec<(&str, i64, &str)> = deeds.iter().map(|(v, n, a)| (v.as_str(), *n, a.as_str())).collect();
    assert_eq!(
        deeds,
        [
            ("reopen error", 4, "120 a minute"),
            ("reopened error", 4, "all of them")
        ]
    );
    assert!(verify(bed).await.holds());
}

async fn reopening_stops_by_itself_when_the_error_is_back(bed: &Bed) {
    let (ids, error) = failed(bed, "order", 200).await;
    let retries = |cx: Ctx, _: Note, _: Tx| async move {
        // It would not be a case for long: the first failure counts.
        fail(Fail::retry(format!("order {} not found after 9 s", cx.id())))
    };
    let slowly = rowlock::Backoff::new()
        .base(Duration::from_secs(600))
        .max(Duration::from_secs(600));
    let running = Running::start(bed.worker().handle(atomic(retries).backoff(slowly)));
    let ended = bed
        .rowlock
        .operate()
        .reopen_error(error, 600, "tess", |_| {})
        .await
        .unwrap();
    running.stop().await;
    let why = ended.stopped.clone().expect("the error is back");
    assert!(why.ends_with("failed again with the same error"), "{why}");
    assert!((1..=100).contains(&ended.reopened), "{ended:?}");
    assert_eq!(ended.reopened + ended.left, 200);
    let open = bed.rowlock.observe().cases_of_error(error, 1000).await.unwrap();
    assert_eq!(open.len() as u64, ended.left);
    assert_eq!(
        bed.job(ids[199]).await.state,
        State::Case,
        "the oldest are reopened first"
    );
    let last = deeds(bed).await.pop().unwrap();
    assert_eq!(
        (last.0.as_str(), last.1 as u64, last.2),
        ("reopened error", ended.reopened, format!("stopped: {why}"))
    );
}

async fn a_new_case_of_the_error_stops_it_too(bed: &Bed) {
    let (ids, error) = failed(bed, "order", 20).await;
    let known: Arc<HashSet<i64>> = Arc::new(ids.into_iter().collect());
    // What is reopened succeeds; what comes new does not.
    let worker = bed.worker().handle(atomic(move |cx: Ctx, _: Note, tx: Tx| {
        let known = known.clone();
        async move {
            match known.contains(&cx.id()) {
                true => tx.done().ok(),
                false => fail(Fail::retire(format!("order {} not found after 1 s", cx.id()))),
            }
        }
    }));
    let running = Running::start(worker);
    let begun = Arc::new(Notify::new());
    let tells = begun.clone();
    let operate = bed.rowlock.operate();
    let reopen = operate.reopen_error(error, 60, "tess", move |_| tells.notify_one());
    let comes = async {
        begun.notified().await;
        put(bed, "order", 1).await
    };
    let (ended, new) = tokio::join!(reopen, comes);
    running.stop().await;
    let ended = ended.unwrap();
    assert_eq!(
        ended.stopped,
        Some(format!("job {} was retired for the same error", new[0]))
    );
    assert!(ended.reopened >= 1 && ended.left > 0, "{ended:?}");
}

async fn an_error_that_comes_back_with_the_last_case_is_seen_too(bed: &Bed) {
    let (_, error) = failed(bed, "order", 3).await;
    let running = Running::start(retiring(bed, &Arc::default()));
    let ended = bed.rowlock.operate().reopen_error(error, 20_000, "tess", |_| {}).await;
    running.stop().await;
    let ended = ended.unwrap();
    assert!(ended.stopped.is_some(), "{ended:?}");
}

async fn an_error_that_nobody_has_and_a_pace_of_nothing_are_refused(bed: &Bed) {
    let (_, error) = failed(bed, "order", 1).await;
    let nothing = bed.rowlock.operate().reopen_error(7, 60, "tess", |_| {}).await;
    assert!(
        matches!(&nothing, Err(Error::NotFound(why)) if why.starts_with("no open case has error 000000000007")),
        "{nothing:?}"
    );
    let never = bed.rowlock.operate().reopen_error(error, 0, "tess", |_| {}).await;
    assert!(matches!(never, Err(Error::Invalid { .. })), "{never:?}");
}

async fn whose_a_case_is_and_what_was_found_out_stands_on_it_and_in_the_audit(bed: &Bed) {
    let (ids, _) = failed(bed, "order", 1).await;
    let (operate, observe) = (bed.rowlock.operate(), bed.rowlock.observe());
    operate.note_case(ids[0], Some("payments"), None, "tess").await.unwrap();
    operate
        .note_case(ids[0], None, Some("the shop was\0 closed"), "ann")
        .await
        .unwrap();
    let case = observe.case(ids[0]).await.unwrap().unwrap();
    assert_eq!(case.owner.as_deref(), Some("payments"));
    let note = case.note.unwrap();
    assert!(note.starts_with("the shop was") && !note.contains('\0'), "{note:?}");
    let noted = format!(
        "select actor, before from rowlock.audit where id = {} and verb = 'note' order by no",
        ids[0]
    );
    let noted: Vec<(String, String)> = sqlx::query_as(sql(&noted))
        .fetch_all(&mut bed.conn().await)
        .await
        .unwrap();
    assert_eq!(noted[1].0, "ann");
    let before: serde_json::Value = serde_json::from_str(&noted[1].1).unwrap();
    assert_eq!(before, serde_json::json!({"owner": "payments", "note": null}));

    let ready = bed.note("x").await;
    let elsewhere = operate.note_case(ready, Some("me"), None, "tess").await;
    assert!(
        matches!(&elsewhere, Err(Error::Conflict(why)) if why.contains("is ready, not a case")),
        "{elsewhere:?}"
    );
    let nowhere = operate.note_case(999_999, Some("me"), None, "tess").await;
    assert!(matches!(nowhere, Err(Error::NotFound(_))), "{nowhere:?}");
    let nothing = operate.note_case(ids[0], None, None, "tess").await;
    assert!(matches!(nothing, Err(Error::Invalid { .. })), "{nothing:?}");
}

async fn a_closed_case_is_finished_for_good_and_its_group_goes_on(bed: &Bed) {
    let group = || Group::new("a").stop_when_retired();
    let put = async |text: &str| {
        bed.rowlock
            .enqueue_now(Note::new(text))
            .group(group())
            .await
            .unwrap()
            .id()
    };
    let (first, second) = (put("order").await, put("next").await);
    bed.work(retiring(bed, &Arc::default()), &[first]).await;
    assert_eq!(
        bed.job(second).await.state,
        State::Waiting,
        "the case has stopped its group"
    );
    let operate = bed.rowlock.operate();
    operate.close_case(first, Some("a test order"), "tess").await.unwrap();
    assert_eq!(bed.job(first).await.state, State::Finished);
    let last = bed.attempts(first).await.pop().unwrap();
    assert_eq!(
        (last.outcome, last.error.as_deref()),
        (Ended::Cancelled, Some("closed by tess: a test order"))
    );
    bed.work(bed.worker().handle(atomic(note)), &[second]).await;
    assert_eq!(bed.ledger().await, 1);
    let refused = operate.close_case(second, None, "tess").await;
    assert!(matches!(refused, Err(Error::Conflict(_))), "{refused:?}");
    let missing = operate.close_case(999_999, None, "tess").await;
    assert!(matches!(missing, Err(Error::NotFound(_))), "{missing:?}");
    let again = operate.reopen(first, "tess").await;
    assert!(matches!(again, Err(Error::Conflict(_))), "{again:?}");
    assert!(verify(bed).await.holds(), "{:?}", verify(bed).await);
}

async fn a_case_may_be_closed_or_reopened_by_plain_sql(bed: &Bed) {
    let (ids, _) = failed(bed, "order", 2).await;
    let [close, reopen] = match bed.database.is_sqlite() {
        true => [("close", ids[0]), ("reopen", ids[1])]
            .map(|(verb, id)| format!("insert into rowlock_verb (verb, id, actor) values ('{verb}', {id}, 'ann')")),
        false => [
            format!("select rowlock.close_case({}, null, 'ann')", ids[0]),
            format!("select rowlock.reopen({}, 'ann')", ids[1]),
        ],
    };
    bed.run_as_it_is(&close).await;
    assert_eq!(bed.job(ids[0]).await.state, State::Finished);
    bed.run_as_it_is(&reopen).await;
    let reopened = bed.job(ids[1]).await;
    assert_eq!((reopened.state, reopened.attempt), (State::Ready, 0));
    let noted =
        "select count(*) from rowlock.audit where actor = 'ann' and before = 'case' and after in ('ready', 'finished')";
    assert_eq!(bed.count(noted).await, 2);
    let again = sqlx::raw_sql(sqlx::AssertSqlSafe(reopen))
        .execute(&mut bed.conn().await)
        .await;
    let said = again.unwrap_err().to_string();
    assert!(said.contains("is not a case"), "{said}");
    assert!(verify(bed).await.holds());
}

async fn a_case_is_reopened_with_another_payload_and_the_old_one_is_kept(bed: &Bed) {
    let (ids, _) = failed(bed, "order", 1).await;
    let operate = bed.rowlock.operate();
    for bad in ["{\"text\": ", "\"\\u0000\""] {
        let refused = operate.reopen_with(ids[0], bad, "tess").await;
        assert!(matches!(refused, Err(Error::Invalid { .. })), "{refused:?}");
    }
    assert_eq!(
        bed.job(ids[0]).await.payload,
        serde_json::json!({"text": "order"}),
        "nothing was changed"
    );
    operate
        .reopen_with(ids[0], r#"{"text": "another"}"#, "tess")
        .await
        .unwrap();
    bed.work(bed.worker().handle(atomic(note).backoff(AT_ONCE)), &ids).await;
    let noted = sql("select count(*) from ledger where note = 'another'");
    let noted: i64 = sqlx::query_scalar(noted)
        .fetch_one(&mut bed.conn().await)
        .await
        .unwrap();
    assert_eq!(noted, 1, "it ran with the new one");
    let kept = format!(
        "select before, after from rowlock.audit where id = {} and verb = 'edit'",
        ids[0]
    );
    let kept: (String, String) = sqlx::query_as(sql(&kept))
        .fetch_one(&mut bed.conn().await)
        .await
        .unwrap();
    assert_eq!(kept, (r#"{"text":"order"}"#.into(), r#"{"text": "another"}"#.into()));
    let finished = operate.reopen_with(ids[0], "1", "tess").await;
    assert!(matches!(finished, Err(Error::Conflict(_))), "{finished:?}");
}

mod tests {
    super::super::cases!(
        two_thousand_retirements_for_three_errors_are_three_groups,
        the_cases_of_an_error_are_reopened_at_their_pace_and_no_others,
        reopening_stops_by_itself_when_the_error_is_back,
        a_new_case_of_the_error_stops_it_too,
        an_error_that_comes_back_with_the_last_case_is_seen_too,
        an_error_that_nobody_has_and_a_pace_of_nothing_are_refused,
        whose_a_case_is_and_what_was_found_out_stands_on_it_and_in_the_audit,
        a_closed_case_is_finished_for_good_and_its_group_goes_on,
        a_case_may_be_closed_or_reopened_by_plain_sql,
        a_case_is_reopened_with_another_payload_and_the_old_one_is_kept,
    );
}
