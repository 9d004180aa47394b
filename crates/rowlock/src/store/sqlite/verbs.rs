//! What people do to single jobs, by the triggers that plain SQL has too.

use jiff::Timestamp;
use sqlx::SqliteConnection;

use super::{SqliteStore, sql};
use crate::store::{
    Fut,
    verbs::{ELSEWHERE, NO_JOB, Verbs, Verdict},
};

impl Verbs for SqliteStore {
    fn delay<'a>(&'a self, id: i64, until: Option<Timestamp>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, until.map(Timestamp::as_microsecond), actor.to_owned());
        Box::pin(self.write("delay", input, |db, now, (id, until, actor)| {
            let delay = sqlx::query(sql::DELAY).bind(id).bind(until).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, delay).await })
        }))
    }

    fn cancel<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, reason.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("cancel", input, |db, now, (id, reason, actor)| {
            let cancel = sqlx::query(sql::CANCEL).bind(id).bind(reason).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, cancel).await })
        }))
    }

    fn close_case<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let input = (id, reason.map(str::to_owned), actor.to_owned());
        Box::pin(self.write("close a case", input, |db, now, (id, reason, actor)| {
            let close = sqlx::query(sql::CASE_CLOSE).bind(id).bind(reason).bind(actor).bind(now);
            Box::pin(async move { verdict(&mut *db, close).await })
        }))
    }
}

/// A refusal takes back what its own statement did, and nothing else of the transaction.
async fn verdict(
    db: &mut SqliteConnection,
    verb: sqlx::query::Query<'_, sqlx::Sqlite, sqlx::sqlite::SqliteArguments>,
) -> sqlx::Result<Verdict> {
    let Err(error) = verb.execute(db).await else {
        return Ok(Verdict::Done);
    };
    let said = error
        .as_database_error()
        .map(|e| e.message().to_owned())
        .unwrap_or_default();
    match said.split(':').next() {
        Some(NO_JOB) => Ok(Verdict::NoJob),
        Some(ELSEWHERE) => Ok(Verdict::Elsewhere),
        _ => Err(error),
    }
}
