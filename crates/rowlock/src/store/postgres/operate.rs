//! Operator commands, by the functions that plain SQL also uses.

use jiff_sqlx::ToSqlx;
use sqlx::{Postgres, postgres::PgArguments, query::Query};

use super::{Inner, PgStore, breaker, journal, migrate};
use crate::{
    error::{Error, Result},
    job::queue_no,
    store::{
        Fut, Operate, Store,
        action::{Action, Bulk, ELSEWHERE, NO_JOB, Verdict},
        schema::Migration,
    },
};

impl Operate for PgStore {
    fn migrate<'a>(&'a self, more: &'a [Migration]) -> Fut<'a, Vec<String>> {
        Box::pin(migrate::run(&self.0, more))
    }

    fn act<'a>(&'a self, action: Action<'a>, actor: &'a str) -> Fut<'a, Verdict> {
        Box::pin(self.apply(action, actor))
    }
}

impl PgStore {
    async fn apply(&self, action: Action<'_>, actor: &str) -> Result<Verdict> {
        let inner = &*self.0;
        let sql = &inner.sql;
        match action {
            Action::Delay { id, until } => {
                let delay = inner.query(&sql.delay).bind(id).bind(until.map(ToSqlx::to_sqlx));
                by_function(inner, "delay", delay.bind(actor)).await
            }
            Action::Cancel { id, reason } => {
                let cancel = inner.query(&sql.cancel).bind(id).bind(reason).bind(actor);
                by_function(inner, "cancel", cancel).await
            }
            Action::Retire { id, reason } => {
                let retire = inner.query(&sql.retire).bind(id).bind(reason).bind(actor);
                by_function(inner, "retire", retire).await
            }
            Action::Rerun { id, reason } => {
                let rerun = inner.query(&sql.rerun).bind(id).bind(reason).bind(actor);
                by_function(inner, "re-run", rerun).await
            }
            Action::Reopen { id } => self.reopen(id, actor).await,
            Action::CloseCase { id, reason } => {
                let close = inner.query(&sql.case_close).bind(id).bind(reason).bind(actor);
                by_function(inner, "close a case", close).await
            }
            Action::NoteCase { id, owner, note } => {
                let put = inner.query(&sql.case_note).bind(id).bind(owner).bind(note).bind(actor);
                let put = inner.run("note case", async |pg| Ok(put.execute(pg).await?.rows_affected()));
                put.await.map(|rows| Verdict::found(rows > 0))
            }
            Action::EditCase { id, payload } => {
                let put = inner.query_scalar(&sql.case_edit).bind(id).bind(payload).bind(actor);
                let edited = inner.run("edit a case", async |pg| Ok(put.fetch_one(pg).await?));
                edited.await.map(Verdict::found)
            }
            Action::ResolveEffect { no, resolution } => journal::resolve(inner, no, resolution, actor).await,
            Action::SetRollout { name, percent } => {
                let set = inner.query(&sql.set_rollout).bind(name).bind(percent.to_string());
                execute(inner, "set rollout", set.bind(actor).bind(inner.now())).await
            }
            Action::SetPause { target, paused } => {
                let (doing, text) = match paused {
                    true => ("pause", &sql.pause),
                    false => ("resume", &sql.resume),
                };
                let set = inner.query_scalar(text).bind(target.key()).bind(actor);
                let changed = inner.run(doing, async |pg| Ok(set.fetch_one(pg).await?));
                changed.await.map(Verdict::changed)
            }
            Action::ForceBreaker { name, force } => breaker::force(inner, name, force, actor).await,
            Action::Note(bulk) => note(inner, bulk, actor).await,
        }
    }

    async fn reopen(&self, id: i64, actor: &str) -> Result<Verdict> {
        let inner = &self.0;
        let reopen = inner.query_scalar(&inner.sql.reopen).bind(id).bind(actor);
        let queue: Result<Option<String>> = inner.run("reopen", async |pg| Ok(reopen.fetch_one(pg).await?)).await;
        match queue {
            Ok(queue) => {
                self.wake(&[queue_no(&queue.unwrap_or_default())]);
                Ok(Verdict::Done)
            }
            Err(error) => refused(error),
        }
    }
}

async fn note(inner: &Inner, bulk: Bulk<'_>, actor: &str) -> Result<Verdict> {
    let note = inner.query(&inner.sql.note_deed).bind(actor).bind(bulk.verb);
    let note = note.bind(bulk.detail).bind(bulk.jobs).bind(bulk.after);
    execute(inner, "write the audit", note).await
}

async fn execute(inner: &Inner, doing: &'static str, query: Query<'_, Postgres, PgArguments>) -> Result<Verdict> {
    inner
        .run(doing, async |pg| Ok(query.execute(pg).await.map(|_| Verdict::Done)?))
        .await
}

/// A command whose function refuses by an error code.
async fn by_function(inner: &Inner, doing: &'static str, query: Query<'_, Postgres, PgArguments>) -> Result<Verdict> {
    match execute(inner, doing, query).await {
        Err(error) => refused(error).map_err(Error::answered),
        done => done,
    }
}

fn refused(error: Error) -> Result<Verdict> {
    match error.code().as_deref() {
        Some(NO_JOB) => Ok(Verdict::Missing),
        Some(ELSEWHERE) => Ok(Verdict::Elsewhere),
        _ => Err(error),
    }
}
