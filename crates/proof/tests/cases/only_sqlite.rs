//! What only SQLite has: one writer, which a handler's transaction keeps to itself.

use std::{future::pending, time::Duration};

use rowlock::{Ended, Guard, Once, State, atomic};
use sqlx::Connection;

use super::{
    cases::{
        AT_ONCE, Bed, LEASE, Note, Running,
        guard::observed::{OpenIncidents, incidents, open},
        note, until, write,
    },
    db::{Ctx, Tx},
};

/// Every heartbeat waits behind it, so it must end well before the lease does.
async fn a_handler_that_keeps_its_transaction_for_a_third_of_the_lease_is_cut(bed: &Bed) {
    let id = bed.note("keeps").await;
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), &job.text).await?;
        if cx.attempt() == 1 {
            pending::<()>().await;
        }
        tx.done().ok()
    };
    let running = Running::start(bed.hasty_worker().handle(atomic(handler).backoff(AT_ONCE)));
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
    bed.work(bed.hasty_worker().handle(atomic(note)), &[id]).await;
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

/// It read before somebody else wrote, so what it saw is old and it can never write: it must begin again.
async fn a_transaction_that_read_first_and_cannot_write_any_more_is_told_to_try_again(bed: &Bed) {
    incidents(bed).await;
    let (mut mine, mut theirs) = (bed.conn().await, bed.conn().await);
    for asked in 0..5 {
        let mut tx = mine.begin().await.unwrap();
        let seen = OpenIncidents(1).look(&mut tx).await.unwrap();
        open(&mut theirs, 1).await.unwrap();
        let told = match asked {
            0 => bed
                .rowlock
                .unchanged(&mut tx, &OpenIncidents(1), &seen)
                .await
                .unwrap_err(),
            1 => bed.rowlock.unchanged_version(&mut tx, "k", 0).await.unwrap_err(),
            2 => bed.rowlock.raise_version(&mut tx, "k").await.unwrap_err(),
            3 => {
                let step = bed.rowlock.transition(&mut tx, "incident", 1, "1", "0");
                step.column("open").await.unwrap_err()
            }
            _ => bed.rowlock.enqueue(&mut *tx, Note::new("x")).await.unwrap_err(),
        };
        assert!(told.is_retryable(), "{asked}: {told:?}");
        let source = std::error::Error::source(&told).unwrap().to_string();
        assert!(
            source.contains("before another connection wrote to it; roll back and try again"),
            "{source}"
        );
        tx.rollback().await.unwrap();

        // From the beginning it goes through, with what is there now.
        let mut tx = mine.begin_with("begin immediate").await.unwrap();
        let seen = OpenIncidents(1).look(&mut tx).await.unwrap();
        assert_eq!(seen.len(), asked + 1);
        bed.rowlock.unchanged(&mut tx, &OpenIncidents(1), &seen).await.unwrap();
        tx.commit().await.unwrap();
    }
}

/// The write lock is taken before the second look, so nobody writes between the two.
async fn a_guard_holds_the_write_lock_from_its_look_to_the_commit(bed: &Bed) {
    incidents(bed).await;
    let (mut mine, mut theirs) = (bed.conn().await, bed.conn().await);
    sqlx::raw_sql("pragma busy_timeout = 50")
        .execute(&mut theirs)
        .await
        .unwrap();
    let mut tx = mine.begin().await.unwrap();
    bed.rowlock
        .unchanged(&mut tx, &OpenIncidents(1), &vec![])
        .await
        .unwrap();
    let refused = open(&mut theirs, 1).await.unwrap_err();
    assert!(refused.to_string().contains("locked"), "{refused}");
    let mut late = theirs.begin().await.unwrap();
    let told = bed
        .rowlock
        .unchanged(&mut late, &OpenIncidents(2), &vec![])
        .await
        .unwrap_err();
    assert!(told.is_retryable(), "one lock serves every guard: {told:?}");
    late.rollback().await.unwrap();
    tx.commit().await.unwrap();
    open(&mut theirs, 1).await.unwrap();
}

/// Beside an open transaction with the same key: while it is open the answer is "try again". After it, a repeat gets
/// what it left.
async fn a_key_in_an_open_transaction_asks_others_to_try_again_until_it_ends(bed: &Bed) {
    let (mut first, mut second) = (bed.conn().await, bed.conn().await);
    // So that nobody waits: how long is the caller's to say.
    sqlx::raw_sql("pragma busy_timeout = 0")
        .execute(&mut second)
        .await
        .unwrap();
    let mut ended = Vec::new();
    for commit in [false, true] {
        let mut open = first.begin_with("begin immediate").await.unwrap();
        let put = bed.rowlock.enqueue(&mut *open, Note::new("a")).key("k").await.unwrap();
        assert!(put.is_new());
        for text in ["a", "b"] {
            let mut tx = second.begin().await.unwrap();
            let busy = bed
                .rowlock
                .enqueue(&mut *tx, Note::new(text))
                .key("k")
                .await
                .unwrap_err();
            assert!(busy.is_retryable(), "{busy:?}");
            assert_eq!(busy.code().as_deref(), Some("5"));
            tx.rollback().await.unwrap();
        }
        if commit {
            open.commit().await.unwrap();
        } else {
            open.rollback().await.unwrap();
        }
        let mut tx = second.begin().await.unwrap();
        let said = bed.rowlock.enqueue(&mut *tx, Note::new("b")).key("k").await;
        ended.push(said.map(|put| put.is_new()).map_err(|e| e.to_string()));
        tx.rollback().await.unwrap();
    }
    assert_eq!(ended[0], Ok(true), "the first was rolled back");
    let refused = ended[1].as_ref().unwrap_err();
    assert!(
        refused.starts_with("key \"k\" is already used by a different request"),
        "{refused}"
    );
}

async fn a_transaction_that_read_before_another_took_the_key_asks_to_try_again(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let read: i64 = sqlx::query_scalar("select count(*) from ledger")
        .fetch_one(&mut *tx)
        .await
        .unwrap();
    assert_eq!(read, 0);
    let id = bed.rowlock.enqueue_now(Note::new("a")).key("k").await.unwrap().id();
    let stale = bed
        .rowlock
        .enqueue(&mut *tx, Note::new("a"))
        .key("k")
        .await
        .unwrap_err();
    assert!(stale.is_retryable(), "{stale:?}");
    tx.rollback().await.unwrap();
    let mut tx = conn.begin_with("begin immediate").await.unwrap();
    let again = bed.rowlock.enqueue(&mut *tx, Note::new("a")).key("k").await.unwrap();
    assert_eq!((again.is_new(), again.id()), (false, id));
    tx.commit().await.unwrap();
}

mod tests {
    super::super::cases!(
        a_handler_that_keeps_its_transaction_for_a_third_of_the_lease_is_cut,
        history_is_a_plain_table,
        a_transaction_that_read_too_early_is_told_to_try_once_again,
        a_transaction_that_read_first_and_cannot_write_any_more_is_told_to_try_again,
        a_guard_holds_the_write_lock_from_its_look_to_the_commit,
        a_key_in_an_open_transaction_asks_others_to_try_again_until_it_ends,
        a_transaction_that_read_before_another_took_the_key_asks_to_try_again,
    );
}
