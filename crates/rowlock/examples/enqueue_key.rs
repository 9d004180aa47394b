//! Keys: the caller names the operation, so that a repeated request makes no second job. It gets the first one's job,
//! and its stored result once it is done; another request under the same key is refused.

use std::{sync::Arc, time::Duration};

use rowlock::{
    Enqueued, Error, Event, Hold, Job, Retention, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "reserve-seat")]
struct ReserveSeat {
    order: i64,
    seat: String,
}

async fn reserve(_cx: Ctx, job: ReserveSeat, mut tx: Tx) -> Outcome {
    sqlx::query("insert into reserved (seat) values ($1)")
        .bind(&job.seat)
        .execute(&mut *tx)
        .await?;
    tx.done().result(&json!({ "ticket": format!("T-{}", job.seat) })).ok()
}

/// What a web handler does with one request: the order and its job in one transaction.
async fn request(rowlock: &Rowlock, db: &mut SqliteConnection, order: i64, seat: &str) -> anyhow::Result<String> {
    let job = ReserveSeat {
        order,
        seat: seat.into(),
    };
    let mut tx = db.begin_with("begin immediate").await?;
    let put = rowlock.enqueue(&mut tx, job).key(format!("reserve:{order}")).await;
    let said = match put {
        Ok(Enqueued::New(id)) => format!("new: job {id}"),
        Ok(Enqueued::Existing(e)) => match e.result {
            Some(result) => format!("job {} is done: {result}", e.id),
            None => format!("job {} is {}", e.id, e.state.map_or("gone", |s| s.as_str())),
        },
        // The transaction is as it was; it could go on.
        Err(Error::KeyConflict { key, .. }) => format!("refused: {key} stands for another request"),
        other => format!("{:?}", other?),
    };
    tx.commit().await?;
    Ok(format!("order {order}, seat {seat}: {said}"))
}

fn worker(rowlock: &Rowlock) -> Worker {
    Worker::new(rowlock).queue("default", 4).handle(atomic(reserve))
}

/// Runs a worker until one job is done.
async fn work(rowlock: &Rowlock) -> rowlock::Result<()> {
    let done = Arc::new(Notify::new());
    let notify = done.clone();
    let worker = worker(rowlock).on_event(move |event| {
        if matches!(event, Event::Settled { .. }) {
            notify.notify_one();
        }
    });
    worker.run_until(done.notified()).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("seats.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("create table reserved (seat text not null)")
        .execute(&mut db)
        .await?;

    println!("{}", request(&rowlock, &mut db, 7, "12A").await?);
    println!("{}", request(&rowlock, &mut db, 7, "12A").await?);
    println!("{}", request(&rowlock, &mut db, 7, "12B").await?);
    work(&rowlock).await?;
    println!("{}", request(&rowlock, &mut db, 7, "12A").await?);
    let reserved: i64 = sqlx::query_scalar("select count(*) from reserved")
        .fetch_one(&mut db)
        .await?;
    println!("seats reserved: {reserved}");

    // Many in one call; a key that is held while its job is open allows no second refresh behind the first.
    let seats = ["1A", "1B", "1A"].map(|seat| ReserveSeat {
        order: 0,
        seat: seat.into(),
    });
    let batch = rowlock.enqueue_all_now(seats).hold(Hold::WhileOpen);
    let put = batch.key_by(|job| format!("refresh:{}", job.seat)).await?;
    println!(
        "batch of {}: {} new",
        put.len(),
        put.iter().filter(|p| p.is_new()).count()
    );

    // A worker that would forget keys while a case may still be reopened does not start.
    let short = Retention::new().keys(Duration::from_secs(30 * 24 * 3600));
    let refused = worker(&rowlock)
        .retention(short)
        .run_until(std::future::ready(()))
        .await;
    println!("{}", refused.err().map_or("started".to_owned(), |e| e.to_string()));
    Ok(())
}
