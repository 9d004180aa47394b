//! The body lock: as many in the body as there are slots, none of them on a connection, and a lost lease loses it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};

use rowlock::{Ended, State, atomic, staged};
use tokio::sync::{Barrier, Notify};
use tokio_util::sync::CancellationToken;

use super::db::{Conn, Outcome, Staged, Worker};
use super::{Bed, LEASE, Note, Other, Running, Seen, note, until, vanish, write};

/// How many are in the body now, and were at most.
#[derive(Clone, Default)]
struct Inside(Arc<(AtomicI64, AtomicI64)>);

impl Inside {
    fn enter(&self) {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
    }

    fn leave(&self) {
        self.0.0.fetch_sub(1, Ordering::SeqCst);
    }

    fn most(&self) -> i64 {
        self.0.1.load(Ordering::SeqCst)
    }
}

fn wide(bed: &Bed) -> Worker {
    Worker::new(&bed.rowlock)
        .queue("default", 50)
        .grace(Duration::from_secs(5))
}

/// Fifty concurrent jobs want one key; half of them release it by hand, the others let it end with the attempt.
async fn never_more_than_the_slots(bed: &Bed, slots: i32, jobs: i64) {
    let ids = bed
        .rowlock
        .enqueue_all_now((0..jobs).map(|n| Other { n }))
        .await
        .unwrap();
    let inside = Inside::default();
    let entered = inside.clone();
    let handler = move |cx: Staged, job: Other| {
        let inside = entered.clone();
        async move {
            let lock = cx
                .lock("customer:42")
                .slots(slots)
                .timeout(Duration::from_secs(60))
                .await?;
            inside.enter();
            // The first ones stay until every slot is taken, however long that takes.
            until("all slots to be taken", async || inside.most() >= i64::from(slots)).await;
            tokio::time::sleep(Duration::from_millis(3)).await;
            inside.leave();
            if job.n % 2 == 0 {
                assert!(lock.release().await?, "it was ours");
            }
            cx.done().ok()
        }
    };
    // A lease that is renewed in time also while fifty handlers ask for the lock on a busy machine.
    let worker = wide(bed).lease(Duration::from_secs(60)).handle(staged(handler));
    bed.work(worker, &ids).await;
    assert_eq!(inside.most(), i64::from(slots), "in the body at once");
    let done = bed
        .count("select count(*) from rowlock.outcome where outcome = 'done'")
        .await;
    // On a busy machine some wait without success and come back. Each is a deferral, which costs no attempt.
    let others = bed
        .count("select count(*) from rowlock.outcome where outcome not in ('done', 'deferred')")
        .await;
    assert_eq!(
        (done, others),
        (jobs, 0),
        "each is done once, and none failed or was lost"
    );
}

async fn one_slot_is_never_two_under_fifty_concurrent_handlers(bed: &Bed) {
    never_more_than_the_slots(bed, 1, 100).await;
}

async fn three_slots_are_never_four_under_fifty_concurrent_handlers(bed: &Bed) {
    never_more_than_the_slots(bed, 3, 150).await;
}

async fn keys_do_not_meet(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now((0..4).map(|n| Other { n })).await.unwrap();
    let meet = Arc::new(Barrier::new(4));
    let handler = move |cx: Staged, job: Other| {
        let meet = meet.clone();
        async move {
            let lock = cx.lock(format!("customer:{}", job.n)).await?;
            meet.wait().await;
            assert_eq!(lock.slot(), 1);
            cx.done().ok()
        }
    };
    bed.work(bed.worker().handle(staged(handler)), &ids).await;
}

async fn a_job_that_finds_no_slot_is_deferred_and_keeps_its_attempts(bed: &Bed) {
    let holder = bed.rowlock.enqueue_now(Other { n: 0 }).await.unwrap().id();
    let (taken, leave) = (Arc::new(Notify::new()), CancellationToken::new());
    let (holds, left) = (taken.clone(), leave.clone());
    let handler = move |cx: Staged, _: Other| {
        let (holds, left) = (holds.clone(), left.clone());
        async move {
            let _lock = cx.lock("k").await?;
            holds.notify_one();
            left.cancelled().await;
            cx.done().ok()
        }
    };
    let other = |cx: Staged, _: Note| async move {
        let _lock = cx.lock("k").await?;
        cx.done().ok()
    };
    let running = Running::start(bed.worker().handle(staged(handler)).handle(staged(other)));
    taken.notified().await;
    let id = bed.rowlock.enqueue_now(Note::new("x")).attempts(1).await.unwrap().id();
    until("it to come back twice", async || bed.ends(id).await.len() >= 2).await;
    assert!(bed.ends(id).await.iter().all(|e| *e == Ended::Deferred));
    assert!(bed.job(id).await.attempt <= 1, "of its one attempt");
    let late = bed.job(id).await;
    if let (Some(due), Some(ended)) = (late.due_at, late.last_ended_at) {
        let away = due.duration_since(ended).as_millis();
        assert!((490..=30_500).contains(&away), "deferred for {away} ms");
    }
    leave.cancel();
    for id in [holder, id] {
        until("both to be done", async || bed.job(id).await.state == State::Finished).await;
    }
    running.stop().await;
    assert_eq!(bed.ends(id).await.last(), Some(&Ended::Done));
}

async fn no_connection_is_held_while_a_lock_is(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now((0..4).map(|n| Other { n })).await.unwrap();
    let (meet, leave) = (Arc::new(Barrier::new(5)), CancellationToken::new());
    let (met, left) = (meet.clone(), leave.clone());
    let handler = move |cx: Staged, _: Other| {
        let (met, left) = (met.clone(), left.clone());
        async move {
            let lock = cx.lock("k").slots(4).await?;
            met.wait().await;
            left.cancelled().await;
            assert!(lock.release().await?);
            let id = cx.id();
            let mut tx = cx.begin().await?;
            write(&mut tx, id, "back").await?;
            tx.done().ok()
        }
    };
    // One connection for all: were it held with the lock, the atomic job beside them could not run.
    let running = Running::start(bed.worker().connections(1).handle(staged(handler)).handle(atomic(note)));
    meet.wait().await;
    assert_eq!(bed.count("select count(*) from rowlock.body_lock").await, 4);
    let meanwhile = bed.note("meanwhile").await;
    until("an atomic job beside them", async || {
        bed.job(meanwhile).await.state == State::Finished
    })
    .await;
    if !bed.database.is_sqlite() {
        // By the server's word: nobody sits in a transaction, and nobody holds an advisory lock.
        until("every session to be idle", async || {
            let busy = "select count(*) from pg_stat_activity
                where datname = current_database() and state = 'idle in transaction'";
            let locks = "select count(*) from pg_locks where locktype = 'advisory'
                and database = (select oid from pg_database where datname = current_database())";
            bed.count(busy).await + bed.count(locks).await == 0
        })
        .await;
    }
    leave.cancel();
    for id in ids {
        until("all to settle", async || bed.job(id).await.state == State::Finished).await;
    }
    running.stop().await;
    assert_eq!(
        bed.count("select count(*) from rowlock.body_lock").await,
        0,
        "released by hand"
    );
}

/// Takes the lock and waits for its chance.
fn locks(seen: Seen) -> impl Fn(Staged, Note) -> std::pin::Pin<Box<dyn Future<Output = Outcome> + Send>> {
    move |cx: Staged, job: Note| {
        let seen = seen.clone();
        Box::pin(async move {
            let _lock = cx.lock("k").timeout(Duration::from_secs(20)).await?;
            seen.push(job.text);
            cx.done().ok()
        })
    }
}

async fn a_lost_workers_lock_is_free_within_a_second_of_its_lease(bed: &Bed) {
    bed.note("holder").await;
    let taken = Arc::new(Notify::new());
    let holds = taken.clone();
    let hang = move |cx: Staged, _: Note| {
        let holds = holds.clone();
        async move {
            let _lock = cx.lock("k").await?;
            holds.notify_one();
            std::future::pending::<()>().await;
            cx.done().ok()
        }
    };
    let beaten = Instant::now();
    vanish(bed.hasty_worker().handle(staged(hang)), async move {
        taken.notified().await
    })
    .await;
    let gone = Instant::now();
    let seen = Seen::default();
    let next = bed.note("next").await;
    // The lost job comes back too, alone and later; it is not what is measured.
    let running = Running::start(bed.hasty_worker().handle(staged(locks(seen.clone()))));
    until("the next to enter", async || seen.all().contains(&"next".to_owned())).await;
    let (since_gone, since_start) = (gone.elapsed(), beaten.elapsed());
    // SQLite declares a silent worker dead at the second look, a third of the lease later.
    let suspicion = if bed.database.is_sqlite() {
        LEASE / 3
    } else {
        Duration::ZERO
    };
    assert!(
        since_gone <= LEASE + suspicion + Duration::from_secs(1),
        "{since_gone:?} after it was gone"
    );
    assert!(
        since_start >= LEASE * 2 / 3,
        "not before the lease can have ended: {since_start:?}"
    );
    until("both to be done", async || bed.job(next).await.state == State::Finished).await;
    running.stop().await;
}

/// Ends the lease under a holder's feet, as a recovery that took it for dead does.
async fn lose_lease(bed: &Bed, id: i64) {
    let mut conn: Conn = bed.conn().await;
    let take = super::sql(&format!("delete from rowlock.lease where id = {id}"));
    sqlx::raw_sql(take).execute(&mut conn).await.unwrap();
}

async fn a_release_after_the_lease_was_lost_says_so_and_frees_nobodys_slot(bed: &Bed) {
    let first = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    let (in_first, in_second, on) = (
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
        Arc::new(Notify::new()),
    );
    let (told, go) = (in_first.clone(), on.clone());
    let seen = Seen::default();
    let said = seen.clone();
    let loser = move |cx: Staged, _: Other| {
        let (told, go, said) = (told.clone(), go.clone(), said.clone());
        async move {
            let lock = cx.lock("k").await?;
            told.notify_one();
            go.notified().await;
            said.push(format!("released {}", lock.release().await?));
            let again = cx.lock("other").await;
            said.push(format!("a lost lease takes no lock: {}", again.is_err()));
            cx.done().ok()
        }
    };
    let told = in_second.clone();
    let leave = CancellationToken::new();
    let left = leave.clone();
    let owner = move |cx: Staged, _: Note| {
        let (told, left) = (told.clone(), left.clone());
        async move {
            let lock = cx.lock("k").await?;
            told.notify_one();
            left.cancelled().await;
            assert!(lock.release().await?, "still ours");
            cx.done().ok()
        }
    };
    let running = Running::start(bed.worker().handle(staged(loser)).handle(staged(owner)));
    in_first.notified().await;
    lose_lease(bed, first).await;
    let second = bed.note("owner").await;
    in_second.notified().await;
    on.notify_one();
    until("the loser to end", async || running.counters.lease_lost() == 1).await;
    assert_eq!(seen.all(), ["released false", "a lost lease takes no lock: true"]);
    let held = format!("select count(*) from rowlock.body_lock where key = 'k' and id = {second}");
    assert_eq!(bed.count(&held).await, 1, "the new owner's slot stands");
    leave.cancel();
    until("the owner to be done", async || {
        bed.job(second).await.state == State::Finished
    })
    .await;
    running.stop().await;
    assert_eq!(bed.ends(second).await, [Ended::Done]);
}

async fn a_lock_ends_with_its_attempt_and_a_wrong_use_is_a_case(bed: &Bed) {
    let ids = ["fine", "twice", "slots", "key", "after begin", "taken after begin"];
    let ids = bed.rowlock.enqueue_all_now(ids.map(Note::new)).await.unwrap();
    let handler = |cx: Staged, job: Note| async move {
        match job.text.as_str() {
            "twice" => {
                let _lock = cx.lock("a").slots(2).await?;
                let _again = cx.lock("a").slots(2).await?;
            }
            "slots" => drop(cx.lock("b").slots(0).await?),
            "key" => drop(cx.lock("").await?),
            "after begin" => {
                let lock = cx.lock("c").await?;
                let tx = cx.begin().await?;
                let said = lock.release().await.unwrap_err().to_string();
                return tx.done().result(&said).ok();
            }
            "taken after begin" => {
                let late = cx.lock("e").timeout(Duration::from_secs(600));
                let tx = cx.begin().await?;
                drop(late.await?);
                return tx.done().ok();
            }
            _ => {
                // Dropped and taken again: it was never given up.
                drop(cx.lock("d").await?);
                assert!(cx.lock("d").await?.release().await?);
                drop(cx.lock("d").await?);
            }
        }
        cx.done().ok()
    };
    bed.work(bed.worker().handle(staged(handler)), &ids).await;
    let reason = async |n: usize| bed.rowlock.observe().case(ids[n]).await.unwrap().unwrap().reason;
    assert_eq!(
        reason(1).await,
        "lock \"a\" is already held by this attempt; release it before taking it again"
    );
    assert_eq!(reason(2).await, "lock \"b\": 0 slots is out of range (1 to 1000)");
    assert!(
        reason(3)
            .await
            .starts_with("lock: \"\" is not valid; use 1 to 250 bytes")
    );
    assert_eq!(
        reason(5).await,
        "lock \"e\" was taken after begin; take it before begin, because it ends with the commit"
    );
    let said = "lock \"c\" was released after begin; release it before begin, or let it end with the commit";
    assert_eq!(bed.job(ids[4]).await.result, Some(said.into()));
    assert_eq!(bed.ends(ids[0]).await, [Ended::Done]);
    // What they left is taken over immediately: their leases are gone.
    let next = bed.note("next").await;
    let handler = |cx: Staged, _: Note| async move {
        let slots = [
            cx.lock("a").await?.slot(),
            cx.lock("c").await?.slot(),
            cx.lock("d").await?.slot(),
        ];
        cx.done().result(&slots).ok()
    };
    bed.work(bed.worker().handle(staged(handler)), &[next]).await;
    assert_eq!(bed.job(next).await.result, Some(serde_json::json!([1, 1, 1])));
}

mod tests {
    super::super::cases!(
        one_slot_is_never_two_under_fifty_concurrent_handlers,
        three_slots_are_never_four_under_fifty_concurrent_handlers,
        keys_do_not_meet,
        a_job_that_finds_no_slot_is_deferred_and_keeps_its_attempts,
        no_connection_is_held_while_a_lock_is,
        a_lost_workers_lock_is_free_within_a_second_of_its_lease,
        a_release_after_the_lease_was_lost_says_so_and_frees_nobodys_slot,
        a_lock_ends_with_its_attempt_and_a_wrong_use_is_a_case,
    );
}
