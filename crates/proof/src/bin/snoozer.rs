//! A worker on an adopted table, to be killed: each row is a line in `sent`, which has no key, so that a row that
//! counts twice shows. `snoozer URL TABLE`; says `ready` when it works, and ends with its stdin.

#![allow(clippy::unwrap_used, reason = "a victim that cannot go on should stop there")]

use std::time::Duration;

use proof::child::end_with_parent;
use rowlock::{
    Backoff, Fail,
    adopt::{self, Adopted, Columns},
    atomic,
    postgres::Rowlock,
};
use sqlx::{FromRow, Row, postgres::PgRow};

struct Snooze {
    id: i64,
    user_email: String,
    subject: String,
}

impl FromRow<'_, PgRow> for Snooze {
    fn from_row(row: &PgRow) -> sqlx::Result<Snooze> {
        Ok(Snooze {
            id: row.try_get("id")?,
            user_email: row.try_get("user_email")?,
            subject: row.try_get("subject")?,
        })
    }
}

/// A row without an address fails every time; one without a subject cannot even be read.
async fn remind(_cx: adopt::Ctx, row: Snooze, mut tx: adopt::Tx) -> adopt::Outcome {
    let insert = sqlx::query("insert into sent (id, line) values ($1, $2)");
    let line = format!("{}: {}", row.user_email, row.subject);
    insert.bind(row.id).bind(line).execute(&mut *tx).await?;
    if !row.user_email.contains('@') {
        return Err(Fail::retry(format!("{:?} is no address", row.user_email)));
    }
    tx.done().ok()
}

#[tokio::main]
async fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [url, table] = &args[..] else {
        panic!("snoozer URL TABLE");
    };
    std::thread::spawn(end_with_parent);
    let rowlock = Rowlock::open(url).unwrap();
    let snoozes = Adopted::open(&rowlock, table, Columns::due("remind_at")).await.unwrap();
    let backoff = Backoff::new()
        .base(Duration::from_millis(50))
        .max(Duration::from_secs(1));
    println!("ready");
    let worker = snoozes.worker().slots(8).lease(Duration::from_secs(2));
    let worker = worker
        .poll(Duration::from_millis(100))
        .name(format!("snoozer {}", std::process::id()));
    worker
        .handle(atomic(remind).backoff(backoff))
        .run_until(std::future::pending())
        .await
        .unwrap();
}
