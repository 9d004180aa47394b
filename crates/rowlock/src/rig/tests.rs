use serde::{Deserialize, Serialize};

use super::*;
use crate::{
    Job,
    handle::Fail,
    sqlite::{Ctx, Outcome, Staged, Tx},
    state::State,
};

#[derive(Serialize, Deserialize, Job)]
#[job(attempts = 2)]
struct First {
    fail: bool,
}

#[derive(Serialize, Deserialize, Job)]
#[job(queue = "elsewhere")]
struct Second;

async fn first(_cx: Ctx, job: First, tx: Tx) -> Outcome {
    if job.fail {
        return Err(Fail::retry("told to"));
    }
    tx.done().then(Second).ok()
}

async fn second(cx: Staged<Arc<std::sync::Mutex<Vec<String>>>>, _job: Second) -> Outcome {
    let seen = cx.state().clone();
    cx.effect("call", |key| async move {
        seen.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(key.to_string());
        Ok::<_, Fail>(())
    })
    .await?;
    cx.done().ok()
}

#[tokio::test]
async fn a_chain_runs_link_by_link() {
    let rig = TestRig::sqlite().await.unwrap().atomic(first);
    rig.enqueue(First { fail: false }).await.unwrap();

    rig.run_once().await.unwrap().expect_done().expect_next::<Second>();

    let none = rig.run_once().await.unwrap_err().to_string();
    assert!(none.starts_with("nothing is due"), "{none}");
    rig.close().await.unwrap();
}

#[tokio::test]
async fn the_clock_moves_a_retry_into_reach() {
    let rig = TestRig::sqlite().await.unwrap().atomic(first);
    let id = rig.enqueue(First { fail: true }).await.unwrap();

    rig.run_once().await.unwrap().expect(Ended::Retried);
    assert!(rig.run_once().await.is_err(), "not due yet");
    rig.advance(Duration::from_secs(2));
    rig.run_once().await.unwrap().expect(Ended::Retired);

    let case = rig.rowlock().observe().case(id).await.unwrap().unwrap();
    assert_eq!((case.reason.as_str(), case.attempt), ("told to", 2));
    rig.close().await.unwrap();
}

#[tokio::test]
async fn a_crash_before_the_commit_repeats_the_effect_under_the_same_key() {
    let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
    let rig = TestRig::sqlite().await.unwrap().state(calls.clone()).staged(second);
    let id = rig.enqueue(Second).await.unwrap();

    assert_eq!(rig.lose_before_commit().await.unwrap(), id);
    rig.run_once().await.unwrap().expect_done();

    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], calls[1]);
    let attempts = rig.rowlock().observe().attempts(id).await.unwrap();
    let ended: Vec<_> = attempts.iter().map(|a| a.outcome).collect();
    assert_eq!(ended, [Ended::Lost, Ended::Done]);
    rig.close().await.unwrap();
}

#[tokio::test]
async fn a_lost_worker_costs_an_attempt() {
    let rig = TestRig::sqlite().await.unwrap().atomic(first);
    let id = rig.enqueue(First { fail: false }).await.unwrap();

    rig.lose_before_running().await.unwrap();
    rig.lose_before_running().await.unwrap();

    let job = rig.rowlock().observe().job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt), (State::Case, 2));
    rig.close().await.unwrap();
}
