//! A slot that passes from one atomic job to the next, with its connection: what ends the one must not touch the other.

use rowlock::{Ended, JobId, State, atomic};

use super::db::{Ctx, Outcome, Tx, Worker};
use super::{
    AT_ONCE, Bed, Note, Other, Running, Seen, fail,
    settle::token::{lease_count, lose_lease},
    until, write,
};

/// One slot, and everything there is in line for it.
pub(crate) fn worker(bed: &Bed) -> rowlock::Worker<String, super::db::Backend> {
    Worker::new(&bed.rowlock)
        .queue("default", 1)
        .prefetch(20)
        .state(bed.database.url.clone())
}

pub(crate) async fn enqueue<const N: usize>(bed: &Bed, texts: [&str; N]) -> Vec<JobId> {
    bed.rowlock.enqueue_all_now(texts.map(Note::new)).await.unwrap()
}

/// Writes its text and ends as that says. The first one waits until the others are in line behind it.
pub(crate) async fn as_told(cx: Ctx<String>, job: Note, mut tx: Tx) -> Outcome {
    if cx.attempt() == 1
        && let Some(all) = job.text.strip_prefix("first of ")
    {
        let all: i64 = all.parse().unwrap();
        until("all to be in line", async || lease_count(cx.state()).await == all).await;
    }
    write(&mut tx, cx.id(), &job.text).await?;
    match job.text.as_str() {
        "loses its lease" => lose_lease(cx.state(), cx.id()).await,
        "commits by hand" => {
            sqlx::raw_sql("commit").execute(&mut *tx).await?;
        }
        "cannot commit" if cx.attempt() == 1 => {
            let orphan = sqlx::query("insert into child (parent) values (7)");
            orphan.execute(&mut *tx).await?;
        }
        "fails" if cx.attempt() == 1 => return fail("as told"),
        _ => {}
    }
    tx.done().then(Other { n: 1 }).ok()
}

async fn the_end_of_one_job_does_not_touch_the_next_of_its_slot(bed: &Bed) {
    bed.run("create table parent (id bigint primary key)").await;
    bed.run("create table child (parent bigint not null references parent (id) deferrable initially deferred)")
        .await;
    // Nobody else writes on SQLite while a handler does, so nobody takes its lease.
    let second = if bed.database.is_sqlite() {
        "z"
    } else {
        "loses its lease"
    };
    let texts = [
        "first of 9",
        second,
        "a",
        "commits by hand",
        "b",
        "cannot commit",
        "c",
        "fails",
        "d",
    ];
    let ids = enqueue(bed, texts).await;
    let running = Running::start(worker(bed).handle(atomic(as_told).backoff(AT_ONCE)));
    for (id, text) in ids.iter().zip(texts) {
        let ended = match text {
            "loses its lease" => State::Leased,
            "commits by hand" => State::Case,
            _ => State::Finished,
        };
        until("all to end", async || bed.job(*id).await.state == ended).await;
    }
    let counters = running.stop().await;

    assert_eq!(counters.lease_lost(), u64::from(!bed.database.is_sqlite()));
    for (id, text) in ids.iter().zip(texts) {
        let (rows, links) = (
            format!("select count(*) from ledger where job = {id}"),
            format!("select count(*) from rowlock.job where kind = 'other' and chain = {id}"),
        );
        let found = (bed.ends(*id).await, bed.count(&rows).await, bed.count(&links).await);
        let wanted = match text {
            "loses its lease" => (vec![], 0, 0),
            "commits by hand" => (vec![Ended::Retired], 1, 0),
            "cannot commit" | "fails" => (vec![Ended::Retried, Ended::Done], 1, 1),
            _ => (vec![Ended::Done], 1, 1),
        };
        assert_eq!(found, wanted, "{text}");
    }
    let case = bed.rowlock.observe().case(ids[3]).await.unwrap().unwrap();
    assert_eq!(case.reason, "handler committed its own transaction");
}

async fn the_next_job_of_a_slot_sees_what_the_one_before_committed(bed: &Bed) {
    let ids = enqueue(bed, ["first of 8", "b", "c", "d", "e", "f", "g", "h"]).await;
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |cx: Ctx<String>, job: Note, mut tx: Tx| {
        let seen = kept.clone();
        async move {
            let rows: i64 = sqlx::query_scalar("select count(*) from ledger")
                .fetch_one(&mut *tx)
                .await?;
            seen.push(rows.to_string());
            as_told(cx, job, tx).await
        }
    };
    bed.work(worker(bed).handle(atomic(handler)), &ids).await;
    assert_eq!(seen.all(), ["0", "1", "2", "3", "4", "5", "6", "7"]);
}

async fn a_link_arrives_word_for_word(bed: &Bed) {
    let long = "x".repeat(40_000);
    let texts = [
        "it's",
        "a \\ b",
        "$rl$; commit; --",
        "ends with $rl",
        "$",
        "\u{1f6a3} and \u{7}",
        "'; drop table ledger; --",
        &long,
    ];
    let ids = enqueue(bed, texts).await;
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |cx: Ctx<String>, job: Note, tx: Tx| {
        let seen = kept.clone();
        async move {
            if cx.chain() == cx.id() {
                return tx.done().result(&job.text).then(job).ok();
            }
            seen.push(job.text);
            tx.done().ok()
        }
    };
    let running = Running::start(worker(bed).handle(atomic(handler)));
    until("all links", async || seen.all().len() == texts.len()).await;
    running.stop().await;
    let mut arrived = seen.all();
    arrived.sort();
    let mut sent = texts.map(str::to_owned);
    sent.sort();
    assert_eq!(arrived, sent);
    for (id, text) in ids.iter().zip(texts) {
        let result = bed.attempts(*id).await[0].result.clone();
        assert_eq!(result, Some(serde_json::Value::from(text)));
    }
}

async fn a_payload_that_does_not_decode_ends_alone(bed: &Bed) {
    let ids = enqueue(bed, ["first of 3", "broken", "c"]).await;
    let broken = format!(
        "update rowlock.job set payload = '{{\"text\": 1}}' where id = {}",
        ids[1]
    );
    bed.run(&broken).await;
    bed.work(worker(bed).handle(atomic(as_told)), &ids).await;
    let states: Vec<State> = [bed.job(ids[0]).await, bed.job(ids[1]).await, bed.job(ids[2]).await]
        .iter()
        .map(|job| job.state)
        .collect();
    assert_eq!(states, [State::Finished, State::Case, State::Finished]);
    assert_eq!(bed.ledger().await, 2);
}

mod tests {
    super::super::cases!(
        the_end_of_one_job_does_not_touch_the_next_of_its_slot,
        the_next_job_of_a_slot_sees_what_the_one_before_committed,
        a_link_arrives_word_for_word,
        a_payload_that_does_not_decode_ends_alone,
    );
}
