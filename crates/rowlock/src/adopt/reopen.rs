//! Reopened cases of an adopted table: a job that puts its row back.

use std::sync::Arc;

use serde_json::json;
use sqlx::Postgres;

use super::run::Shared;
use crate::{
    handle::{Ctx, Fail, Outcome, Tx},
    store::postgres::{PgStore, adopt::AdoptedTable},
    table::RetiredRow,
    worker::Worker,
};

struct Reopening {
    store: PgStore,
    table: Arc<AdoptedTable>,
}

/// Serves the queue of the table's cases until the worker is gone.
pub(super) async fn run(shared: Arc<Shared>) {
    let reopening = Reopening {
        store: shared.store.clone(),
        table: shared.table.clone(),
    };
    let worker = Worker::new(&shared.rowlock)
        .state(reopening)
        .queue(&*shared.table.queue, 1)
        .name(format!("{} (cases)", shared.settings.name))
        .connections(1)
        .poll_only()
        .atomic(put_back);
    if let Err(error) = worker.run_until(shared.gone.cancelled()).await {
        tracing::error!(table = %shared.table.queue, %error, "reopened cases of this table are not served");
    }
}

async fn put_back(cx: Ctx<Reopening, Postgres>, job: RetiredRow, mut tx: Tx<Postgres>) -> Outcome<Postgres> {
    let Reopening { store, table } = cx.state();
    let here = table.adoptee.table.to_string();
    if job.table != here {
        return Err(Fail::retire(format!(
            "the case is of {}, and this worker has {here}",
            job.table
        )));
    }
    let put_back = store.reopen_row(table, &mut tx, &job).await?;
    tx.done().result(&json!({"put_back": put_back})).ok()
}
