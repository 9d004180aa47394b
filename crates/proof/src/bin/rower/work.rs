//! The worker: one handler per kind of job.

use std::time::Duration;

use anyhow::{Result, bail};
use proof::chaos::{
    jobs::{
        Charge, Dial, Doomed, Errand, Guarded, Keyed, LINE, LINE_PROBES, Link, MEMORY, Poison, Posting, Tally,
        Transfer, Trip,
    },
    orders::{Role, RowerOrders},
};
use rowlock::{Attempt, Backoff, Batch, Breaker, Fail, Guard, atomic, staged};
use tokio_util::sync::CancellationToken;

use super::{
    Connection, Database,
    db::{Ctx, Outcome, Rowlock, Staged, Tx, Worker},
};
use crate::tools::{Tools, heard};

const BATCH: usize = 20;

/// Works until the signal to stop.
pub(crate) async fn work(orders: &RowerOrders, stop: CancellationToken) -> Result<()> {
    let Role::Work {
        lease_ms,
        grace_ms,
        concurrency,
        connections,
        prefetch,
        ref name,
        limited,
        poll_only,
    } = orders.role
    else {
        bail!("these are not a worker's orders");
    };
    let quickly = Backoff::new()
        .base(Duration::from_millis(20))
        .max(Duration::from_millis(300));
    let breaker = Breaker::after(3).cooldown(Duration::from_secs(1));
    let breaker = breaker.cooldown_max(Duration::from_secs(2)).probes(LINE_PROBES as u32);
    let tools = Tools::new(orders, limited)?;
    let log = tools.log.clone();
    let mut worker = Worker::new(&Rowlock::open(&orders.url)?)
        .state(tools)
        .queue("default", concurrency)
        .lease(Duration::from_millis(lease_ms))
        .grace(Duration::from_millis(grace_ms))
        .connections(connections)
        .name(name)
        .on_event(move |event| heard(&log, event))
        .handle(atomic(transfer).backoff(quickly))
        .handle(atomic(tally).batch(Batch::up_to(BATCH)).backoff(quickly))
        .handle(atomic(link).backoff(quickly))
        .handle(staged(charge).backoff(quickly))
        .handle(staged(dial).backoff(quickly).breaker(LINE, breaker))
        .handle(staged(errand).backoff(quickly))
        .handle(atomic(posting).backoff(quickly))
        .handle(staged(guarded).backoff(quickly))
        .handle(atomic(keyed).backoff(quickly))
        .handle(staged(poison).backoff(quickly))
        .handle(atomic(doomed).backoff(quickly))
        .handle(atomic(trip).backoff(quickly));
    if limited {
        worker = worker.queue(MEMORY, 1);
    }
    if poll_only {
        worker = worker.poll_only();
    }
    if let Some(jobs) = prefetch {
        worker = worker.prefetch(jobs);
    }
    Ok(worker.run_until(async move { stop.cancelled().await }).await?)
}

/// One ledger row. The ledger has no unique index, so that a double shows.
async fn book(tx: &mut Tx, attempt: &Attempt, order: i64, note: &str) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("insert into ledger (job, epoch, purchase, note) values ($1, $2, $3, $4)");
    let insert = insert.bind(attempt.id()).bind(attempt.epoch()).bind(order).bind(note);
    insert.execute(&mut **tx).await?;
    Ok(())
}

async fn transfer(cx: Ctx<Tools>, job: Transfer, mut tx: Tx) -> Outcome {
    let _running = cx.state().running(&cx);
    shift(&mut tx, job.from, job.to, job.amount).await?;
    tokio::time::sleep(Duration::from_millis(job.ms)).await;
    book(&mut tx, &cx, job.order, "transfer").await?;
    if job.order % 40 == 7 && cx.attempt() == 1 {
        return Err(Fail::retry("the first attempt fails, with all it wrote"));
    }
    tx.done().ok()
}

async fn tally(cx: Ctx<Tools>, job: Tally, mut tx: Tx) -> Outcome {
    let _running = cx.state().running(&cx);
    shift(&mut tx, job.from, job.to, 1).await?;
    book(&mut tx, &cx, job.order, "tally").await?;
    if job.order % 90 == 7 && cx.attempt() == 1 {
        return Err(Fail::retry("the first attempt fails, in the middle of a batch"));
    }
    tx.done().ok()
}

/// In one order for all, so that two do not wait for each other.
async fn shift(tx: &mut Tx, from: i64, to: i64, amount: i64) -> Result<(), sqlx::Error> {
    let mut both = [(from, -amount), (to, amount)];
    both.sort_unstable();
    for (account, change) in both {
        let add = sqlx::query("update account set balance = balance + $2 where id = $1");
        add.bind(account).bind(change).execute(&mut **tx).await?;
    }
    Ok(())
}

async fn link(cx: Ctx<Tools>, job: Link, mut tx: Tx) -> Outcome {
    let _running = cx.state().running(&cx);
    book(&mut tx, &cx, job.order, &format!("link {}", job.depth)).await?;
    let next = Link {
        depth: job.depth + 1,
        ..job
    };
    match job.depth {
        2 => tx.done().then(next.clone()).then(next).ok(),
        5.. => tx.done().ok(),
        _ => tx.done().then(next).ok(),
    }
}

async fn charge(cx: Staged<Tools>, job: Charge) -> Outcome {
    let _running = cx.state().running(&cx);
    let (tools, attempt) = (cx.state(), cx.attempt());
    let call = cx
        .effect("charge", |key| async move {
            tools.charge(key.as_str(), job.order, job.park).await
        })
        .request(&job.order);
    let receipt: i64 = if job.park { call.park().await? } else { call.await? };
    if job.order % 30 == 7 && attempt == 1 {
        return Err(Fail::retry("the first attempt fails, between the call and the commit"));
    }
    let attempt: Attempt = (*cx).clone();
    let mut tx = cx.begin().await?;
    book(&mut tx, &attempt, job.order, &receipt.to_string()).await?;
    tx.done().ok()
}

async fn dial(mut cx: Staged<Tools>, job: Dial) -> Outcome {
    let attempt: Attempt = (*cx).clone();
    let _running = cx.state().running(&attempt);
    let mut read = cx.prepare().await?;
    let up: i64 = sqlx::query_scalar("select up from line").fetch_one(&mut *read).await?;
    read.commit().await?;
    if up == 0 {
        return Err(Fail::dependency(LINE, "the line is down"));
    }
    let mut tx = cx.begin().await?;
    book(&mut tx, &attempt, job.order, "dial").await?;
    tx.done().ok()
}

async fn errand(cx: Staged<Tools>, job: Errand) -> Outcome {
    let attempt: Attempt = (*cx).clone();
    let _running = cx.state().running(&attempt);
    tokio::time::sleep(Duration::from_millis(job.ms)).await;
    let mut tx = cx.begin().await?;
    book(&mut tx, &attempt, job.order, "errand").await?;
    tx.done().ok()
}

async fn posting(cx: Ctx<Tools>, job: Posting, mut tx: Tx) -> Outcome {
    let _running = cx.state().running(&cx);
    book(&mut tx, &cx, job.order, "posting").await?;
    if job.order % 30 == 7 && cx.attempt() == 1 {
        return Err(Fail::retry("the first attempt fails, and holds its group"));
    }
    tx.done().ok()
}

/// What has been decided about a thing so far.
struct Decided(i64);

impl Guard<Database> for Decided {
    type Seen = i64;

    fn key(&self) -> String {
        format!("decided:{}", self.0)
    }

    async fn look(&self, conn: &mut Connection) -> sqlx::Result<i64> {
        let look = sqlx::query_scalar("select count(*) from decision where entity = $1");
        look.bind(self.0).fetch_one(conn).await
    }
}

/// Half of the things are guarded by a counter, the other half by a look at the rows themselves.
async fn guarded(mut cx: Staged<Tools>, job: Guarded) -> Outcome {
    let attempt: Attempt = (*cx).clone();
    let (key, rows) = (format!("entity:{}", job.entity), Decided(job.entity));
    let counted = job.entity % 2 == 0;
    let mut read = cx.prepare().await?;
    let seen = match counted {
        true => read.version(&key).await?,
        false => rows.look(&mut read).await?,
    };
    read.commit().await?;
    let _running = cx.state().running(&attempt);
    tokio::time::sleep(Duration::from_millis(job.ms)).await;
    let mut tx = cx.begin().await?;
    match counted {
        true => _ = tx.unchanged_version(&key, seen).await?,
        false => tx.unchanged(&rows, &seen).await?,
    }
    let insert = sqlx::query("insert into decision (entity, seen, job) values ($1, $2, $3)");
    insert
        .bind(job.entity)
        .bind(seen)
        .bind(attempt.id())
        .execute(&mut *tx)
        .await?;
    book(&mut tx, &attempt, job.order, "guarded").await?;
    tx.done().ok()
}

async fn keyed(cx: Ctx<Tools>, job: Keyed, mut tx: Tx) -> Outcome {
    let _running = cx.state().running(&cx);
    book(&mut tx, &cx, job.slot, "keyed").await?;
    tx.done().ok()
}

async fn poison(cx: Staged<Tools>, _job: Poison) -> Outcome {
    let _running = cx.state().running(&cx);
    cx.state().about_to("poison", cx.id());
    std::process::abort()
}

async fn doomed(cx: Ctx<Tools>, job: Doomed, mut tx: Tx) -> Outcome {
    let _running = cx.state().running(&cx);
    book(&mut tx, &cx, job.order, "doomed").await?;
    Err(Fail::retry("it always fails\0and says so with a NUL"))
}

async fn trip(cx: Ctx<Tools>, job: Trip, mut tx: Tx) -> Outcome {
    let _running = cx.state().running(&cx);
    book(&mut tx, &cx, job.order, "trip").await?;
    cx.state().mishap(&cx, job.mishap).await;
    tx.done().ok()
}
