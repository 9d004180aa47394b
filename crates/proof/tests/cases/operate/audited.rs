//! Operate: the human verbs, audited, refused with a sentence when the job is not where it must be.

use rowlock::{Ended, Error, JobId, State, atomic};

use super::db::{Ctx, Tx};
use super::{AT_ONCE, Bed, Note, fail, note};

/// A job that has used up its attempts.
async fn a_case(bed: &Bed) -> JobId {
    let id = bed.note("x").await;
    let failing = |cx: Ctx, _: Note, _tx: Tx| async move { fail(format!("failure {}", cx.epoch())) };
    bed.work(bed.worker().handle(atomic(failing).backoff(AT_ONCE)), &[id])
        .await;
    assert_eq!(bed.job(id).await.state, State::Case);
    id
}

async fn a_reopened_case_has_all_its_attempts_under_the_same_uid_and_a_rising_epoch(bed: &Bed) {
    let id = a_case(bed).await;
    let before = bed.job(id).await;
    bed.rowlock.operate().reopen(id, "ana").await.unwrap();

    let opened = bed.job(id).await;
    assert_eq!(
        (opened.state, opened.attempt, opened.attempts_max),
        (State::Ready, 0, 3)
    );
    assert_eq!((opened.uid, opened.epoch), (before.uid, 3));
    assert!(bed.rowlock.observe().case(id).await.unwrap().is_none());
    assert_eq!(
        bed.count("select count(*) from rowlock.audit where actor = 'ana' and verb = 'reopen'")
            .await,
        1
    );

    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    let ends = [Ended::Retried, Ended::Retried, Ended::Retired, Ended::Done];
    assert_eq!(bed.ends(id).await, ends);
    let done = &bed.attempts(id).await[3];
    assert_eq!((done.epoch, done.attempt, bed.ledger().await), (4, 1, 1));
}

async fn a_case_reopened_in_vain_shows_the_attempts_of_both_times(bed: &Bed) {
    let id = a_case(bed).await;
    bed.rowlock.operate().reopen(id, "ana").await.unwrap();
    let failing = |cx: Ctx, _: Note, _tx: Tx| async move { fail(format!("failure {}", cx.epoch())) };
    bed.work(bed.worker().handle(atomic(failing).backoff(AT_ONCE)), &[id])
        .await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    let epochs: Vec<_> = case
        .history
        .as_array()
        .unwrap()
        .iter()
        .map(|h| h["epoch"].as_i64().unwrap())
        .collect();
    assert_eq!((epochs, case.reason.as_str()), (vec![1, 2, 3, 4, 5, 6], "failure 6"));
}

async fn only_a_case_can_be_reopened(bed: &Bed) {
    let ready = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .after(std::time::Duration::from_secs(3600))
        .await
        .unwrap()
        .id();
    let done = bed.note("done").await;
    bed.work(bed.worker().handle(atomic(note)), &[done]).await;
    let refusal = async |id| match bed.rowlock.operate().reopen(id, "ana").await {
        Err(Error::NotFound(sentence) | Error::Conflict(sentence)) => sentence,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(
        refusal(ready).await,
        format!("job {ready} is ready, not a case; only cases can be reopened")
    );
    assert_eq!(
        refusal(done).await,
        format!("job {done} is finished, not a case; only cases can be reopened")
    );
    assert_eq!(
        refusal(4711.into()).await,
        "no job 4711; `rowlock cases` lists what can be reopened"
    );
    assert_eq!(
        bed.count("select count(*) from rowlock.audit").await,
        0,
        "what did not happen is not audited"
    );
    assert_eq!(bed.ledger().await, 1);
}

async fn of_two_who_reopen_at_once_one_is_refused(bed: &Bed) {
    let id = a_case(bed).await;
    let (operate, also) = (bed.rowlock.operate(), bed.rowlock.operate());
    let (a, b) = tokio::join!(operate.reopen(id, "ana"), also.reopen(id, "bob"));
    assert_eq!([&a, &b].into_iter().filter(|r| r.is_ok()).count(), 1, "{a:?} {b:?}");
    assert_eq!(bed.count("select count(*) from rowlock.audit").await, 1);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 1);
}

mod tests {
    super::super::cases!(
        a_reopened_case_has_all_its_attempts_under_the_same_uid_and_a_rising_epoch,
        a_case_reopened_in_vain_shows_the_attempts_of_both_times,
        only_a_case_can_be_reopened,
        of_two_who_reopen_at_once_one_is_refused,
    );
}
