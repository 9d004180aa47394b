//! A chain: each link's writes, its outcome and the next link are one commit. Reserve the stock, charge the customer's
//! account, write the receipt; then read the chain back.

use std::sync::Arc;

use rowlock::{
    Applied, Ended, Event, Fail, Job, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
struct ReserveStock {
    order_id: i64,
}

#[derive(Serialize, Deserialize, Job)]
struct ChargeAccount {
    order_id: i64,
    cents: i64,
}

#[derive(Serialize, Deserialize, Job)]
struct WriteReceipt {
    order_id: i64,
}

async fn reserve(_cx: Ctx, job: ReserveStock, mut tx: Tx) -> Outcome {
    let update = sqlx::query("update stock set pieces = pieces - 1 where pieces > 0");
    update
        .execute(&mut *tx)
        .await?
        .applied()
        .map_err(|_| Fail::retire("sold out"))?;
    tx.done()
        .then(ChargeAccount {
            order_id: job.order_id,
            cents: 800,
        })
        .ok()
}

async fn charge(_cx: Ctx, job: ChargeAccount, mut tx: Tx) -> Outcome {
    sqlx::query("update account set cents = cents - $1")
        .bind(job.cents)
        .execute(&mut *tx)
        .await?;
    tx.done().then(WriteReceipt { order_id: job.order_id }).ok()
}

async fn receipt(cx: Ctx, job: WriteReceipt, mut tx: Tx) -> Outcome {
    let insert = sqlx::query("insert into receipt (order_id) values ($1)");
    insert.bind(job.order_id).execute(&mut *tx).await?;
    tx.done()
        .result(&format!("receipt for the chain that job {} began", cx.chain()))
        .ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("chain.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let tables = "create table stock (pieces integer not null); insert into stock values (5);
                  create table account (cents integer not null); insert into account values (1000);
                  create table receipt (order_id integer not null)";
    sqlx::raw_sql(tables).execute(&mut db).await?;

    let mut tx = db.begin().await?;
    let first = rowlock.enqueue(&mut tx, ReserveStock { order_id: 7 }).await?.id();
    tx.commit().await?;

    let last = Arc::new(Notify::new());
    let notify = last.clone();
    let worker = Worker::new(&rowlock)
        .queue("default", 4)
        .handle(atomic(reserve))
        .handle(atomic(charge))
        .handle(atomic(receipt));
    let worker = worker.on_event(move |event| match event {
        Event::Settled {
            kind,
            ended: Ended::Done,
            ..
        } if kind == WriteReceipt::KIND => notify.notify_one(),
        _ => {}
    });
    worker.run_until(last.notified()).await?;

    for link in rowlock.observe().chain(first).await? {
        let outcome = link.last_outcome.map_or("-", Ended::as_str);
        println!(
            "link {}: {} {outcome} in attempt {}",
            link.position, link.kind, link.attempt
        );
        if let Some(result) = link.result {
            println!("        {}", result.as_str().unwrap_or_default());
        }
    }
    let sums = "select (select pieces from stock), (select cents from account), (select count(*) from receipt)";
    let (pieces, cents, receipts): (i64, i64, i64) = sqlx::query_as(sums).fetch_one(&mut db).await?;
    println!("stock {pieces}, account {cents} cents, receipts {receipts}");
    Ok(())
}
