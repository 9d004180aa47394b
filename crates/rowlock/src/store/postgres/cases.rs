//! What cases have in common, and what people find out about them, on PostgreSQL.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{Connection, Row, postgres::PgRow};

use super::{Inner, PgStore, flow::column, rows};
use crate::{
    case::{CaseErrorView, error_no, error_of},
    error::{Doing, Result},
    store::{
        Fut,
        cases::{Cases, Deed},
    },
};

impl Cases for PgStore {
    fn name_cases(&self, max: i32) -> Fut<'_, usize> {
        self.bounded("name cases", name(&self.0, max))
    }

    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>> {
        const DOING: &str = "list errors of cases";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query(self.0.sql.case_errors.clone()).bind(max.max(0));
            let found = query.fetch_all(lent.pg()).await.doing(DOING)?;
            lent.end(DOING).await?;
            found.iter().map(error).collect::<sqlx::Result<_>>().doing(DOING)
        })
    }

    fn cases_of(&self, error: i64, until: Timestamp, max: i64) -> Fut<'_, Vec<i64>> {
        const DOING: &str = "list cases of an error";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query_scalar(self.0.sql.cases_of_error.clone());
            let query = query.bind(error).bind(until.to_sqlx()).bind(max.max(0));
            let found = query.fetch_all(lent.pg()).await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(found)
        })
    }

    fn case_again(&self, error: i64, after: Timestamp) -> Fut<'_, Option<i64>> {
        const DOING: &str = "find the error";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query_scalar(self.0.sql.case_again.clone());
            let found = query.bind(error).bind(after.to_sqlx()).fetch_optional(lent.pg()).await;
            let found = found.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(found)
        })
    }

    fn newest_case(&self) -> Fut<'_, Option<Timestamp>> {
        const DOING: &str = "find the newest case";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query_scalar(self.0.sql.case_newest.clone());
            let newest: Option<jiff_sqlx::Timestamp> = query.fetch_one(lent.pg()).await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(newest.map(|at| at.to_jiff()))
        })
    }

    fn outcomes_since<'a>(&'a self, jobs: &'a [i64], after: Timestamp) -> Fut<'a, Vec<(i64, Option<String>)>> {
        const DOING: &str = "find the error";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query_as(self.0.sql.outcomes_since.clone());
            let found = query.bind(jobs).bind(after.to_sqlx()).fetch_all(lent.pg()).await;
            let found = found.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(found)
        })
    }

    fn note_case<'a>(
        &'a self,
        id: i64,
        owner: Option<&'a str>,
        note: Option<&'a str>,
        actor: &'a str,
    ) -> Fut<'a, bool> {
        const DOING: &str = "note case";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query(self.0.sql.case_note.clone());
            let query = query.bind(id).bind(owner).bind(note).bind(actor);
            let noted = query.execute(lent.pg()).await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(noted.rows_affected() > 0)
        })
    }

    fn edit_case<'a>(&'a self, id: i64, payload: &'a str, actor: &'a str) -> Fut<'a, bool> {
        const DOING: &str = "edit a case";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query_scalar(self.0.sql.case_edit.clone());
            let query = query.bind(id).bind(payload).bind(actor);
            let edited = query.fetch_one(lent.pg()).await.doing(DOING)?;
            lent.end(DOING).await?;
            Ok(edited)
        })
    }

    fn note_deed<'a>(&'a self, deed: Deed<'a>) -> Fut<'a, ()> {
        const DOING: &str = "write the audit";
        self.bounded(DOING, async move {
            let mut lent = self.0.engine.acquire().await.doing(DOING)?;
            let query = sqlx::query(self.0.sql.note_deed.clone())
                .bind(deed.actor)
                .bind(deed.verb);
            let query = query.bind(deed.detail).bind(deed.jobs).bind(deed.after);
            query.execute(lent.pg()).await.doing(DOING)?;
            lent.end(DOING).await
        })
    }
}

/// Locked, named and counted in one transaction: two workers share the cases between them.
async fn name(inner: &Inner, max: i32) -> Result<usize> {
    const DOING: &str = "name cases";
    let mut lent = inner.engine.acquire().await.doing(DOING)?;
    let mut tx = lent.pg().begin().await.doing(DOING)?;
    let found: Vec<(i64, String, jiff_sqlx::Timestamp)> = sqlx::query_as(inner.sql.case_unnamed.clone())
        .bind(max)
        .fetch_all(&mut *tx)
        .await
        .doing(DOING)?;
    let errors: Vec<String> = found.iter().map(|(_, reason, _)| error_of(reason)).collect();
    if !found.is_empty() {
        sqlx::query(inner.sql.case_name.clone())
            .bind(column(&found, |(id, ..)| *id))
            .bind(column(&errors, |error| error_no(error)))
            .bind(&errors)
            .bind(column(&found, |(_, _, at)| *at))
            .execute(&mut *tx)
            .await
            .doing(DOING)?;
    }
    tx.commit().await.doing(DOING)?;
    lent.end(DOING).await?;
    Ok(found.len())
}

fn error(row: &PgRow) -> sqlx::Result<CaseErrorView> {
    Ok(CaseErrorView {
        no: row.try_get("no")?,
        error: row.try_get("error")?,
        cases: row.try_get("cases")?,
        newest: row.try_get("newest")?,
        first_seen: rows::at(row, "first_seen")?,
        last_seen: rows::at(row, "last_seen")?,
        seen: row.try_get("seen")?,
    })
}
