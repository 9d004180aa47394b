//! What cases have in common, and what people find out about them, on PostgreSQL.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::Connection;

use super::{Inner, enqueue::column};
use crate::{
    case::{CaseErrorView, error_no, error_of},
    error::Result,
    store::cases::Deed,
};

/// Locked, named and counted in one transaction: two workers share the cases between them.
pub async fn name(inner: &Inner, max: i32) -> Result<usize> {
    inner
        .run("name cases", async |pg| {
            let mut tx = pg.begin().await?;
            let unnamed = inner.query_as(&inner.sql.case_unnamed).bind(max);
            let found: Vec<(i64, String, jiff_sqlx::Timestamp)> = unnamed.fetch_all(&mut *tx).await?;
            let errors: Vec<String> = found.iter().map(|(_, reason, _)| error_of(reason)).collect();
            if !found.is_empty() {
                inner
                    .query(&inner.sql.case_name)
                    .bind(column(&found, |(id, ..)| *id))
                    .bind(column(&errors, |error| error_no(error)))
                    .bind(&errors)
                    .bind(column(&found, |(_, _, at)| *at))
                    .execute(&mut *tx)
                    .await?;
            }
            tx.commit().await?;
            Ok(found.len())
        })
        .await
}

pub async fn errors(inner: &Inner, max: i64) -> Result<Vec<CaseErrorView>> {
    let read = inner.query(&inner.sql.case_errors).bind(max.max(0));
    inner.list("list errors of cases", read).await
}

pub async fn of_error(inner: &Inner, error: i64, until: Timestamp, max: i64) -> Result<Vec<i64>> {
    let read = inner.query_scalar(&inner.sql.cases_of_error);
    let read = read.bind(error).bind(until.to_sqlx()).bind(max.max(0));
    inner
        .run("list cases of an error", async |pg| Ok(read.fetch_all(pg).await?))
        .await
}

pub async fn again(inner: &Inner, error: i64, after: Timestamp) -> Result<Option<i64>> {
    let read = inner
        .query_scalar(&inner.sql.case_again)
        .bind(error)
        .bind(after.to_sqlx());
    inner
        .run("find the error", async |pg| Ok(read.fetch_optional(pg).await?))
        .await
}

pub async fn newest(inner: &Inner) -> Result<Option<Timestamp>> {
    let read = inner.query_scalar(&inner.sql.case_newest);
    inner
        .run("find the newest case", async |pg| {
            let newest: Option<jiff_sqlx::Timestamp> = read.fetch_one(pg).await?;
            Ok(newest.map(|at| at.to_jiff()))
        })
        .await
}

pub async fn outcomes_since(inner: &Inner, jobs: &[i64], after: Timestamp) -> Result<Vec<(i64, Option<String>)>> {
    let read = inner
        .query_as(&inner.sql.outcomes_since)
        .bind(jobs)
        .bind(after.to_sqlx());
    inner
        .run("find the error", async |pg| Ok(read.fetch_all(pg).await?))
        .await
}

pub async fn note(inner: &Inner, id: i64, owner: Option<&str>, note: Option<&str>, actor: &str) -> Result<bool> {
    let put = inner
        .query(&inner.sql.case_note)
        .bind(id)
        .bind(owner)
        .bind(note)
        .bind(actor);
    inner
        .run("note case", async |pg| Ok(put.execute(pg).await?.rows_affected() > 0))
        .await
}

pub async fn edit(inner: &Inner, id: i64, payload: &str, actor: &str) -> Result<bool> {
    let put = inner
        .query_scalar(&inner.sql.case_edit)
        .bind(id)
        .bind(payload)
        .bind(actor);
    inner.run("edit a case", async |pg| Ok(put.fetch_one(pg).await?)).await
}

pub async fn note_deed(inner: &Inner, deed: Deed<'_>) -> Result<()> {
    let note = inner.query(&inner.sql.note_deed).bind(deed.actor).bind(deed.verb);
    let note = note.bind(deed.detail).bind(deed.jobs).bind(deed.after);
    inner
        .run("write the audit", async |pg| Ok(note.execute(pg).await.map(drop)?))
        .await
}
