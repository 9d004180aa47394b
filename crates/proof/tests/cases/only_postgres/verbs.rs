//! Cancelling a job that is inside its transaction, where others can write meanwhile.

use std::sync::Arc;

use rowlock::{Ended, State, atomic};
use tokio::sync::Notify;

use super::{
    cases::{Bed, Note, Running, until, write},
    db::{Ctx, Tx},
};

async fn a_cancelled_atomic_job_keeps_no_row_lock_and_nothing_it_wrote(bed: &Bed) {
    bed.run("create table thing (id int primary key); insert into thing values (1)")
        .await;
    let begun = Arc::new(Notify::new());
    let at = begun.clone();
    let handler = move |cx: Ctx, _: Note, mut tx: Tx| {
        let at = at.clone();
        async move {
            sqlx::query("select id from thing for update").execute(&mut *tx).await?;
            write(&mut tx, cx.id(), "in vain").await?;
            at.notify_one();
            // In the server's hands: dropping the handler alone would not end it.
            sqlx::query("select pg_sleep(600)").execute(&mut *tx).await?;
            tx.done().ok()
        }
    };
    let id = bed.note("x").await;
    let running = Running::start(bed.hasty_worker().handle(atomic(handler)));
    begun.notified().await;
    bed.rowlock.operate().cancel(id, Some("stuck"), "tess").await.unwrap();
    assert_eq!(bed.job(id).await.state, State::Finished, "at once");
    until("its lock to be free", async || {
        let take = sqlx::query("select id from thing for update nowait");
        take.execute(&mut bed.conn().await).await.is_ok()
    })
    .await;
    until("it to be told", async || running.counters.lease_lost() == 1).await;
    let counters = running.stop().await;
    assert_eq!((bed.ledger().await, counters.lease_lost()), (0, 1));
    assert_eq!(bed.ends(id).await, [Ended::Cancelled]);
}

mod tests {
    super::super::cases!(a_cancelled_atomic_job_keeps_no_row_lock_and_nothing_it_wrote);
}
