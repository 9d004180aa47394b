//! Retention of what jobs wait for and hold: a completion lives as long as a body that needs it, however old, and what
//! nobody needs goes in one upkeep, however much it is.

use std::time::Duration;

use rowlock::{BegunByHand, Fail, Retention, State, atomic};

use super::db::{Ctx, Tx};
use super::{Bed, Note, Other, fail, policy::Rigged};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Keys, and with them completions, go after 180 days; cases stay.
const KEEP: Retention = Retention::new()
    .history(Duration::from_secs(14 * 24 * 3600))
    .cases_for_ever()
    .keys(Duration::from_secs(180 * 24 * 3600))
    .audit_for_ever();

/// Its first attempt gives up, any later one returns the answer.
async fn rigged(bed: &Bed) -> Rigged {
    let mut rigged = Rigged::empty(bed).await;
    let note = |_: Ctx, _: Note, mut tx: Tx| async move {
        let answer: Option<String> = tx.answer().await?;
        tx.done().result(&answer).ok()
    };
    let other = |cx: Ctx, _: Other, mut tx: Tx| async move {
        let answer: Option<String> = tx.answer().await?;
        match cx.epoch() {
            1 => fail(Fail::retire("no")),
            _ => tx.done().result(&answer).ok(),
        }
    };
    rigged.rig = rigged.rig.handle(atomic(note)).handle(atomic(other));
    rigged
}

async fn complete(rigged: &Rigged, name: &str) {
    let mut conn = rigged.rig.connect().await.unwrap();
    let _ = rigged
        .rig
        .rowlock()
        .complete(&mut BegunByHand::new(&mut conn), name, "yes")
        .await
        .unwrap();
}

async fn completions(rigged: &Rigged) -> i64 {
    rigged.count("select count(*) from rowlock.completion").await
}

async fn a_case_reopened_long_after_its_completion_runs_with_the_answer(bed: &Bed) {
    let rigged = rigged(bed).await;
    let rowlock = rigged.rig.rowlock();
    let id = rowlock.enqueue_now(Other { n: 1 }).waits_for("a").await.unwrap().id();
    complete(&rigged, "a").await;
    rigged.rig.run_once().await.unwrap();
    assert_eq!(rigged.state(id).await, Some(State::Case));
    rigged.pass(400 * DAY, KEEP).await;
    assert_eq!(completions(&rigged).await, 1, "the case may need it");

    rowlock.operate().reopen(id, "test").await.unwrap();
    assert_eq!(rigged.state(id).await, Some(State::Ready));
    let ran = rigged.rig.run_once().await.unwrap();
    assert_eq!((ran.id, ran.job.unwrap().result), (id, Some("yes".into())));

    // With the body goes what it needed.
    rigged.pass(15 * DAY, KEEP).await;
    assert_eq!((rigged.state(id).await, completions(&rigged).await), (None, 0));
    rigged.rig.close().await.unwrap();
}

async fn a_job_that_is_due_long_after_its_completion_reads_the_answer(bed: &Bed) {
    let rigged = rigged(bed).await;
    let rowlock = rigged.rig.rowlock();
    let later = rowlock.enqueue_now(Note::new("x")).waits_for("a").after(200 * DAY);
    let id = later.await.unwrap().id();
    complete(&rigged, "a").await;
    assert_eq!(rigged.state(id).await, Some(State::Ready));
    rigged.pass(190 * DAY, KEEP).await;
    rigged.pass(11 * DAY, KEEP).await;
    let ran = rigged.rig.run_once().await.unwrap();
    assert_eq!((ran.id, ran.job.unwrap().result), (id, Some("yes".into())));
    rigged.rig.close().await.unwrap();
}

async fn one_upkeep_removes_any_number_of_completions_and_locks_of_the_dead(bed: &Bed) {
    let rigged = rigged(bed).await;
    let now = rigged.now();
    rigged
        .run(&format!(
            "with recursive n (n) as (select 1 union all select n + 1 from n where n < 12000)
             insert into rowlock.completion (name, completed_at) select 'name ' || n, {now} from n;
             with recursive n (n) as (select 1 union all select n + 1 from n where n < 12000)
             insert into rowlock.body_lock (key, slot, id, epoch, worker, taken_at) select 'key ' || n, 1, n, 1, 7, {now} from n"
        ))
        .await;
    rigged.pass(181 * DAY, KEEP).await;
    let locks = rigged.count("select count(*) from rowlock.body_lock").await;
    assert_eq!((completions(&rigged).await, locks), (0, 0));
    rigged.rig.close().await.unwrap();
}

async fn a_retention_longer_than_time_keeps_everything(bed: &Bed) {
    let rigged = rigged(bed).await;
    let done = rigged.rig.enqueue(Note::new("x")).await.unwrap();
    let case = rigged.rig.enqueue(Other { n: 1 }).await.unwrap();
    rigged.rig.run_once().await.unwrap();
    rigged.rig.run_once().await.unwrap();
    complete(&rigged, "a").await;
    // The longest there is, and one that ends before any year that can be written.
    for long in [Duration::MAX, 12_000 * 365 * DAY, 3000 * 365 * DAY] {
        let keep = Retention::new().history(long).cases(long).keys(long).audit(long);
        assert_eq!(rigged.pass(DAY, keep).await, 0, "{long:?}");
        assert_eq!(rigged.state(done).await, Some(State::Finished));
        assert_eq!(rigged.state(case).await, Some(State::Case));
        assert_eq!(completions(&rigged).await, 1);
    }
    rigged.rig.close().await.unwrap();
}

mod tests {
    // A rig brings its own tables.
    super::super::cases!(bare:
        a_case_reopened_long_after_its_completion_runs_with_the_answer,
        a_job_that_is_due_long_after_its_completion_reads_the_answer,
        one_upkeep_removes_any_number_of_completions_and_locks_of_the_dead,
        a_retention_longer_than_time_keeps_everything,
    );
}
