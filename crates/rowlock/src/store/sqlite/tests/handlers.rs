use std::time::Instant;

use sqlx::{Connection, Sqlite};

use super::*;
use crate::{
    error::Error,
    store::{Resolved, SettledIn, TxEnd, batch::Parted},
};

async fn begin(rig: &Rig, claimed: &Claimed) -> Held {
    Sqlite::begin(&rig.store, handler(claimed.token, Timing::of_lease(LEASE)))
        .await
        .unwrap()
}

async fn run(held: &mut Held, sql: &'static str) -> sqlx::Result<()> {
    sqlx::raw_sql(sql).execute(&mut **held).await.map(drop)
}

/// A claimed job, and a table for its handler to write to.
async fn at_work() -> (Rig, Claimed) {
    let rig = Rig::new().await;
    let claimed = rig.claimed(numbered(1)).await;
    sqlx::raw_sql("create table effect (n integer)")
        .execute(&mut rig.conn().await)
        .await
        .unwrap();
    (rig, claimed)
}

#[tokio::test]
async fn a_handlers_writes_commit_with_the_outcome() {
    let (rig, claimed) = at_work().await;
    let mut held = begin(&rig, &claimed).await;
    run(&mut held, "insert into effect values (1)").await.unwrap();
    let mut done = settlement(&claimed, Ended::Done);
    done.next = vec![numbered(2)];
    let settled = Sqlite::settle_in(&rig.store, &mut held, &done).await.unwrap();
    assert_eq!(
        settled,
        SettledIn::Applied {
            woken: vec![queue_no("orders")]
        }
    );
    assert_eq!(rig.count("effect").await, 0, "not before the commit");
    Sqlite::end(&rig.store, held, TxEnd::Commit).await.unwrap();
    assert_eq!((rig.count("effect").await, rig.count("rowlock_ready").await), (1, 1));
    assert_eq!(state_of(&rig.store, claimed.token.id).await, State::Finished);
}

#[tokio::test]
async fn after_going_back_the_failure_is_recorded_and_nothing_else() {
    let (rig, claimed) = at_work().await;
    let mut held = begin(&rig, &claimed).await;
    run(&mut held, "insert into effect values (1)").await.unwrap();
    let mut nested = held.begin().await.unwrap();
    sqlx::raw_sql("insert into effect values (2)")
        .execute(&mut *nested)
        .await
        .unwrap();
    drop(nested);
    let back = Sqlite::part(&rig.store, &mut held, false, true).await.unwrap();
    assert!(matches!(back, Parted::Fine));
    let failed = settlement(&claimed, Ended::Retried);
    let settled = Sqlite::settle_in(&rig.store, &mut held, &failed).await.unwrap();
    assert!(matches!(settled, SettledIn::Applied { .. }));
    Sqlite::end(&rig.store, held, TxEnd::Commit).await.unwrap();
    assert_eq!((rig.count("effect").await, rig.count("rowlock_ready").await), (0, 1));
}

#[tokio::test]
async fn a_savepoint_dropped_right_before_the_settle_is_no_foreign_transaction() {
    let (rig, claimed) = at_work().await;
    let mut held = begin(&rig, &claimed).await;
    let mut nested = held.begin().await.unwrap();
    sqlx::raw_sql("insert into effect values (1)")
        .execute(&mut *nested)
        .await
        .unwrap();
    drop(nested);
    let settled = Sqlite::settle_in(&rig.store, &mut held, &settlement(&claimed, Ended::Done))
        .await
        .unwrap();
    assert!(matches!(settled, SettledIn::Applied { .. }));
    Sqlite::end(&rig.store, held, TxEnd::Commit).await.unwrap();
    assert_eq!(rig.count("effect").await, 0);
}

#[tokio::test]
async fn a_transaction_that_user_code_ended_is_not_ours_and_gets_no_outcome() {
    for end in [
        "commit",
        "rollback",
        "commit; begin",
        "commit; begin immediate; savepoint other",
    ] {
        let (rig, claimed) = at_work().await;
        let mut held = begin(&rig, &claimed).await;
        run(&mut held, end).await.unwrap();
        let settled = Sqlite::settle_in(&rig.store, &mut held, &settlement(&claimed, Ended::Done))
            .await
            .unwrap();
        assert_eq!(settled, SettledIn::NotOurs, "{end}");
        drop(held);
        assert_eq!(
            (rig.count("rowlock_outcome").await, rig.count("rowlock_lease").await),
            (0, 1),
            "{end}"
        );
        assert!(
            settle(&rig.store, &claimed, Ended::Retired).await,
            "{end}: the next turn has a sound connection"
        );
    }
}

#[tokio::test]
async fn a_leaked_savepoint_is_not_ours() {
    let (rig, claimed) = at_work().await;
    let mut held = begin(&rig, &claimed).await;
    std::mem::forget(held.begin().await.unwrap());
    let settled = Sqlite::settle_in(&rig.store, &mut held, &settlement(&claimed, Ended::Done))
        .await
        .unwrap();
    assert_eq!(settled, SettledIn::NotOurs);
    drop(held);
    assert_eq!(rig.store.resolve(claimed.token).await.unwrap(), Resolved::StillLeased);
}

#[tokio::test]
async fn a_lost_lease_is_seen_inside_the_transaction() {
    let (rig, claimed) = at_work().await;
    let mut held = begin(&rig, &claimed).await;
    run(&mut held, "insert into effect values (1)").await.unwrap();
    let mut late = settlement(&claimed, Ended::Done);
    late.token = stale(late.token);
    assert_eq!(
        Sqlite::settle_in(&rig.store, &mut held, &late).await.unwrap(),
        SettledIn::LeaseLost
    );
    drop(held);
    assert_eq!(rig.store.resolve(claimed.token).await.unwrap(), Resolved::StillLeased);
    assert_eq!(rig.count("effect").await, 0);
}

#[tokio::test]
async fn a_dropped_transaction_rolls_back_and_the_next_one_begins() {
    let (rig, claimed) = at_work().await;
    for _ in 0..3 {
        let mut held = begin(&rig, &claimed).await;
        run(&mut held, "insert into effect values (1)").await.unwrap();
    }
    let mut held = begin(&rig, &claimed).await;
    run(&mut held, "insert into effect values (2)").await.unwrap();
    let settled = Sqlite::settle_in(&rig.store, &mut held, &settlement(&claimed, Ended::Done))
        .await
        .unwrap();
    assert!(matches!(settled, SettledIn::Applied { .. }));
    Sqlite::end(&rig.store, held, TxEnd::Commit).await.unwrap();
    assert_eq!(rig.count("effect").await, 1);
}

#[tokio::test]
async fn an_abandoned_query_does_not_keep_the_write_lock() {
    const ENDLESS: &str = "with recursive n (i) as (select 1 union all select i + 1 from n) \
                           insert into effect select max(i) from n";
    let (rig, claimed) = at_work().await;
    let mut held = begin(&rig, &claimed).await;
    let running = run(&mut held, ENDLESS);
    assert!(tokio::time::timeout(Duration::from_millis(50), running).await.is_err());
    let started = Instant::now();
    drop(held);
    assert!(rig.store.beat(claimed.token.worker).await.unwrap());
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_begin_given_up_half_way_blocks_nobody() {
    let (rig, claimed) = at_work().await;
    for polls in 0..20 {
        let mut begin = Box::pin(Sqlite::begin(
            &rig.store,
            handler(claimed.token, Timing::of_lease(LEASE)),
        ));
        for _ in 0..polls {
            let waker = std::task::Waker::noop();
            if begin
                .as_mut()
                .poll(&mut std::task::Context::from_waker(waker))
                .is_ready()
            {
                break;
            }
            std::thread::yield_now();
        }
    }
    assert!(rig.store.beat(claimed.token.worker).await.unwrap());
}

/// Tries again while the lock is held: another thread rolls back what was dropped, with some delay.
async fn once_unlocked<T>(mut write: impl AsyncFnMut() -> Result<T, Error>) -> T {
    for _ in 0..1000 {
        match write().await {
            Err(error) if error.code().as_deref() == Some("5") => {}
            other => return other.unwrap(),
        }
    }
    panic!("the lock was never let go of");
}

#[tokio::test]
async fn who_waits_too_long_is_told_who_holds_the_lock() {
    let (rig, claimed) = at_work().await;
    let short = Timing {
        lease: LEASE,
        lock: Duration::from_millis(30),
    };
    let other = rig.another_waiting(short);
    let held = begin(&rig, &claimed).await;
    let Err(Error::TryAgain { doing, source }) = other.enqueue(&[numbered(2)]).await else {
        panic!("another process held the lock");
    };
    assert_eq!(doing, "enqueue");
    let text = source.to_string();
    assert!(
        text.contains("holds the write lock of") && text.contains("jobs.db"),
        "{text}"
    );
    assert_eq!(crate::error::sqlstate(&source).as_deref(), Some("5"));
    drop(held);
    let made = once_unlocked(async || other.enqueue(&[numbered(2)]).await).await;
    assert_eq!(made.len(), 1, "its connection is as good as before");
}

#[tokio::test]
async fn a_beat_behind_a_handler_gives_up_in_time() {
    let (rig, claimed) = at_work().await;
    let store = rig.another_waiting(Timing {
        lease: LEASE,
        lock: Duration::from_millis(30),
    });
    let held = Sqlite::begin(&store, handler(claimed.token, Timing::of_lease(LEASE)))
        .await
        .unwrap();
    let error = store.beat(claimed.token.worker).await.unwrap_err();
    assert_eq!(error.code().as_deref(), Some("5"));
    drop(held);
    assert!(once_unlocked(async || store.beat(claimed.token.worker).await).await);
}

#[tokio::test]
async fn a_beat_waits_for_one_handler_and_not_for_all_that_are_in_line() {
    let (rig, claimed) = at_work().await;
    let held = begin(&rig, &claimed).await;
    let mut in_line: Vec<_> = (0..3).map(|_| Box::pin(begin(&rig, &claimed))).collect();
    for begin in &mut in_line {
        let waker = std::task::Waker::noop();
        assert!(
            begin
                .as_mut()
                .poll(&mut std::task::Context::from_waker(waker))
                .is_pending()
        );
    }
    let (alive, ()) = tokio::join!(rig.store.beat(claimed.token.worker), async { drop(held) });
    assert!(alive.unwrap());
}

#[tokio::test]
async fn a_transaction_that_reads_sees_one_state_and_cannot_write() {
    let (rig, _claimed) = at_work().await;
    let mut held = Sqlite::begin(&rig.store, Open::Read(Timing::of_lease(LEASE)))
        .await
        .unwrap();
    let error = run(&mut held, "insert into effect values (1)").await.unwrap_err();
    assert_eq!(
        crate::error::sqlstate(&error).as_deref(),
        Some("8"),
        "SQLITE_READONLY: {error}"
    );
    let count = "select count(*) from rowlock_job";
    let before: i64 = sqlx::query_scalar(count).fetch_one(&mut *held).await.unwrap();
    rig.store.enqueue(&[numbered(2)]).await.unwrap();
    let after: i64 = sqlx::query_scalar(count).fetch_one(&mut *held).await.unwrap();
    assert_eq!(before, after);
    Sqlite::end(&rig.store, held, TxEnd::Commit).await.unwrap();
    assert_eq!(rig.count("rowlock_job").await, before + 1);
}

#[tokio::test]
async fn a_blocked_runtime_does_not_keep_another_from_writing() {
    let (rig, claimed) = at_work().await;
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let store = rig.store.clone();
    // A runtime with writes in flight whose only thread then blocks, as a handler might do by mistake.
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async move {
            for n in 0..20 {
                let store = store.clone();
                tokio::spawn(async move { store.enqueue(&[numbered(n)]).await });
            }
            tokio::task::yield_now().await;
            gone.recv().unwrap();
        });
    });
    let separate = rig.store.separate_connections();
    for _ in 0..20 {
        assert!(separate.beat(claimed.token.worker).await.unwrap());
    }
    go.send(()).unwrap();
    blocked.join().unwrap();
}

#[tokio::test]
async fn a_store_outlives_the_runtime_it_was_first_used_on() {
    let rig = Rig::bare();
    let store = rig.store.clone();
    let first = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            store.migrate(&[]).await.unwrap();
            store.enqueue(&[numbered(1)]).await.unwrap();
            store.status().await.unwrap();
        });
    });
    first.join().unwrap();
    rig.store.enqueue(&[numbered(2)]).await.unwrap();
    assert_eq!(rig.store.status().await.unwrap().lanes[0].due, 2);
}
