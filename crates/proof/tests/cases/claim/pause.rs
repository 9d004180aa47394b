//! Pausing a queue or a kind: nobody claims there within a second, what was claimed and not started comes back with its
//! attempt, and everything goes on when it is resumed.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rowlock::{Ended, Error, State, atomic, operate::Target, staged};
use tokio::sync::{Notify, Semaphore};

use super::db::{Ctx, Handler, Staged, Tx, Worker};
use super::{Bed, Note, Other, Running, until};

/// What is promised, from the operator's commit to the last worker's last claim.
const WITHIN: Duration = Duration::from_secs(1);

fn worker(bed: &Bed) -> Worker {
    let note = |_: Ctx, _: Note, tx: Tx| async move { tx.done().ok() };
    let other = |_: Ctx, _: Other, tx: Tx| async move { tx.done().ok() };
    Worker::new(&bed.rowlock)
        .queue("a", 4)
        .queue("b", 4)
        .handle(atomic(note))
        .handle(atomic(other))
}

async fn put(bed: &Bed, queue: &str, note: bool) -> i64 {
    let put = match note {
        true => bed.rowlock.enqueue_now(Note::new("x")).queue(queue).await,
        false => bed.rowlock.enqueue_now(Other { n: 1 }).queue(queue).await,
    };
    put.unwrap().id()
}

async fn is_done(bed: &Bed, id: i64) {
    until("it to be done", async || bed.job(id).await.state == State::Finished).await;
}

async fn pause(bed: &Bed, target: &Target) {
    assert!(bed.rowlock.operate().pause(target, "tess").await.unwrap());
}

async fn what_is_paused_is_left_alone_within_a_second_and_goes_on_when_resumed(bed: &Bed) {
    let running = Running::start(worker(bed));
    for target in [Target::queue("a"), Target::kind("note")] {
        is_done(bed, put(bed, "a", true).await).await;
        pause(bed, &target).await;
        tokio::time::sleep(WITHIN).await;
        let stopped = put(bed, "a", true).await;
        let by_kind = matches!(target, Target::Kind(_));
        // The rest goes on, and is looked for as often as this: after some rounds it would have been found.
        for _ in 0..3 {
            is_done(bed, put(bed, "b", !by_kind).await).await;
            if by_kind {
                is_done(bed, put(bed, "a", false).await).await;
            }
        }
        let job = bed.job(stopped).await;
        assert_eq!((job.state, job.epoch), (State::Ready, 0), "while {target} is paused");
        let resumed = Instant::now();
        assert!(bed.rowlock.operate().resume(&target, "tess").await.unwrap());
        is_done(bed, stopped).await;
        assert!(
            resumed.elapsed() < WITHIN,
            "{target} went on after {:?}",
            resumed.elapsed()
        );
    }
    running.stop().await;
}

async fn what_was_claimed_and_not_started_comes_back_with_its_attempt(bed: &Bed) {
    let kind = Target::kind("note");
    let running = unstarted_come_back(
        bed,
        |handler| handler,
        async || pause(bed, &kind).await,
        "paused before it started",
    )
    .await;
    assert!(bed.rowlock.operate().resume(&kind, "tess").await.unwrap());
    running.all_done(bed).await;
}

/// A worker whose jobs were stopped while one ran and the others were in its hands.
pub(crate) struct Stopped {
    running: Running,
    ids: Vec<i64>,
}

impl Stopped {
    /// Now that they may go on, they do.
    pub(crate) async fn all_done(self, bed: &Bed) {
        for id in self.ids {
            is_done(bed, id).await;
        }
        self.running.stop().await;
    }
}

/// One job runs, three more are in the worker's hands, and they are stopped: the one goes on to its end, the others
/// come back with their attempt, for this reason.
pub(crate) async fn unstarted_come_back(
    bed: &Bed,
    set: impl FnOnce(Handler) -> Handler,
    stop: impl AsyncFnOnce(),
    reason: &str,
) -> Stopped {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
    let (at, gate) = (begun.clone(), go_on.clone());
    let handler = move |cx: Staged, _: Note| {
        let (at, gate) = (at.clone(), gate.clone());
        async move {
            at.notify_one();
            let _permit = gate.acquire().await;
            cx.done().ok()
        }
    };
    let ids = bed
        .rowlock
        .enqueue_all_now((0..4).map(|_| Note::new("x")))
        .await
        .unwrap();
    let worker = Worker::new(&bed.rowlock)
        .queue("default", 1)
        .prefetch(3)
        .handle(set(staged(handler)));
    let running = Running::start(worker);
    begun.notified().await;
    until("all to be claimed", async || {
        bed.count("select count(*) from rowlock.lease").await == 4
    })
    .await;
    stop().await;
    tokio::time::sleep(WITHIN).await;
    go_on.add_permits(10);
    until("the others to be back", async || {
        bed.count("select count(*) from rowlock.ready").await == 3
    })
    .await;
    let mut done = 0;
    for id in &ids {
        let job = bed.job(*id).await;
        match job.state {
            // It had started, and goes on.
            State::Finished => {
                assert_eq!(bed.ends(*id).await, [Ended::Done]);
                done += 1;
            }
            _ => {
                assert_eq!((job.state, job.attempt), (State::Ready, 0));
                assert_eq!(bed.ends(*id).await, [Ended::Released]);
                let why = bed.attempts(*id).await[0].error.clone();
                assert_eq!(why.as_deref(), Some(reason));
            }
        }
    }
    assert_eq!(done, 1);
    Stopped { running, ids }
}

async fn a_worker_that_starts_later_leaves_it_alone_from_the_first_claim_on(bed: &Bed) {
    pause(bed, &Target::queue("a")).await;
    let stopped = put(bed, "a", true).await;
    let running = Running::start(worker(bed));
    is_done(bed, put(bed, "b", true).await).await;
    running.stop().await;
    assert_eq!(bed.job(stopped).await.epoch, 0);
}

async fn every_pause_is_noted_once_and_a_bad_name_is_refused(bed: &Bed) {
    let operate = bed.rowlock.operate();
    let (queue, kind) = (Target::queue("a"), Target::kind("note"));
    let said = [
        operate.pause(&queue, "tess").await.unwrap(),
        operate.pause(&queue, "theo").await.unwrap(),
        operate.pause(&kind, "tess").await.unwrap(),
        operate.resume(&kind, "theo").await.unwrap(),
        operate.resume(&kind, "theo").await.unwrap(),
    ];
    assert_eq!(said, [true, false, true, true, false]);
    let pauses = bed.rowlock.observe().pauses().await.unwrap();
    let pauses: Vec<_> = pauses.iter().map(|p| (&p.target, p.by.as_str())).collect();
    assert_eq!(pauses, [(&queue, "tess")]);
    let noted = "select count(*) from rowlock.audit where verb in ('pause', 'resume')";
    assert_eq!(bed.count(noted).await, 3);
    let resumed =
        "select count(*) from rowlock.audit where verb = 'resume' and actor = 'theo' and detail = 'kind:note'";
    assert_eq!(bed.count(resumed).await, 1);
    for target in [Target::queue(""), Target::kind("no spaces")] {
        let refused = operate.pause(&target, "tess").await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        let refused = operate.resume(&target, "tess").await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
    }
}

/// The same from any language: docs/operating.md.
async fn plain_sql_pauses_and_resumes_too(bed: &Bed) {
    let group = "account:42";
    let put = async || {
        let put = bed.rowlock.enqueue_now(Note::new("x")).group(group);
        put.await.unwrap().id()
    };
    let (head, behind) = (put().await, put().await);
    let say = |verb: &str, target: &str| match bed.database.is_sqlite() {
        true => format!("insert into rowlock_verb (verb, target, actor) values ('{verb}', '{target}', 'ann')"),
        false => format!("select rowlock.{verb}('{target}', 'ann')"),
    };
    let targets = ["queue:mail", "kind:send", "group:account:42"];
    for target in targets {
        for _ in 0..2 {
            bed.run_as_it_is(&say("pause", target)).await;
        }
    }
    let paused = bed.rowlock.observe().pauses().await.unwrap();
    let mut paused: Vec<_> = paused.iter().map(|p| (p.target.to_string(), p.by.as_str())).collect();
    paused.sort();
    let names = ["group account:42", "kind send", "queue mail"];
    assert_eq!(paused, names.map(|name| (name.to_owned(), "ann")));
    assert_eq!(bed.job(head).await.state, State::Waiting, "nobody claims it");
    for target in targets {
        for _ in 0..2 {
            bed.run_as_it_is(&say("resume", target)).await;
        }
    }
    assert!(bed.rowlock.observe().pauses().await.unwrap().is_empty());
    assert_eq!(bed.job(head).await.state, State::Ready);
    let handler = |_: Ctx, _: Note, tx: Tx| async move { tx.done().ok() };
    bed.work(bed.worker().handle(atomic(handler)), &[head, behind]).await;
    let noted = "select count(*) from rowlock.audit where actor = 'ann'";
    assert_eq!(bed.count(noted).await, 6, "each once");
    for bad in ["mail", "queue:", "", "table:mail"] {
        let said = sqlx::raw_sql(sqlx::AssertSqlSafe(say("pause", bad)));
        let said = said.execute(&mut bed.conn().await).await.unwrap_err().to_string();
        assert!(said.contains("queue:NAME, kind:NAME"), "{bad:?}: {said}");
    }
}

mod tests {
    super::super::cases!(
        what_is_paused_is_left_alone_within_a_second_and_goes_on_when_resumed,
        what_was_claimed_and_not_started_comes_back_with_its_attempt,
        a_worker_that_starts_later_leaves_it_alone_from_the_first_claim_on,
        every_pause_is_noted_once_and_a_bad_name_is_refused,
        plain_sql_pauses_and_resumes_too,
    );
}
