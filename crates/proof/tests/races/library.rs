//! Races through the library itself: a worker beside strict roles, late commits and an old open transaction.

use std::{
    sync::Arc,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use proof::bed::until;
use rowlock::{
    Counters, Ended, Job, atomic,
    postgres::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::steps::{explain::explain, register, session::Bed, sql};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "tick", attempts = 3)]
struct Tick {
    n: i64,
}

async fn tick(_cx: Ctx, job: Tick, mut tx: Tx) -> Outcome {
    let level: String = sqlx::query_scalar("show transaction_isolation")
        .fetch_one(&mut *tx)
        .await?;
    sqlx::query("insert into public.ticks (n, level) values ($1, $2)")
        .bind(job.n)
        .bind(level)
        .execute(&mut *tx)
        .await?;
    tx.done().ok()
}

struct Running {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<rowlock::Result<()>>,
    counters: Arc<Counters>,
}

fn run(worker: Worker) -> Running {
    let (stop, counters) = (CancellationToken::new(), worker.counters());
    let stopped = stop.clone();
    let task = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
    Running { stop, task, counters }
}

impl Running {
    async fn done(&self, jobs: u64, within: Duration) {
        let enough = async || (self.counters.settled(Ended::Done) >= jobs).then_some(());
        until("jobs to be done", within, enough).await;
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

fn worker(rowlock: &Rowlock) -> Worker {
    Worker::new(rowlock)
        .queue("default", 8)
        .handle(atomic(tick))
        .lease(Duration::from_secs(2))
}

async fn ticks_table(bed: &mut Bed) {
    let create = "create table public.ticks (n bigint not null, level text not null)";
    sqlx::raw_sql(create).execute(&mut bed.eye).await.unwrap();
}

/// The range of whatever is ready, as the arguments of a claim want it.
async fn lane(bed: &mut Bed) -> (i64, i64, i16) {
    let lane = sqlx::query_as("select queue_no, kind_no, priority from rowlock.ready limit 1");
    lane.fetch_one(&mut bed.eye).await.unwrap()
}

/// Gives every ready job to a worker that has not beaten for an hour.
async fn lose_a_worker_with_everything_ready(bed: &mut Bed) {
    register(&mut bed.eye, 1).await;
    let (queue, kind, priority) = lane(bed).await;
    sqlx::query(sql!("claim/take"))
        .bind(1i64)
        .bind(vec![1i32])
        .bind(vec![100i32])
        .bind(vec![queue])
        .bind(vec![kind])
        .bind(vec![priority])
        .bind(vec![jiff_sqlx::ToSqlx::to_sqlx(Timestamp::UNIX_EPOCH)])
        .bind(vec![0i64])
        .bind(None::<jiff_sqlx::Timestamp>)
        .bind(false)
        .bind(vec![1i32])
        .fetch_all(&mut bed.eye)
        .await
        .unwrap();
    sqlx::query("update rowlock.worker set beat = beat - interval '1 hour'")
        .execute(&mut bed.eye)
        .await
        .unwrap();
}

async fn a_role_with_a_stricter_default_isolation_works_end_to_end(mut bed: Bed) {
    ticks_table(&mut bed).await;
    for (i, level) in ["serializable", "repeatable read"].into_iter().enumerate() {
        let role = format!("strict_{i}_{}", std::process::id());
        let make = format!(
            "create role {role} superuser login; alter role {role} set default_transaction_isolation = '{level}'"
        );
        sqlx::raw_sql(AssertSqlSafe(make)).execute(&mut bed.eye).await.unwrap();
        let url = url_as(&bed.url, &role);
        let mut user = PgConnection::connect(&url).await.unwrap();
        let default: String = sqlx::query_scalar("show transaction_isolation")
            .fetch_one(&mut user)
            .await
            .unwrap();
        assert_eq!(default, level, "the role is as strict as the test means it to be");
        let rowlock = Rowlock::connect(&url).await.unwrap();

        let mut tx = user.begin().await.unwrap();
        let _ = rowlock.enqueue(&mut tx, Tick { n: 1 }).await.unwrap();
        tx.commit().await.unwrap();
        lose_a_worker_with_everything_ready(&mut bed).await;
        rowlock.enqueue_all_now((2..=100).map(|n| Tick { n })).await.unwrap();
        let running = run(worker(&rowlock));
        running.done(100, Duration::from_secs(30)).await;
        assert_eq!(
            running.counters.expired(),
            1,
            "the lost worker's job was recovered by this one"
        );
        running.stop().await;

        assert_eq!(
            bed.count("select count(*) from public.ticks where level = 'read committed'")
                .await,
            100
        );
        assert_eq!(bed.count("select count(distinct n) from public.ticks").await, 100);
        assert_eq!(bed.count("select count(*) from rowlock.lease").await, 0);
        sqlx::raw_sql(AssertSqlSafe(format!("drop role {role}")))
            .execute(&mut bed.eye)
            .await
            .unwrap();
        sqlx::raw_sql("delete from public.ticks")
            .execute(&mut bed.eye)
            .await
            .unwrap();
    }
}

/// The same database under another role.
fn url_as(url: &str, role: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (_, host) = rest.split_once('@').unwrap();
    format!("{scheme}://{role}@{host}")
}

/// A late commit, however far behind the cursor, while the range never runs empty.
async fn a_late_commit_behind_a_busy_lanes_cursor_is_done_within_seconds(mut bed: Bed) {
    ticks_table(&mut bed).await;
    let running = run(worker(&bed.rowlock));
    let busy = Arc::new(AtomicBool::new(true));
    let (producing, rowlock) = (busy.clone(), bed.rowlock.clone());
    let producer = tokio::spawn(async move {
        while producing.load(Ordering::Relaxed) {
            rowlock.enqueue_all_now((100..120).map(|n| Tick { n })).await.unwrap();
        }
    });

    for (n, set_back) in [(1i64, "0 s"), (2, "1 hour")] {
        let mut late = bed.session().await;
        late.begin().await;
        let id = bed.rowlock.enqueue(&mut late.pg, Tick { n }).await.unwrap().id();
        // Behind the reach of a near sweep, as if the transaction had been open that long.
        let older = sqlx::query("update rowlock.ready set due_at = due_at - $1::text::interval where id = $2");
        older.bind(set_back).bind(id).execute(&mut late.pg).await.unwrap();
        let sofar = running.counters.settled(Ended::Done);
        running.done(sofar + 300, Duration::from_secs(30)).await;
        late.commit().await;

        let eye = tokio::sync::Mutex::new(&mut bed.eye);
        until("the late commit's job to be done", Duration::from_secs(3), || async {
            let found = sqlx::query_scalar("select exists (select from public.ticks where n = $1)").bind(n);
            let found: bool = found.fetch_one(&mut **eye.lock().await).await.unwrap();
            found.then_some(())
        })
        .await;
    }
    assert!(
        bed.count("select count(*) from rowlock.ready").await > 0,
        "the lane was busy to the end"
    );
    busy.store(false, Ordering::Relaxed);
    producer.await.unwrap();
    running.stop().await;
}

async fn an_old_open_transaction_does_not_make_claims_walk_what_is_gone(mut bed: Bed) {
    const JOBS: i64 = 5000;
    ticks_table(&mut bed).await;
    let mut old = bed.session().await;
    old.run("begin isolation level repeatable read; select count(*) from rowlock.ready")
        .await;
    bed.rowlock
        .enqueue_all_now((0..JOBS).map(|n| Tick { n }))
        .await
        .unwrap();
    let running = run(worker(&bed.rowlock));
    running.done(JOBS as u64, Duration::from_secs(120)).await;
    running.stop().await;

    let newest = bed.rowlock.enqueue_all_now((0..20).map(|n| Tick { n })).await.unwrap();
    let (queue, kind, priority) = lane(&mut bed).await;
    let from = sqlx::query_scalar("select due_at::text from rowlock.ready where id = $1").bind(newest[0]);
    let cursor: String = from.fetch_one(&mut bed.eye).await.unwrap();
    register(&mut bed.eye, 1).await;
    let mut touched = [0, 0];
    for (i, from) in [cursor.as_str(), "epoch"].into_iter().enumerate() {
        let args = format!(
            "1, '{{1}}', '{{10}}', '{{{queue}}}', '{{{kind}}}', '{{{priority}}}', array['{from}']::timestamptz[], '{{0}}', \
             null, false, '{{1}}'"
        );
        let plan = explain(&mut bed.eye, sql!("claim/take"), &args, true).await;
        let scan = plan.scans("ready").into_iter().find(|n| n.index() == "ready_order");
        let scan = scan.unwrap_or_else(|| panic!("no scan of ready_order: {}", plan.shown()));
        assert!(scan.cond().contains("ROW(due_at, id) >= ROW("), "{}", scan.cond());
        touched[i] = scan.buffers();
    }
    let [from_cursor, from_start] = touched;
    assert!(
        from_start > 50,
        "the old transaction should keep the dead entries; touched {from_start} buffers"
    );
    assert!(
        from_cursor * 5 < from_start,
        "{from_cursor} buffers from the cursor, {from_start} from the beginning"
    );
    old.rollback().await;
}

races!(
    a_role_with_a_stricter_default_isolation_works_end_to_end,
    a_late_commit_behind_a_busy_lanes_cursor_is_done_within_seconds,
    an_old_open_transaction_does_not_make_claims_walk_what_is_gone,
);
