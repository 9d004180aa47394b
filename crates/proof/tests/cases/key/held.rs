//! Keys at enqueue: one job per key while it is held, the job itself for every repeat, a conflict for another request.

use std::time::Duration;

use rowlock::{
    Admin, Ended, Enqueued, Error, Fail, Hold, NamedJob, State, atomic, enqueue::Enqueue, key::Existing,
    observe::JobFilter,
};
use serde_json::json;
use sqlx::Connection;

use super::db::{Backend, Conn, Ctx, Tx};
use super::{Bed, Note, Other, fail, note, until, write};

/// What a repeat got; a new job instead is a failed case.
pub(crate) fn existing(put: Enqueued) -> Existing {
    match put {
        Enqueued::Existing(existing) => existing,
        other => panic!("a repeat made a job: {other:?}"),
    }
}

/// Key, what holds it, and what was given.
fn conflict<T: std::fmt::Debug>(said: rowlock::Result<T>) -> (String, String, String) {
    match said {
        Err(Error::KeyConflict { key, held, given, .. }) => (key, held, given),
        other => panic!("no conflict: {other:?}"),
    }
}

async fn jobs(bed: &Bed) -> [i64; 2] {
    [
        bed.count("select count(*) from rowlock.job").await,
        bed.count("select count(*) from rowlock.job_key").await,
    ]
}

async fn a_repeat_of_a_request_gets_the_first_ones_job_and_writes_nothing(bed: &Bed) {
    let put = bed.rowlock.enqueue_now(Note::new("once")).key("note:1").await.unwrap();
    let id = put.id();
    assert_eq!(put, Enqueued::New(id));
    assert_eq!(bed.job(id).await.key.as_deref(), Some("note:1"));

    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    // Other options are no other request.
    let again = bed
        .rowlock
        .enqueue(&mut *tx, Note::new("once"))
        .key("note:1")
        .priority(1);
    let again = existing(again.await.unwrap());
    tx.commit().await.unwrap();
    assert_eq!((again.id, again.state, again.outcome), (id, Some(State::Ready), None));
    assert_eq!((again.result.clone(), again.is_pruned()), (None, false));
    assert_eq!(jobs(bed).await, [1, 1]);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 1);

    let other = bed.rowlock.enqueue_now(Note::new("once")).key("note:2").await.unwrap();
    assert!(other.is_new(), "another key is another operation");
}

async fn a_repeat_after_the_end_gets_the_stored_result(bed: &Bed) {
    let put = || bed.rowlock.enqueue_now(Note::new("x")).key("k");
    let id = put().await.unwrap().id();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        tx.done().result(&json!({ "paid": 7 })).ok()
    };
    bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    let again = existing(put().await.unwrap());
    assert_eq!((again.id, again.state), (id, Some(State::Finished)));
    assert_eq!(
        (again.outcome, again.result),
        (Some(Ended::Done), Some(json!({ "paid": 7 })))
    );
    assert_eq!(bed.ledger().await, 1);

    // Retention took the body and the history; only the key is left.
    bed.run("delete from rowlock.outcome").await;
    bed.run("delete from rowlock.job").await;
    let again = existing(put().await.unwrap());
    assert_eq!((again.id, again.state, again.is_pruned()), (id, None, true));
    assert_eq!((again.outcome, again.result), (None, None));
}

async fn another_request_under_a_key_is_a_conflict_and_the_transaction_goes_on(bed: &Bed) {
    let id = bed.rowlock.enqueue_now(Note::new("a")).key("k").await.unwrap().id();
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let (key, held, given) = conflict(bed.rowlock.enqueue(&mut *tx, Note::new("b")).key("k").await);
    assert_eq!(key, "k");
    assert!(held.starts_with(&format!("job {id} with ")), "{held}");
    assert!(!held.ends_with(&given), "both fingerprints are named: {held}, {given}");
    // The same payload for another kind is another request too.
    conflict(bed.rowlock.enqueue(&mut *tx, Other { n: 1 }).key("k").await);
    let mine = "insert into ledger (job, note) values (0, 'mine')";
    sqlx::query(mine).execute(&mut *tx).await.unwrap();
    let next = bed.rowlock.enqueue(&mut *tx, Note::new("b")).key("k2").await.unwrap();
    tx.commit().await.unwrap();
    assert!(next.is_new());
    assert_eq!((bed.ledger().await, jobs(bed).await), (1, [2, 2]));

    let error = bed.rowlock.enqueue_now(Note::new("b")).key("k").await.unwrap_err();
    assert!(!error.is_retryable());
    let said = error.to_string();
    assert!(
        said.starts_with("key \"k\" is already used by a different request (stored: job "),
        "{said}"
    );
}

async fn a_key_goes_with_the_rollback_of_its_job(bed: &Bed) {
    let mut conn = bed.conn().await;
    for text in ["never", "also never"] {
        let mut tx = conn.begin().await.unwrap();
        let put = bed.rowlock.enqueue(&mut *tx, Note::new(text)).key("k").await.unwrap();
        assert!(put.is_new());
        tx.rollback().await.unwrap();
    }
    assert_eq!(jobs(bed).await, [0, 0]);
    let mut by_hand = bed.conn().await;
    sqlx::raw_sql("begin").execute(&mut by_hand).await.unwrap();
    let put = bed
        .rowlock
        .enqueue(&mut by_hand, Note::new("x"))
        .key("k")
        .await
        .unwrap();
    conflict(bed.rowlock.enqueue(&mut by_hand, Note::new("y")).key("k").await);
    assert_eq!(
        existing(
            bed.rowlock
                .enqueue(&mut by_hand, Note::new("x"))
                .key("k")
                .await
                .unwrap()
        )
        .id,
        put.id()
    );
    sqlx::raw_sql("rollback").execute(&mut by_hand).await.unwrap();
    assert_eq!(jobs(bed).await, [0, 0]);
}

async fn on_a_bare_connection_key_and_job_are_one_commit(bed: &Bed) {
    let mut conn = bed.conn().await;
    let put = bed.rowlock.enqueue(&mut conn, Note::new("x")).key("k").await.unwrap();
    assert!(put.is_new());
    conflict(bed.rowlock.enqueue(&mut conn, Note::new("y")).key("k").await);
    let all = bed.rowlock.enqueue_all(&mut conn, ["new", "y"].map(Note::new));
    conflict(all.key_by(|job| if job.text == "y" { "k" } else { "l" }).await);
    assert_eq!(jobs(bed).await, [1, 1], "a refused batch leaves nothing");
    bed.work(bed.worker().handle(atomic(note)), &[put.id()]).await;
    assert_eq!(bed.ledger().await, 1);
}

async fn a_batch_with_keys_answers_each_job_in_its_place(bed: &Bed) {
    let key = |job: &Note| format!("note:{}", job.text);
    let first = bed
        .rowlock
        .enqueue_now(Note::new("b"))
        .key("note:b")
        .await
        .unwrap()
        .id();
    // Keys out of order, one held already, one that comes twice.
    let texts = ["z", "b", "a", "z"];
    let put = bed
        .rowlock
        .enqueue_all_now(texts.map(Note::new))
        .key_by(key)
        .tag("batch");
    let put = put.await.unwrap();
    assert_eq!(
        put.iter().map(Enqueued::is_new).collect::<Vec<_>>(),
        [true, false, true, false]
    );
    assert_eq!((put[1].id(), put[3].id()), (first, put[0].id()));
    assert!(put[0].id() < put[2].id(), "new ids rise in input order: {put:?}");
    for (put, text) in put.iter().zip(texts) {
        let job = bed.job(put.id()).await;
        assert_eq!(job.payload, json!({ "text": text }));
        assert_eq!(job.key, Some(format!("note:{text}")));
    }
    assert_eq!(jobs(bed).await, [3, 3]);

    let twice = bed.rowlock.enqueue_all_now(["p", "q"].map(Note::new));
    let (key, held, _) = conflict(twice.key_by(|_| "same").await);
    assert!(
        key == "same" && held.starts_with("jobs[0] of the same enqueue with "),
        "{held}"
    );
    assert_eq!(jobs(bed).await, [3, 3], "a conflict within the batch refuses all of it");
}

async fn a_large_batch_with_keys_is_made_once_however_often_it_is_sent(bed: &Bed) {
    let send = async |from: i64| {
        let batch = bed.rowlock.enqueue_all_now((from..from + 1500).map(|n| Other { n }));
        batch.key_by(|job| format!("other:{}", job.n)).await.unwrap()
    };
    let first = send(0).await;
    assert!(first.iter().all(Enqueued::is_new));
    let again = send(0).await;
    assert!(again.iter().all(|put| !put.is_new()));
    let ids = |put: &[Enqueued]| put.iter().map(Enqueued::id).collect::<Vec<_>>();
    assert!(ids(&again) == ids(&first), "the same jobs in the same order");
    let overlap = send(1000).await;
    assert_eq!(overlap.iter().filter(|put| put.is_new()).count(), 1000);
    assert_eq!(jobs(bed).await, [2500, 2500]);
}

async fn a_bad_key_is_refused_before_any_sql(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let invalid = |said: rowlock::Result<Enqueued>| match said {
        Err(Error::Invalid { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    fn put<'c>(bed: &'c Bed, tx: &'c mut Conn) -> Enqueue<'c, Backend, Note> {
        bed.rowlock.enqueue(tx, Note::new("x"))
    }
    for bad in ["", "a\0b", "a\nb", &"k".repeat(251)] {
        assert_eq!(invalid(put(bed, &mut tx).key(bad).await), "key");
    }
    assert_eq!(invalid(put(bed, &mut tx).hold(Hold::ForEver).await), "hold");
    assert_eq!(invalid(put(bed, &mut tx).fingerprint(&1).await), "fingerprint");
    assert_eq!(
        invalid(put(bed, &mut tx).key("k").hold(Hold::For(Duration::ZERO)).await),
        "hold"
    );
    let unwritable = std::collections::HashMap::from([((1, 2), 3)]);
    assert_eq!(
        invalid(put(bed, &mut tx).key("k").fingerprint(&unwritable).await),
        "fingerprint"
    );
    let batch = bed.rowlock.enqueue_all(&mut *tx, ["x", ""].map(Note::new));
    let batch = batch.key_by(|job| job.text.clone()).await.map(|mut put| put.remove(0));
    assert_eq!(invalid(batch), "jobs[1].key");
    assert!(
        put(bed, &mut tx).key("é ü: 42").await.unwrap().is_new(),
        "the transaction is as good as before"
    );
    tx.commit().await.unwrap();
}

async fn a_fingerprint_of_ones_own_stands_for_the_payload(bed: &Bed) {
    let put = |at: &str, order: i64| {
        let job = Note::new(at);
        bed.rowlock
            .enqueue_now(job)
            .key("order:7")
            .fingerprint(&json!({ "order": order }))
    };
    let id = put("8:00", 7).await.unwrap().id();
    assert_eq!(existing(put("8:01", 7).await.unwrap()).id, id);
    conflict(put("8:00", 8).await);
}

async fn a_key_held_while_open_is_free_once_its_job_is_finished(bed: &Bed) {
    let put = |text: &str| bed.rowlock.enqueue_now(Note::new(text)).key("k").hold(Hold::WhileOpen);
    let id = put("bad").await.unwrap().id();
    assert_eq!(existing(put("bad").await.unwrap()).state, Some(State::Ready));
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if job.text == "bad" && cx.epoch() == 1 {
            return fail(Fail::retire("no"));
        }
        tx.done().ok()
    };
    bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    let case = existing(put("bad").await.unwrap());
    assert_eq!(
        (case.state, case.outcome),
        (Some(State::Case), Some(Ended::Retired)),
        "a case is open"
    );
    conflict(put("good").await);

    bed.rowlock.operate().reopen(id, "tester").await.unwrap();
    bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    // Over: even another request may have it now, and the job that had it shows it no more.
    let next = put("good").await.unwrap();
    assert!(next.is_new() && next.id() != id);
    assert_eq!(existing(put("good").await.unwrap()).id, next.id());
    assert_eq!(
        (bed.job(id).await.key, bed.job(next.id()).await.key.as_deref()),
        (None, Some("k"))
    );
    assert_eq!((bed.ledger().await, jobs(bed).await), (1, [2, 1]));
}

async fn a_key_held_for_a_period_is_free_after_it_unless_its_job_is_open(bed: &Bed) {
    let short = Hold::For(Duration::from_millis(1));
    let put = || bed.rowlock.enqueue_now(Note::new("x")).key("k").hold(short);
    let id = put().await.unwrap().id();
    let passed = async || {
        bed.count("select count(*) from rowlock.job_key where expires_at is not null")
            .await
    };
    assert_eq!(passed().await, 1);
    let long = bed
        .rowlock
        .enqueue_now(Note::new("y"))
        .key("long")
        .hold(Hold::For(Duration::from_secs(3600)));
    let long = long.await.unwrap().id();
    // Its time is over, but its job is not.
    for _ in 0..3 {
        assert_eq!(existing(put().await.unwrap()).id, id);
    }
    bed.work(bed.worker().handle(atomic(note)), &[id, long]).await;
    let next = put().await.unwrap();
    assert!(next.is_new() && next.id() != id);
    let again = bed.rowlock.enqueue_now(Note::new("y")).key("long");
    assert_eq!(existing(again.await.unwrap()).id, long);
}

async fn a_key_held_by_policy_or_for_ever_outlives_its_job(bed: &Bed) {
    for (key, hold) in [("policy", Hold::Policy), ("ever", Hold::ForEver)] {
        let put = |text: &str| bed.rowlock.enqueue_now(Note::new(text)).key(key).hold(hold);
        let id = put("x").await.unwrap().id();
        bed.work(bed.worker().handle(atomic(note)), &[id]).await;
        assert_eq!(existing(put("x").await.unwrap()).id, id);
        conflict(put("y").await);
    }
    assert_eq!(bed.ledger().await, 2);
}

async fn a_job_is_found_by_its_key(bed: &Bed) {
    for n in 0..3 {
        let _ = bed
            .rowlock
            .enqueue_now(Other { n })
            .key(format!("other:{n}"))
            .await
            .unwrap();
    }
    let _ = bed.note("none").await;
    let find = async |key: Option<&str>| {
        let filter = key.into_iter().fold(JobFilter::new(), JobFilter::key);
        let jobs = bed.rowlock.observe().jobs(&filter).await.unwrap();
        jobs.iter().map(|j| j.payload["n"].as_i64()).collect::<Vec<_>>()
    };
    assert_eq!(find(Some("other:1")).await, [Some(1)]);
    assert_eq!(find(Some("other:9")).await, []);
    assert_eq!(find(None).await.len(), 4);
}

async fn a_named_job_has_a_key_too(bed: &Bed) {
    let admin = Admin::open(&bed.database.queue_url, "rowlock").unwrap();
    let named = |payload: &str| NamedJob::new("note", payload).key("k");
    let id = bed.rowlock.enqueue_now(Note::new("x")).key("k").await.unwrap().id();
    // The same request, from any caller and in any spelling.
    let put = admin.enqueue(named(" {\"text\" : \"\\u0078\"} ")).await.unwrap();
    assert_eq!(existing(put).id, id);
    conflict(admin.enqueue(named("{}")).await);
    let lone = NamedJob::new("note", "{}").hold(Hold::ForEver);
    assert!(matches!(admin.enqueue(lone).await, Err(Error::Invalid { field, .. }) if field == "hold"));
    until("nothing else to be there", async || jobs(bed).await == [1, 1]).await;
}

mod tests {
    super::super::cases!(
        a_repeat_of_a_request_gets_the_first_ones_job_and_writes_nothing,
        a_repeat_after_the_end_gets_the_stored_result,
        another_request_under_a_key_is_a_conflict_and_the_transaction_goes_on,
        a_key_goes_with_the_rollback_of_its_job,
        on_a_bare_connection_key_and_job_are_one_commit,
        a_batch_with_keys_answers_each_job_in_its_place,
        a_large_batch_with_keys_is_made_once_however_often_it_is_sent,
        a_bad_key_is_refused_before_any_sql,
        a_fingerprint_of_ones_own_stands_for_the_payload,
        a_key_held_while_open_is_free_once_its_job_is_finished,
        a_key_held_for_a_period_is_free_after_it_unless_its_job_is_open,
        a_key_held_by_policy_or_for_ever_outlives_its_job,
        a_job_is_found_by_its_key,
        a_named_job_has_a_key_too,
    );
}
