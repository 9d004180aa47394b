//! After-commit hooks where the reply to the commit is lost: they run if, and only if, it turns out to have happened.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use proof::bed::until;
use rowlock::{
    Ended, Fail, Job, atomic,
    postgres::{Ctx, Outcome, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::steps::{catalog::script, session::Bed};

const LEASE: Duration = Duration::from_secs(2);

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "slow-commit", attempts = 3)]
struct SlowCommit {}

type Ran = Arc<Mutex<Vec<i32>>>;

async fn handler(cx: Ctx<Ran>, _: SlowCommit, mut tx: Tx) -> Outcome {
    sqlx::query("insert into public.slow (attempt) values ($1)")
        .bind(cx.attempt())
        .execute(&mut *tx)
        .await?;
    let (attempt, ran) = (cx.attempt(), cx.state().clone());
    tx.after_commit(async move {
        ran.lock().unwrap().push(attempt);
        Ok::<(), Fail>(())
    });
    tx.done().ok()
}

/// The first COMMIT takes longer than a worker waits for its reply.
async fn slow_first_commit(bed: &mut Bed) {
    let slow = "create table public.slow (attempt int);
        create function public.sleep_once() returns trigger language plpgsql as $$ begin
          if new.attempt = 1 then perform pg_sleep(4); end if; return null; end $$;
        create constraint trigger sleep after insert on public.slow deferrable initially deferred
          for each row execute function public.sleep_once()";
    script(&mut bed.eye, slow).await.unwrap();
}

async fn hooks_of_an_unknown_commit(mut bed: Bed, cut: bool, ends: &[Ended], hooks: &[i32]) {
    slow_first_commit(&mut bed).await;
    let id = bed.rowlock.enqueue_now(SlowCommit {}).await.unwrap().id();
    let ran = Ran::default();
    let worker = Worker::new(&bed.rowlock)
        .state(ran.clone())
        .queue("default", 1)
        .lease(LEASE);
    let worker = worker.handle(atomic(handler));
    let (counters, stop) = (worker.counters(), CancellationToken::new());
    let stopped = stop.clone();
    let running = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
    if cut {
        let eye = tokio::sync::Mutex::new(&mut bed.eye);
        until(
            "the commit to be under way, and cut",
            Duration::from_secs(20),
            || async {
                let cut = "select count(pg_terminate_backend(pid)) from pg_stat_activity
                where datname = current_database() and wait_event = 'PgSleep' and query ilike 'commit%'";
                let cut: i64 = sqlx::query_scalar(cut)
                    .fetch_one(&mut **eye.lock().await)
                    .await
                    .unwrap();
                (cut == 1).then_some(())
            },
        )
        .await;
    }
    until("the job to be done", Duration::from_secs(30), async || {
        (counters.settled(Ended::Done) == 1).then_some(())
    })
    .await;
    stop.cancel();
    running.await.unwrap().unwrap();
    let ended: Vec<Ended> = bed
        .rowlock
        .observe()
        .attempts(id)
        .await
        .unwrap()
        .iter()
        .map(|a| a.outcome)
        .collect();
    assert_eq!(ended, ends);
    assert_eq!(counters.commits_resolved(), 1, "its fate was looked up");
    assert_eq!(*ran.lock().unwrap(), hooks, "by attempt");
}

async fn hooks_run_when_an_unknown_commit_turns_out_to_have_happened(bed: Bed) {
    hooks_of_an_unknown_commit(bed, false, &[Ended::Done], &[1]).await;
}

async fn hooks_are_dropped_when_an_unknown_commit_did_not_happen(bed: Bed) {
    hooks_of_an_unknown_commit(bed, true, &[Ended::Retried, Ended::Done], &[2]).await;
}

races!(
    hooks_run_when_an_unknown_commit_turns_out_to_have_happened,
    hooks_are_dropped_when_an_unknown_commit_did_not_happen,
);
