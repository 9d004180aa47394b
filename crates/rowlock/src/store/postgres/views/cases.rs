//! Cases on PostgreSQL: which are open, and what they have in common.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::Connection;

use crate::store::postgres::{Inner, enqueue::column};
use crate::{
    case::{CaseErrorView, CaseView, error_no, error_of},
    error::Result,
    store::cases::{CaseQuery, ErrorSince},
};

/// Locks, names and counts in one transaction, so that two workers share the cases between them.
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

pub async fn list(inner: &Inner, which: CaseQuery) -> Result<Vec<CaseView>> {
    let sql = &inner.sql;
    let read = match which {
        CaseQuery::One(id) => inner.query(&sql.cases).bind(Some(id)).bind(1_i64),
        CaseQuery::Newest { max } => inner.query(&sql.cases).bind(None::<i64>).bind(max.max(0)),
        CaseQuery::Alike { error, max } => inner.query(&sql.cases_alike).bind(error).bind(max.max(0)),
        CaseQuery::Until { error, until, max } => {
            let read = inner.query(&sql.cases_of_error).bind(error).bind(until.to_sqlx());
            read.bind(max.max(0))
        }
    };
    inner.list("list cases", read).await
}

pub async fn error_since(inner: &Inner, error: i64, jobs: &[i64], after: Timestamp) -> Result<ErrorSince> {
    let ended = inner
        .query_as(&inner.sql.outcomes_since)
        .bind(jobs)
        .bind(after.to_sqlx());
    let retired = inner
        .query_scalar(&inner.sql.case_again)
        .bind(error)
        .bind(after.to_sqlx());
    let found = inner.run("find the error", async |pg| {
        Ok(ErrorSince {
            ended: ended.fetch_all(&mut *pg).await?,
            retired: retired.fetch_optional(pg).await?,
        })
    });
    found.await
}
