//! After-commit hooks: a cache hears of committed changes only. Hooks are hints: a crash drops them, so what must
//! happen belongs into the transaction.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rowlock::{
    Backoff, Fail, Job, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::oneshot;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "set-price", attempts = 3)]
struct SetPrice {
    item: i64,
    cents: i64,
}

#[derive(Clone, Default)]
struct Cache(Arc<Mutex<Vec<String>>>);

impl Cache {
    async fn forget(&self, item: i64, attempt: i32) -> Result<(), Fail> {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told.push(format!("forget item {item}, by attempt {attempt}"));
        Ok(())
    }
}

async fn set_price(cx: Ctx<Cache>, job: SetPrice, mut tx: Tx) -> Outcome {
    let update = sqlx::query("update items set cents = $1 where id = $2");
    update.bind(job.cents).bind(job.item).execute(&mut *tx).await?;
    let (cache, attempt) = (cx.state().clone(), cx.attempt());
    tx.after_commit(async move { cache.forget(job.item, attempt).await });
    if attempt == 1 {
        return Err(Fail::retry(
            "the first attempt rolls back, and its hook is dropped with it",
        ));
    }
    tx.done()
        .after_commit(async { Err(std::io::Error::other("the search index is away")) })
        .ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("prices.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let tables =
        "create table items (id integer primary key, cents integer not null); insert into items values (7, 100)";
    sqlx::raw_sql(tables).execute(&mut db).await?;
    let id = rowlock.enqueue_now(SetPrice { item: 7, cents: 120 }).await?.id();

    let (cache, (stop, stopped)) = (Cache::default(), oneshot::channel::<()>());
    let soon = Backoff::new()
        .base(Duration::from_millis(20))
        .max(Duration::from_secs(1));
    let worker = Worker::new(&rowlock).state(cache.clone()).queue("default", 4);
    let worker = worker.handle(atomic(set_price).backoff(soon));
    let counters = worker.counters();
    let running = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let awaited = rowlock.wait(id).timeout(Duration::from_secs(30)).await?;
    // The stop waits for hooks that are under way, within the grace period.
    let _ = stop.send(());
    running.await??;

    println!("{awaited:?}");
    for line in cache.0.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        println!("{line}");
    }
    println!("hooks that failed: {}", counters.hooks_failed());
    Ok(())
}
