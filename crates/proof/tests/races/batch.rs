//! Batches beside other sessions: whatever takes the shared transaction away, every job happens once and none of the
//! innocent loses an attempt.

use std::{
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use proof::bed::until;
use rowlock::{
    Batch, Counters, Ended, Isolation, Job, atomic,
    postgres::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};
use tokio_util::sync::CancellationToken;

use crate::steps::session::{Bed, Session};

const PATIENCE: Duration = Duration::from_secs(30);

/// Adds one to an account; waits at the gate first if there is one for it.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "add", attempts = 3)]
struct Add {
    account: i64,
}

#[derive(Clone, Default)]
struct Gate {
    account: i64,
    reached: Arc<Notify>,
    open: Arc<Notify>,
    passed: Arc<AtomicBool>,
}

async fn add(cx: Ctx<Gate>, job: Add, mut tx: Tx) -> Outcome {
    let gate = cx.state();
    if gate.account == job.account && !gate.passed.swap(true, Ordering::SeqCst) {
        gate.reached.notify_one();
        gate.open.notified().await;
    }
    // It is this session that is to find the circle.
    sqlx::raw_sql("set local deadlock_timeout = '2s'")
        .execute(&mut *tx)
        .await?;
    let add = sqlx::query("update public.account set n = n + 1 where id = $1");
    add.bind(job.account).execute(&mut *tx).await?;
    let note = sqlx::query("insert into public.added (job, account) values ($1, $2)");
    note.bind(cx.id()).bind(job.account).execute(&mut *tx).await?;
    tx.done().ok()
}

/// Five accounts, and a job for each.
async fn five(bed: &mut Bed) -> Vec<i64> {
    let tables = "create table public.account (id bigint primary key, n bigint not null);
        insert into public.account select i, 0 from generate_series(1, 5) i;
        create table public.added (job bigint not null, account bigint not null)";
    sqlx::raw_sql(tables).execute(&mut bed.eye).await.unwrap();
    let jobs = (1..=5).map(|account| Add { account });
    bed.rowlock.enqueue_all_now(jobs).await.unwrap()
}

fn worker(rowlock: &Rowlock, gate: &Gate) -> Worker<Gate> {
    strict_worker(rowlock, gate, Isolation::default())
}

fn strict_worker(rowlock: &Rowlock, gate: &Gate, level: Isolation) -> Worker<Gate> {
    let batch = Batch::up_to(5).within(Duration::from_millis(1500));
    Worker::new(rowlock)
        .state(gate.clone())
        .queue("default", 1)
        .handle(atomic(add).batch(batch).isolation(level))
}

struct Running {
    stop: CancellationToken,
    running: tokio::task::JoinHandle<rowlock::Result<()>>,
    counters: Arc<Counters>,
}

impl Running {
    fn start(worker: Worker<Gate>) -> Running {
        let (stop, counters) = (CancellationToken::new(), worker.counters());
        let stopped = stop.clone();
        Running {
            running: tokio::spawn(worker.run_until(async move { stopped.cancelled().await })),
            stop,
            counters,
        }
    }

    async fn until_done(self, jobs: u64) -> Arc<Counters> {
        let enough = async || (self.counters.settled(Ended::Done) >= jobs).then_some(());
        until("the jobs to be done", PATIENCE, enough).await;
        self.stop.cancel();
        self.running.await.unwrap().unwrap();
        self.counters
    }
}

/// Every account was added to once, and every job ended once, at its first attempt.
async fn each_once(bed: &mut Bed, ids: &[i64]) {
    let added = "select count(*) * 1000 + count(distinct job) * 100 + count(distinct account) from public.added";
    assert_eq!(bed.count(added).await, 5505);
    assert_eq!(bed.count("select sum(n % 100)::bigint from public.account").await, 5);
    for id in ids {
        assert_eq!(bed.outcomes(*id).await, ["done"], "job {id}");
    }
    let attempts = "select max(attempt)::bigint from rowlock.outcome";
    assert_eq!(bed.count(attempts).await, 1);
}

/// Waits for a number from the database.
async fn until_count(eye: &mut PgConnection, what: &str, sql: &'static str) {
    let eye = tokio::sync::Mutex::new(eye);
    until(what, PATIENCE, || async {
        let n: i64 = sqlx::query_scalar(sql)
            .fetch_one(&mut **eye.lock().await)
            .await
            .unwrap();
        (n > 0).then_some(())
    })
    .await;
}

async fn a_lease_lost_in_the_middle_of_a_batch_rolls_nobody_else_back_for_good(mut bed: Bed) {
    let ids = five(&mut bed).await;
    let gate = Gate {
        account: 4,
        ..Gate::default()
    };
    let running = Running::start(worker(&bed.rowlock, &gate));
    gate.reached.notified().await;
    // As recovery does: the second job's handler has returned, and its writes are in the transaction.
    let expire = "with gone as (delete from rowlock.lease where id = $1 returning *)
        insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
        select queue_no, kind_no, false, priority, now(), id, epoch, attempt - 1, attempts_max from gone";
    let expired = sqlx::query(expire).bind(ids[1]).execute(&mut bed.eye).await.unwrap();
    assert_eq!(expired.rows_affected(), 1);
    gate.open.notify_one();

    let counters = running.until_done(5).await;
    assert_eq!((counters.lease_lost(), counters.batches_undone()), (1, 1));
    each_once(&mut bed, &ids).await;
}

async fn a_deadlock_in_the_third_of_five_costs_nobody_an_attempt(mut bed: Bed) {
    let ids = five(&mut bed).await;
    let mut other = bed.session().await;
    other.run("set deadlock_timeout = '60s'").await;
    other.begin().await;
    other.run("update public.account set n = n + 100 where id = 3").await;
    let running = Running::start(worker(&bed.rowlock, &Gate::default()));
    let waits = "select count(*) from pg_stat_activity
        where datname = current_database() and application_name = 'rowlock handler' and wait_event_type = 'Lock'";
    until_count(&mut bed.eye, "the third job to wait", waits).await;
    // The first job's row is locked by the same transaction: here the circle closes.
    let closing = other.start(async |pg| {
        let update = sqlx::query("update public.account set n = n + 100 where id = 1");
        update.execute(pg).await.unwrap();
    });
    let (mut other, ()): (Session, ()) = closing.await.unwrap();
    other.commit().await;

    let counters = running.until_done(5).await;
    assert_eq!(counters.batches_undone(), 1);
    each_once(&mut bed, &ids).await;
    assert_eq!(bed.count("select sum(n / 100)::bigint from public.account").await, 2);
}

async fn a_serialisation_failure_in_a_batch_costs_nobody_an_attempt(mut bed: Bed) {
    let ids = five(&mut bed).await;
    let gate = Gate {
        account: 2,
        ..Gate::default()
    };
    let strict = strict_worker(&bed.rowlock, &gate, Isolation::RepeatableRead);
    let running = Running::start(strict);
    gate.reached.notified().await;
    // After the batch's snapshot, and before its fifth job.
    let change = "update public.account set n = n + 100 where id = 5";
    sqlx::raw_sql(change).execute(&mut bed.eye).await.unwrap();
    gate.open.notify_one();

    let counters = running.until_done(5).await;
    assert_eq!(counters.batches_undone(), 1);
    each_once(&mut bed, &ids).await;
}

async fn a_serializable_batch_is_done_like_any_other(mut bed: Bed) {
    let ids = five(&mut bed).await;
    let strict = strict_worker(&bed.rowlock, &Gate::default(), Isolation::Serializable);
    let counters = Running::start(strict).until_done(5).await;
    assert_eq!(counters.batches_undone(), 0);
    each_once(&mut bed, &ids).await;
}

/// Has the commit of the first transaction that adds anything do this.
async fn at_commit(bed: &mut Bed, what: &str) {
    let trigger = format!(
        "create table public.first (once int); insert into public.first values (1);
        create function public.at_commit() returns trigger language plpgsql as $$ begin {what} return null; end $$;
        create constraint trigger at_commit after insert on public.added deferrable initially deferred
          for each row execute function public.at_commit()"
    );
    let trigger = sqlx::raw_sql(sqlx::AssertSqlSafe(trigger));
    trigger.execute(&mut bed.eye).await.unwrap();
}

async fn a_shared_commit_cut_off_by_the_server_is_done_again_one_by_one(mut bed: Bed) {
    let ids = five(&mut bed).await;
    at_commit(
        &mut bed,
        "delete from public.first; if found then perform pg_sleep(5); end if;",
    )
    .await;
    let running = Running::start(worker(&bed.rowlock, &Gate::default()));
    // Everything is settled, and the commit is under way.
    let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where datname = current_database() and wait_event = 'PgSleep' and query ilike 'commit%'";
    until_count(&mut bed.eye, "the commit to be cut off", cut).await;

    let counters = running.until_done(5).await;
    assert_eq!((counters.commits_resolved(), counters.batches_undone()), (5, 1));
    each_once(&mut bed, &ids).await;
}

async fn a_constraint_that_fails_at_the_shared_commit_fails_its_job_alone(mut bed: Bed) {
    let ids = five(&mut bed).await;
    at_commit(
        &mut bed,
        "if new.account = 3 then raise exception 'no third account'; end if;",
    )
    .await;
    let running = Running::start(worker(&bed.rowlock, &Gate::default()));
    let counters = running.until_done(4).await;
    assert!(counters.batches_undone() >= 1);
    assert_eq!(
        bed.count("select count(*) from public.added where account <> 3").await,
        4
    );
    assert_eq!(
        bed.count("select count(*) from public.added where account = 3").await,
        0
    );
    for (n, id) in ids.iter().enumerate() {
        let ends = bed.outcomes(*id).await;
        assert_eq!(
            ends.first().map(String::as_str),
            Some(if n == 2 { "retried" } else { "done" })
        );
    }
}

/// Passes everything on, until a handler's connection sends its first commit: the server's answer to that goes nowhere.
async fn swallow_a_commit(url: &str) -> String {
    let (start, rest) = url.split_once("127.0.0.1:").unwrap();
    let (port, database) = rest.split_once('/').unwrap();
    let server = format!("127.0.0.1:{port}");
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let through = format!("{start}127.0.0.1:{}/{database}", listener.local_addr().unwrap().port());
    let armed = Rc::new(AtomicBool::new(true));
    tokio::task::spawn_local(async move {
        while let Ok((client, _)) = listener.accept().await {
            let server = TcpStream::connect(&server).await.unwrap();
            tokio::task::spawn_local(pass(client, server, armed.clone()));
        }
    });
    through
}

async fn pass(mut client: TcpStream, mut server: TcpStream, armed: Rc<AtomicBool>) -> std::io::Result<()> {
    let has = |bytes: &[u8], text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    let (mut up, mut down) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let mut handlers = false;
    loop {
        tokio::select! {
            read = client.read(&mut up) => match read? {
                0 => return Ok(()),
                n => {
                    handlers |= has(&up[..n], b"rowlock handler");
                    server.write_all(&up[..n]).await?;
                    if handlers && has(&up[..n], b"COMMIT\0") && armed.swap(false, Ordering::SeqCst) {
                        let answered = server.read(&mut down).await?;
                        assert!(answered > 0, "the commit was answered");
                        return Ok(());
                    }
                }
            },
            read = server.read(&mut down) => match read? {
                0 => return Ok(()),
                n => client.write_all(&down[..n]).await?,
            },
        }
    }
}

async fn a_shared_commit_whose_reply_is_lost_is_looked_up_for_each_job(mut bed: Bed) {
    let ids = five(&mut bed).await;
    let through = Rowlock::open(&swallow_a_commit(&bed.url).await).unwrap();
    let counters = Running::start(worker(&through, &Gate::default())).until_done(5).await;
    assert_eq!((counters.commits_resolved(), counters.batches_undone()), (5, 0));
    each_once(&mut bed, &ids).await;
}

races!(
    a_lease_lost_in_the_middle_of_a_batch_rolls_nobody_else_back_for_good,
    a_deadlock_in_the_third_of_five_costs_nobody_an_attempt,
    a_serialisation_failure_in_a_batch_costs_nobody_an_attempt,
    a_serializable_batch_is_done_like_any_other,
    a_shared_commit_cut_off_by_the_server_is_done_again_one_by_one,
    a_constraint_that_fails_at_the_shared_commit_fails_its_job_alone,
    a_shared_commit_whose_reply_is_lost_is_looked_up_for_each_job,
);
