//! Handlers at every isolation level (SQLite has one): whatever the database makes them repeat, one attempt commits,
//! and jobs that have nothing to do with each other never make each other repeat anything.

use rowlock::{Ended, Isolation};

use super::db::{Ctx, Staged, Tx, Worker};
use super::{Bed, Note, Other, write};

const LEVELS: [Isolation; 3] = [
    Isolation::ReadCommitted,
    Isolation::RepeatableRead,
    Isolation::Serializable,
];

async fn jobs_that_are_strangers_are_done_once_at_every_level_without_a_retry(bed: &Bed) {
    for level in LEVELS {
        let notes = bed.rowlock.enqueue_all_now((0..100).map(|n| Note::new(&n.to_string())));
        let mut ids = notes.attempts(1).await.unwrap();
        let others = bed.rowlock.enqueue_all_now((0..100).map(|n| Other { n }));
        ids.extend(others.attempts(1).await.unwrap());
        let atomic = |cx: Ctx, job: Note, mut tx: Tx| async move {
            write(&mut tx, cx.id(), &job.text).await?;
            tx.done().ok()
        };
        let staged = |cx: Staged, job: Other| async move {
            let id = cx.id();
            let mut tx = cx.begin().await?;
            write(&mut tx, id, &job.n.to_string()).await?;
            tx.done().then(Note::new("next")).ok()
        };
        let worker = bed
            .worker()
            .handle(rowlock::atomic(atomic).isolation(level))
            .handle(rowlock::staged(staged).isolation(level));
        let counters = bed.work(worker, &ids).await;
        assert_eq!(
            counters.settled(Ended::Retired),
            0,
            "{level:?}: one attempt each was enough"
        );
        let doubled = "select count(*) from (select job from ledger group by job having count(*) > 1) as d";
        assert_eq!(bed.count(doubled).await, 0, "{level:?}");
        assert!(bed.ledger().await >= 200, "{level:?}");
        bed.run("delete from ledger").await;
    }
}

/// Each commit fails all the others that have begun; they must come apart before their attempts are used up.
async fn jobs_that_all_want_one_row_are_done_once_and_none_becomes_a_case(bed: &Bed) {
    bed.run("create table hot (n bigint not null); insert into hot values (0)")
        .await;
    let ids = bed
        .rowlock
        .enqueue_all_now((0..100).map(|n| Other { n }))
        .await
        .unwrap();
    let handler = |_: Ctx, _: Other, mut tx: Tx| async move {
        sqlx::query("update hot set n = n + 1").execute(&mut *tx).await?;
        tx.done().ok()
    };
    let worker = Worker::new(&bed.rowlock).queue("default", 16).connections(16);
    let counters = bed
        .work(
            worker.handle(rowlock::atomic(handler).isolation(Isolation::RepeatableRead)),
            &ids,
        )
        .await;
    assert_eq!(
        (counters.settled(Ended::Done), counters.settled(Ended::Retired)),
        (100, 0)
    );
    assert_eq!(bed.count("select n from hot").await, 100);
}

mod tests {
    super::super::cases!(
        jobs_that_all_want_one_row_are_done_once_and_none_becomes_a_case,
        jobs_that_are_strangers_are_done_once_at_every_level_without_a_retry
    );
}
