//! Groups: an enqueue, the end of a head, the sweep and the removal of an empty group, in transactions that are open at
//! the same time.

use std::{sync::Arc, time::Duration};

use proof::bed::until;
use rowlock::{
    Isolation, Job, State, atomic,
    postgres::{Ctx, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use tokio::sync::{Notify, Semaphore};
use tokio_util::sync::CancellationToken;

use crate::steps::{
    session::{Bed, Session},
    sql,
};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "posting", attempts = 3)]
struct Posting {}

type Time = Option<jiff_sqlx::Timestamp>;

async fn put(bed: &Bed, pg: &mut PgConnection) -> i64 {
    bed.rowlock.enqueue(pg, Posting {}).group("a").await.unwrap().id()
}

async fn state(bed: &Bed, id: i64) -> State {
    bed.rowlock.observe().job(id).await.unwrap().unwrap().state
}

async fn number(pg: &mut PgConnection) -> i64 {
    let no = sqlx::query_scalar("select group_no from rowlock.job where in_group = 'a' limit 1");
    no.fetch_one(pg).await.unwrap()
}

/// Ends the head and passes the turn on, as a settle does.
async fn end(pg: &mut PgConnection, head: i64) {
    let no = number(&mut *pg).await;
    let gone = sqlx::query("delete from rowlock.ready where id = $1").bind(head);
    assert_eq!(gone.execute(&mut *pg).await.unwrap().rows_affected(), 1);
    let log = "insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at) \
               values ($1, 1, 1, 1, 'done', now(), now())";
    sqlx::query(log).bind(head).execute(&mut *pg).await.unwrap();
    let pass = sqlx::query(sql!("group/pass"))
        .bind(vec![no])
        .bind(vec![head])
        .bind(None as Time);
    pass.execute(pg).await.unwrap();
}

/// The head by the group's row, if it has one.
async fn head(bed: &mut Bed) -> Option<Option<i64>> {
    let head = sqlx::query_scalar("select head from rowlock.job_group");
    head.fetch_optional(&mut bed.eye).await.unwrap()
}

/// First step of the sweep: the groups that it fills.
async fn fill(pg: &mut PgConnection) -> usize {
    let vacant = sqlx::query_scalar(sql!("group/vacant")).bind(100i32).bind(i64::MIN);
    let vacant: Vec<i64> = vacant.fetch_all(&mut *pg).await.unwrap();
    let none: Vec<Option<i64>> = vec![None; vacant.len()];
    let pass = sqlx::query(sql!("group/pass"))
        .bind(&vacant)
        .bind(none)
        .bind(None as Time);
    pass.execute(pg).await.unwrap();
    vacant.len()
}

/// Second step: those that it locked to remove them.
async fn lock_empty(pg: &mut PgConnection) -> Vec<i64> {
    let no = number(&mut *pg).await;
    let locked = sqlx::query_scalar(sql!("group/lock_empty")).bind(vec![no]);
    locked.fetch_all(pg).await.unwrap()
}

/// Third step: how many it removed.
async fn remove(pg: &mut PgConnection, locked: &[i64]) -> u64 {
    let gone = sqlx::query(sql!("group/drop")).bind(locked);
    gone.execute(pg).await.unwrap().rows_affected()
}

async fn the_end_of_a_head_does_not_wait_for_an_open_enqueue_whose_job_the_sweep_finds(mut bed: Bed) {
    let (mut producer, mut settling) = (bed.session().await, bed.session().await);
    let first = put(&bed, &mut settling.pg).await;
    producer.begin().await;
    let second = put(&bed, &mut producer.pg).await;
    end(&mut settling.pg, first).await;
    assert_eq!(head(&mut bed).await, Some(None), "nobody was to be seen");
    producer.commit().await;
    assert_eq!(state(&bed, second).await, State::Waiting);
    assert_eq!(fill(&mut settling.pg).await, 1);
    assert_eq!(
        (head(&mut bed).await, state(&bed, second).await),
        (Some(Some(second)), State::Ready)
    );
}

async fn an_open_enqueue_does_not_keep_the_turn_from_those_before_it(mut bed: Bed) {
    let (mut producer, mut settling) = (bed.session().await, bed.session().await);
    let (first, second) = (put(&bed, &mut settling.pg).await, put(&bed, &mut settling.pg).await);
    producer.begin().await;
    let third = put(&bed, &mut producer.pg).await;
    end(&mut settling.pg, first).await;
    assert_eq!(
        (head(&mut bed).await, state(&bed, second).await),
        (Some(Some(second)), State::Ready)
    );
    producer.commit().await;
    end(&mut settling.pg, second).await;
    assert_eq!(
        (head(&mut bed).await, state(&bed, third).await),
        (Some(Some(third)), State::Ready)
    );
}

async fn two_enqueues_behind_a_head_do_not_wait_for_each_other(mut bed: Bed) {
    let (mut one, mut other) = (bed.session().await, bed.session().await);
    let first = put(&bed, &mut one.pg).await;
    one.begin().await;
    other.begin().await;
    let second = put(&bed, &mut one.pg).await;
    let third = put(&bed, &mut other.pg).await;
    other.commit().await;
    end(&mut bed.session().await.pg, first).await;
    assert_eq!(state(&bed, third).await, State::Ready, "it was committed first");
    one.commit().await;
    assert_eq!(
        (head(&mut bed).await, state(&bed, second).await),
        (Some(Some(third)), State::Waiting)
    );
}

async fn of_two_that_begin_a_group_the_second_waits_for_how_the_first_ends(mut bed: Bed) {
    for commits in [true, false] {
        sqlx::raw_sql("delete from rowlock.job_group; delete from rowlock.ready; delete from rowlock.waiting")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        let mut one = bed.session().await;
        one.begin().await;
        let first = put(&bed, &mut one.pg).await;
        let other = bed.session().await;
        let (pid, rowlock) = (other.pid, bed.rowlock.clone());
        let other = other.start(async move |pg| rowlock.enqueue(pg, Posting {}).group("a").await.unwrap().id());
        bed.blocked(pid).await;
        match commits {
            true => one.commit().await,
            false => one.rollback().await,
        }
        let second = other.await.unwrap().1;
        let expected = match commits {
            true => (Some(Some(first)), State::Waiting),
            false => (Some(Some(second)), State::Ready),
        };
        assert_eq!((head(&mut bed).await, state(&bed, second).await), expected);
    }
}

/// Leaves the group vacant, with nobody in it.
async fn vacate(bed: &Bed, session: &mut Session) {
    let only = put(bed, &mut session.pg).await;
    end(&mut session.pg, only).await;
}

async fn a_vacant_group_is_taken_over_by_the_next_enqueue(mut bed: Bed) {
    let mut session = bed.session().await;
    vacate(&bed, &mut session).await;
    assert_eq!(head(&mut bed).await, Some(None));
    let next = put(&bed, &mut session.pg).await;
    assert_eq!(
        (head(&mut bed).await, state(&bed, next).await),
        (Some(Some(next)), State::Ready)
    );
}

async fn of_two_that_take_over_a_vacant_group_the_second_is_behind_and_holds_nobody(mut bed: Bed) {
    for commits in [true, false] {
        let (mut one, mut other) = (bed.session().await, bed.session().await);
        vacate(&bed, &mut one).await;
        one.begin().await;
        other.begin().await;
        let first = put(&bed, &mut one.pg).await;
        let second = put(&bed, &mut other.pg).await;
        match commits {
            true => one.commit().await,
            false => one.rollback().await,
        }
        if commits {
            // The second caller's transaction is still open.
            end(&mut bed.session().await.pg, first).await;
        }
        other.commit().await;
        assert_eq!(
            (head(&mut bed).await, state(&bed, second).await),
            (Some(None), State::Waiting)
        );
        assert_eq!(fill(&mut bed.session().await.pg).await, 1);
        assert_eq!(state(&bed, second).await, State::Ready);
        end(&mut bed.session().await.pg, second).await;
    }
}

/// Its snapshot says vacant, and by the time it has the row somebody else is the head: it must let go.
async fn one_that_finds_the_turn_taken_keeps_no_lock_on_it(mut bed: Bed) {
    let (mut one, mut other) = (bed.session().await, bed.session().await);
    vacate(&bed, &mut one).await;
    let no = number(&mut bed.eye).await;
    other.begin().await;
    // What the enqueue does when its share still said vacant: its statement begins, and waits for nobody.
    one.begin().await;
    let first = put(&bed, &mut one.pg).await;
    other.run("savepoint rowlock_turn").await;
    let take = sqlx::query_scalar::<_, i64>(sql!("group/take_over"))
        .bind(vec![no])
        .bind(vec![999i64]);
    assert_eq!(
        take.fetch_all(&mut other.pg).await.unwrap(),
        [0i64; 0],
        "skipped, not waited for"
    );
    other.run("rollback to savepoint rowlock_turn").await;
    one.commit().await;
    let second = put(&bed, &mut other.pg).await;
    let mut settling = bed.session().await;
    settling.run("set lock_timeout = '1s'").await;
    end(&mut settling.pg, first).await;
    other.commit().await;
    assert_eq!(state(&bed, second).await, State::Waiting);
    assert_eq!(fill(&mut settling.pg).await, 1);
}

async fn an_open_enqueue_into_a_vacant_group_does_not_keep_the_sweep_away(mut bed: Bed) {
    let (mut producer, mut late, mut settling) = (bed.session().await, bed.session().await, bed.session().await);
    let first = put(&bed, &mut settling.pg).await;
    producer.begin().await;
    let second = put(&bed, &mut producer.pg).await;
    end(&mut settling.pg, first).await;
    producer.commit().await;
    late.begin().await;
    let third = put(&bed, &mut late.pg).await;
    assert_eq!(fill(&mut settling.pg).await, 1, "the row is free");
    assert_eq!(state(&bed, second).await, State::Ready);
    late.commit().await;
    assert_eq!(
        (head(&mut bed).await, state(&bed, third).await),
        (Some(Some(second)), State::Waiting)
    );
}

async fn nobody_jumps_a_queue_that_the_sweep_has_not_seen_yet(bed: Bed) {
    let (mut producer, mut settling) = (bed.session().await, bed.session().await);
    let first = put(&bed, &mut settling.pg).await;
    producer.begin().await;
    let second = put(&bed, &mut producer.pg).await;
    end(&mut settling.pg, first).await;
    producer.commit().await;
    let third = put(&bed, &mut settling.pg).await;
    let places = (state(&bed, second).await, state(&bed, third).await);
    assert_eq!(places, (State::Waiting, State::Waiting));
    assert_eq!(fill(&mut settling.pg).await, 1);
    let places = (state(&bed, second).await, state(&bed, third).await);
    assert_eq!(places, (State::Ready, State::Waiting));
}

async fn who_joins_a_group_that_is_being_removed_begins_it_anew(mut bed: Bed) {
    for commits in [true, false] {
        let mut sweeper = bed.session().await;
        vacate(&bed, &mut sweeper).await;
        sweeper.begin().await;
        let locked = lock_empty(&mut sweeper.pg).await;
        assert_eq!(remove(&mut sweeper.pg, &locked).await, 1);
        let producer = bed.session().await;
        let (pid, rowlock) = (producer.pid, bed.rowlock.clone());
        let producer = producer.start(async move |pg| rowlock.enqueue(pg, Posting {}).group("a").await.unwrap().id());
        bed.blocked(pid).await;
        match commits {
            true => sweeper.commit().await,
            false => sweeper.rollback().await,
        }
        let job = producer.await.unwrap().1;
        assert_eq!(
            (head(&mut bed).await, state(&bed, job).await),
            (Some(Some(job)), State::Ready)
        );
        end(&mut bed.session().await.pg, job).await;
    }
}

async fn one_that_came_between_the_two_steps_keeps_its_group(bed: Bed) {
    let (mut sweeper, mut producer) = (bed.session().await, bed.session().await);
    let first = put(&bed, &mut sweeper.pg).await;
    producer.begin().await;
    let second = put(&bed, &mut producer.pg).await;
    end(&mut sweeper.pg, first).await;
    sweeper.begin().await;
    assert_eq!(
        lock_empty(&mut sweeper.pg).await,
        [0i64; 0],
        "somebody is about to join"
    );
    producer.commit().await;
    let locked = lock_empty(&mut sweeper.pg).await;
    assert_eq!(remove(&mut sweeper.pg, &locked).await, 0, "by now somebody waits");
    sweeper.commit().await;
    assert_eq!(fill(&mut sweeper.pg).await, 1);
    assert_eq!(state(&bed, second).await, State::Ready);
}

async fn a_turn_is_passed_on_once_by_two_sweeps(mut bed: Bed) {
    let (mut producer, mut one, mut other) = (bed.session().await, bed.session().await, bed.session().await);
    let first = put(&bed, &mut one.pg).await;
    producer.begin().await;
    let second = put(&bed, &mut producer.pg).await;
    end(&mut one.pg, first).await;
    producer.commit().await;
    one.begin().await;
    assert_eq!(fill(&mut one.pg).await, 1);
    assert_eq!(fill(&mut other.pg).await, 0, "skipped, not waited for");
    one.commit().await;
    assert_eq!(fill(&mut other.pg).await, 0);
    assert_eq!(bed.count("select count(*) from rowlock.ready").await, 1);
    assert_eq!(state(&bed, second).await, State::Ready);
}

/// The snapshot of such a handler is older than the jobs that come while it runs; the sweep sees those.
async fn a_head_in_a_stricter_transaction_passes_its_turn_on(mut bed: Bed) {
    for level in [Isolation::RepeatableRead, Isolation::Serializable] {
        let mut session = bed.session().await;
        let mut ids = vec![put(&bed, &mut session.pg).await, put(&bed, &mut session.pg).await];
        let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Semaphore::new(0)));
        let (at, gate) = (begun.clone(), go_on.clone());
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let worker = Worker::new(&bed.rowlock).queue("default", 4).handle(
            atomic(move |_: Ctx, _: Posting, mut tx: Tx| {
                let (at, gate) = (at.clone(), gate.clone());
                async move {
                    sqlx::raw_sql("select 1").execute(&mut *tx).await?;
                    at.notify_one();
                    let _permit = gate.acquire().await;
                    tx.done().ok()
                }
            })
            .isolation(level),
        );
        let running = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
        begun.notified().await;
        for _ in 0..3 {
            ids.push(put(&bed, &mut session.pg).await);
        }
        go_on.add_permits(100);
        until("all to be done", Duration::from_secs(20), async || {
            let mut open = 0;
            for id in &ids {
                open += usize::from(state(&bed, *id).await != State::Finished);
            }
            (open == 0).then_some(())
        })
        .await;
        stop.cancel();
        running.await.unwrap().unwrap();
        let order = "select id from rowlock.outcome where id = any ($1) and outcome = 'done' order by ended_at";
        let order: Vec<i64> = sqlx::query_scalar(order)
            .bind(&ids)
            .fetch_all(&mut bed.eye)
            .await
            .unwrap();
        assert_eq!(order, ids, "{level:?}");
    }
}

/// Its snapshot is older than the turn, which does not matter; and older than the group's end, which does.
async fn an_enqueue_in_a_stricter_transaction_whose_group_is_gone_asks_for_another_try(mut bed: Bed) {
    let (mut strict, mut settling) = (bed.session().await, bed.session().await);
    let (first, second) = (put(&bed, &mut settling.pg).await, put(&bed, &mut settling.pg).await);
    strict.run("begin isolation level repeatable read; select 1").await;
    end(&mut settling.pg, first).await;
    let third = put(&bed, &mut strict.pg).await;
    strict.commit().await;
    assert_eq!(
        (head(&mut bed).await, state(&bed, third).await),
        (Some(Some(second)), State::Waiting)
    );

    end(&mut settling.pg, second).await;
    end(&mut settling.pg, third).await;
    strict.run("begin isolation level repeatable read; select 1").await;
    settling.begin().await;
    let locked = lock_empty(&mut settling.pg).await;
    assert_eq!(remove(&mut settling.pg, &locked).await, 1);
    settling.commit().await;
    let said = bed
        .rowlock
        .enqueue(&mut strict.pg, Posting {})
        .group("a")
        .await
        .unwrap_err();
    assert!(
        matches!(said, rowlock::Error::TryAgain { .. }) && said.is_retryable(),
        "{said:?}"
    );
    strict.rollback().await;
    strict.run("begin isolation level repeatable read; select 1").await;
    let again = put(&bed, &mut strict.pg).await;
    strict.commit().await;
    assert_eq!(
        (head(&mut bed).await, state(&bed, again).await),
        (Some(Some(again)), State::Ready)
    );
}

races!(
    the_end_of_a_head_does_not_wait_for_an_open_enqueue_whose_job_the_sweep_finds,
    an_open_enqueue_does_not_keep_the_turn_from_those_before_it,
    two_enqueues_behind_a_head_do_not_wait_for_each_other,
    of_two_that_begin_a_group_the_second_waits_for_how_the_first_ends,
    a_vacant_group_is_taken_over_by_the_next_enqueue,
    of_two_that_take_over_a_vacant_group_the_second_is_behind_and_holds_nobody,
    one_that_finds_the_turn_taken_keeps_no_lock_on_it,
    an_open_enqueue_into_a_vacant_group_does_not_keep_the_sweep_away,
    nobody_jumps_a_queue_that_the_sweep_has_not_seen_yet,
    who_joins_a_group_that_is_being_removed_begins_it_anew,
    one_that_came_between_the_two_steps_keeps_its_group,
    a_turn_is_passed_on_once_by_two_sweeps,
    a_head_in_a_stricter_transaction_passes_its_turn_on,
    an_enqueue_in_a_stricter_transaction_whose_group_is_gone_asks_for_another_try,
);
