//! SQLite: one connection that writes, and nobody beside it. What is settled and what is claimed next share a commit,
//! because each commit is a sync to disk.

use std::{str::FromStr as _, sync::atomic::Ordering, time::Instant};

use anyhow::{Result, ensure};
use protocol::{Args, BACKLOG_MAX, DONE, Fill, say, unix_us};
use serde_json::{json, value::RawValue};
use sqlx::{
    ConnectOptions as _, Connection as _, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteJournalMode, SqliteSynchronous},
};
use uuid::Uuid;

use super::{
    lane::{Lane, Noop, sample},
    run::CHUNK,
};

/// Jobs per claim and settle. More than on PostgreSQL: each commit is a sync that nobody shares.
pub(crate) const BATCH: usize = 400;

const BODIES: &str = "
insert into rowlock_job (uid, kind, version, queue, priority, attempts_max, payload, position, created_at)
select d.value ->> 'u', 'noop', 1, 'noop', 3, 10, d.value -> 'p', 0, ?2 from jsonb_each(?1) d";

const PLACES: &str = "
insert into rowlock_ready (id, queue_no, kind_no, alone, priority, due_at, epoch, attempt, attempts_max)
select j.id, ?2, ?3, 0, 3, ?4, 0, 0, 10 from rowlock_job j where j.id > ?1";

/// One string, one trip to the driver's thread; the last statement's rows come back.
const CLAIM: &str = "
insert into rowlock_lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
select id, epoch + 1, ?1, attempt + 1, attempts_max, queue_no, kind_no, alone, priority, ?4
from rowlock_ready indexed by rowlock_ready_order
where queue_no = ?2 and kind_no = ?3 and alone = 0 and priority = 3 and due_at <= ?4
order by due_at, id limit ?5;
delete from rowlock_ready where id in (select id from rowlock_lease where worker = ?1);
select l.id, l.epoch, j.payload from rowlock_lease l join rowlock_job j on j.id = l.id where l.worker = ?1";

const SETTLE: &str = "
insert into rowlock_outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
select l.id, l.epoch, l.worker, l.attempt, 'done', l.claimed_at, ?3
from json_each(?1) s cross join rowlock_lease l on l.id = s.value ->> 0 and l.epoch = s.value ->> 1 and l.worker = ?2
returning id;
delete from rowlock_lease where (id, epoch) in (select s.value ->> 0, s.value ->> 1 from json_each(?1) s) and worker = ?2";

/// Durable at every commit, as the library has it.
pub(crate) fn options(url: &str) -> Result<SqliteConnectOptions> {
    Ok(SqliteConnectOptions::from_str(url)?
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full))
}

struct Hand {
    db: SqliteConnection,
    lane: Lane,
    worker: i64,
    batch: i64,
    fill: Fill,
}

pub(crate) async fn run(url: &str, args: &Args) -> Result<()> {
    let id = sample::<sqlx::Sqlite>(url).await?;
    let mut db = options(url)?.connect().await?;
    let taken = "delete from rowlock_ready where id = ?1 returning queue_no, kind_no";
    let (queue_no, kind_no) = sqlx::query_as(taken).bind(id).fetch_one(&mut db).await?;
    let gone = sqlx::query("delete from rowlock_job where id = ?1").bind(id);
    gone.execute(&mut db).await?;
    let mut hand = Hand {
        db,
        lane: Lane { queue_no, kind_no },
        worker: fastrand::i64(1..),
        batch: args.batch.unwrap_or(BATCH) as i64,
        fill: Fill::new(args.payload),
    };
    let (jobs, chunk) = (args.jobs, args.chunk.unwrap_or(CHUNK).max(1));
    let began = Instant::now();
    let seconds = || began.elapsed().as_secs_f64();
    match args.verb.as_str() {
        "enqueue" => {
            for first in (0..jobs).step_by(chunk as usize) {
                hand.insert(first, (first + chunk).min(jobs)).await?;
            }
            say(&json!({"event": "enqueued", "jobs": jobs, "seconds": seconds()}));
            return Ok(());
        }
        "drain" => {
            hand.drain(jobs, jobs).await?;
            let seconds = seconds();
            say(&json!({"event": "drained", "jobs": jobs, "seconds": seconds, "handlers_seconds": seconds}));
        }
        _ => {
            hand.life(jobs, chunk).await?;
            say(&json!({"event": "lived", "jobs": jobs, "seconds": seconds()}));
        }
    }
    hand.check(jobs).await
}

impl Hand {
    async fn insert(&mut self, first: u64, end: u64) -> Result<()> {
        let mut rows = Vec::with_capacity((end - first) as usize);
        for number in first as i64..end as i64 {
            let fill = self.fill.of(number);
            let payload = serde_json::value::to_raw_value(&Noop { number, fill })?;
            rows.push(Body {
                u: Uuid::now_v7(),
                p: payload,
            });
        }
        let (rows, now) = (serde_json::to_string(&rows)?, unix_us() as i64);
        let mut tx = self.db.begin_with("begin immediate").await?;
        let put = sqlx::query(BODIES).bind(rows).bind(now).execute(&mut *tx).await?;
        let before = put.last_insert_rowid() - put.rows_affected() as i64;
        let places = sqlx::query(PLACES).bind(before);
        let places = places.bind(self.lane.queue_no).bind(self.lane.kind_no).bind(now);
        places.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Ends what is held and takes the next, in one commit. Decodes what came, as a handler would.
    async fn turn(&mut self, held: &[(i64, i64)]) -> Result<Vec<(i64, i64)>> {
        let now = unix_us() as i64;
        let mut tx = self.db.begin_with("begin immediate").await?;
        if !held.is_empty() {
            let settle = sqlx::query(SETTLE).bind(serde_json::to_string(held)?);
            let settled = settle.bind(self.worker).bind(now).fetch_all(&mut *tx).await?;
            ensure!(
                settled.len() == held.len(),
                "{} of {} leases were there",
                settled.len(),
                held.len()
            );
        }
        let claim = sqlx::query_as(CLAIM)
            .bind(self.worker)
            .bind(self.lane.queue_no)
            .bind(self.lane.kind_no)
            .bind(now)
            .bind(self.batch);
        let rows: Vec<(i64, i64, String)> = claim.fetch_all(&mut *tx).await?;
        tx.commit().await?;
        DONE.fetch_add(held.len() as u64, Ordering::Relaxed);
        for (_, _, payload) in &rows {
            let job: Noop = serde_json::from_str(payload)?;
            std::hint::black_box((job.number, &job.fill));
        }
        Ok(rows.into_iter().map(|(id, epoch, _)| (id, epoch)).collect())
    }

    /// Until so many are done, of those that are there.
    async fn drain(&mut self, until: u64, jobs: u64) -> Result<()> {
        let mut held = Vec::new();
        while DONE.load(Ordering::Relaxed) < until.min(jobs) {
            held = self.turn(&held).await?;
        }
        if !held.is_empty() {
            self.turn(&held).await?;
        }
        Ok(())
    }

    /// One connection: it fills the backlog and works half of it off, over and over.
    async fn life(&mut self, jobs: u64, chunk: u64) -> Result<()> {
        let mut enqueued = 0;
        while DONE.load(Ordering::Relaxed) < jobs {
            while enqueued < jobs && enqueued + chunk <= DONE.load(Ordering::Relaxed) + BACKLOG_MAX {
                let end = (enqueued + chunk).min(jobs);
                self.insert(enqueued, end).await?;
                enqueued = end;
            }
            let until = DONE.load(Ordering::Relaxed) + BACKLOG_MAX / 2;
            self.drain(until, jobs).await?;
        }
        Ok(())
    }

    async fn check(&mut self, jobs: u64) -> Result<()> {
        let counts = "select (select count(*) from rowlock_ready), (select count(*) from rowlock_lease), \
                      (select count(*) from rowlock_outcome)";
        let (ready, leased, outcomes): (i64, i64, i64) = sqlx::query_as(counts).fetch_one(&mut self.db).await?;
        ensure!(
            (ready, leased, outcomes as u64) == (0, 0, jobs),
            "{ready} ready, {leased} leased, {outcomes} outcomes after {jobs} jobs"
        );
        Ok(())
    }
}

/// A row to insert: its name for the outside, its payload.
#[derive(serde::Serialize)]
struct Body {
    u: Uuid,
    p: Box<RawValue>,
}
