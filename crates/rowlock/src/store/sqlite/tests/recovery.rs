use super::*;
use crate::store::{Judged, sqlite::recover::WORKER_LOST};

/// Long enough that a worker without heartbeats is stale.
const STALE: Duration = Duration::from_secs(16);
const A_THIRD: Duration = Duration::from_secs(5);

async fn die(rig: &Rig) {
    rig.forward(STALE);
    assert!(rig.store.mark_dead().await.unwrap().dead.is_empty());
    rig.forward(A_THIRD);
    rig.store.mark_dead().await.unwrap();
}

#[tokio::test]
async fn a_worker_is_dead_only_when_seen_stale_twice() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    rig.forward(STALE);
    assert!(
        rig.store.mark_dead().await.unwrap().dead.is_empty(),
        "one look proves nothing"
    );
    assert!(
        rig.store.mark_dead().await.unwrap().dead.is_empty(),
        "nor does a second one right after it"
    );
    assert!(rig.store.beat(worker).await.unwrap());
    rig.forward(A_THIRD);
    assert!(
        rig.store.mark_dead().await.unwrap().dead.is_empty(),
        "a beat in between clears the suspicion"
    );
    rig.forward(STALE);
    assert!(
        rig.store.mark_dead().await.unwrap().dead.is_empty(),
        "it must be suspected anew"
    );
    rig.forward(A_THIRD);
    let judged = rig.store.mark_dead().await.unwrap();
    assert_eq!((judged.dead, judged.any, judged.look_in), (vec![worker], true, None));
    assert!(!rig.store.beat(worker).await.unwrap());
}

#[tokio::test]
async fn a_suspicion_says_when_to_look_again() {
    let rig = Rig::new().await;
    rig.worker().await;
    assert_eq!(rig.store.mark_dead().await.unwrap(), Judged::default());
    rig.forward(STALE);
    let look_in = async || rig.store.mark_dead().await.unwrap().look_in.expect("it is suspected");
    let first = look_in().await;
    assert!(
        first <= A_THIRD && first > A_THIRD - Duration::from_secs(1),
        "{first:?}"
    );
    rig.forward(Duration::from_secs(3));
    let second = look_in().await;
    assert!(second <= first - Duration::from_secs(3), "{second:?} after {first:?}");
}

#[tokio::test]
async fn a_dead_worker_cannot_claim() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    rig.store.enqueue(&[numbered(1)]).await.unwrap();
    die(&rig).await;
    assert!(matches!(
        rig.store.claim(&ask(worker, 1)).await.unwrap(),
        ClaimReply::Dead
    ));
    let unknown = WorkerId::random();
    assert!(matches!(
        rig.store.claim(&ask(unknown, 1)).await.unwrap(),
        ClaimReply::Dead
    ));
    assert_eq!(
        (rig.count("rowlock_ready").await, rig.count("rowlock_lease").await),
        (1, 0)
    );
}

#[tokio::test]
async fn a_lost_job_goes_back_to_be_claimed_alone() {
    let rig = Rig::new().await;
    let lost = rig.claimed(numbered(1)).await;
    assert!(rig.store.expire(10).await.unwrap().is_empty(), "its worker lives");
    die(&rig).await;
    let expired = rig.store.expire(10).await.unwrap();
    assert_eq!(expired.len(), 1);
    assert_eq!(
        (expired[0].token, expired[0].attempt, expired[0].retired),
        (lost.token, 1, false)
    );
    assert_eq!(
        (expired[0].kind.as_str(), expired[0].queue_no),
        ("charge", queue_no("orders"))
    );
    assert!(!settle(&rig.store, &lost, Ended::Done).await, "the old token is void");
    let worker = rig.worker().await;
    assert!(claim(&rig.store, worker, 1).await.is_empty());
    let stretches: Vec<Stretch> = (1..=5).map(stretch).collect();
    assert!(!rig.store.alone_due(&stretches, Duration::from_secs(1)).await.unwrap());
    rig.forward(Duration::from_secs(1));
    assert!(rig.store.alone_due(&stretches, Duration::from_secs(1)).await.unwrap());
    let mut alone = ask(worker, 1);
    alone.alone = true;
    let again = claim_by(&rig.store, &alone).await.pop().unwrap();
    assert_eq!((again.attempt, again.token.epoch, again.alone), (2, 2, true));
    let attempts = rig.store.attempts(lost.token.id).await.unwrap();
    assert_eq!(
        (attempts[0].outcome, attempts[0].error.as_deref()),
        (Ended::Lost, Some(WORKER_LOST))
    );
}

#[tokio::test]
async fn a_lost_job_without_attempts_left_becomes_a_case_and_is_compensated() {
    let rig = Rig::new().await;
    let mut draft = numbered(1);
    draft.attempts_max = 1;
    draft.if_retired = Some(super::cases::compensation("refund", &["money"]));
    let lost = rig.claimed(draft).await;
    die(&rig).await;
    let expired = rig.store.expire(10).await.unwrap();
    assert!(expired[0].retired);
    let case = rig.store.case(lost.token.id).await.unwrap().unwrap();
    assert_eq!((case.reason.as_str(), case.attempt), (WORKER_LOST, 1));
    assert_eq!(case.history[0]["outcome"], "lost");
    let links = rig.store.chain(lost.token.id).await.unwrap();
    assert_eq!(
        (links.len(), links[1].kind.as_str(), links[1].state),
        (2, "refund", State::Ready)
    );
}

#[tokio::test]
async fn dead_workers_are_forgotten_once_they_hold_nothing() {
    let rig = Rig::new().await;
    rig.claimed(numbered(1)).await;
    let idle = rig.worker().await;
    rig.store.leave(idle).await.unwrap();
    die(&rig).await;
    assert_eq!(rig.store.forget_dead().await.unwrap(), 1);
    assert_eq!(rig.store.status().await.unwrap().workers.len(), 1);
    assert_eq!(rig.store.expire(0).await.unwrap().len(), 0);
    assert_eq!(rig.store.expire(1).await.unwrap().len(), 1);
    assert_eq!(rig.store.forget_dead().await.unwrap(), 0);
    assert!(rig.store.status().await.unwrap().workers.is_empty());
}

#[tokio::test]
async fn history_and_bodies_go_when_their_retention_is_over() {
    let rig = Rig::new().await;
    let day = Duration::from_secs(86_400);
    let done = rig.claimed(numbered(1)).await;
    assert!(settle(&rig.store, &done, Ended::Done).await);
    let retried = rig.claimed(numbered(2)).await;
    assert!(settle(&rig.store, &retried, Ended::Retried).await);
    let mut retired = numbered(3);
    retired.kind = "other".into();
    let case = ids_of(rig.store.enqueue(&[retired]).await.unwrap())[0];
    sqlx::query(
        "insert into rowlock_case_file select id, 1, 1, 1, 0, 0, 3, 'why', 0, '[]', null, null, null from rowlock_ready where id = ?",
    )
    .bind(case)
    .execute(&mut rig.conn().await)
    .await
    .unwrap();
    rig.store.maintain(&kept(day)).await.unwrap();
    assert_eq!(
        (rig.count("rowlock_outcome").await, rig.count("rowlock_job").await),
        (2, 3),
        "nothing is old yet"
    );
    rig.forward(day + Duration::from_secs(1));
    rig.store.maintain(&kept(day)).await.unwrap();
    assert_eq!(rig.count("rowlock_outcome").await, 0);
    assert!(rig.store.job(done.token.id).await.unwrap().is_none());
    assert_eq!(
        state_of(&rig.store, retried.token.id).await,
        State::Ready,
        "it still has a place"
    );
    assert!(rig.store.job(case).await.unwrap().is_some());
}

#[tokio::test]
async fn pruning_is_not_stopped_by_a_batch_limit() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    rig.store
        .enqueue(&(0..2500).map(numbered).collect::<Vec<_>>())
        .await
        .unwrap();
    let jobs = claim(&rig.store, worker, 2500).await;
    let batch: Vec<_> = jobs.iter().map(|j| settlement(j, Ended::Done)).collect();
    assert!(rig.store.settle(&batch).await.unwrap().iter().all(|ok| *ok));
    rig.forward(Duration::from_secs(2));
    rig.store.maintain(&kept(Duration::from_secs(1))).await.unwrap();
    assert_eq!(
        (rig.count("rowlock_outcome").await, rig.count("rowlock_job").await),
        (0, 0)
    );
}
