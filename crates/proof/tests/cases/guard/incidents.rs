//! The incident race at full size: 200 entities, 20 evaluations racing on each, 100 concurrent handlers over a pool of
//! 5 connections. No index states the rule; only the guard keeps it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rowlock::{Ended, Guard, Job, staged};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::sync::{Barrier, watch};

use super::db::{Outcome, Staged, Worker};
use super::{
    Bed, Running,
    observed::{OpenIncidents, incidents, open},
};

const ENTITIES: i64 = 200;
const EVALUATIONS: usize = 20;
const HANDLERS: usize = 100;
const POOL: usize = 5;
/// For all of it, on a busy machine.
const LIMIT: Duration = Duration::from_secs(180);

#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "evaluate", attempts = 50)]
struct Evaluate {
    entity: i64,
}

/// What the handlers and the test know of each other.
struct Race {
    /// Handlers in the middle of their evaluation.
    evaluating: AtomicUsize,
    /// Whether the first of them may come to their decision.
    decide: watch::Sender<bool>,
    /// All evaluations of one entity have looked before the first of them decides.
    looked: Vec<Barrier>,
    opened: AtomicI64,
}

/// Looks, evaluates slowly and outside, and opens an incident if what it saw is still so.
async fn evaluate(mut cx: Staged<Arc<Race>>, job: Evaluate) -> Outcome {
    let guard = OpenIncidents(job.entity);
    let mut read = cx.prepare().await?;
    let seen = guard.look(&mut read).await?;
    read.commit().await?;

    let race = cx.state().clone();
    race.evaluating.fetch_add(1, Ordering::SeqCst);
    let mut decide = race.decide.subscribe();
    decide.wait_for(|decide| *decide).await?;
    if cx.attempt() == 1 {
        race.looked[job.entity as usize].wait().await;
    }
    race.evaluating.fetch_sub(1, Ordering::SeqCst);

    if !seen.is_empty() {
        return cx.done().ok();
    }
    let mut tx = cx.begin().await?;
    tx.unchanged(&guard, &seen).await?;
    open(&mut tx, job.entity).await?;
    race.opened.fetch_add(1, Ordering::SeqCst);
    tx.done().ok()
}

/// While a hundred handlers evaluate, nobody has a transaction open, and no more connections exist than were allowed.
async fn nothing_is_held(bed: &Bed) {
    if bed.database.is_sqlite() {
        // An evaluation that held the only writer would block this one.
        let mut conn = bed.conn().await;
        let tx = conn.begin_with("begin immediate").await.unwrap();
        tx.rollback().await.unwrap();
        return;
    }
    let handlers = "select count(*) from pg_stat_activity where datname = current_database()
                    and application_name = 'rowlock handler'";
    // Behind a pooler the connections are the pooler's, and keep the name of their last client.
    if bed.database.queue_url == bed.database.url {
        assert!(bed.count(handlers).await <= POOL as i64, "no more than the pool");
    }
    let busy = format!("{handlers} and state <> 'idle'");
    assert_eq!(bed.count(&busy).await, 0, "every one of them is idle");
    let open = "select count(*) from pg_stat_activity where datname = current_database()
                and state like 'idle in transaction%'";
    assert_eq!(bed.count(open).await, 0);
}

async fn racing_evaluations_over_a_small_pool_never_open_two_incidents(bed: &Bed) {
    incidents(bed).await;
    let jobs = (0..ENTITIES).flat_map(|entity| (0..EVALUATIONS).map(move |_| Evaluate { entity }));
    let jobs = bed.rowlock.enqueue_all_now(jobs).await.unwrap().len() as u64;
    let race = Arc::new(Race {
        evaluating: AtomicUsize::new(0),
        decide: watch::Sender::new(false),
        looked: (0..ENTITIES).map(|_| Barrier::new(EVALUATIONS)).collect(),
        opened: AtomicI64::new(0),
    });
    let worker = Worker::new(&bed.rowlock).queue("default", HANDLERS).connections(POOL);
    let running = Running::start(worker.state(race.clone()).handle(staged(evaluate)));

    // A hundred concurrent evaluations over five connections: impossible if an evaluation held a connection.
    proof::bed::until("every handler to evaluate", LIMIT, async || {
        (race.evaluating.load(Ordering::SeqCst) == HANDLERS).then_some(())
    })
    .await;
    nothing_is_held(bed).await;
    race.decide.send_replace(true);
    proof::bed::until("every evaluation to be settled", LIMIT, async || {
        (running.counters.settled(Ended::Done) == jobs).then_some(())
    })
    .await;
    let counters = running.stop().await;

    let two =
        "select count(*) from (select entity from incident where open = 1 group by entity having count(*) > 1) as d";
    assert_eq!(bed.count(two).await, 0, "never two open incidents");
    assert_eq!(
        bed.count("select count(*) from incident").await,
        ENTITIES,
        "and one each"
    );
    let changed = counters.changed();
    println!(
        "{}: {jobs} evaluations, {changed} caught by the guard, {} let through, {} tried again",
        bed.database.label(),
        race.opened.load(Ordering::SeqCst),
        counters.settled(Ended::Retried)
    );
    assert!(changed > 0, "the guard had something to do");
    assert_eq!(counters.settled(Ended::Retired), 0);
}

mod tests {
    super::super::cases!(racing_evaluations_over_a_small_pool_never_open_two_incidents);
}
