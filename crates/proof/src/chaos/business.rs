//! The tables of the business that a run is about, beside the library's own.

use anyhow::Result;
use rowlock::Admin;

use super::jobs::{ACCOUNTS, OPENING_BALANCE};
use crate::base::Base;

/// Makes the library's tables and those of the business.
///
/// # Errors
/// The database's.
pub async fn set_up(url: &str) -> Result<()> {
    Admin::open(url, "rowlock")?.migrate().await?;
    let mut base = Base::connect(url).await?;
    let sqlite = matches!(base, Base::Sqlite(_));
    // The transaction that writes a row, whatever savepoints it is in.
    let xid = match sqlite {
        true => "",
        false => ", proof_xid bigint not null default (pg_current_xact_id()::text::bigint)",
    };
    base.run(&format!(
        "create table ledger (job bigint not null, epoch bigint not null, purchase bigint not null, note text not null{xid});
         create table purchase (no bigint not null, job bigint not null);
         create table decision (entity bigint not null, seen bigint not null, job bigint not null);
         create table line (up bigint not null);
         insert into line values (1);
         create table account (id bigint primary key, balance bigint not null)"
    ))
    .await?;
    for account in 1..=ACCOUNTS {
        base.run(&format!("insert into account values ({account}, {OPENING_BALANCE})"))
            .await?;
    }
    if !sqlite {
        for table in ["rowlock.outcome", "rowlock.job"] {
            let column = "add column proof_xid bigint not null default (pg_current_xact_id()::text::bigint)";
            base.run(&format!("alter table {table} {column}")).await?;
        }
    }
    Ok(())
}
