//! The token: a worker that lost the lease writes nothing, however its attempt ends.

use std::time::Duration;

use rowlock::{Ended, Fail, State, staged};

use super::db::{Conn, Outcome, Staged};
use super::{Bed, Note, Running, fail, sql, until, write};

/// What recovery and a new owner do while this attempt is outside: the lease is another worker's under a new epoch.
pub(crate) async fn lose_lease(url: &str, id: i64) {
    use sqlx::Connection;
    let taken = format!("update rowlock.lease set epoch = epoch + 1, worker = 99 where id = {id}");
    let mut conn = Conn::connect(url).await.unwrap();
    sqlx::raw_sql(sql(&taken)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

/// How many jobs are in workers' hands, seen from outside.
pub(crate) async fn lease_count(url: &str) -> i64 {
    use sqlx::Connection;
    let mut conn = Conn::connect(url).await.unwrap();
    let count = sqlx::query_scalar(sql("select count(*) from rowlock.lease"));
    let count = count.fetch_one(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    count
}

async fn ends(cx: Staged<String>, job: Note) -> Outcome {
    let hour = Duration::from_secs(3600);
    if job.text != "stays" {
        lose_lease(cx.state(), cx.id()).await;
    }
    match job.text.as_str() {
        "retry" => return fail(Fail::retry("late")),
        "defer" => return fail(Fail::defer(hour)),
        "retire" => return fail(Fail::retire("late")),
        "cancel" => return fail(Fail::cancel("late")),
        "batch" | "stays" => return cx.done().ok(),
        _ => {}
    }
    let (id, text) = (cx.id(), job.text.clone());
    let mut tx = cx.begin().await?;
    write(&mut tx, id, &text).await?;
    match text.as_str() {
        "done" => tx.done().then(Note::new("next")).ok(),
        _ => fail("late"),
    }
}

async fn a_late_worker_cannot_settle_a_reclaimed_job(bed: &Bed) {
    let texts = ["done", "failed", "batch", "retry", "defer", "retire", "cancel"];
    let mut ids = bed
        .rowlock
        .enqueue_all_now(texts.map(Note::new))
        .if_retired(Note::new("undo"))
        .await
        .unwrap();
    let stays = bed.note("stays").await;
    let worker = bed.worker().state(bed.database.url.clone()).handle(staged(ends));
    let running = Running::start(worker);
    until("every late end to be refused", async || {
        running.counters.lease_lost() == 7
    })
    .await;
    until("the one beside them", async || {
        bed.job(stays).await.state == State::Finished
    })
    .await;
    let counters = running.stop().await;

    assert_eq!(
        counters.settled(Ended::Done),
        1,
        "those who kept their lease are not harmed"
    );
    for id in ids.drain(..) {
        let job = bed.job(id).await;
        assert_eq!((job.state, job.epoch, job.worker), (State::Leased, 2, Some(99)));
        assert!(bed.attempts(id).await.is_empty());
    }
    assert_eq!(bed.ledger().await, 0);
    assert_eq!(
        bed.count("select count(*) from rowlock.job").await,
        8,
        "no next link, no compensating job"
    );
}

mod tests {
    super::super::cases!(a_late_worker_cannot_settle_a_reclaimed_job);
}
