//! Cases on SQLite: which are open, and what they have in common.

use serde::Serialize;
use sqlx::SqliteConnection;

use crate::store::sqlite::{rows, sql};
use crate::{
    case::{CaseView, error_no, error_of},
    store::{cases::CaseQuery, rows::nouns},
};

/// One element of the array that `case/name.sql` and `case/error_seen.sql` read.
#[derive(Serialize)]
struct Named {
    id: i64,
    no: i64,
    error: String,
    at: i64,
}

pub async fn list(db: &mut SqliteConnection, which: CaseQuery) -> sqlx::Result<Vec<CaseView>> {
    let read = match which {
        CaseQuery::One(id) => sqlx::query(sql::CASES).bind(Some(id)).bind(1_i64),
        CaseQuery::Newest { max } => sqlx::query(sql::CASES).bind(None::<i64>).bind(max.max(0)),
        CaseQuery::Alike { error, max } => sqlx::query(sql::CASES_ALIKE).bind(error).bind(max.max(0)),
        CaseQuery::Until { error, until, max } => {
            let read = sqlx::query(sql::CASES_OF_ERROR)
                .bind(error)
                .bind(until.as_microsecond());
            read.bind(max.max(0))
        }
    };
    nouns(&read.fetch_all(db).await?)
}

/// Gives a name to the errors of cases that have none; returns how many there were.
pub async fn name(db: &mut SqliteConnection, max: i32) -> sqlx::Result<usize> {
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
