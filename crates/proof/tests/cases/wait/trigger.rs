//! Jobs that a hint from outside starts: they stand until somebody triggers them, however often that is said.

use std::{
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rowlock::{
    Ended, Error, Fail, JobId, NamedJob, State, Triggered, atomic,
    observe::{Standing, Untaken},
};
use tokio::sync::Notify;
use uuid::Uuid;

use super::db::{Ctx, Tx};
use super::{AT_ONCE, Bed, Note, Running, fail, note, until};

async fn untriggered(bed: &Bed, text: &str) -> (JobId, Uuid) {
    let id = bed
        .rowlock
        .enqueue_now(Note::new(text))
        .on_trigger()
        .await
        .unwrap()
        .id();
    (id, bed.job(id).await.uid)
}

async fn pull(bed: &Bed, pointer: (JobId, Uuid)) -> Triggered {
    let mut said = bed.rowlock.trigger(&[pointer]).await.unwrap();
    assert_eq!(said.len(), 1);
    said.remove(0)
}

fn standing(said: &Triggered) -> &Standing {
    match said {
        Triggered::Now(standing) | Triggered::Already(standing) | Triggered::Over(standing) => standing,
        other => panic!("{other:?}"),
    }
}

async fn nobody_takes_a_job_that_was_not_triggered(bed: &Bed) {
    let pointer = untriggered(bed, "hinted").await;
    let plain = bed.note("plain").await;
    bed.work(bed.worker().handle(atomic(note)), &[plain]).await;
    assert_eq!(bed.job(pointer.0).await.state, State::Ready);
    assert!(bed.attempts(pointer.0).await.is_empty());
    let said = pull(bed, pointer).await;
    assert!(matches!(said, Triggered::Now(_)), "{said:?}");
    assert_eq!((standing(&said).epoch, standing(&said).state), (0, State::Ready));
    bed.work(bed.worker().handle(atomic(note)), &[pointer.0]).await;
    assert_eq!(bed.ledger().await, 2);
    assert_eq!(
        bed.count("select count(*) from rowlock.audit").await,
        0,
        "no deed of a person"
    );
}

async fn a_trigger_wakes_a_worker_that_is_idle(bed: &Bed) {
    let (seen, arrived) = (Arc::new(Mutex::new(None)), Arc::new(Notify::new()));
    let (at, here) = (seen.clone(), arrived.clone());
    let handler = move |_: Ctx, _: Note, tx: Tx| {
        *at.lock().unwrap() = Some(Instant::now());
        here.notify_one();
        async { tx.done().ok() }
    };
    let running = Running::start(bed.worker().handle(atomic(handler)));
    let mut waits = Vec::new();
    for _ in 0..4 {
        let pointer = untriggered(bed, "hinted").await;
        // Not a wait for a state: the worker must have been idle for a while.
        tokio::time::sleep(Duration::from_millis(560)).await;
        let _ = pull(bed, pointer).await;
        let pulled = Instant::now();
        arrived.notified().await;
        let started = seen.lock().unwrap().take().unwrap();
        waits.push(started.saturating_duration_since(pulled));
    }
    running.stop().await;
    // One may meet a busy machine. By polling alone it would take 300 ms or more.
    let prompt = waits.iter().filter(|w| **w < Duration::from_millis(200)).count();
    assert!(prompt >= 2, "{waits:?}");
}

async fn a_second_pointer_changes_nothing_and_says_where_the_job_stands(bed: &Bed) {
    let pointer = untriggered(bed, "x").await;
    let twice = bed.rowlock.trigger(&[pointer, pointer]).await.unwrap();
    assert!(
        matches!(twice[..], [Triggered::Now(_), Triggered::Already(_)]),
        "{twice:?}"
    );
    let due = bed.job(pointer.0).await.due_at;
    let again = pull(bed, pointer).await;
    assert!(
        matches!(&again, Triggered::Already(s) if s.state == State::Ready && s.due),
        "{again:?}"
    );
    assert_eq!(bed.job(pointer.0).await.due_at, due, "it keeps its place in the line");
    bed.work(bed.worker().handle(atomic(note)), &[pointer.0]).await;
    let over = pull(bed, pointer).await;
    assert!(
        matches!(&over, Triggered::Over(s) if s.state == State::Finished),
        "{over:?}"
    );
    assert_eq!(bed.ledger().await, 1);
}

async fn a_retry_needs_no_second_pointer_and_keeps_its_backoff(bed: &Bed) {
    let pointer = untriggered(bed, "x").await;
    let _ = pull(bed, pointer).await;
    let failing = |_: Ctx, _: Note, _: Tx| async { fail(Fail::retry("not today")) };
    bed.work_attempts(bed.worker().handle(atomic(failing)), pointer.0, 1)
        .await;
    let job = bed.job(pointer.0).await;
    let said = pull(bed, pointer).await;
    assert!(
        matches!(&said, Triggered::Already(s) if s.epoch == 1 && !s.due),
        "{said:?}"
    );
    assert_eq!(
        bed.job(pointer.0).await.due_at,
        job.due_at,
        "the row's own backoff stands"
    );
    let failing = |_: Ctx, _: Note, _: Tx| async { fail(Fail::retry("not today")) };
    bed.rowlock.operate().run_now(pointer.0, "tess").await.unwrap();
    bed.work(bed.worker().handle(atomic(failing).backoff(AT_ONCE)), &[pointer.0])
        .await;
    assert_eq!(
        bed.ends(pointer.0).await,
        [Ended::Retried, Ended::Retried, Ended::Retired]
    );
    let over = pull(bed, pointer).await;
    assert!(
        matches!(&over, Triggered::Over(s) if s.state == State::Case),
        "{over:?}"
    );
}

async fn a_pointer_of_another_database_triggers_nothing(bed: &Bed) {
    let (id, uid) = untriggered(bed, "x").await;
    let said = bed
        .rowlock
        .trigger(&[
            (id, Uuid::now_v7()),
            ((i64::from(id) + 1).into(), uid),
            ((-1).into(), uid),
        ])
        .await
        .unwrap();
    assert_eq!(said, [Triggered::Foreign, Triggered::Unknown, Triggered::Unknown]);
    assert_eq!(
        bed.count("select count(*) from rowlock.ready where due_at > (select max(created_at) from rowlock.job)")
            .await,
        1
    );
    assert_eq!(bed.rowlock.trigger(&[]).await.unwrap(), []);
    let many = vec![(id, uid); 1001];
    let refused = bed.rowlock.trigger(&many).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
}

async fn one_that_waits_for_its_turn_is_due_when_it_comes(bed: &Bed) {
    let put = async |text: &str| {
        let put = bed.rowlock.enqueue_now(Note::new(text)).group("a").on_trigger();
        let id = put.await.unwrap().id();
        (id, bed.job(id).await.uid)
    };
    let [first, second, third] = [put("1").await, put("2").await, put("3").await];
    let said = pull(bed, second).await;
    assert!(
        matches!(&said, Triggered::Now(s) if s.state == State::Waiting),
        "{said:?}"
    );
    let running = Running::start(bed.worker().handle(atomic(note)));
    let _ = pull(bed, first).await;
    until("the two", async || bed.job(second.0).await.state == State::Finished).await;
    let untaken = Untaken::untriggered("default", Duration::ZERO);
    until("the third at the head, untriggered", async || {
        let found = bed.rowlock.observe().untaken(&untaken).await.unwrap();
        found
            .iter()
            .map(|s| (s.id, s.group.as_deref()))
            .eq([(third.0, Some("a"))])
    })
    .await;
    let _ = pull(bed, third).await;
    until("the third", async || bed.job(third.0).await.state == State::Finished).await;
    running.stop().await;
    assert_eq!(bed.ledger().await, 3);
}

async fn one_that_waits_for_a_name_needs_both(bed: &Bed) {
    let put = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("approval")
        .on_trigger();
    let id = put.await.unwrap().id();
    let pointer = (id, bed.job(id).await.uid);
    let said = pull(bed, pointer).await;
    assert!(
        matches!(&said, Triggered::Now(s) if s.state == State::Waiting),
        "{said:?}"
    );
    let completed = bed.rowlock.complete_now("approval", &()).await.unwrap();
    assert_eq!(completed, rowlock::Completed::Now(1));
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
}

async fn what_nobody_has_taken_is_found_page_by_page(bed: &Bed) {
    let mut due = Vec::new();
    for _ in 0..5 {
        due.push(bed.note("due").await);
    }
    let mut hinted = Vec::new();
    for _ in 0..3 {
        hinted.push(untriggered(bed, "hinted").await.0);
    }
    let other = NamedJob::new("note", "{\"text\":\"elsewhere\"}")
        .queue("other")
        .on_trigger();
    let admin = rowlock::Admin::open(&bed.database.queue_url, "rowlock").unwrap();
    let _ = admin.enqueue(other).await.unwrap();
    let observe = bed.rowlock.observe();
    let page = async |which: Untaken, size: u32| {
        let mut which = which.limit(size);
        let mut ids = Vec::new();
        loop {
            let found = observe.untaken(&which).await.unwrap();
            ids.extend(found.iter().map(|s| s.id));
            match found.last().filter(|_| found.len() == size as usize) {
                Some(last) => which = which.after(last.due_at.map(|at| (at, last.id))),
                None => return ids,
            }
        }
    };
    for max in [1, 2, 5, 1000] {
        let which = Untaken::due("default", Duration::ZERO);
        assert_eq!(page(which, max).await, due, "in pages of {max}");
        let which = Untaken::untriggered("default", Duration::ZERO);
        assert_eq!(page(which, max).await, hinted, "in pages of {max}");
    }
    let hour = Duration::from_secs(3600);
    assert_eq!(page(Untaken::due("default", hour), 100).await, []);
    assert_eq!(page(Untaken::untriggered("default", hour), 100).await, []);
    let too_many = Untaken::due("default", hour).limit(1001);
    assert!(matches!(observe.untaken(&too_many).await, Err(Error::Invalid { .. })));
}

async fn where_many_jobs_stand_is_one_read(bed: &Bed) {
    let ready = untriggered(bed, "x").await.0;
    let put = async |text: &str| bed.rowlock.enqueue_now(Note::new(text)).group("a").await.unwrap().id();
    let (done, second) = (put("1").await, put("2").await);
    bed.work(bed.worker().handle(atomic(note)), &[done, second]).await;
    let case = bed.note("x").await;
    bed.rowlock.operate().retire(case, None, "tess").await.unwrap();
    let waiting = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("never")
        .await
        .unwrap()
        .id();
    let mut found = bed
        .rowlock
        .observe()
        .standing(&[ready, done, case, waiting, 999_999.into()])
        .await
        .unwrap();
    found.sort_by_key(|s| s.id);
    let states: Vec<(JobId, State)> = found.iter().map(|s| (s.id, s.state)).collect();
    let expected = [
        (ready, State::Ready),
        (done, State::Finished),
        (case, State::Case),
        (waiting, State::Waiting),
    ];
    assert_eq!(states, expected);
    assert!(found[0].untriggered() && !found[0].due);
    assert_eq!(found[1].group.as_deref(), Some("a"));
    let many = vec![ready; 1001];
    let refused = bed.rowlock.observe().standing(&many).await;
    assert!(matches!(refused, Err(Error::Invalid { .. })));
    assert!(bed.rowlock.observe().verify(&Default::default()).await.unwrap().holds());
}

async fn of_many_triggers_at_once_one_is_first(bed: &Bed) {
    let mut pointers = Vec::new();
    for _ in 0..20 {
        pointers.push(untriggered(bed, "x").await);
    }
    let mut backwards = pointers.clone();
    backwards.reverse();
    let calls = (0..8).map(|n| {
        let (rowlock, pointers) = (
            bed.rowlock.clone(),
            if n % 2 == 0 {
                pointers.clone()
            } else {
                backwards.clone()
            },
        );
        tokio::spawn(async move { rowlock.trigger(&pointers).await.unwrap() })
    });
    let calls: Vec<_> = calls.collect();
    let mut now = 0;
    for call in calls {
        let said = call.await.unwrap();
        now += said.iter().filter(|said| matches!(said, Triggered::Now(_))).count();
    }
    assert_eq!(now, pointers.len());
}

mod tests {
    super::super::cases!(
        nobody_takes_a_job_that_was_not_triggered,
        a_trigger_wakes_a_worker_that_is_idle,
        a_second_pointer_changes_nothing_and_says_where_the_job_stands,
        a_retry_needs_no_second_pointer_and_keeps_its_backoff,
        a_pointer_of_another_database_triggers_nothing,
        one_that_waits_for_its_turn_is_due_when_it_comes,
        one_that_waits_for_a_name_needs_both,
        what_nobody_has_taken_is_found_page_by_page,
        where_many_jobs_stand_is_one_read,
        of_many_triggers_at_once_one_is_first,
    );
}
