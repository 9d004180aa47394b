//! The application of the scene: it watches entities. An evaluation reads its entity, works for a while, and then opens
//! an incident, or closes the open one. The rule is at most one open incident, and no index enforces it.

use std::{
    fs::{File, OpenOptions},
    future::Future,
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use rowlock::{Error, Fail, Job, Outcome, Rowlock, Staged, Worker, staged};
use serde::{Deserialize, Serialize};

use super::{
    super::{backoff, own::Tables},
    LEASE, Role,
};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "evaluate", queue = "demo", attempts = 50)]
pub(crate) struct Evaluate {
    pub(crate) entity: i64,
    pub(crate) ms: u64,
}

/// What the handlers share.
pub(crate) struct Watch {
    prefix: String,
    /// Acts without asking the guard.
    careless: bool,
    notes: File,
}

/// One row for each incident opened (step 1) or closed (step -1), with the number of changes that its decision was
/// based on. An entity's steps add up to its open incidents.
pub(crate) fn schema<DB: Tables>() -> String {
    let serial = DB::SERIAL;
    format!(
        "create table demo_change (no {serial}, entity bigint not null, step bigint not null, seen bigint not null);
         create index change_of_entity on demo_change (entity);"
    )
}

/// Staged: look, work with nothing held, act if nobody else did. `?` on the guard ends the job quietly, and counts it.
async fn evaluate<DB: Tables>(mut cx: Staged<Arc<Watch>, DB>, job: Evaluate) -> Outcome<DB> {
    let (guard, watch) = (format!("entity:{}", job.entity), cx.state().clone());
    let look = watch.sql(&format!(
        "select count(*), cast(coalesce(sum(step), 0) as bigint) from demo_change where entity = {}",
        job.entity
    ));
    let mut read = cx.prepare().await?;
    // The version first: what changes after this line is noticed.
    let version = read.version(&guard).await?;
    let (changes, open) = one(DB::pairs(&mut read, look.clone()).await?)?;
    read.commit().await?;

    let begun_us = now_us();
    tokio::time::sleep(Duration::from_millis(job.ms)).await;
    watch.note(&format!("evaluated {begun_us} {}", now_us()))?;

    let mut tx = cx.begin().await?;
    if !watch.careless
        && let Err(error) = tx.unchanged_version(&guard, version).await
    {
        if matches!(error, Error::Changed { .. }) {
            // Only for the count at the end: would comparing what is open have noticed?
            let (_, open_now) = one(DB::pairs(&mut tx, look).await?)?;
            watch.note(if open_now == open { "unseen" } else { "seen" })?;
        }
        return Err(error.into());
    }
    let act = watch.sql("insert into demo_change (entity, step, seen) values ($1, $2, $3)");
    let step = if open == 0 { 1 } else { -1 };
    DB::change(&mut tx, act, vec![job.entity, step, changes]).await?;
    tx.done().ok()
}

fn one(rows: Vec<(i64, i64)>) -> Result<(i64, i64), Fail> {
    rows.into_iter()
        .next()
        .ok_or_else(|| Fail::retire("a count gives one row"))
}

/// Microseconds, by the clock that all processes here share.
fn now_us() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map(|since| since.as_micros()).unwrap_or_default()
}

impl Watch {
    fn sql(&self, sql: &str) -> String {
        sql.replace("demo_", &self.prefix)
    }

    fn note(&self, line: &str) -> std::io::Result<()> {
        (&self.notes).write_all(format!("{line}\n").as_bytes())
    }
}

/// Runs a worker process of the scene until it gets the signal to stop.
pub(crate) async fn work<DB: Tables>(
    rowlock: &Rowlock<DB>,
    prefix: String,
    (role, number): (Role, u32),
    told: impl Future<Output = ()>,
) -> Result<()> {
    let path = notes(&role.notes, number);
    let notes = OpenOptions::new().create(true).append(true).open(&path);
    let watch = Arc::new(Watch {
        prefix,
        careless: role.careless,
        notes: notes.with_context(|| format!("could not write {}", path.display()))?,
    });
    let worker = Worker::new(rowlock)
        .state(watch.clone())
        .name(format!("demo worker {number}"))
        .queue("demo", role.share(role.workers, number))
        .prefetch(role.share(role.workers, number).min(10))
        .connections(role.share(role.pool, number))
        .lease(LEASE)
        .grace(LEASE / 2)
        .handle(staged(evaluate::<DB>).backoff(backoff()));
    let counters = worker.counters();
    worker.run_until(told).await?;
    Ok(watch.note(&format!("changed {}", counters.changed()))?)
}

/// Where a worker process keeps its notes.
pub(crate) fn notes(folder: &Path, number: u32) -> PathBuf {
    folder.join(format!("evaluations-{number}.log"))
}
