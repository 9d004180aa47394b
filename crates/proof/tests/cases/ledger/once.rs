//! Once: one committed effect per key, and the stored answer for every repeat.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use rowlock::{Ended, Error, Fail, Hold, Once, State, atomic, handle::Answer};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::sync::Barrier;

use super::db::{Backend, Conn, Ctx, Outcome, Rowlock, Tx};
use super::{AT_ONCE, Bed, Note, fail, until, write};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Total {
    n: i64,
}

pub(super) async fn counter(bed: &Bed) {
    bed.run("create table counter (n bigint not null)").await;
    bed.run("insert into counter (n) values (0)").await;
}

pub(super) async fn counted(bed: &Bed) -> i64 {
    bed.count("select n from counter").await
}

pub(super) async fn raise(conn: &mut Conn) -> i64 {
    let raise = sqlx::query_scalar("update counter set n = n + 1 returning n");
    raise.fetch_one(conn).await.unwrap()
}

/// One delivery of an event, as plain application code handles it.
async fn deliver(rowlock: &Rowlock, conn: &mut Conn, key: &str, body: &str) -> Result<(bool, Answer), Error> {
    loop {
        let mut tx = conn.begin().await.unwrap();
        let first = match rowlock.once(&mut tx, key).request(body).await {
            Ok(Once::Seen(answer)) => return Ok((false, answer)),
            Ok(Once::First(slot)) => slot,
            Err(error) if error.is_retryable() => continue,
            Err(error) => return Err(error),
        };
        let n = raise(&mut tx).await;
        first.store(&mut tx, &Total { n }).await?;
        tx.commit().await.unwrap();
        let answer = rowlock.seen(conn, key).request(body).await?;
        return Ok((true, answer.unwrap()));
    }
}

/// A first that committed is expected.
pub(super) async fn taken(bed: &Bed, conn: &mut Conn, key: &str) -> bool {
    let mut tx = conn.begin().await.unwrap();
    let first = matches!(bed.rowlock.once(&mut tx, key).await.unwrap(), Once::First(_));
    tx.commit().await.unwrap();
    first
}

async fn the_first_gets_a_slot_and_every_repeat_its_answer(bed: &Bed) {
    counter(bed).await;
    let mut conn = bed.conn().await;
    for (n, first) in [(0, true), (1, false), (2, false)] {
        let (was_first, answer) = deliver(&bed.rowlock, &mut conn, "webhook:evt_1", "{}").await.unwrap();
        assert_eq!(was_first, first, "delivery {n}");
        assert_eq!(answer.get::<Total>().unwrap(), Total { n: 1 });
        assert!(!answer.is_empty());
        assert!((jiff::Timestamp::now() - answer.made_at()).get_seconds().abs() < 60);
    }
    let (was_first, answer) = deliver(&bed.rowlock, &mut conn, "webhook:evt_2", "{}").await.unwrap();
    assert!(was_first, "another key is another operation");
    assert_eq!(answer.get::<Total>().unwrap(), Total { n: 2 });
    assert_eq!(counted(bed).await, 2);
}

async fn a_rollback_frees_the_key_and_keeps_no_answer(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let Once::First(slot) = bed.rowlock.once(&mut tx, "k").await.unwrap() else {
        panic!("nobody was here before")
    };
    assert_eq!(slot.key(), "k");
    slot.store(&mut tx, "gone").await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(bed.rowlock.seen(&mut conn, "k").await.unwrap(), None);
    assert!(taken(bed, &mut conn, "k").await, "the key is free again");
}

async fn a_first_that_stores_nothing_leaves_an_empty_answer(bed: &Bed) {
    let mut conn = bed.conn().await;
    assert!(taken(bed, &mut conn, "k").await);
    let mut tx = conn.begin().await.unwrap();
    let Once::Seen(answer) = bed.rowlock.once(&mut tx, "k").await.unwrap() else {
        panic!("somebody was here before")
    };
    assert!(answer.is_empty());
    assert_eq!(answer.as_json(), None);
    assert_eq!(answer.get::<Option<Total>>().unwrap(), None);
    assert!(answer.get::<Total>().is_err());
}

async fn another_request_under_the_same_key_is_refused_with_both_fingerprints(bed: &Bed) {
    counter(bed).await;
    let mut conn = bed.conn().await;
    deliver(&bed.rowlock, &mut conn, "k", "ten").await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    let refused = bed.rowlock.once(&mut tx, "k").request("twenty").await;
    let Err(Error::KeyConflict { key, held, given, .. }) = refused.map(|_| ()) else {
        panic!("another request was answered")
    };
    assert_eq!(key, "k");
    let print = |text: &str| text.rsplit(' ').next().unwrap().to_owned();
    assert!(held.starts_with("a ledger entry with fingerprint "), "{held}");
    assert_ne!(print(&held), print(&given));
    // The transaction stays usable.
    raise(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(counted(bed).await, 2);
    let looked = bed.rowlock.seen(&mut conn, "k").request("twenty").await;
    assert!(matches!(looked, Err(Error::KeyConflict { .. })), "{looked:?}");
}

async fn a_request_is_compared_by_its_meaning_and_only_when_both_sides_give_one(bed: &Bed) {
    let mut conn = bed.conn().await;
    let json = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    let mut tx = conn.begin().await.unwrap();
    let one = json(r#"{"amount":10,"to":"ann"}"#);
    assert!(matches!(
        bed.rowlock.once(&mut tx, "k").request(&one).await.unwrap(),
        Once::First(_)
    ));
    tx.commit().await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    let same = json(r#"{ "to": "ann", "amount": 10 }"#);
    let rowlock = &bed.rowlock;
    assert!(matches!(
        rowlock.once(&mut tx, "k").request(&same).await.unwrap(),
        Once::Seen(_)
    ));
    assert!(matches!(rowlock.once(&mut tx, "k").await.unwrap(), Once::Seen(_)));
    let bytes = rowlock.once(&mut tx, "k").request_bytes(b"other").await;
    assert!(matches!(bytes, Err(Error::KeyConflict { .. })));
    // One that gave none never conflicts with anybody.
    assert!(matches!(rowlock.once(&mut tx, "bare").await.unwrap(), Once::First(_)));
    assert!(matches!(
        rowlock.once(&mut tx, "bare").request(&one).await.unwrap(),
        Once::Seen(_)
    ));
}

async fn bad_input_is_refused_before_any_sql(bed: &Bed) {
    counter(bed).await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let rowlock = &bed.rowlock;
    let said = |asked: Result<Once<Backend>, Error>| asked.map(|_| ()).unwrap_err().to_string();
    for (key, hold, field) in [
        ("", Hold::Policy, "key: "),
        ("a\nb", Hold::Policy, "key: "),
        ("k", Hold::WhileOpen, "hold: while open is for job keys only"),
        ("k", Hold::For(Duration::ZERO), "hold: a period of zero"),
    ] {
        let refused = said(rowlock.once(&mut tx, key).hold(hold).await);
        assert!(refused.starts_with(field), "{refused}");
    }
    for answer in ["x".repeat(2 << 20), "a\0b".to_owned()] {
        let Once::First(slot) = rowlock.once(&mut tx, format!("k{}", answer.len())).await.unwrap() else {
            panic!("nobody was here before")
        };
        let refused = slot.store(&mut tx, &answer).await.unwrap_err().to_string();
        assert!(refused.starts_with("answer: "), "{refused}");
    }
    // None of it has spoilt the transaction.
    raise(&mut tx).await;
    tx.commit().await.unwrap();
    assert_eq!(counted(bed).await, 1);
}

async fn an_answer_that_no_longer_fits_names_the_field(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let Once::First(slot) = bed.rowlock.once(&mut tx, "k").await.unwrap() else {
        panic!("nobody was here before")
    };
    slot.store(&mut tx, &serde_json::json!({ "n": "seven" })).await.unwrap();
    tx.commit().await.unwrap();
    let answer = bed.rowlock.seen(&mut conn, "k").await.unwrap().unwrap();
    let said = answer.get::<Total>().unwrap_err().to_string();
    assert!(
        said.starts_with("answer: the stored answer does not fit the type: n: "),
        "{said}"
    );
}

async fn an_answer_is_stored_only_by_the_transaction_that_took_the_key(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let Once::First(slot) = bed.rowlock.once(&mut tx, "k").await.unwrap() else {
        panic!("nobody was here before")
    };
    tx.rollback().await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    assert!(matches!(bed.rowlock.once(&mut tx, "k").await.unwrap(), Once::First(_)));
    let refused = slot.store(&mut tx, "late").await.unwrap_err();
    assert!(matches!(refused, Error::NotFound(_)), "{refused}");
    tx.commit().await.unwrap();
    assert!(bed.rowlock.seen(&mut conn, "k").await.unwrap().unwrap().is_empty());
}

async fn a_look_takes_nothing_and_waits_for_nobody(bed: &Bed) {
    let (mut first, mut other) = (bed.conn().await, bed.conn().await);
    assert_eq!(bed.rowlock.seen(&mut other, "k").await.unwrap(), None);
    let mut tx = first.begin().await.unwrap();
    let Once::First(slot) = bed.rowlock.once(&mut tx, "k").await.unwrap() else {
        panic!("nobody was here before")
    };
    slot.store(&mut tx, &1).await.unwrap();
    assert_eq!(
        bed.rowlock.seen(&mut other, "k").await.unwrap(),
        None,
        "not committed yet"
    );
    tx.commit().await.unwrap();
    let answer = bed.rowlock.seen(&mut other, "k").await.unwrap().unwrap();
    assert_eq!(answer.get::<i64>().unwrap(), 1);
}

async fn a_key_past_its_period_has_one_new_first(bed: &Bed) {
    let mut conn = bed.conn().await;
    for (key, hold) in [
        ("period", Hold::For(Duration::from_secs(3600))),
        ("ever", Hold::ForEver),
        ("policy", Hold::Policy),
        ("longest", Hold::For(Duration::MAX)),
    ] {
        let mut tx = conn.begin().await.unwrap();
        let Once::First(slot) = bed.rowlock.once(&mut tx, key).request("old").hold(hold).await.unwrap() else {
            panic!("nobody was here before")
        };
        slot.store(&mut tx, "old").await.unwrap();
        tx.commit().await.unwrap();
        assert!(!taken(bed, &mut conn, key).await, "{key} is held");
    }
    // As if the hour were over.
    bed.run("update rowlock.ledger set expires_at = made_at where key = 'period'")
        .await;
    assert_eq!(bed.rowlock.seen(&mut conn, "period").await.unwrap(), None);

    let together = Arc::new(Barrier::new(8));
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..8 {
        let (rowlock, mut conn, together) = (bed.rowlock.clone(), bed.conn().await, together.clone());
        racing.spawn(async move {
            together.wait().await;
            loop {
                let mut tx = conn.begin().await.unwrap();
                let take = rowlock
                    .once(&mut tx, "period")
                    .hold(Hold::For(Duration::from_secs(3600)));
                match take.await {
                    Ok(Once::First(slot)) => {
                        slot.store(&mut tx, &n).await.unwrap();
                        tx.commit().await.unwrap();
                        return Ok(n);
                    }
                    Ok(Once::Seen(answer)) => return Err(answer.get::<i32>().unwrap()),
                    Err(error) => assert!(error.is_retryable(), "{error}"),
                }
            }
        });
    }
    let all = racing.join_all().await;
    let firsts: Vec<i32> = all.iter().filter_map(|a| a.ok()).collect();
    assert_eq!(firsts.len(), 1, "{all:?}");
    assert!(
        all.iter().filter_map(|a| a.err()).all(|seen| seen == firsts[0]),
        "{all:?}"
    );
}

async fn a_twin_waits_for_the_first_and_gets_its_answer_or_its_place(bed: &Bed) {
    counter(bed).await;
    for commits in [true, false] {
        let key = format!("k:{commits}");
        let mut conn = bed.conn().await;
        let mut tx = conn.begin().await.unwrap();
        let Once::First(slot) = bed.rowlock.once(&mut tx, &key).await.unwrap() else {
            panic!("nobody was here before")
        };
        let (rowlock, mut other, named) = (bed.rowlock.clone(), bed.conn().await, key.clone());
        let twin = tokio::spawn(async move { deliver(&rowlock, &mut other, &named, "{}").await.unwrap() });
        let n = raise(&mut tx).await;
        slot.store(&mut tx, &Total { n: n + 100 }).await.unwrap();
        assert!(!twin.is_finished(), "the first is still open");
        match commits {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
        let (was_first, answer) = twin.await.unwrap();
        assert_eq!(was_first, !commits);
        let n = answer.get::<Total>().unwrap().n;
        assert_eq!(n, if commits { 101 } else { 2 });
    }
    assert_eq!(counted(bed).await, 2);
}

async fn fifty_callers_racing_one_key_make_one_effect(bed: &Bed) {
    counter(bed).await;
    let together = Arc::new(Barrier::new(50));
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (rowlock, mut conn, together) = (bed.rowlock.clone(), bed.conn().await, together.clone());
        racing.spawn(async move {
            together.wait().await;
            let body = ["ten", "twenty"][n % 2];
            match deliver(&rowlock, &mut conn, "charge:7", body).await {
                Ok((first, answer)) => {
                    assert_eq!(answer.get::<Total>().unwrap(), Total { n: 1 });
                    if first { "first" } else { "seen" }
                }
                Err(Error::KeyConflict { .. }) => "refused",
                Err(error) => panic!("{error}"),
            }
        });
    }
    let all = racing.join_all().await;
    let of = |what| all.iter().filter(|a| **a == what).count();
    assert_eq!((of("first"), of("seen"), of("refused")), (1, 24, 25));
    assert_eq!(counted(bed).await, 1);
}

async fn count_event(_cx: Ctx, job: Note, mut tx: Tx) -> Outcome {
    match tx.once(format!("event:{}", job.text)).await? {
        Once::First(slot) => {
            let n = raise(&mut tx).await;
            slot.store(&mut tx, &n).await?;
            tx.done().result(&n).ok()
        }
        Once::Seen(answer) => tx.done().result(&answer.get::<i64>()?).ok(),
    }
}

async fn a_counter_is_raised_once_per_event_however_many_jobs_bring_it(bed: &Bed) {
    counter(bed).await;
    let jobs = (0..30).map(|n| Note::new(&format!("evt_{}", n % 3)));
    let ids = bed.rowlock.enqueue_all_now(jobs).await.unwrap();
    let counters = bed
        .work(bed.worker().handle(atomic(count_event).backoff(AT_ONCE)), &ids)
        .await;
    assert_eq!(counted(bed).await, 3);
    assert_eq!(counters.settled(Ended::Done), 30);
    for (n, id) in ids.iter().enumerate() {
        let twin = bed.job(ids[n % 3]).await.result;
        assert_eq!(bed.job(*id).await.result, twin, "every job has its event's answer");
    }
}

async fn a_failed_attempt_frees_the_key_that_it_took(bed: &Bed) {
    let id = bed.note("k").await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        let Once::First(slot) = tx.once(job.text).await? else {
            return fail("the failed attempt kept its key");
        };
        write(&mut tx, cx.id(), "once").await?;
        slot.store(&mut tx, &cx.attempt()).await?;
        match cx.attempt() {
            1 => fail("not yet"),
            _ => tx.done().ok(),
        }
    };
    bed.work(bed.worker().handle(atomic(handler).backoff(AT_ONCE)), &[id])
        .await;
    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
    assert_eq!(bed.ledger().await, 1);
    let answer = bed.rowlock.seen(&mut bed.conn().await, "k").await.unwrap().unwrap();
    assert_eq!(answer.get::<i32>().unwrap(), 2);
}

async fn a_conflict_in_a_handler_makes_a_case_that_names_the_key(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(["a", "b"].map(Note::new)).await.unwrap();
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        let once = tx.once("charge:7").request(&job.text).await;
        let once = once.context("charging").map_err(Fail::from)?;
        assert!(matches!(once, Once::First(_)));
        write(&mut tx, cx.id(), &job.text).await?;
        tx.done().ok()
    };
    bed.work(bed.single().handle(atomic(handler)), &ids).await;
    assert_eq!(bed.ledger().await, 1);
    let mut cases = 0;
    for id in ids {
        if bed.job(id).await.state == State::Case {
            let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
            assert!(case.reason.contains("charge:7"), "{}", case.reason);
            assert_eq!(bed.ends(id).await, [Ended::Retired], "a retry gets the same answer");
            cases += 1;
        }
    }
    assert_eq!(cases, 1);
}

async fn handlers_and_requests_share_one_ledger(bed: &Bed) {
    counter(bed).await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let Once::First(slot) = bed.rowlock.once(&mut tx, "event:x").await.unwrap() else {
        panic!("nobody was here before")
    };
    let id = bed.rowlock.enqueue(&mut tx, Note::new("x")).await.unwrap().id();
    slot.store(&mut tx, &77).await.unwrap();
    tx.commit().await.unwrap();
    bed.work(bed.worker().handle(atomic(count_event)), &[id]).await;
    assert_eq!(bed.job(id).await.result, Some(77.into()));
    assert_eq!(counted(bed).await, 0);
    until("the job to be finished", async || {
        bed.job(id).await.state == State::Finished
    })
    .await;
}

mod tests {
    super::super::cases!(
        the_first_gets_a_slot_and_every_repeat_its_answer,
        a_rollback_frees_the_key_and_keeps_no_answer,
        a_first_that_stores_nothing_leaves_an_empty_answer,
        another_request_under_the_same_key_is_refused_with_both_fingerprints,
        a_request_is_compared_by_its_meaning_and_only_when_both_sides_give_one,
        bad_input_is_refused_before_any_sql,
        an_answer_that_no_longer_fits_names_the_field,
        an_answer_is_stored_only_by_the_transaction_that_took_the_key,
        a_look_takes_nothing_and_waits_for_nobody,
        a_key_past_its_period_has_one_new_first,
        a_twin_waits_for_the_first_and_gets_its_answer_or_its_place,
        fifty_callers_racing_one_key_make_one_effect,
        a_counter_is_raised_once_per_event_however_many_jobs_bring_it,
        a_failed_attempt_frees_the_key_that_it_took,
        a_conflict_in_a_handler_makes_a_case_that_names_the_key,
        handlers_and_requests_share_one_ledger,
    );
}
