//! `docs/grants.sql` as it is: each role can do its part, no role can do another's, and no grant is there for nothing.

mod forbidden;
mod granted;
mod needed;

use std::{sync::Arc, time::Duration};

use proof::bed::{postgres_servers, until};
use rowlock::{
    Counters, Ended, Error, Fail, Hold, Job, JobId, Once, State, atomic,
    effect::{EffectFilter, Resolution},
    observe::{CaseFilter, JobFilter, VerifyLimits},
    operate::Target,
    postgres::{Ctx, Outcome, Rowlock, Staged, Tx, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::{
    grants::granted::{Granted, OPERATOR, PRODUCER, WORKER},
    steps::{catalog::script, partitions, register},
};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "first", attempts = 2)]
struct First {
    sold_out: bool,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "second")]
struct Second {}

async fn first(_cx: Ctx, job: First, mut tx: Tx) -> Outcome {
    sqlx::query("insert into public.effects default values")
        .execute(&mut *tx)
        .await?;
    if job.sold_out {
        return Err(Fail::retire("sold out"));
    }
    tx.done().then(Second {}).ok()
}

async fn second(cx: Staged, _job: Second) -> Outcome {
    cx.effect("call", |_| async { Ok::<_, Fail>(1) }).await?;
    cx.done().ok()
}

/// Leaves one job with a worker that has not beaten for an hour.
async fn lose_a_worker(pg: &mut PgConnection) {
    let lane: (i64, i64, i16) = sqlx::query_as("select queue_no, kind_no, priority from rowlock.ready limit 1")
        .fetch_one(&mut *pg)
        .await
        .unwrap();
    register(pg, 1).await;
    let moved = "with gone as (delete from rowlock.ready returning *) insert into rowlock.lease
        select id, epoch + 1, 1, attempt + 1, attempts_max, queue_no, kind_no, alone, priority, clock_timestamp() from gone
        where queue_no = $1";
    sqlx::query(moved).bind(lane.0).execute(&mut *pg).await.unwrap();
    sqlx::query("update rowlock.worker set beat = beat - interval '1 hour'")
        .execute(pg)
        .await
        .unwrap();
}

/// Runs a worker on this handle until so many attempts are done.
async fn work_until_done(rowlock: &Rowlock, jobs: u64) -> Arc<Counters> {
    let worker = Worker::new(rowlock).queue("default", 4).lease(Duration::from_secs(2));
    let worker = worker.handle(atomic(first)).handle(staged(second));
    let (counters, stop) = (worker.counters(), CancellationToken::new());
    let stopped = stop.clone();
    let running = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
    let all = async || (counters.settled(Ended::Done) >= jobs).then_some(());
    until("everything to be done", Duration::from_secs(30), all).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    counters
}

/// Enqueues and says things once, both in its own transactions. Gives the job that is enqueued.
async fn the_producers(producer: &Rowlock, own: &mut PgConnection) -> JobId {
    let mut tx = own.begin().await.unwrap();
    let id = producer.enqueue(&mut tx, First { sold_out: false }).await.unwrap().id();
    tx.commit().await.unwrap();
    let mut tx = own.begin().await.unwrap();
    for first in [true, false] {
        let once = producer
            .once(&mut tx, "k")
            .timeout(Duration::from_secs(1))
            .await
            .unwrap();
        assert_eq!(matches!(once, Once::First(_)), first);
        if let Once::First(slot) = once {
            slot.store(&mut tx, "stored").await.unwrap();
        }
    }
    tx.commit().await.unwrap();
    id
}

/// Looks at everything, resolves a doubt and reopens a case.
async fn the_operators(operator: &Rowlock, root: &mut PgConnection, lost: JobId, retired: JobId) {
    let look = operator.observe();
    assert_eq!(
        look.status().await.unwrap().lanes.iter().map(|l| l.cases).sum::<i64>(),
        1
    );
    assert_eq!(look.jobs(&JobFilter::new()).await.unwrap().len(), 44);
    assert_eq!(look.attempts(lost).await.unwrap().len(), 2);
    assert_eq!(look.chain(lost).await.unwrap().len(), 2);
    assert_eq!(look.cases(&CaseFilter::new().limit(10)).await.unwrap().len(), 1);
    let effects = look.effects(&EffectFilter::new()).await.unwrap();
    assert_eq!(effects.len(), 22);
    let seen = look.verify(&VerifyLimits::new()).await.unwrap();
    assert!(seen.holds(), "{seen:?}");
    script(root, "update rowlock.effect set state = 'uncertain'")
        .await
        .unwrap();
    let operate = operator.operate();
    let resolved = operate.resolve_effect(effects[0].no, Resolution::NotHappened, "tester");
    assert_eq!(resolved.await.unwrap(), effects[0].id);
    operate.reopen(retired, "tester").await.unwrap();
}

#[tokio::test]
async fn every_role_can_do_its_part() {
    for server in postgres_servers() {
        let mut granted = Granted::new(&server, "every_role_can_do_its_part").await;
        script(
            &mut granted.root,
            "create table public.effects (at timestamptz default now())",
        )
        .await
        .unwrap();
        script(
            &mut granted.root,
            &format!("grant insert on public.effects to {WORKER}"),
        )
        .await
        .unwrap();

        let (producer, mut own) = granted.member(PRODUCER).await;
        let lost = the_producers(&producer, &mut own).await;
        let (worker, mut upkeep) = granted.member(WORKER).await;
        lose_a_worker(&mut upkeep).await;
        let retired = producer
            .enqueue_now(First { sold_out: true })
            .if_retired(Second {})
            .await
            .unwrap()
            .id();
        for (rowlock, conn) in [(&producer, &mut own), (&worker, &mut upkeep)] {
            let mut tx = conn.begin().await.unwrap();
            let seen = rowlock.version(&mut tx, "thing").await.unwrap();
            rowlock.unchanged_version(&mut tx, "thing", seen).await.unwrap();
            tx.commit().await.unwrap();
        }
        producer
            .enqueue_all_now((0..20).map(|_| First { sold_out: false }))
            .await
            .unwrap();

        // 21 first links, their 21 second ones, and the compensation of the one that was retired.
        let counters = work_until_done(&worker, 43).await;
        assert_eq!((counters.expired(), counters.settled(Ended::Retired)), (1, 1));
        assert_eq!(counters.settled(Ended::Done), 43);
        partitions(&mut upkeep).await.unwrap();
        for text in [
            "select rowlock.drop_history('epoch')",
            "delete from rowlock.job where id < 0",
        ] {
            script(&mut upkeep, text).await.unwrap();
        }

        let (operator, _own) = granted.member(OPERATOR).await;
        the_operators(&operator, &mut granted.root, lost, retired).await;
        operator.operate().set_rollout("gate", 100, "tester").await.unwrap();
        let queue = Target::queue("default");
        assert!(operator.operate().pause(&queue, "tester").await.unwrap());
        assert_eq!(worker.observe().pauses().await.unwrap().len(), 1);
        assert!(operator.operate().resume(&queue, "tester").await.unwrap());
        assert!(worker.rollout("gate", "x").await.unwrap() && producer.rollout("gate", "x").await.unwrap());
        assert_eq!(
            operator.observe().job(retired).await.unwrap().unwrap().state,
            State::Ready
        );
        granted.end(&server).await;
    }
}

#[tokio::test]
async fn a_producer_gets_what_holds_its_key_and_takes_over_what_is_free() {
    for server in postgres_servers() {
        let case = "a_producer_gets_what_holds_its_key_and_takes_over_what_is_free";
        let mut granted = Granted::new(&server, case).await;
        let effects = format!("create table public.effects (n int); grant insert on public.effects to {WORKER}");
        script(&mut granted.root, &effects).await.unwrap();
        let (producer, mut own) = granted.member(PRODUCER).await;
        let (worker, _own) = granted.member(WORKER).await;
        let mut tx = own.begin().await.unwrap();
        let put = producer.enqueue(&mut tx, Second {}).key("second").hold(Hold::WhileOpen);
        let id = put.await.unwrap().id();
        let conflict = producer.enqueue(&mut tx, First { sold_out: true }).key("second").await;
        assert!(matches!(conflict, Err(Error::KeyConflict { .. })), "{conflict:?}");
        tx.commit().await.unwrap();
        let again = producer.enqueue_now(Second {}).key("second").await.unwrap();
        assert_eq!((again.is_new(), again.id()), (false, id));

        work_until_done(&worker, 1).await;
        let next = producer.enqueue_now(Second {}).key("second").await.unwrap();
        assert!(next.is_new(), "taken over");
        let (operator, _own) = granted.member(OPERATOR).await;
        let filter = JobFilter::new().key("second");
        let found = operator.observe().jobs(&filter).await.unwrap();
        assert_eq!(found.iter().map(|j| j.id).collect::<Vec<_>>(), [next.id()]);
        granted.end(&server).await;
    }
}
