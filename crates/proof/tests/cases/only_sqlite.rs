//! What only SQLite has: one writer, which a handler's transaction keeps to itself.

use std::{future::pending, time::Duration};

use rowlock::{Ended, Once, State};
use sqlx::Connection;

use crate::{
    cases::{AT_ONCE, Bed, LEASE, Note, Running, note, until, write},
    db::{Ctx, Tx},
};

/// Every beat waits behind it, so it must end well before the lease does.
async fn a_handler_that_keeps_its_transaction_for_a_third_of_the_lease_is_cut(bed: &Bed) {
    let id = bed.note("keeps").await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if cx.attempt() == 1 {
            pending::<()>().await;
        }
        tx.done().ok()
    };
    let running = Running::start(bed.hasty_worker().atomic(handler).backoff(AT_ONCE));
    until("the second attempt to succeed", async || {
        bed.job(id).await.state == State::Finished
    })
    .await;
    let counters = running.stop().await;

    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
    let cut = &bed.attempts(id).await[0];
    let error = cut.error.as_deref().unwrap();
    assert!(error.contains("held its transaction longer than"), "{error}");
    let held = Duration::try_from(cut.ended_at.duration_since(cut.started_at)).unwrap();
    assert!(held < LEASE, "{held:?}");
    assert_eq!(
        (counters.cut_off(), bed.ledger().await),
        (0, 1),
        "no beat was missed for it"
    );
}

async fn history_is_a_plain_table(bed: &Bed) {
    let id = bed.note("x").await;
    bed.work(bed.hasty_worker().atomic(note), &[id]).await;
    assert_eq!(bed.count("select count(*) from rowlock.outcome").await, 1);
    let kind = "select count(*) from sqlite_master where name = 'rowlock_outcome' and type = 'table'";
    assert_eq!(bed.count(kind).await, 1);
}

/// A transaction that read before somebody else wrote cannot begin to write any more, however long it waits.
async fn a_transaction_that_read_too_early_is_told_to_try_once_again(bed: &Bed) {
    let (mut early, mut other) = (bed.conn().await, bed.conn().await);
    let mut tx = early.begin().await.unwrap();
    assert_eq!(bed.rowlock.seen(&mut tx, "k").await.unwrap(), None);
    sqlx::raw_sql("insert into ledger (job, note) values (1, 'other')")
        .execute(&mut other)
        .await
        .unwrap();
    let Err(refused) = bed.rowlock.once(&mut tx, "k").await else {
        panic!("a stale transaction may not write")
    };
    assert!(refused.is_retryable(), "{refused:?}");
    assert_eq!(refused.code().as_deref(), Some("517"));
    tx.rollback().await.unwrap();
    let mut tx = early.begin_with("begin immediate").await.unwrap();
    assert!(matches!(bed.rowlock.once(&mut tx, "k").await.unwrap(), Once::First(_)));
    tx.commit().await.unwrap();
}

mod tests {
    crate::cases::cases!(
        a_handler_that_keeps_its_transaction_for_a_third_of_the_lease_is_cut,
        history_is_a_plain_table,
        a_transaction_that_read_too_early_is_told_to_try_once_again,
    );
}
