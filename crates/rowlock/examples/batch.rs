//! Many small jobs in few commits: ten bookings share a transaction, and the two that are refused take nobody with
//! them.

use std::time::Duration;

use rowlock::{
    Batch, Ended, Fail, Job, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "book-seat")]
struct BookSeat {
    seat: i64,
    guest: String,
}

async fn book(_cx: Ctx, job: BookSeat, mut tx: Tx) -> Outcome {
    // Written before it is known whether the seat is free; rolled back alone if it is not.
    sqlx::query("insert into guest (name) values ($1)")
        .bind(&job.guest)
        .execute(&mut *tx)
        .await?;
    let taken = sqlx::query("update seat set guest = $1 where id = $2 and guest is null")
        .bind(&job.guest)
        .bind(job.seat)
        .execute(&mut *tx)
        .await?;
    if taken.rows_affected() == 0 {
        return Err(Fail::cancel(format!("seat {} is taken", job.seat)));
    }
    tx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("batch.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let tables = "create table guest (name text not null);
                  create table seat (id integer primary key, guest text);
                  insert into seat (id) values (1), (2), (3), (4), (5), (6), (7), (8)";
    sqlx::raw_sql(tables).execute(&mut db).await?;

    // Ten guests, eight seats: the last two want seats that are taken by then.
    let bookings = (0..10).map(|n| BookSeat {
        seat: n % 8 + 1,
        guest: format!("guest {n}"),
    });
    rowlock.enqueue_all_now(bookings).await?;

    let worker = Worker::new(&rowlock)
        .queue("default", 1)
        .handle(atomic(book).batch(Batch::up_to(10)));
    let counters = worker.counters();
    let all = async {
        while counters.settled(Ended::Done) + counters.settled(Ended::Cancelled) < 10 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    worker.run_until(all).await?;

    let booked = "select count(*) from seat join guest on guest.name = seat.guest";
    let booked: i64 = sqlx::query_scalar(booked).fetch_one(&mut db).await?;
    let guests: i64 = sqlx::query_scalar("select count(*) from guest")
        .fetch_one(&mut db)
        .await?;
    println!("{booked} seats booked, {guests} guests");
    println!(
        "{} done, {} cancelled, {} batches undone",
        counters.settled(Ended::Done),
        counters.settled(Ended::Cancelled),
        counters.batches_undone()
    );
    let late = "select error from rowlock_outcome where outcome = 'cancelled' order by id";
    for error in sqlx::query_scalar::<_, String>(late).fetch_all(&mut db).await? {
        println!("{error}");
    }
    Ok(())
}
