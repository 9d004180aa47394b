//! PostgreSQL: one connection and its statements.

use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, ensure};
use tokio_postgres::{Client, NoTls, Row, Statement, types::Json};
use uuid::Uuid;

use super::lane::{Lane, Noop, sample};

/// What the library sets on its own connections too: every statement here goes by an index.
const SETUP: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; \
                     set enable_hashjoin = off; set enable_mergejoin = off; set jit = off";

const INSERT: &str = "
with input as materialized (
  select nextval('rowlock.job_id') as id, u.uid, u.payload, clock_timestamp() as at
  from unnest($1::uuid[], $2::json[]) as u (uid, payload)
), body as (
  insert into rowlock.job (id, uid, kind, version, queue, priority, attempts_max, payload, position, created_at)
  select id, uid, 'noop', 1, 'noop', 3, 10, payload, 0, at from input
)
insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
select $3, $4, false, 3, at, id, 0, 0, 10 from input";

/// From a cursor on, as the library does, so that no claim walks what is gone already.
const CLAIM: &str = "
with taken as (
  delete from rowlock.ready where ctid = any (array(
    select r.ctid from rowlock.ready r
    where r.queue_no = $2 and r.kind_no = $3 and r.alone = false and r.priority = 3
      and (r.due_at, r.id) >= ($4, $5) and r.due_at <= now()
    order by r.due_at, r.id
    limit $6
    for update skip locked
  ))
  returning id, epoch, attempt, attempts_max, queue_no, kind_no, alone, priority, due_at
), held as (
  insert into rowlock.lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
  select id, epoch + 1, $1, attempt + 1, attempts_max, queue_no, kind_no, alone, priority, now() from taken
)
select t.id, t.epoch + 1, t.due_at, j.payload from taken t join rowlock.job j on j.id = t.id";

const SETTLE: &str = "
with gone as (
  delete from rowlock.lease l using unnest($1::bigint[], $2::bigint[]) as u (id, epoch)
  where l.id = u.id and l.epoch = u.epoch and l.worker = $3
  returning l.id, l.epoch, l.worker, l.attempt, l.claimed_at
)
insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
select id, epoch, worker, attempt, 'done', claimed_at, now() from gone";

/// A connection, without anything prepared.
pub(crate) async fn connect(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("a connection ended: {error}");
        }
    });
    Ok(client)
}

/// The numbers of the no-op jobs' benchmark.
pub(crate) async fn lane(url: &str) -> Result<Lane> {
    let id = sample::<sqlx::Postgres>(url).await?;
    let client = connect(url).await?;
    let taken = "delete from rowlock.ready where id = $1 returning queue_no, kind_no";
    let row = client.query_one(taken, &[&id]).await?;
    client.execute("delete from rowlock.job where id = $1", &[&id]).await?;
    Ok(Lane {
        queue_no: row.get(0),
        kind_no: row.get(1),
    })
}

/// Rows of ready, lease and outcome.
pub(crate) async fn counts(url: &str) -> Result<[i64; 3]> {
    let client = connect(url).await?;
    let row = client
        .query_one(
            "select (select count(*) from rowlock.ready), (select count(*) from rowlock.lease), \
             (select count(*) from rowlock.outcome)",
            &[],
        )
        .await?;
    Ok([row.get(0), row.get(1), row.get(2)])
}

/// Claimed jobs, by what it takes to settle them.
#[derive(Default)]
pub(crate) struct Held {
    ids: Vec<i64>,
    epochs: Vec<i64>,
}

impl Held {
    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }
}

/// One worker: a connection, its place in line, its statements.
pub(crate) struct Hand {
    client: Client,
    lane: Lane,
    worker: i64,
    batch: i64,
    cursor: (SystemTime, i64),
    insert: Statement,
    claim: Statement,
    settle: Statement,
}

impl Hand {
    pub(crate) async fn new(url: &str, lane: Lane, batch: usize) -> Result<Hand> {
        let client = connect(url).await?;
        client.batch_execute(SETUP).await?;
        Ok(Hand {
            insert: client.prepare(INSERT).await.context("insert")?,
            claim: client.prepare(CLAIM).await.context("claim")?,
            settle: client.prepare(SETTLE).await.context("settle")?,
            client,
            lane,
            worker: fastrand::i64(1..),
            batch: batch as i64,
            cursor: START,
        })
    }

    pub(crate) async fn insert(&self, jobs: Vec<Noop>) -> Result<()> {
        let uids: Vec<Uuid> = jobs.iter().map(|_| Uuid::now_v7()).collect();
        let payloads: Vec<Json<Noop>> = jobs.into_iter().map(Json).collect();
        self.client
            .execute(
                &self.insert,
                &[&uids, &payloads, &self.lane.queue_no, &self.lane.kind_no],
            )
            .await?;
        Ok(())
    }

    /// Ends what is held and takes the next, in two commits of one round trip.
    pub(crate) async fn turn(&mut self, held: &Held) -> Result<Held> {
        let claim = async { Ok(self.client.query(&self.claim, &self.claim_args()).await?) };
        let rows = tokio::try_join!(settle(self, held), claim)?.1;
        self.learn(&rows)
    }

    fn claim_args(&self) -> [&(dyn tokio_postgres::types::ToSql + Sync); 6] {
        [
            &self.worker,
            &self.lane.queue_no,
            &self.lane.kind_no,
            &self.cursor.0,
            &self.cursor.1,
            &self.batch,
        ]
    }

    /// Decodes what came, as a handler would, and moves the cursor; after an empty claim the next one starts anew.
    fn learn(&mut self, rows: &[Row]) -> Result<Held> {
        let mut held = Held::default();
        let mut least: Option<(SystemTime, i64)> = None;
        for row in rows {
            let (id, epoch, due_at): (i64, i64, SystemTime) = (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
            let Json(job): Json<Noop> = row.try_get(3)?;
            std::hint::black_box((job.number, &job.fill));
            held.ids.push(id);
            held.epochs.push(epoch);
            let key = (due_at, id);
            least = Some(least.map_or(key, |least| least.min(key)));
        }
        self.cursor = least.unwrap_or(START);
        Ok(held)
    }
}

const START: (SystemTime, i64) = (SystemTime::UNIX_EPOCH, 0);

async fn settle(hand: &Hand, held: &Held) -> Result<()> {
    if held.len() == 0 {
        return Ok(());
    }
    let settled = hand
        .client
        .execute(&hand.settle, &[&held.ids, &held.epochs, &hand.worker])
        .await?;
    ensure!(
        settled == held.len() as u64,
        "{settled} of {} leases were there",
        held.len()
    );
    Ok(())
}

/// How long to wait after an empty claim.
pub(crate) const PAUSE: Duration = Duration::from_millis(1);
