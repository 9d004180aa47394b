//! One worker process on the adopted table.

use std::{net::SocketAddr, time::Duration};

use anyhow::Result;
use rowlock::{
    Fail, NotDone,
    adopt::{self, Adopted, Columns},
    postgres::Rowlock,
    staged,
};
use sqlx::{FromRow, Row, postgres::PgRow};

use super::super::{
    LEASE, backoff,
    desk::{Account, Failure, ask},
    stdin_ended,
};

#[derive(clap::Args)]
pub(crate) struct Role {
    #[arg(long)]
    provider: SocketAddr,
}

/// What this application needs of a row.
struct Snooze {
    id: i64,
    user_email: String,
    /// The table allows null; this application does not.
    #[allow(dead_code, reason = "a mail has one, and that it can be read is what counts here")]
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

/// The table's name in the demo's schema.
pub(super) fn table(schema: &str) -> String {
    format!("{schema}.email_snoozes")
}

pub(crate) async fn work(url: &str, schema: &str, number: u32, role: Role) -> Result<()> {
    let rowlock = Rowlock::open_in(url, schema)?;
    let snoozes = Adopted::open(&rowlock, &table(schema), Columns::due("remind_at")).await?;
    let worker = snoozes
        .worker()
        .state(role.provider)
        .name(format!("demo worker {number}"))
        .slots(8)
        .lease(LEASE)
        .grace(LEASE)
        .poll(Duration::from_millis(200))
        .handle(staged(remind).backoff(backoff()));
    worker.run_until(stdin_ended()).await?;
    Ok(())
}

/// No transaction is open while the mail is sent, and its key is the same on every attempt.
async fn remind(cx: adopt::Staged<SocketAddr>, row: Snooze) -> adopt::Outcome {
    if !row.user_email.contains('@') {
        return Err(Fail::retry(format!("{:?} is no address", row.user_email)));
    }
    let provider = *cx.state();
    cx.effect("mail", |key| async move {
        let sent = ask(provider, "mail", Account::Keyed, row.id, key.into()).await;
        sent.map_err(|failure| match failure {
            Failure::Refused => Fail::from(NotDone::because("the provider did not take the mail")),
            Failure::Unknown(error) => Fail::from(error),
        })
    })
    .await?;
    cx.done().ok()
}
