//! Once in plain application code and in a handler: a webhook that is delivered three times adds to a balance once, and
//! every delivery gets the same answer; the same event as a job finds it done.

use rowlock::{
    Error, Hold, Job, Once, atomic,
    sqlite::{Ctx, Outcome, Rowlock, TestRig, Tx},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};

#[derive(Serialize, Deserialize)]
struct Receipt {
    balance: i64,
}

/// `POST /webhooks/payments`: the provider repeats it until it gets an answer.
async fn webhook(
    rowlock: &Rowlock,
    db: &mut SqliteConnection,
    event: &str,
    cents: i64,
) -> Result<(&'static str, Receipt), Box<dyn std::error::Error>> {
    let mut tx = db.begin_with("begin immediate").await?;
    // The provider's id of the event is the key. An SQS message id serves as well.
    let once = rowlock.once(&mut tx, format!("payment:{event}")).request(&cents);
    let (was, receipt) = match once.hold(Hold::ForEver).await? {
        Once::First(slot) => {
            let receipt = add(&mut tx, cents).await?;
            slot.store(&mut tx, &receipt).await?;
            ("first", receipt)
        }
        Once::Seen(answer) => ("repeat", answer.get()?),
    };
    tx.commit().await?;
    Ok((was, receipt))
}

/// A counter: no state that a second run could find changed.
async fn add(db: &mut SqliteConnection, cents: i64) -> sqlx::Result<Receipt> {
    let add = sqlx::query_scalar("update account set balance = balance + $1 returning balance");
    let balance = add.bind(cents).fetch_one(db).await?;
    Ok(Receipt { balance })
}

/// The same event, when it comes as a job.
#[derive(Serialize, Deserialize, Job)]
struct Paid {
    event: String,
    cents: i64,
}

async fn paid(_cx: Ctx, job: Paid, mut tx: Tx) -> Outcome {
    match tx.once(format!("payment:{}", job.event)).request(&job.cents).await? {
        Once::First(slot) => {
            let receipt = add(&mut tx, job.cents).await?;
            slot.store(&mut tx, &receipt).await?;
            println!("job for {}: first, balance {}", job.event, receipt.balance);
        }
        Once::Seen(answer) => {
            println!(
                "job for {}: repeat, balance {}",
                job.event,
                answer.get::<Receipt>()?.balance
            );
        }
    }
    tx.done().ok()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rig = TestRig::sqlite().await?.handle(atomic(paid));
    let mut db = rig.connect().await?;
    let tables = "create table account (balance integer not null); insert into account values (0)";
    sqlx::raw_sql(tables).execute(&mut db).await?;
    let rowlock = rig.rowlock();

    for event in ["evt_1", "evt_1", "evt_2", "evt_1"] {
        let (was, receipt) = webhook(rowlock, &mut db, event, 500).await?;
        println!("webhook {event}: {was}, balance {}", receipt.balance);
    }
    // The same key with another amount is no repeat.
    match webhook(rowlock, &mut db, "evt_1", 9_900).await {
        Err(error) if matches!(error.downcast_ref(), Some(Error::KeyConflict { .. })) => {
            println!("webhook evt_1: refused")
        }
        _ => println!("webhook evt_1: answered, which it must not be"),
    }

    for event in ["evt_2", "evt_3"] {
        let event = event.to_owned();
        rig.enqueue(Paid { event, cents: 500 }).await?;
        rig.run_once().await?.expect_done();
    }
    let seen = rowlock.seen(&mut db, "payment:evt_3").await?;
    println!(
        "evt_3 is in the ledger: {}",
        seen.is_some_and(|answer| !answer.is_empty())
    );
    rig.close().await?;
    Ok(())
}
