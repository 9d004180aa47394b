//! Failure: a job retries with backoff until its attempts are used up, becomes a case with its whole history, and is
//! reopened by a person once the cause is fixed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use rowlock::{
    Backoff, Ended, Event, Fail, Job, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ship-parcel", attempts = 3)]
struct ShipParcel {
    parcel: i64,
}

/// Whether the printer works; what the person fixes.
struct Printer(AtomicBool);

async fn ship(cx: Ctx<Arc<Printer>>, job: ShipParcel, mut tx: Tx) -> Outcome {
    sqlx::query("insert into shipped (parcel) values ($1)")
        .bind(job.parcel)
        .execute(&mut *tx)
        .await?;
    if !cx.state().0.load(Ordering::SeqCst) {
        // The row above is rolled back with everything else this attempt wrote.
        return Err(Fail::retry("the label printer is out of paper"));
    }
    tx.done().ok()
}

/// Runs a worker until an attempt ends like this.
async fn work_until(rowlock: &Rowlock, printer: &Arc<Printer>, wanted: Ended) -> rowlock::Result<()> {
    let seen = Arc::new(Notify::new());
    let notify = seen.clone();
    let soon = Backoff::new()
        .base(Duration::from_millis(10))
        .max(Duration::from_secs(1));
    let worker = Worker::new(rowlock)
        .state(printer.clone())
        .queue("default", 4)
        .handle(atomic(ship).backoff(soon));
    let worker = worker.on_event(move |event| match event {
        Event::Settled { ended, .. } if *ended == wanted => notify.notify_one(),
        _ => {}
    });
    worker.run_until(seen.notified()).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("parcels.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    sqlx::raw_sql("create table shipped (parcel integer not null)")
        .execute(&mut db)
        .await?;
    let id = rowlock.enqueue_now(ShipParcel { parcel: 12 }).await?.id();

    let printer = Arc::new(Printer(AtomicBool::new(false)));
    work_until(&rowlock, &printer, Ended::Retired).await?;

    for case in rowlock.observe().cases(10).await? {
        println!(
            "case {}: {} used {} of {} attempts",
            case.id, case.kind, case.attempt, case.attempts_max
        );
        for attempt in case.history.as_array().into_iter().flatten() {
            let text = |field: &str| attempt[field].as_str().unwrap_or_default();
            println!(
                "  attempt {}: {}: {}",
                attempt["attempt"],
                text("outcome"),
                text("error")
            );
        }
    }
    println!("parcels shipped: {}", shipped(&mut db).await?);

    printer.0.store(true, Ordering::SeqCst);
    rowlock.operate().reopen(id, "sam").await?;
    println!("paper refilled, case reopened");
    work_until(&rowlock, &printer, Ended::Done).await?;

    let job = rowlock.observe().job(id).await?;
    let job = job.ok_or_else(|| anyhow::anyhow!("job {id} is gone"))?;
    let outcome = job.last_outcome.map_or("-", Ended::as_str);
    println!(
        "job {id}: {}, {outcome} in attempt {}, claimed {} times in all",
        job.state.as_str(),
        job.attempt,
        job.epoch
    );
    println!("parcels shipped: {}", shipped(&mut db).await?);
    Ok(())
}

async fn shipped(db: &mut SqliteConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("select count(*) from shipped").fetch_one(db).await
}
