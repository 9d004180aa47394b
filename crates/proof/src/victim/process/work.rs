//! The handlers and the workers, compiled once per database.

use std::time::Duration;

use crate::victim::{
    Abort, Atomic, Batched, Behind, Charge, Failing, Follow, Gated, Hold, Hooked, Moody, Numbered, Orders, Parked,
    Plain, Quick, Slow, Staged as StagedJob, Together,
};
use anyhow::Result;
use rowlock::{Backoff, Batch, Fail, handle::Effect};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::db::{Ctx, Outcome, Rowlock, Staged, Tx, Worker};
use crate::victim::process::{Tools, point, print};

/// Runs the workers until the signal to stop.
pub(crate) async fn run(
    orders: &Orders,
    dress: fn(Worker<Tools>) -> Worker<Tools>,
    stop: &CancellationToken,
) -> Result<()> {
    let mut workers = JoinSet::new();
    for _ in 0..orders.workers {
        let (worker, stop) = (dress(worker(orders)?), stop.clone());
        workers.spawn(worker.run_until(async move { stop.cancelled().await }));
    }
    while let Some(ended) = workers.join_next().await {
        ended??;
    }
    Ok(())
}

fn worker(orders: &Orders) -> Result<Worker<Tools>> {
    let quiet = orders.quiet;
    let quickly = Backoff::new()
        .base(Duration::from_millis(20))
        .max(Duration::from_millis(200));
    let mut worker = Worker::new(&Rowlock::open(&orders.url)?)
        .state(Tools::new(orders)?)
        .queue(&orders.queue, orders.concurrency)
        .lease(Duration::from_millis(orders.lease_ms))
        .grace(Duration::from_secs(5))
        .on_event(move |event| print(event, quiet))
        .handle(rowlock::atomic(atomic))
        .handle(rowlock::atomic(failing))
        .handle(rowlock::atomic(follow))
        .handle(rowlock::atomic(hooked))
        .handle(rowlock::atomic(plain).backoff(quickly))
        .handle(rowlock::atomic(numbered).backoff(quickly))
        .handle(rowlock::atomic(behind).backoff(quickly))
        .handle(rowlock::atomic(moody).backoff(quickly))
        .handle(rowlock::staged(gated))
        .handle(rowlock::staged(staged))
        .handle(rowlock::staged(batched))
        .handle(rowlock::staged(pay).backoff(quickly))
        .handle(rowlock::staged(parked))
        .handle(rowlock::staged(quick))
        .handle(rowlock::staged(slow))
        .handle(rowlock::staged(abort))
        .handle(rowlock::staged(hold));
    if let Some(jobs) = orders.batch {
        worker = worker.handle(rowlock::atomic(together).batch(Batch::up_to(jobs)));
    }
    if let Some(prefetch) = orders.prefetch {
        worker = worker.prefetch(prefetch);
    }
    if let Some(connections) = orders.connections {
        worker = worker.connections(connections);
    }
    if let Some(name) = &orders.name {
        worker = worker.name(name);
    }
    Ok(worker)
}

/// One ledger row; the ledger has no unique index, so that a double shows.
async fn ledger(tx: &mut Tx, job: i64, note: &str) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("insert into ledger (job, note) values ($1, $2)");
    insert.bind(job).bind(note).execute(&mut **tx).await?;
    Ok(())
}

async fn atomic(cx: Ctx<Tools>, job: Atomic, mut tx: Tx) -> Outcome {
    let add = sqlx::query("update account set balance = balance + 1 where id = $1");
    add.bind(job.account).execute(&mut *tx).await?;
    point::stand("mid-handler");
    ledger(&mut tx, cx.id(), "atomic").await?;
    tx.done().then(Follow {}).ok()
}

async fn together(cx: Ctx<Tools>, job: Together, tx: Tx) -> Outcome {
    atomic(cx, Atomic { account: job.account }, tx).await
}

async fn failing(cx: Ctx<Tools>, _job: Failing, mut tx: Tx) -> Outcome {
    ledger(&mut tx, cx.id(), "failing").await?;
    if cx.attempt() == 1 {
        // Not immediately: the next attempt is for the worker that comes after the kill.
        return Err(Fail::retry_after(Duration::from_secs(3), "the first attempt fails"));
    }
    tx.done().then(Follow {}).ok()
}

async fn follow(cx: Ctx<Tools>, _job: Follow, mut tx: Tx) -> Outcome {
    ledger(&mut tx, cx.id(), "follow").await?;
    tx.done().ok()
}

async fn hooked(cx: Ctx<Tools>, _job: Hooked, mut tx: Tx) -> Outcome {
    let (id, provider) = (cx.id(), cx.state().provider);
    ledger(&mut tx, id, "hooked").await?;
    if let Some(provider) = provider {
        tx.after_commit(async move { crate::provider::call(provider, "hook", id).await.map(|_| ()) });
    }
    tx.done().ok()
}

async fn plain(cx: Ctx<Tools>, _job: Plain, mut tx: Tx) -> Outcome {
    cx.state().started(&cx)?;
    ledger(&mut tx, cx.id(), "plain").await?;
    tx.done().ok()
}

async fn numbered(cx: Ctx<Tools>, job: Numbered, mut tx: Tx) -> Outcome {
    ledger(&mut tx, cx.id(), &job.no.to_string()).await?;
    tx.done().ok()
}

async fn moody(cx: Ctx<Tools>, job: Moody, mut tx: Tx) -> Outcome {
    if cx.attempt() <= job.fails {
        return Err(Fail::retry(format!("upset for the {}. time", cx.attempt())));
    }
    ledger(&mut tx, cx.id(), "moody").await?;
    tx.done().then(Follow {}).ok()
}

async fn behind(cx: Ctx<Tools>, job: Behind, mut tx: Tx) -> Outcome {
    let lock = sqlx::query("select pg_advisory_xact_lock($1)");
    lock.bind(job.no).execute(&mut *tx).await?;
    ledger(&mut tx, cx.id(), &job.no.to_string()).await?;
    tx.done().ok()
}

async fn gated(cx: Staged<Tools>, job: Gated) -> Outcome {
    while !job.gate.exists() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (id, mut tx) = (cx.id(), cx.begin().await?);
    ledger(&mut tx, id, &job.no.to_string()).await?;
    tx.done().ok()
}

async fn staged(mut cx: Staged<Tools>, _job: StagedJob) -> Outcome {
    let mut read = cx.prepare().await?;
    sqlx::query("select balance from account")
        .fetch_optional(&mut *read)
        .await?;
    read.commit().await?;
    let receipt = charge(&cx).await?;
    let (id, mut tx) = (cx.id(), cx.begin().await?);
    ledger(&mut tx, id, &receipt).await?;
    tx.done().then(Follow {}).ok()
}

async fn batched(cx: Staged<Tools>, _job: Batched) -> Outcome {
    charge(&cx).await?;
    cx.done().then(Follow {}).ok()
}

async fn parked(cx: Staged<Tools>, _job: Parked) -> Outcome {
    let receipt = charge(&cx).park().await?;
    let (id, mut tx) = (cx.id(), cx.begin().await?);
    ledger(&mut tx, id, &receipt).await?;
    tx.done().then(Follow {}).ok()
}

fn charge(cx: &Staged<Tools>) -> Effect<'_, String> {
    let (tools, id) = (cx.state(), cx.id());
    cx.effect("charge", move |key| async move {
        let receipt = tools.call(&key.to_string(), id).await;
        point::stand("outside");
        receipt
    })
}

async fn pay(cx: Staged<Tools>, job: Charge) -> Outcome {
    let tools = cx.state();
    let call = cx
        .effect(
            "charge",
            |key| async move { tools.charge(key.as_str(), job.order).await },
        )
        .request(&job);
    let receipt: i64 = if job.park { call.park().await? } else { call.await? };
    let (id, mut tx) = (cx.id(), cx.begin().await?);
    ledger(&mut tx, id, &receipt.to_string()).await?;
    tx.done().ok()
}

async fn quick(cx: Staged<Tools>, _job: Quick) -> Outcome {
    cx.state().started(&cx)?;
    cx.done().ok()
}

async fn slow(cx: Staged<Tools>, job: Slow) -> Outcome {
    if cx.attempt() == 1 {
        tokio::time::sleep(Duration::from_millis(job.ms)).await;
    }
    let receipt = charge(&cx).await?;
    let (id, mut tx) = (cx.id(), cx.begin().await?);
    ledger(&mut tx, id, &receipt).await?;
    tx.done().ok()
}

async fn abort(cx: Staged<Tools>, job: Abort) -> Outcome {
    cx.state().started(&cx)?;
    if cx.attempt() == 1 {
        tokio::time::sleep(Duration::from_millis(job.ms)).await;
    }
    std::process::abort()
}

async fn hold(cx: Staged<Tools>, _job: Hold) -> Outcome {
    cx.state().started(&cx)?;
    if cx.attempt() == 1 {
        cx.stopping().await;
    }
    cx.done().ok()
}
