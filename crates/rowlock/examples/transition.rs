//! The where-status pattern on your own table: the same payment is reported twice. One job moves the order, the other
//! finds it moved and is done quietly.

use std::time::Duration;

use rowlock::{
    Ended, Error, Job, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "mark-paid")]
struct MarkPaid {
    order_id: i64,
}

async fn mark_paid(_cx: Ctx, job: MarkPaid, mut tx: Tx) -> Outcome {
    tx.transition("orders", job.order_id, "pending", "paid").await?;
    let credit = sqlx::query("update till set cents = cents + (select cents from orders where id = $1)");
    credit.bind(job.order_id).execute(&mut *tx).await?;
    tx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("transition.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let tables = "create table orders (id integer primary key, cents integer not null, status text not null);
                  create table till (cents integer not null);
                  insert into orders values (7, 800, 'pending'), (8, 500, 'cancelled');
                  insert into till values (0)";
    sqlx::raw_sql(tables).execute(&mut db).await?;

    rowlock
        .enqueue_all_now([7, 7].map(|order_id| MarkPaid { order_id }))
        .await?;
    let worker = Worker::new(&rowlock).queue("default", 2).handle(atomic(mark_paid));
    let counters = worker.counters();
    let both_done = async {
        while counters.settled(Ended::Done) < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    worker.run_until(both_done).await?;
    let cents: i64 = sqlx::query_scalar("select cents from till").fetch_one(&mut db).await?;
    println!(
        "2 jobs done, {} found it handled already, till {cents} cents",
        counters.already_handled()
    );

    let mut tx = db.begin().await?;
    match rowlock.transition(&mut tx, "orders", 8, "pending", "paid").await {
        Err(error @ Error::AlreadyHandled { .. }) => println!("application code is told: {error}"),
        other => println!("{other:?}"),
    }
    let step = rowlock.transition(&mut tx, "orders; drop table orders", 8, "pending", "paid");
    println!(
        "{}",
        step.await.map_or_else(|error| error.to_string(), |()| "moved".into())
    );
    Ok(())
}
