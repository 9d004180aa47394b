//! A finished job that people run once more, and a job that they retire by hand.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rowlock::{Ended, Error, Fail, Group, JobId, State, atomic};
use tokio::sync::Notify;

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{Bed, Note, Other, Running, Seen, fail, note, until};

const HOUR: Duration = Duration::from_secs(3600);

async fn rerun(bed: &Bed, id: JobId) {
    bed.rowlock.operate().rerun(id, Some("again"), "tess").await.unwrap();
}

/// What the audit says of this job, oldest first: verb, before, after, with the reason.
async fn noted(bed: &Bed, id: JobId) -> Vec<(String, String, String, String)> {
    let all =
        format!("select verb, before, after, coalesce(detail, '') from rowlock.audit where id = {id} order by no");
    let all = sqlx::query_as(super::sql(&all));
    all.fetch_all(&mut bed.conn().await).await.unwrap()
}

fn said(verb: &str, before: &str, after: &str, why: &str) -> (String, String, String, String) {
    (verb.into(), before.into(), after.into(), why.into())
}

async fn assert_holds(bed: &Bed) {
    let report = bed.rowlock.observe().verify(&Default::default()).await.unwrap();
    assert!(report.holds(), "{report:?}");
}

async fn a_done_job_runs_once_more_under_a_new_epoch(bed: &Bed) {
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    let uid = bed.job(id).await.uid;
    rerun(bed, id).await;
    let job = bed.job(id).await;
    assert_eq!((job.state, job.attempt, job.epoch), (State::Ready, 0, 1));
    assert_holds(bed).await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    let ends: Vec<_> = bed
        .attempts(id)
        .await
        .iter()
        .map(|a| (a.epoch, a.attempt, a.outcome))
        .collect();
    assert_eq!(ends, [(1, 1, Ended::Done), (2, 1, Ended::Done)]);
    assert_eq!((bed.ledger().await, bed.job(id).await.uid), (2, uid));
    assert_eq!(noted(bed, id).await, [said("rerun", "done", "ready", "again")]);
    assert_holds(bed).await;
}

async fn effects_and_once_keep_what_they_did(bed: &Bed) {
    let seen = Seen::default();
    let calls = seen.clone();
    let rowlock = bed.rowlock.clone();
    let handler = move |cx: Staged, _: Note| {
        let (calls, rowlock) = (calls.clone(), rowlock.clone());
        async move {
            let call = cx.effect("charge", async |key| {
                calls.push(key.to_string());
                Ok::<_, String>(7)
            });
            let paid: i64 = call.await?;
            let mut tx = cx.begin().await?;
            let first = matches!(rowlock.once(&mut tx, "mail").await?, rowlock::Once::First(_));
            tx.done().result(&(paid, first)).ok()
        }
    };
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(rowlock::staged(handler.clone())), &[id])
        .await;
    rerun(bed, id).await;
    bed.work(bed.worker().handle(rowlock::staged(handler)), &[id]).await;
    assert_eq!(seen.all().len(), 1, "one call, whatever the runs");
    let results: Vec<_> = bed
        .attempts(id)
        .await
        .into_iter()
        .map(|a| a.result.unwrap().to_string())
        .collect();
    assert_eq!(results, ["[7,true]", "[7,false]"]);
}

/// One link, several, and those of a batch: they take different statements.
async fn links_that_it_has_are_not_made_again(bed: &Bed) {
    let handler = |_: Ctx, job: Note, tx: Tx| async move {
        let done = tx.done().then(Other { n: 1 });
        match job.text.as_str() {
            "one" => done.ok(),
            _ => done.then(Other { n: 2 }).ok(),
        }
    };
    let batched = |cx: Staged, _: Note| async move { cx.done().then(Other { n: 1 }).ok() };
    let other = |_: Ctx, _: Other, tx: Tx| async move { tx.done().ok() };
    let links = async |id| bed.rowlock.observe().chain(id).await.unwrap().len() - 1;
    let (one, two) = (bed.note("one").await, bed.note("two").await);
    bed.work(bed.worker().handle(atomic(handler)).handle(atomic(other)), &[one, two])
        .await;
    let staged = bed.note("staged").await;
    bed.work(
        bed.worker().handle(rowlock::staged(batched)).handle(atomic(other)),
        &[staged],
    )
    .await;
    rerun(bed, staged).await;
    bed.work(
        bed.worker().handle(rowlock::staged(batched)).handle(atomic(other)),
        &[staged],
    )
    .await;
    rerun(bed, one).await;
    rerun(bed, two).await;
    bed.work(bed.worker().handle(atomic(handler)).handle(atomic(other)), &[one, two])
        .await;
    assert_eq!((links(one).await, links(two).await, links(staged).await), (1, 2, 1));
    assert_holds(bed).await;
}

async fn a_link_that_it_never_had_is_made(bed: &Bed) {
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    rerun(bed, id).await;
    let (one, two) = (
        |_: Ctx, _: Note, tx: Tx| async move { tx.done().then(Other { n: 1 }).ok() },
        |cx: Staged, _: Note| async move { cx.done().then(Other { n: 1 }).ok() },
    );
    bed.work(bed.worker().handle(atomic(one)), &[id]).await;
    let links = async |id| bed.rowlock.observe().chain(id).await.unwrap().len() - 1;
    assert_eq!(links(id).await, 1, "the first run made none");
    let batched = bed.note("y").await;
    bed.work(bed.worker().handle(atomic(note)), &[batched]).await;
    rerun(bed, batched).await;
    bed.work(bed.worker().handle(rowlock::staged(two)), &[batched]).await;
    rerun(bed, batched).await;
    bed.work(bed.worker().handle(rowlock::staged(two)), &[batched]).await;
    assert_eq!(links(batched).await, 1, "the second run made it, the third did not");
}

async fn a_rerun_that_is_retired_does_not_undo_what_was_done(bed: &Bed) {
    let put = || bed.rowlock.enqueue_now(Note::new("x")).if_retired(Other { n: 7 });
    let (failed, retired) = (put().await.unwrap().id(), put().await.unwrap().id());
    bed.work(bed.worker().handle(atomic(note)), &[failed, retired]).await;
    rerun(bed, retired).await;
    bed.rowlock.operate().retire(retired, None, "tess").await.unwrap();
    rerun(bed, failed).await;
    bed.work(bed.worker().handle(atomic(failing)), &[failed]).await;
    for id in [failed, retired] {
        assert_eq!(bed.job(id).await.state, State::Case);
        assert_eq!(
            bed.rowlock.observe().chain(id).await.unwrap().len(),
            1,
            "what it did stands"
        );
    }
}

async fn a_cancelled_job_that_is_rerun_gets_its_links(bed: &Bed) {
    let id = bed.note("x").await;
    bed.rowlock.operate().cancel(id, None, "tess").await.unwrap();
    rerun(bed, id).await;
    assert_eq!(bed.job(id).await.epoch, 1, "the cancel was one");
    let handler = |_: Ctx, _: Note, tx: Tx| async move { tx.done().then(Other { n: 1 }).ok() };
    bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    assert_eq!(bed.rowlock.observe().chain(id).await.unwrap().len(), 2);
    assert_eq!(bed.ends(id).await, [Ended::Cancelled, Ended::Done]);
    assert_holds(bed).await;
}

async fn it_waits_for_its_turn_in_its_group(bed: &Bed) {
    let put = async |text: &str| bed.rowlock.enqueue_now(Note::new(text)).group("a").await.unwrap().id();
    let first = put("1").await;
    bed.work(bed.worker().handle(atomic(note)), &[first]).await;
    let (second, third) = (put("2").await, put("3").await);
    rerun(bed, first).await;
    assert_eq!(bed.job(first).await.state, State::Waiting, "behind the head");
    assert_holds(bed).await;
    bed.work(bed.worker().handle(atomic(note)), &[first, second, third])
        .await;
    assert_eq!(bed.ledger().await, 4);
    rerun(bed, first).await;
    assert_eq!(bed.job(first).await.state, State::Ready, "nobody else is in the group");
    bed.work(bed.worker().handle(atomic(note)), &[first]).await;
    assert_holds(bed).await;
}

async fn what_cannot_be_rerun_is_refused_with_a_sentence(bed: &Bed) {
    let operate = bed.rowlock.operate();
    let ready = bed.note("x").await;
    let case = bed.note("case").await;
    operate.retire(case, None, "tess").await.unwrap();
    let expired = bed.rowlock.enqueue_now(Note::new("old"));
    let expired = expired.expires(Timestamp::now() + HOUR).await.unwrap().id();
    operate.cancel(expired, None, "tess").await.unwrap();
    let past = match bed.database.is_sqlite() {
        true => "1000000",
        false => "'1970-01-01T00:00:01Z'",
    };
    bed.run(&format!(
        "update rowlock.job set expires_at = {past} where id = {expired}"
    ))
    .await;
    let bare = bed.note("bare").await;
    operate.cancel(bare, None, "tess").await.unwrap();
    bed.run(&format!("delete from rowlock.outcome where id = {bare}")).await;
    for (id, expected) in [
        (ready, format!("job {ready} is ready, and cannot be re-run")),
        (case, format!("job {case} is case, and cannot be re-run")),
        (
            expired,
            format!("job {expired} expired at 1970-01-01T00:00:01Z, and cannot be re-run; enqueue a new job"),
        ),
        (
            bare,
            format!(
                "job {bare} cannot be re-run: its history was removed, or somebody else has just re-run it; check it \
                 again"
            ),
        ),
    ] {
        let refused = operate.rerun(id, None, "tess").await.unwrap_err();
        assert!(matches!(&refused, Error::Conflict(_)), "{refused:?}");
        assert_eq!(refused.to_string(), expected);
    }
    let refused = operate.rerun(999_999, None, "tess").await.unwrap_err();
    assert!(matches!(&refused, Error::NotFound(_)), "{refused:?}");
}

async fn a_job_retired_by_hand_is_a_case_and_is_compensated(bed: &Bed) {
    let operate = bed.rowlock.operate();
    let put = |text: &str| {
        bed.rowlock
            .enqueue_now(Note::new(text))
            .if_retired(Other { n: 7 })
            .tag("vip")
    };
    let (ready, waits) = (
        put("x").await.unwrap().id(),
        put("y").waits_for("approval").await.unwrap().id(),
    );
    for (id, was) in [(ready, "ready"), (waits, "waiting")] {
        operate.retire(id, Some("no stock"), "tess").await.unwrap();
        let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
        assert_eq!(
            (case.reason.as_str(), case.history.as_array().unwrap().len()),
            ("retired by tess: no stock", 1)
        );
        assert_eq!(bed.ends(id).await, [Ended::Retired]);
        assert_eq!(noted(bed, id).await, [said("retire", was, "case", "no stock")]);
        let again = operate.retire(id, None, "tess").await.unwrap_err();
        assert_eq!(again.to_string(), format!("job {id} is case, and cannot be retired"));
        let chain = bed.rowlock.observe().chain(id).await.unwrap();
        assert_eq!(chain.len(), 2);
        assert_eq!((chain[1].kind.as_str(), chain[1].state), ("other", State::Ready));
    }
    assert_holds(bed).await;
    let seen = Seen::default();
    let told = seen.clone();
    let other = move |_: Ctx, job: Other, tx: Tx| {
        told.push(job.n.to_string());
        async move { tx.done().ok() }
    };
    operate.reopen(ready, "tess").await.unwrap();
    let links: Vec<JobId> = bed
        .rowlock
        .observe()
        .chain(ready)
        .await
        .unwrap()
        .iter()
        .map(|l| l.id)
        .collect();
    let more = bed.rowlock.observe().chain(waits).await.unwrap()[1].id;
    let worker = bed.worker().handle(atomic(note)).handle(atomic(other));
    bed.work(worker, &[links[0], links[1], more]).await;
    assert_eq!(seen.all(), ["7", "7"]);
    assert_holds(bed).await;
}

async fn one_that_runs_cannot_end_as_done_any_more(bed: &Bed) {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, gate) = (begun.clone(), go_on.clone());
    let handler = move |cx: Staged, _: Note| {
        let (at, gate) = (at.clone(), gate.clone());
        async move {
            at.notify_one();
            gate.notified().await;
            cx.done().ok()
        }
    };
    let id = bed.note("x").await;
    let running = Running::start(bed.worker().handle(rowlock::staged(handler)));
    begun.notified().await;
    bed.rowlock.operate().retire(id, Some("late"), "tess").await.unwrap();
    go_on.notify_one();
    until("it to be told", async || running.counters.lease_lost() == 1).await;
    running.stop().await;
    assert_eq!(
        (bed.job(id).await.state, bed.ends(id).await),
        (State::Case, vec![Ended::Retired])
    );
    assert_eq!(noted(bed, id).await[0].1, "leased");
    assert_holds(bed).await;
}

async fn a_group_goes_on_or_stops_as_it_would(bed: &Bed) {
    let operate = bed.rowlock.operate();
    for (group, stops, next) in [("on", false, State::Ready), ("off", true, State::Waiting)] {
        let put = async |text: &str| {
            let group = Group::new(group);
            let group = if stops { group.stop_when_retired() } else { group };
            bed.rowlock
                .enqueue_now(Note::new(text))
                .group(group)
                .await
                .unwrap()
                .id()
        };
        let (head, behind) = (put("1").await, put("2").await);
        operate.retire(head, None, "tess").await.unwrap();
        assert_eq!(bed.job(behind).await.state, next, "{group}");
    }
    assert_holds(bed).await;
}

/// The same from any language: docs/operating.md.
async fn plain_sql_does_the_same(bed: &Bed) {
    // On SQLite a name has a number once a worker has served it.
    let warm = bed.note("warm").await;
    bed.work(bed.worker().handle(atomic(note)), &[warm]).await;
    let (retired, done) = (bed.note("x").await, bed.note("y").await);
    bed.rowlock.operate().cancel(done, None, "tess").await.unwrap();
    let (retire, rerun) = match bed.database.is_sqlite() {
        true => (
            format!("insert into rowlock_verb (verb, id, actor, reason) values ('retire', {retired}, 'ann', 'bad')"),
            format!("insert into rowlock_verb (verb, id, actor, reason) values ('rerun', {done}, 'ann', 'more')"),
        ),
        false => (
            format!("select rowlock.retire({retired}, 'bad', 'ann')"),
            format!("select rowlock.rerun({done}, 'more', 'ann')"),
        ),
    };
    bed.run_as_it_is(&retire).await;
    bed.run_as_it_is(&rerun).await;
    assert_eq!(noted(bed, done).await[1], said("rerun", "cancelled", "ready", "more"));
    // The numbers are those that workers claim by.
    bed.work(bed.worker().handle(atomic(note)), &[done]).await;
    assert_eq!(bed.job(retired).await.state, State::Case);
    assert_eq!(noted(bed, retired).await, [said("retire", "ready", "case", "bad")]);
    assert_holds(bed).await;
}

async fn failing(_: Ctx, _: Note, _: Tx) -> Outcome {
    fail(Fail::retire("no"))
}

async fn a_rerun_may_end_as_a_case_and_be_reopened(bed: &Bed) {
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    rerun(bed, id).await;
    bed.work(bed.worker().handle(atomic(failing)), &[id]).await;
    assert_eq!(bed.job(id).await.state, State::Case);
    bed.rowlock.operate().reopen(id, "tess").await.unwrap();
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Done, Ended::Retired, Ended::Done]);
    assert_holds(bed).await;
}

mod tests {
    super::super::cases!(
        a_done_job_runs_once_more_under_a_new_epoch,
        effects_and_once_keep_what_they_did,
        links_that_it_has_are_not_made_again,
        a_link_that_it_never_had_is_made,
        a_rerun_that_is_retired_does_not_undo_what_was_done,
        a_cancelled_job_that_is_rerun_gets_its_links,
        it_waits_for_its_turn_in_its_group,
        what_cannot_be_rerun_is_refused_with_a_sentence,
        a_job_retired_by_hand_is_a_case_and_is_compensated,
        one_that_runs_cannot_end_as_done_any_more,
        a_group_goes_on_or_stops_as_it_would,
        plain_sql_does_the_same,
        a_rerun_may_end_as_a_case_and_be_reopened,
    );
}
