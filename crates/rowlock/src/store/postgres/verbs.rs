//! What people do to single jobs, by the functions that plain SQL has too.

use jiff::Timestamp;
use jiff_sqlx::ToSqlx;
use sqlx::{Postgres, postgres::PgArguments, query::Query};

use super::PgStore;
use crate::{
    error::{Doing, Error, Result, sqlstate},
    store::{
        Fut,
        verbs::{ELSEWHERE, NO_JOB, Verbs, Verdict},
    },
};

impl PgStore {
    async fn verb(&self, verb: Query<'_, Postgres, PgArguments>, doing: &'static str) -> Result<Verdict> {
        let mut lent = self.0.engine.acquire().await.doing(doing)?;
        let verdict = match verb.execute(lent.pg()).await {
            Ok(_) => Verdict::Done,
            Err(error) => match sqlstate(&error).as_deref() {
                Some(NO_JOB) => Verdict::NoJob,
                Some(ELSEWHERE) => Verdict::Elsewhere,
                _ => return Err(error).doing(doing).map_err(Error::answered),
            },
        };
        // After a refusal the transaction, behind a pooler, is spoilt: the connection is not used again.
        if verdict == Verdict::Done {
            lent.end(doing).await?;
        }
        Ok(verdict)
    }
}

impl Verbs for PgStore {
    fn delay<'a>(&'a self, id: i64, until: Option<Timestamp>, actor: &'a str) -> Fut<'a, Verdict> {
        let delay = sqlx::query(self.0.sql.delay.clone())
            .bind(id)
            .bind(until.map(ToSqlx::to_sqlx))
            .bind(actor);
        self.bounded("delay", self.verb(delay, "delay"))
    }

    fn cancel<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let cancel = sqlx::query(self.0.sql.cancel.clone()).bind(id).bind(reason).bind(actor);
        self.bounded("cancel", self.verb(cancel, "cancel"))
    }

    fn retire<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let retire = sqlx::query(self.0.sql.retire.clone()).bind(id).bind(reason).bind(actor);
        self.bounded("retire", self.verb(retire, "retire"))
    }

    fn rerun<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let rerun = sqlx::query(self.0.sql.rerun.clone()).bind(id).bind(reason).bind(actor);
        self.bounded("re-run", self.verb(rerun, "re-run"))
    }

    fn note_names<'a>(&'a self, _names: &'a [(i64, String)]) -> Fut<'a, ()> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn close_case<'a>(&'a self, id: i64, reason: Option<&'a str>, actor: &'a str) -> Fut<'a, Verdict> {
        let close = sqlx::query(self.0.sql.case_close.clone())
            .bind(id)
            .bind(reason)
            .bind(actor);
        self.bounded("close a case", self.verb(close, "close a case"))
    }
}
