//! Reopened cases of an adopted table: a job that puts the case's row back.

use std::{sync::Arc, time::Duration};

use serde_json::json;
use sqlx::Postgres;

use super::rows::RowShared;
use crate::{
    backoff::Backoff,
    error::chain,
    handle::{Ctx, Fail, Outcome, Tx, atomic},
    job::Job,
    retention::Horizon,
    store::postgres::{PgStore, adopt::AdoptedTable},
    table::RetiredRow,
    worker::{Worker, shared::Claims},
};

/// The wait before checking again whether a worker can start on the database.
const WAIT_START: Duration = Duration::from_secs(5);

/// How long a reopened case may be retried. The worker below checks the same, but could only log it.
pub(super) fn horizon() -> Horizon<'static> {
    let (attempts, limit) = (RetiredRow::ATTEMPTS_MAX, RetiredRow::TIME_LIMIT);
    Horizon::of(RetiredRow::KIND, attempts, Backoff::DEFAULT, limit)
}

struct Reopening {
    store: PgStore,
    table: Arc<AdoptedTable>,
}

/// Serves the queue of the table's cases until the worker is gone.
pub(super) async fn run(shared: Arc<RowShared>) {
    loop {
        let reopening = Reopening {
            store: shared.store().clone(),
            table: shared.table.clone(),
        };
        let worker = Worker::new(&shared.rowlock)
            .state(reopening)
            .queue(&*shared.table.queue, 1)
            .name(format!("{} (cases)", shared.settings.name))
            .connections(1)
            .retention(shared.settings.retention)
            .poll_only()
            .handle(atomic(put_back));
        let Err(error) = worker.run_until(shared.gone.cancelled()).await else {
            return;
        };
        // A worker fails only before it starts: the database was away.
        let table = &*shared.table.queue;
        tracing::error!(
            table,
            "cannot serve reopened cases of this table, retrying: {}",
            chain(&error)
        );
        if !answers(&shared).await {
            return;
        }
    }
}

/// Waits until the database answers; `false` if the worker is gone before. A worker that starts would wait too, but
/// would delay the stop.
async fn answers(shared: &RowShared) -> bool {
    loop {
        tokio::select! {
            () = tokio::time::sleep(WAIT_START) => {}
            () = shared.gone.cancelled() => return false,
        }
        if shared.rowlock.check_schema().await.is_ok() {
            return true;
        }
    }
}

async fn put_back(cx: Ctx<Reopening, Postgres>, job: RetiredRow, mut tx: Tx<Postgres>) -> Outcome<Postgres> {
    let Reopening { store, table } = cx.state();
    let here = table.adoptee.table.exact();
    if job.table != here {
        return Err(Fail::retire(format!(
            "the case belongs to {}, but this worker serves {here}",
            job.table
        )));
    }
    let put_back = store.reopen_row(table, &mut tx, &job).await?;
    tx.done().result(&json!({"put_back": put_back})).ok()
}
