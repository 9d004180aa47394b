//! What cases have in common, and what people find out about them, on SQLite.

use jiff::Timestamp;
use serde::Serialize;
use sqlx::SqliteConnection;

use super::{SqliteStore, rows, sql};
use crate::{
    case::{CaseErrorView, error_no, error_of},
    store::{
        Fut,
        cases::{Cases, Deed},
        rows::nouns,
    },
};

/// One element of what `case/name.sql` and `case/error_seen.sql` read.
#[derive(Serialize)]
struct Named {
    id: i64,
    no: i64,
    error: String,
    at: i64,
}

impl Cases for SqliteStore {
    fn name_cases(&self, max: i32) -> Fut<'_, usize> {
        Box::pin(self.write("name cases", max, |db, _, max| Box::pin(name(db, *max))))
    }

    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>> {
        Box::pin(self.read("list errors of cases", async move |db, _| {
            nouns(&sqlx::query(sql::CASE_ERRORS).bind(max.max(0)).fetch_all(db).await?)
        }))
    }

    fn cases_of(&self, error: i64, until: Timestamp, max: i64) -> Fut<'_, Vec<i64>> {
        let read = sqlx::query_scalar(sql::CASES_OF_ERROR).bind(error);
        let read = read.bind(until.as_microsecond()).bind(max.max(0));
        Box::pin(self.read("list cases of an error", async |db, _| read.fetch_all(db).await))
    }

    fn case_again(&self, error: i64, after: Timestamp) -> Fut<'_, Option<i64>> {
        let read = sqlx::query_scalar(sql::CASE_AGAIN)
            .bind(error)
            .bind(after.as_microsecond());
        Box::pin(self.read("find the error", async |db, _| read.fetch_optional(db).await))
    }

    fn newest_case(&self) -> Fut<'_, Option<Timestamp>> {
        Box::pin(self.read("find the newest case", async |db, _| {
            let newest: Option<i64> = sqlx::query_scalar(sql::CASE_NEWEST).fetch_one(db).await?;
            newest.map(rows::time).transpose()
        }))
    }

    fn outcomes_since<'a>(&'a self, jobs: &'a [i64], after: Timestamp) -> Fut<'a, Vec<(i64, Option<String>)>> {
        Box::pin(self.read("find the error", async move |db, _| {
            let read = sqlx::query_as(sql::OUTCOMES_SINCE).bind(rows::array(jobs)?);
            read.bind(after.as_microsecond()).fetch_all(db).await
        }))
    }

    fn note_case<'a>(
        &'a self,
        id: i64,
        owner: Option<&'a str>,
        note: Option<&'a str>,
        actor: &'a str,
    ) -> Fut<'a, bool> {
        let input = (id, owner.map(str::to_owned), note.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("note case", input, |db, now, (id, owner, note, actor)| {
            Box::pin(async move {
                let audit = sqlx::query(sql::CASE_NOTE_AUDIT)
                    .bind(id)
                    .bind(owner)
                    .bind(note)
                    .bind(actor);
                audit.bind(now).execute(&mut *db).await?;
                let put = sqlx::query(sql::CASE_NOTE).bind(id).bind(owner).bind(note);
                Ok(put.execute(db).await?.rows_affected() > 0)
            })
        }))
    }

    fn edit_case<'a>(&'a self, id: i64, payload: &'a str, actor: &'a str) -> Fut<'a, bool> {
        let input = (id, payload.to_owned(), actor.to_owned());
        Box::pin(self.write("edit a case", input, |db, now, (id, payload, actor)| {
            Box::pin(async move {
                let audit = sqlx::query(sql::CASE_EDIT_AUDIT)
                    .bind(id)
                    .bind(payload)
                    .bind(actor)
                    .bind(now);
                audit.execute(&mut *db).await?;
                let put = sqlx::query(sql::CASE_EDIT).bind(id).bind(payload);
                Ok(put.execute(db).await?.rows_affected() > 0)
            })
        }))
    }

    fn note_deed<'a>(&'a self, deed: Deed<'a>) -> Fut<'a, ()> {
        let [actor, verb, detail, after] = [deed.actor, deed.verb, deed.detail, deed.after].map(str::to_owned);
        let input = (actor, verb, detail, deed.jobs, after);
        Box::pin(self.write(
            "write the audit",
            input,
            |db, now, (actor, verb, detail, jobs, after)| {
                let note = sqlx::query(sql::NOTE_DEED)
                    .bind(actor)
                    .bind(verb)
                    .bind(detail)
                    .bind(jobs);
                let note = note.bind(after).bind(now);
                Box::pin(async move { note.execute(db).await.map(drop) })
            },
        ))
    }
}

async fn name(db: &mut SqliteConnection, max: i32) -> sqlx::Result<usize> {
    let found: Vec<(i64, String, i64)> = sqlx::query_as(sql::CASE_UNNAMED).bind(max).fetch_all(&mut *db).await?;
    if found.is_empty() {
        return Ok(0);
    }
    let named = found.iter().map(|(id, reason, at)| {
        let error = error_of(reason);
        Named {
            id: *id,
            no: error_no(&error),
            error,
            at: *at,
        }
    });
    let named = rows::array(&named.collect::<Vec<_>>())?;
    sqlx::query(sql::CASE_ERROR_SEEN).bind(&named).execute(&mut *db).await?;
    sqlx::query(sql::CASE_NAME).bind(&named).execute(&mut *db).await?;
    Ok(found.len())
}
