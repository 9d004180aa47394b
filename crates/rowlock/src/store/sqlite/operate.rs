//! Operator commands, by the triggers that plain SQL also uses.

use std::time::Duration;

use jiff::Timestamp;
use sqlx::{Sqlite, SqliteConnection, query::Query, sqlite::SqliteArguments};

use super::{SqliteStore, breaker, journal, migrate, sql, views};
use crate::{
    breaker::Force,
    effect::Resolution,
    job::{kind_no, queue_no},
    store::{
        Fut, Operate, Store,
        action::{Action, ELSEWHERE, NO_JOB, Verdict},
        schema::Migration,
    },
};

/// How long a migration may wait for its turn.
const MIGRATE_LIMIT: Duration = Duration::from_secs(600);

impl Operate for SqliteStore {
    fn migrate<'a>(&'a self, more: &'a [Migration]) -> Fut<'a, Vec<String>> {
        let scripts = migrate::scripts().and(more);
        Box::pin(async move {
            let writer = &self.inner.writer;
            let write = writer.write("migrate", MIGRATE_LIMIT, scripts, |db, _, scripts| {
                Box::pin(migrate::apply(db, scripts))
            });
            write.await?
        })
    }

    fn act<'a>(&'a self, action: Action<'a>, actor: &'a str) -> Fut<'a, Verdict> {
        let (doing, owned) = Owned::of(action);
        Box::pin(async move {
            let write = self.write(doing, (owned, actor.to_owned()), |db, now, (action, actor)| {
                Box::pin(apply(db, now, action, actor))
            });
            let (verdict, woken) = write.await?;
            self.wake(woken.as_slice());
            Ok(verdict)
        })
    }
}

/// A command that waits for the writer, which may run it twice.
enum Owned {
    Delay(i64, Option<i64>),
    /// A command whose statement takes the job and a reason.
    Reasoned(&'static str, i64, Option<String>),
    Rerun(i64, Option<String>),
    Reopen(i64),
    NoteCase(i64, Option<String>, Option<String>),
    EditCase(i64, String),
    ResolveEffect(i64, Resolution),
    SetRollout(String, String),
    SetPause(String, Option<i64>, bool),
    ForceBreaker(String, Force),
    Note([String; 3], i64),
}

impl Owned {
    /// The command, with the name of the operation.
    fn of(action: Action<'_>) -> (&'static str, Owned) {
        let own = |text: Option<&str>| text.map(str::to_owned);
        match action {
            Action::Delay { id, until } => ("delay", Owned::Delay(id, until.map(Timestamp::as_microsecond))),
            Action::Cancel { id, reason } => ("cancel", Owned::Reasoned(sql::CANCEL, id, own(reason))),
            Action::Retire { id, reason } => ("retire", Owned::Reasoned(sql::RETIRE, id, own(reason))),
            Action::CloseCase { id, reason } => ("close a case", Owned::Reasoned(sql::CASE_CLOSE, id, own(reason))),
            Action::Rerun { id, reason } => ("re-run", Owned::Rerun(id, own(reason))),
            Action::Reopen { id } => ("reopen", Owned::Reopen(id)),
            Action::NoteCase { id, owner, note } => ("note case", Owned::NoteCase(id, own(owner), own(note))),
            Action::EditCase { id, payload } => ("edit a case", Owned::EditCase(id, payload.to_owned())),
            Action::ResolveEffect { no, resolution } => {
                ("resolve effect", Owned::ResolveEffect(no, resolution.clone()))
            }
            Action::SetRollout { name, percent } => {
                ("set rollout", Owned::SetRollout(name.to_owned(), percent.to_string()))
            }
            Action::SetPause { target, paused } => {
                let doing = if paused { "pause" } else { "resume" };
                (doing, Owned::SetPause(target.key(), target.group_no(), paused))
            }
            Action::ForceBreaker { name, force } => ("force breaker", Owned::ForceBreaker(name.to_owned(), force)),
            Action::Note(bulk) => {
                let texts = [bulk.verb, bulk.detail, bulk.after].map(str::to_owned);
                ("write the audit", Owned::Note(texts, bulk.jobs))
            }
        }
    }
}

/// The verdict, and the queue to notify, if there is one.
async fn apply(
    db: &mut SqliteConnection,
    now: i64,
    action: &Owned,
    actor: &str,
) -> sqlx::Result<(Verdict, Option<i64>)> {
    let verdict = match action {
        Owned::Reopen(id) => return reopen(db, now, *id, actor).await,
        Owned::Delay(id, until) => {
            let delay = sqlx::query(sql::DELAY).bind(id).bind(until);
            by_trigger(db, delay.bind(actor).bind(now)).await
        }
        Owned::Reasoned(text, id, reason) => {
            let act = sqlx::query(*text).bind(id).bind(reason);
            by_trigger(db, act.bind(actor).bind(now)).await
        }
        Owned::Rerun(id, reason) => rerun(db, now, *id, reason.as_deref(), actor).await,
        Owned::NoteCase(id, owner, note) => {
            let audit = sqlx::query(sql::CASE_NOTE_AUDIT).bind(id).bind(owner).bind(note);
            audit.bind(actor).bind(now).execute(&mut *db).await?;
            found(db, sqlx::query(sql::CASE_NOTE).bind(id).bind(owner).bind(note)).await
        }
        Owned::EditCase(id, payload) => {
            let audit = sqlx::query(sql::CASE_EDIT_AUDIT).bind(id).bind(payload);
            audit.bind(actor).bind(now).execute(&mut *db).await?;
            found(db, sqlx::query(sql::CASE_EDIT).bind(id).bind(payload)).await
        }
        Owned::ResolveEffect(no, resolution) => journal::resolve(db, now, *no, resolution, actor).await,
        Owned::SetRollout(name, percent) => {
            let set = sqlx::query(sql::SET_ROLLOUT).bind(name).bind(percent);
            set.bind(actor).bind(now).execute(&mut *db).await?;
            let detail = format!("{name} {percent}");
            audit(db, now, (actor, "rollout"), 0, Some(&detail))
                .await
                .map(|()| Verdict::Done)
        }
        Owned::SetPause(key, group_no, paused) => {
            let before: bool = sqlx::query_scalar(sql::PAUSED).bind(key).fetch_one(&mut *db).await?;
            let set = sqlx::query(if *paused { sql::PAUSE } else { sql::RESUME })
                .bind(key)
                .bind(group_no);
            set.bind(actor).bind(now).execute(db).await?;
            Ok(Verdict::changed(before != *paused))
        }
        Owned::ForceBreaker(name, force) => breaker::force(db, now, name, *force, actor).await,
        Owned::Note([verb, detail, after], jobs) => {
            let note = sqlx::query(sql::NOTE_DEED)
                .bind(actor)
                .bind(verb)
                .bind(detail)
                .bind(jobs);
            note.bind(after).bind(now).execute(db).await.map(|_| Verdict::Done)
        }
    };
    Ok((verdict?, None))
}

/// Writes an operator command to the audit, with its job, if it has one.
pub async fn audit(
    db: &mut SqliteConnection,
    now: i64,
    (actor, verb): (&str, &str),
    id: i64,
    detail: Option<&str>,
) -> sqlx::Result<()> {
    let note = sqlx::query(sql::AUDIT).bind(now).bind(actor).bind(verb);
    note.bind(id).bind(detail).execute(db).await.map(drop)
}

async fn rerun(
    db: &mut SqliteConnection,
    now: i64,
    id: i64,
    reason: Option<&str>,
    actor: &str,
) -> sqlx::Result<Verdict> {
    let Some(job) = views::job(db, id).await? else {
        return Ok(Verdict::Missing);
    };
    let rerun = sqlx::query(sql::RERUN).bind(id).bind(reason).bind(actor).bind(now);
    let numbers = (queue_no(&job.queue), kind_no(&job.kind, job.version));
    by_trigger(db, rerun.bind(numbers.0).bind(numbers.1)).await
}

async fn reopen(db: &mut SqliteConnection, now: i64, id: i64, actor: &str) -> sqlx::Result<(Verdict, Option<i64>)> {
    let verdict = by_trigger(db, sqlx::query(sql::REOPEN).bind(id).bind(actor).bind(now)).await?;
    if verdict != Verdict::Done {
        return Ok((verdict, None));
    }
    let job = views::job(db, id).await?;
    Ok((verdict, job.map(|job| queue_no(&job.queue))))
}

async fn found(db: &mut SqliteConnection, put: Query<'_, Sqlite, SqliteArguments>) -> sqlx::Result<Verdict> {
    Ok(Verdict::found(put.execute(db).await?.rows_affected() > 0))
}

/// A refusal rolls back its own statement, and nothing else of the transaction.
async fn by_trigger(db: &mut SqliteConnection, act: Query<'_, Sqlite, SqliteArguments>) -> sqlx::Result<Verdict> {
    let Err(error) = act.execute(db).await else {
        return Ok(Verdict::Done);
    };
    let said = error.as_database_error().map(|e| e.message().to_owned());
    match said.unwrap_or_default().split(':').next() {
        Some(NO_JOB) => Ok(Verdict::Missing),
        Some(ELSEWHERE) => Ok(Verdict::Elsewhere),
        _ => Err(error),
    }
}
