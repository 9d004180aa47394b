//! One job: enqueued in a transaction, run once, its write committed together with "done".

use rowlock::{Job, sqlite::*};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize, Job)]
struct Greet {
    name: String,
}

async fn greet(_cx: Ctx, job: Greet, mut tx: Tx) -> Outcome {
    let insert = sqlx::query("insert into greeting values ($1)");
    insert.bind(job.name).execute(&mut *tx).await?; // an error rolls back, and the job is tried again later
    tx.done().ok() // the row and "done" are one commit
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init(); // shows what the worker logs
    let url = "sqlite:hello.db"; // in the current folder
    let rowlock = Rowlock::open(url)?;
    rowlock.migrate().await?; // creates the file, and the tables of Rowlock
    let mut db = SqliteConnection::connect(url).await?;
    let table = sqlx::raw_sql("create table if not exists greeting (name text)");
    table.execute(&mut db).await?;

    let mut tx = db.begin().await?;
    let job = Greet { name: "world".into() };
    let id = rowlock.enqueue(&mut tx, job).await?.id();
    tx.commit().await?; // without this commit there is no job

    let worker = Worker::new(&rowlock).queue("default", 16).handle(atomic(greet));
    let stop = async { drop(rowlock.wait(id).await) }; // a server waits for Ctrl-C instead
    worker.run_until(stop).await?;

    let select = sqlx::query_scalar("select name from greeting");
    let name: String = select.fetch_one(&mut db).await?;
    println!("hello, {name}: job {id} is done");
    Ok(())
}
