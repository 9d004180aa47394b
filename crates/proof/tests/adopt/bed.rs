//! The table of reminders, and its statements as single steps.

use rowlock::{
    adopt::{Adopted, Columns},
    postgres::Rowlock,
};
use sqlx::{AssertSqlSafe, PgConnection, Row};
use uuid::Uuid;

use crate::steps::catalog::script;

/// As an application has it before anybody adopts it.
pub(crate) const TABLE: &str = "
create table email_snoozes (
  id bigserial primary key, user_email text not null, message_id text not null, subject text, sender_email text,
  remind_at timestamptz not null, snooze_duration_hours int,
  claimed_at timestamptz, claimed_by text, claim_token uuid,
  attempts int not null default 0, max_attempts int not null default 5, inactive boolean not null default false,
  last_error text, last_error_at timestamptz,
  created_at timestamptz not null default now(), updated_at timestamptz not null default now()
);
create index idx_email_snoozes_due on email_snoozes (inactive, claimed_at, remind_at);
create index idx_email_snoozes_claimed on email_snoozes (claimed_at) where claimed_at is not null;
create table sent (id bigint, line text)";

/// So many reminders that are due, the first first.
pub(crate) async fn fill(pg: &mut PgConnection, rows: i64) {
    script(pg, TABLE).await.unwrap();
    let fill = format!(
        "insert into email_snoozes (user_email, message_id, subject, remind_at)
         select format('user-%s@example.org', n), format('message-%s', n), format('Reminder %s', n),
           now() - make_interval(secs => {rows} - n + 1)
         from generate_series(1, {rows}) n"
    );
    script(pg, &fill).await.unwrap();
}

pub(crate) fn columns() -> Columns {
    Columns::due("remind_at")
}

pub(crate) async fn opened(rowlock: &Rowlock) -> Adopted {
    Adopted::open(rowlock, "email_snoozes", columns()).await.unwrap()
}

/// A statement of this table.
pub(crate) fn filled(template: &str) -> AssertSqlSafe<String> {
    let text = template
        .replace("{table}", "email_snoozes")
        .replace("{id_type}", "bigint")
        .replace("{order}", "t.claimed_at, t.remind_at");
    AssertSqlSafe(text.replace("{due}", "remind_at").replace(['{', '}'], ""))
}

macro_rules! sql {
    ($name:literal) => {
        filled(crate::steps::sql!($name))
    };
}

/// What one row is claimed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) id: i64,
    pub(crate) token: Uuid,
}

pub(crate) async fn claim(pg: &mut PgConnection, most: i64, breakers: &[&str]) -> Vec<Claim> {
    let rows = sqlx::query(sql!("adopt/claim"))
        .bind(most)
        .bind("somebody")
        .bind(breakers)
        .bind(None::<jiff_sqlx::Timestamp>)
        .bind(Vec::<String>::new())
        .bind(None::<&str>)
        .fetch_all(pg)
        .await
        .unwrap();
    let read = |row: &sqlx::postgres::PgRow| Claim {
        id: row.get("id"),
        token: row.get("rowlock token"),
    };
    let mut claims: Vec<Claim> = rows.iter().map(read).collect();
    claims.sort_by_key(|claim| claim.id);
    claims
}

pub(crate) fn ids(claims: &[Claim]) -> Vec<i64> {
    claims.iter().map(|claim| claim.id).collect()
}

/// Whether it was applied.
pub(crate) async fn finish(pg: &mut PgConnection, claim: Claim) -> bool {
    let row = sqlx::query(sql!("adopt/finish"))
        .bind(claim.id.to_string())
        .bind(claim.token)
        .bind(false)
        .bind(None::<&str>)
        .fetch_one(pg)
        .await
        .unwrap();
    row.get("applied")
}

/// Whether it was applied.
pub(crate) async fn delete(pg: &mut PgConnection, claim: Claim) -> bool {
    let row = sqlx::query(sql!("adopt/delete"))
        .bind(claim.id.to_string())
        .bind(claim.token)
        .bind(None::<&str>)
        .fetch_one(pg)
        .await
        .unwrap();
    row.get("applied")
}

/// Whether it was applied.
pub(crate) async fn unclaim(pg: &mut PgConnection, claim: Claim, counted: bool, retire: bool) -> bool {
    let row = sqlx::query(sql!("adopt/unclaim"))
        .bind(claim.id.to_string())
        .bind(claim.token)
        .bind(counted)
        .bind(retire)
        .bind(60_000_000_i64)
        .bind("it failed")
        .bind(None::<jiff_sqlx::Timestamp>)
        .bind(None::<&str>)
        .fetch_one(pg)
        .await
        .unwrap();
    row.get("applied")
}

/// The tokens that still hold, and whether the row of each was renewed.
pub(crate) async fn beat(pg: &mut PgConnection, claims: &[Claim]) -> Vec<(Uuid, bool)> {
    sqlx::query_as(sql!("adopt/beat"))
        .bind(claims.iter().map(|claim| claim.id.to_string()).collect::<Vec<_>>())
        .bind(claims.iter().map(|claim| claim.token).collect::<Vec<_>>())
        .bind(None::<jiff_sqlx::Timestamp>)
        .fetch_all(pg)
        .await
        .unwrap()
}

/// Renews one claim after waiting for the lock on its row. Returns whether the claim held.
pub(crate) async fn beat_in_turn(pg: &mut PgConnection, claim: Claim) -> bool {
    sqlx::query(sql!("adopt/beat_wait"))
        .bind(claim.id.to_string())
        .bind(claim.token)
        .bind(None::<jiff_sqlx::Timestamp>)
        .fetch_optional(pg)
        .await
        .unwrap()
        .is_some()
}

/// Commits the intent of a call under this key, and says when; `None` when it was refused.
pub(crate) async fn intend(pg: &mut PgConnection, claim: Claim, key: &str) -> Option<jiff_sqlx::Timestamp> {
    sqlx::query_scalar(sql!("adopt/effect/begin"))
        .bind(claim.id.to_string())
        .bind(claim.token)
        .bind(key)
        .bind(None::<jiff_sqlx::Timestamp>)
        .fetch_optional(pg)
        .await
        .unwrap()
}

/// Takes the intent back that was made then; how many that were.
pub(crate) async fn take_back(pg: &mut PgConnection, claim: Claim, key: &str, made_at: jiff_sqlx::Timestamp) -> u64 {
    let gone = sqlx::query(sql!("adopt/effect/take_back"))
        .bind(claim.id.to_string())
        .bind(claim.token)
        .bind(key)
        .bind(made_at)
        .execute(pg)
        .await
        .unwrap();
    gone.rows_affected()
}

/// Ends claims older than so many seconds; the rows, and whether each is retired.
pub(crate) async fn recover(pg: &mut PgConnection, lease_s: i64) -> Vec<(i64, bool)> {
    let rows = sqlx::query(sql!("adopt/recover"))
        .bind(lease_s * 1_000_000)
        .bind(200_i32)
        .bind(1_000_000_f64)
        .bind(3_600_000_000_f64)
        .bind(None::<jiff_sqlx::Timestamp>)
        .bind(Vec::<String>::new())
        .bind(None::<&str>)
        .fetch_all(pg)
        .await
        .unwrap();
    let read = |row: &sqlx::postgres::PgRow| (row.get::<String, _>("id").parse().unwrap(), row.get("retired"));
    let mut recovered: Vec<(i64, bool)> = rows.iter().map(read).collect();
    recovered.sort_unstable();
    recovered
}

/// Makes the claims as old as this.
pub(crate) async fn age(pg: &mut PgConnection, seconds: i64) {
    let age = format!(
        "update email_snoozes set claimed_at = claimed_at - make_interval(secs => {seconds}) where claimed_at is not null"
    );
    script(pg, &age).await.unwrap();
}

/// The state of a row.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) inactive: bool,
    pub(crate) claimed: bool,
    pub(crate) attempts: i32,
    pub(crate) last_error: Option<String>,
    pub(crate) due: bool,
}

pub(crate) async fn stand(pg: &mut PgConnection, id: i64) -> Stand {
    let sql = "select inactive, claim_token is not null as claimed, attempts, last_error, remind_at <= now() as due
        from email_snoozes where id = $1";
    let row = sqlx::query(sql).bind(id).fetch_one(pg).await.unwrap();
    Stand {
        inactive: row.get("inactive"),
        claimed: row.get("claimed"),
        attempts: row.get("attempts"),
        last_error: row.get("last_error"),
        due: row.get("due"),
    }
}
