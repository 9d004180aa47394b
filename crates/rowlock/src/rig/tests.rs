use serde::{Deserialize, Serialize};

use super::*;
use crate::{
    Job,
    effect::EffectFilter,
    handle::{Fail, atomic, staged},
    recover::Recovery,
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
    let rig = TestRig::sqlite().await.unwrap().handle(atomic(first));
    rig.enqueue(First { fail: false }).await.unwrap();

    rig.run_once().await.unwrap().expect_done().expect_next::<Second>();

    let none = rig.run_once().await.unwrap_err().to_string();
    assert!(none.starts_with("no job is due"), "{none}");
    rig.close().await.unwrap();
}

#[tokio::test]
async fn a_keyed_job_is_enqueued_once_and_a_refused_next_link_makes_a_case() {
    let keyed = || JobOptions::new().key("first");
    let handler = |cx: Staged, job: First| async move { cx.done().then_with(job, JobOptions::new().key("taken")).ok() };
    let rig = TestRig::sqlite().await.unwrap().handle(staged(handler));
    rig.enqueue_with(Second, JobOptions::new().key("taken")).await.unwrap();
    let id = rig.enqueue_with(First { fail: false }, keyed()).await.unwrap();
    assert_eq!(rig.enqueue_with(First { fail: false }, keyed()).await.unwrap(), id);

    let ran = rig.run_once().await.unwrap().expect(Ended::Retired).expect_no_next();
    let reason = ran.error.unwrap_or_default();
    assert!(
        reason.starts_with("key \"taken\" is already used by a different request"),
        "{reason}"
    );
    rig.close().await.unwrap();
}

#[tokio::test]
async fn upkeep_goes_by_the_rigs_clock() {
    let rig = TestRig::sqlite().await.unwrap().handle(atomic(first));
    let id = rig.enqueue(First { fail: false }).await.unwrap();
    rig.run_once().await.unwrap().expect_done();
    rig.upkeep(&Retention::new()).await.unwrap();
    assert!(rig.rowlock().observe().job(id).await.unwrap().is_some());
    rig.advance(Duration::from_secs(15 * 24 * 3600));
    rig.upkeep(&Retention::new()).await.unwrap();
    assert!(rig.rowlock().observe().job(id).await.unwrap().is_none());
    rig.close().await.unwrap();
}

#[tokio::test]
async fn the_clock_moves_a_retry_into_reach() {
    let rig = TestRig::sqlite().await.unwrap().handle(atomic(first));
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
async fn a_crash_before_the_commit_gets_the_stored_reply_without_a_call() {
    let calls = Arc::new(std::sync::Mutex::new(Vec::new()));
    let rig = TestRig::sqlite()
        .await
        .unwrap()
        .state(calls.clone())
        .handle(staged(second));
    let id = rig.enqueue(Second).await.unwrap();

    assert_eq!(rig.lose_before_commit().await.unwrap(), id);
    rig.run_once().await.unwrap().expect_done();

    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.len(), 1, "{calls:?}");
    let effects = rig.rowlock().observe().effects(&EffectFilter::new()).await.unwrap();
    assert_eq!((effects.len(), effects[0].key.as_str()), (1, calls[0].as_str()));
    let attempts = rig.rowlock().observe().attempts(id).await.unwrap();
    let ended: Vec<_> = attempts.iter().map(|a| a.outcome).collect();
    assert_eq!(ended, [Ended::Lost, Ended::Done]);
    rig.close().await.unwrap();
}

#[tokio::test]
async fn a_lost_worker_costs_an_attempt() {
    let rig = TestRig::sqlite().await.unwrap().handle(atomic(first));
    let id = rig.enqueue(First { fail: false }).await.unwrap();

    rig.lose_before_running().await.unwrap();
    rig.lose_before_running().await.unwrap();

    let job = rig.rowlock().observe().job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt), (State::Case, 2));
    rig.close().await.unwrap();
}

/// The rig's clock also controls when recovery declares workers dead.
type SqliteRig = TestRig<(), sqlx::Sqlite>;

/// A worker that has been silent for long.
async fn silent(rig: &SqliteRig) -> Result<()> {
    let store = rig.rowlock().store();
    store.register(WorkerId::random(), "silent", LEASE, &[]).await?;
    rig.advance(4 * LEASE);
    Ok(())
}

/// Two rounds, far enough apart for SQLite's second look; how many workers are left.
async fn judge(rig: &SqliteRig, recovery: &mut Recovery, may_judge: bool) -> Result<usize> {
    for _ in 0..2 {
        recovery.round(rig.rowlock().store(), may_judge).await?;
        rig.advance(LEASE / 3 + Duration::from_secs(1));
    }
    recovery.round(rig.rowlock().store(), may_judge).await?;
    Ok(rig.rowlock().observe().status().await?.workers.len())
}

#[tokio::test]
async fn a_silent_worker_is_declared_dead_and_forgotten() {
    let rig = TestRig::sqlite().await.unwrap();
    silent(&rig).await.unwrap();
    assert_eq!(judge(&rig, &mut Recovery::new(LEASE), true).await.unwrap(), 0);
    rig.close().await.unwrap();
}

#[tokio::test]
async fn a_worker_in_doubt_about_itself_judges_nobody() {
    let rig = TestRig::sqlite().await.unwrap();
    silent(&rig).await.unwrap();
    assert_eq!(judge(&rig, &mut Recovery::new(LEASE), false).await.unwrap(), 1);
    rig.close().await.unwrap();
}

#[tokio::test]
async fn right_after_an_outage_nobody_is_declared_dead() {
    let rig = TestRig::sqlite().await.unwrap();
    silent(&rig).await.unwrap();
    let away = crate::sqlite::Rowlock::open("sqlite:no-such-folder/no-such.db").unwrap();
    let mut recovery = Recovery::new(LEASE);
    assert!(recovery.round(away.store(), true).await.is_err());
    assert_eq!(judge(&rig, &mut recovery, true).await.unwrap(), 1);
    rig.close().await.unwrap();
}

async fn waits(_cx: Ctx, _job: Second, mut tx: Tx) -> Outcome {
    let answer: Option<i64> = tx.answer().await?;
    tx.done().result(&answer).ok()
}

#[tokio::test]
async fn a_wait_ends_by_a_completion_or_by_the_rigs_clock() {
    let rig = TestRig::sqlite().await.unwrap().handle(atomic(waits));
    let minute = Duration::from_secs(60);
    let wait = |name| JobOptions::new().waits_for(name).wait_limit(minute);
    let comes = rig.enqueue_with(Second, wait("comes")).await.unwrap();
    let never = rig.enqueue_with(Second, wait("never")).await.unwrap();
    assert!(rig.run_once().await.is_err(), "both wait");

    let moved = rig.rowlock().complete_now("comes", &7).await.unwrap();
    assert_eq!(moved, crate::Completed::Now(1));
    let ran = rig.run_once().await.unwrap().expect_done();
    assert_eq!((ran.id, ran.job.unwrap().result), (comes, Some(7.into())));
    rig.advance(minute);
    assert!(rig.run_once().await.is_err(), "its limit ended it");
    let job = rig.rowlock().observe().job(never).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempt), (State::Case, 0));
    rig.close().await.unwrap();
}

async fn hooked(cx: Ctx<Arc<std::sync::Mutex<Vec<i32>>>>, job: First, mut tx: Tx) -> Outcome {
    let (seen, attempt) = (cx.state().clone(), cx.attempt());
    tx.after_commit(async move {
        seen.lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .push(attempt);
        Ok::<_, Fail>(())
    });
    if job.fail && attempt == 1 {
        return Err(Fail::retry_after(Duration::ZERO, "told to"));
    }
    tx.done().ok()
}

#[tokio::test]
async fn hooks_run_in_the_rig_after_a_commit_and_not_before_one() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let rig = TestRig::sqlite()
        .await
        .unwrap()
        .state(seen.clone())
        .handle(atomic(hooked));
    rig.enqueue(First { fail: true }).await.unwrap();
    rig.run_once().await.unwrap().expect(Ended::Retried);
    rig.lose_before_commit().await.unwrap();
    assert!(seen.lock().unwrap().is_empty(), "nothing was committed yet");
    rig.enqueue(First { fail: false }).await.unwrap();
    rig.run_once().await.unwrap().expect_done();
    assert_eq!(*seen.lock().unwrap(), [1]);
    rig.close().await.unwrap();
}

#[cfg(feature = "postgres")]
#[derive(Serialize, Deserialize, Job)]
struct Note(String);

#[cfg(feature = "postgres")]
#[tokio::test]
async fn no_debug_text_shows_a_password_or_a_payload() {
    let rowlock = crate::postgres::Rowlock::open("postgres://app:secret@127.0.0.1/shop").unwrap();
    let worker = crate::Worker::new(&rowlock).state("secret").queue("mail", 1);
    let admin = crate::Admin::open("postgres://app:secret@127.0.0.1/shop", "rowlock").unwrap();
    let named = crate::NamedJob::new("mail", "\"secret\"").key("k");
    let options = JobOptions::new().queue("mail").if_retired(Note("secret".into()));
    let raw = crate::RawJob {
        kind: "mail".into(),
        version: 1,
        payload: "\"secret\"".into(),
    };
    let rig = TestRig::sqlite().await.unwrap();
    rig.enqueue(Note("secret".into())).await.unwrap();
    let job = rig.rowlock().observe().job(1).await.unwrap();
    let enqueue = rig.rowlock().enqueue_now(Note("secret".into()));
    let shown: [&dyn std::fmt::Debug; 9] = [&rowlock, &worker, &admin, &named, &options, &raw, &rig, &job, &enqueue];
    for shown in shown {
        let text = format!("{shown:?}");
        assert!(!text.contains("secret"), "{text}");
        assert!(text.len() > 5, "{text}");
    }
    drop(enqueue);
    rig.close().await.unwrap();
}
