//! Enqueue: a job exists if and only if the caller's commit does, and a bad one never harms the caller's transaction.

use std::time::Duration;

use jiff::{Timestamp, ToSpan};
use rowlock::{Ended, Error, Fail, Job, State, atomic, enqueue::Enqueue, observe::JobFilter};
use serde::{Deserialize, Serialize};
use sqlx::Connection;

use super::db::{Backend, Conn, Ctx, Tx};
use super::{AT_ONCE, Bed, Note, Other, fail, note};

async fn a_rolled_back_enqueue_leaves_nothing(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let id = bed.rowlock.enqueue(&mut *tx, Note::new("never")).await.unwrap().id();
    tx.rollback().await.unwrap();

    assert!(bed.rowlock.observe().job(id).await.unwrap().is_none());
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 0);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 0);
}

async fn a_job_and_the_callers_own_row_commit_both_or_neither(bed: &Bed) {
    let mut conn = bed.conn().await;
    for commit in [false, true] {
        let mut tx = conn.begin().await.unwrap();
        sqlx::query("insert into ledger (job, note) values (0, 'mine')")
            .execute(&mut *tx)
            .await
            .unwrap();
        let _ = bed.rowlock.enqueue(&mut *tx, Note::new("with mine")).await.unwrap();
        if commit {
            tx.commit().await.unwrap();
        } else {
            // As when the caller's own `?` leaves the function.
            drop(tx);
        }
        let rows = (
            bed.ledger().await,
            bed.count("select count(*) from rowlock.ready").await,
        );
        assert_eq!(rows, if commit { (1, 1) } else { (0, 0) });
    }
}

async fn on_a_bare_connection_it_is_a_commit_of_its_own(bed: &Bed) {
    let mut conn = bed.conn().await;
    let id = bed.rowlock.enqueue(&mut conn, Note::new("alone")).await.unwrap().id();
    conn.close().await.unwrap();

    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    assert_eq!(bed.ledger().await, 1);
}

async fn a_transaction_begun_by_hand_is_respected(bed: &Bed) {
    let mut conn = bed.conn().await;
    sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
    let _ = bed.rowlock.enqueue(&mut conn, Note::new("one")).await.unwrap();
    sqlx::raw_sql("rollback").execute(&mut conn).await.unwrap();
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 0);
}

/// A large batch needs several statements, and so something that holds them together; that must not end what the
/// caller began.
async fn a_large_batch_in_a_transaction_begun_by_hand_goes_with_its_rollback(bed: &Bed) {
    let mut conn = bed.conn().await;
    sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
    let jobs = (0..1500).map(|n| Other { n });
    bed.rowlock.enqueue_all(&mut conn, jobs).await.unwrap();
    sqlx::raw_sql("rollback").execute(&mut conn).await.unwrap();
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 0);
}

async fn every_option_lands_in_the_row(bed: &Bed) {
    let hour = |n: i64| Timestamp::from_second(Timestamp::now().as_second() + n * 3600).unwrap();
    let (due, expires) = (hour(1), hour(2));
    let enqueue = bed.rowlock.enqueue_now(Note::new("all"));
    let enqueue = enqueue
        .queue("orders/eu")
        .priority(1)
        .at(due)
        .expires(expires)
        .attempts(7)
        .tag("a")
        .tag("b:2");
    let job = bed.job(enqueue.await.unwrap().id()).await;

    assert_eq!(
        (job.queue.as_str(), job.priority, job.attempts_max),
        ("orders/eu", 1, 7)
    );
    assert_eq!((job.due_at, job.expires_at), (Some(due), Some(expires)));
    assert_eq!(job.tags, ["a", "b:2"]);
    assert_eq!((job.kind.as_str(), job.version, job.state), ("note", 1, State::Ready));
    assert_eq!((job.attempt, job.epoch, job.position, job.chain), (0, 0, 0, None));
    assert_eq!(job.payload, serde_json::json!({"text": "all"}));
}

async fn what_is_not_chosen_comes_from_the_kind(bed: &Bed) {
    let job = bed.job(bed.note("plain").await).await;
    assert_eq!((job.queue.as_str(), job.priority, job.attempts_max), ("default", 3, 3));
    assert_eq!(
        (job.due_at, job.expires_at, job.tags.len()),
        (Some(job.created_at), None, 0)
    );

    let later = bed
        .rowlock
        .enqueue_now(Note::new("later"))
        .after(Duration::from_secs(90))
        .await
        .unwrap();
    let later = bed.job(later.id()).await;
    assert_eq!(later.due_at.unwrap().duration_since(later.created_at).as_secs(), 90);
}

async fn many_in_one_call_get_ids_in_input_order(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let ids = bed
        .rowlock
        .enqueue_all(&mut *tx, (0..2500).map(|n| Other { n }))
        .tag("bulk")
        .await
        .unwrap();
    tx.commit().await.unwrap();

    assert_eq!(ids.len(), 2500);
    assert!(ids.is_sorted_by(|a, b| a < b));
    let filter = JobFilter::new().limit(3000).tag("bulk");
    let mut jobs = bed.rowlock.observe().jobs(&filter).await.unwrap();
    jobs.reverse();
    let stored: Vec<(i64, i64)> = jobs.iter().map(|j| (j.id, j.payload["n"].as_i64().unwrap())).collect();
    let expected: Vec<(i64, i64)> = ids.into_iter().zip(0..).collect();
    assert_eq!(stored, expected);
}

async fn many_are_all_or_none(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    bed.rowlock
        .enqueue_all(&mut *tx, (0..2500).map(|n| Other { n }))
        .await
        .unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 0);

    // A row in the way of one of the last ids: the statements before it have succeeded by then.
    let first = bed.rowlock.enqueue_now(Other { n: 0 }).await.unwrap().id();
    bed.run(&format!("update rowlock.ready set id = {}", first + 2300))
        .await;
    let refused = bed.rowlock.enqueue_all(&mut conn, (0..2500).map(|n| Other { n })).await;
    assert!(matches!(refused, Err(Error::Database { .. })), "{refused:?}");
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 1);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 1);
}

async fn none_at_all_is_no_error(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(Vec::<Note>::new()).await.unwrap();
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    assert_eq!(
        bed.rowlock.enqueue_all(&mut *tx, Vec::<Note>::new()).await.unwrap(),
        ids
    );
    tx.commit().await.unwrap();
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 0);
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "deep")]
struct Deep {
    value: serde_json::Value,
}

impl Deep {
    fn nested(depth: usize) -> Deep {
        let value = (0..depth).fold(serde_json::json!(1), |inner, _| serde_json::json!([inner]));
        Deep { value }
    }
}

/// A kind that no name check lets through.
#[derive(Serialize, Deserialize)]
struct Unnamed;

impl Job for Unnamed {
    const KIND: &'static str = "has spaces";
}

fn refused<T: std::fmt::Debug>(result: rowlock::Result<T>) -> String {
    match result {
        Err(Error::Invalid { field, problem, .. }) => {
            assert!(!problem.is_empty());
            field
        }
        other => panic!("not refused: {other:?}"),
    }
}

fn put<'c>(bed: &'c Bed, conn: &'c mut Conn) -> Enqueue<'c, Backend, Note> {
    bed.rowlock.enqueue(conn, Note::new("x"))
}

async fn a_bad_job_is_refused_by_field_and_the_callers_transaction_stays_good(bed: &Bed) {
    let rowlock = &bed.rowlock;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    sqlx::query("insert into ledger (job, note) values (0, 'before')")
        .execute(&mut *tx)
        .await
        .unwrap();

    let big = "x".repeat(1 << 20);
    assert_eq!(refused(rowlock.enqueue(&mut *tx, Note::new(&big)).await), "payload");
    assert_eq!(refused(rowlock.enqueue(&mut *tx, Note::new("a\0b")).await), "payload");
    assert_eq!(refused(rowlock.enqueue(&mut *tx, Deep::nested(100)).await), "payload");
    assert_eq!(refused(rowlock.enqueue(&mut *tx, Unnamed).await), "kind");
    assert_eq!(refused(put(bed, &mut tx).queue("two words").await), "queue");
    assert_eq!(refused(put(bed, &mut tx).tag("ok").tag("no\0").await), "tags[1]");
    assert_eq!(
        refused((0..33).fold(put(bed, &mut tx), |e, i| e.tag(i.to_string())).await),
        "tags"
    );
    assert_eq!(refused(put(bed, &mut tx).priority(0).await), "priority");
    assert_eq!(refused(put(bed, &mut tx).priority(6).await), "priority");
    assert_eq!(refused(put(bed, &mut tx).attempts(0).await), "attempts");
    assert_eq!(refused(put(bed, &mut tx).attempts(10_001).await), "attempts");
    assert_eq!(refused(put(bed, &mut tx).after(Duration::MAX).await), "after");
    assert_eq!(
        refused(put(bed, &mut tx).if_retired(Note::new("\0")).await),
        "if_retired"
    );

    // All of it in one transaction, which stays usable.
    sqlx::query("insert into ledger (job, note) values (0, 'after')")
        .execute(&mut *tx)
        .await
        .unwrap();
    let _ = rowlock.enqueue(&mut *tx, Deep::nested(99)).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        (bed.ledger().await, bed.count("select count(*) from rowlock.job").await),
        (2, 1)
    );
}

async fn a_bad_job_in_a_batch_is_refused_by_its_index(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let texts = ["a", "b", "c", "d\0", "e"];
    let field = refused(bed.rowlock.enqueue_all(&mut *tx, texts.map(Note::new)).await);
    assert_eq!(field, "jobs[3].payload");
    let _ = bed.rowlock.enqueue(&mut *tx, Note::new("still good")).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 1);
}

async fn other_limits_may_be_set(bed: &Bed) {
    let limits = rowlock::Limits::new().payload_bytes(20);
    let strict = bed.rowlock.clone().with_limits(limits);
    assert_eq!(
        refused(strict.enqueue_now(Note::new("longer than that")).await),
        "payload"
    );
    let _ = strict.enqueue_now(Note::new("short")).await.unwrap();
}

async fn a_due_time_in_the_past_means_now(bed: &Bed) {
    let past = Timestamp::now() - 1.hour();
    let id = bed.rowlock.enqueue_now(Note::new("late")).at(past).await.unwrap().id();
    let job = bed.job(id).await;
    assert_eq!(job.due_at, Some(job.created_at));
}

async fn the_most_distant_times_are_no_sql_error(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let past = put(bed, &mut tx).at(Timestamp::MIN).await.map(|e| e.id());
    let future = put(bed, &mut tx)
        .at(Timestamp::MAX)
        .expires(Timestamp::MAX)
        .await
        .map(|e| e.id());
    let expired = put(bed, &mut tx).expires(Timestamp::MIN).await.map(|e| e.id());
    let (past, future, expired) = (past.unwrap(), future.unwrap(), expired.unwrap());
    tx.commit().await.unwrap();

    bed.work(bed.worker().handle(atomic(note)), &[past, expired]).await;
    assert_eq!(bed.ends(past).await, [Ended::Done]);
    assert_eq!(bed.ends(expired).await, [Ended::Cancelled]);
    assert_eq!(bed.job(future).await.state, State::Ready);
}

async fn a_compensating_job_is_enqueued_by_the_commit_that_retires(bed: &Bed) {
    let put = |text| {
        bed.rowlock
            .enqueue_now(Note::new(text))
            .attempts(2)
            .if_retired(Other { n: 7 })
    };
    let given_up = put("give up").await.unwrap().id();
    let exhausted = put("fail").await.unwrap().id();
    let fine = put("fine").await.unwrap().id();

    let ends = |_: Ctx, job: Note, tx: Tx| async move {
        match job.text.as_str() {
            "give up" => fail(Fail::retire("not possible")),
            "fail" => fail("not this time"),
            _ => tx.done().ok(),
        }
    };
    bed.work(
        bed.worker().handle(atomic(ends).backoff(AT_ONCE)),
        &[given_up, exhausted, fine],
    )
    .await;

    for (id, links) in [(given_up, 2), (exhausted, 2), (fine, 1)] {
        let chain = bed.rowlock.observe().chain(id).await.unwrap();
        assert_eq!(chain.len(), links, "chain of {id}");
        if let Some(undo) = chain.get(1) {
            assert_eq!((undo.kind.as_str(), undo.chain, undo.position), ("other", Some(id), 1));
            assert_eq!((undo.state, undo.payload["n"].as_i64()), (State::Ready, Some(7)));
        }
    }
    assert_eq!(bed.ends(exhausted).await, [Ended::Retried, Ended::Retired]);
}

mod tests {
    super::super::cases!(
        a_rolled_back_enqueue_leaves_nothing,
        a_job_and_the_callers_own_row_commit_both_or_neither,
        on_a_bare_connection_it_is_a_commit_of_its_own,
        a_transaction_begun_by_hand_is_respected,
        a_large_batch_in_a_transaction_begun_by_hand_goes_with_its_rollback,
        every_option_lands_in_the_row,
        what_is_not_chosen_comes_from_the_kind,
        many_in_one_call_get_ids_in_input_order,
        many_are_all_or_none,
        none_at_all_is_no_error,
        a_bad_job_is_refused_by_field_and_the_callers_transaction_stays_good,
        a_bad_job_in_a_batch_is_refused_by_its_index,
        other_limits_may_be_set,
        a_due_time_in_the_past_means_now,
        the_most_distant_times_are_no_sql_error,
        a_compensating_job_is_enqueued_by_the_commit_that_retires,
    );
}
