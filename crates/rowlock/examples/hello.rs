//! One job: enqueued in a transaction, run once, its write committed together with "done".

use std::sync::Arc;

use rowlock::{Event, Job, sqlite::*};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
struct Greet {
    name: String,
}

async fn greet(_cx: Ctx, job: Greet, mut tx: Tx) -> Outcome {
    let insert = sqlx::query("insert into greeting values ($1)");
    insert.bind(job.name).execute(&mut *tx).await?; // an error here: rolled back, tried again later
    tx.done().ok() // the row and "done" are one commit
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("hello.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let table = sqlx::raw_sql("create table greeting (name text)");
    table.execute(&mut db).await?;

    let mut tx = db.begin().await?;
    let job = Greet { name: "world".into() };
    let id = rowlock.enqueue(&mut tx, job).await?.id();
    tx.commit().await?; // without this line there is no job

    let settled = Arc::new(Notify::new());
    let notify = settled.clone();
    let worker = Worker::new(&rowlock).queue("default", 16).atomic(greet);
    let worker = worker.on_event(move |event| {
        if let Event::Settled { .. } = event {
            notify.notify_one();
        }
    });
    worker.run_until(settled.notified()).await?; // a program gives its stop signal here

    let select = sqlx::query_scalar("select name from greeting");
    let name: String = select.fetch_one(&mut db).await?;
    println!("hello, {name}: job {id} is done");
    Ok(())
}
