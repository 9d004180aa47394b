//! A table of one's own, adopted: its rows are worked off with the whole protocol, and stay rows.
//!
//! Needs PostgreSQL; `docs/adopt.md` has the two steps before.

use std::time::Duration;

use rowlock::{
    Ended, Fail,
    adopt::{self, Adopted, Columns},
    atomic,
    postgres::Rowlock,
};
use sqlx::{FromRow, Row, postgres::PgRow};

struct Reminder {
    id: i64,
    user_email: String,
}

// What `#[derive(sqlx::FromRow)]` writes, with sqlx's feature `derive`.
impl FromRow<'_, PgRow> for Reminder {
    fn from_row(row: &PgRow) -> sqlx::Result<Reminder> {
        Ok(Reminder {
            id: row.try_get("id")?,
            user_email: row.try_get("user_email")?,
        })
    }
}

async fn remind(_cx: adopt::Ctx, row: Reminder, mut tx: adopt::Tx) -> adopt::Outcome {
    if !row.user_email.contains('@') {
        // Trying again does not help: retired, with a case.
        return Err(Fail::retire(format!("{:?} is no address", row.user_email)));
    }
    let insert = sqlx::query("insert into outbox (reminder_id, mail_to) values ($1, $2)");
    insert.bind(row.id).bind(row.user_email).execute(&mut *tx).await?; // an error here: given back, tried again later
    tx.done().ok() // the mail and the row's end are one commit
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let rowlock = Rowlock::connect(&std::env::var("DATABASE_URL")?).await?;
    let reminders = Adopted::open(&rowlock, "reminders", Columns::due("remind_at")).await?;
    let worker = reminders.worker().slots(8).handle(atomic(remind));
    let counters = worker.counters();
    worker.run_until(tokio::time::sleep(Duration::from_secs(2))).await?; // a program gives its stop signal here
    let (sent, retired) = (counters.settled(Ended::Done), counters.settled(Ended::Retired));
    println!("{sent} reminders sent, {retired} retired");
    Ok(())
}
