//! Workers on an adopted table: what handlers return, what becomes of the row, and what is counted.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use proof::bed::until;
use rowlock::{
    Backoff, Breaker, Counters, Ended, Event, Fail, Retention, adopt, atomic, breaker::BreakerState, operate::Target,
};
use sqlx::{FromRow, Row, postgres::PgRow};

use super::bed::{Stand, claim, fill, opened, stand};
use crate::steps::session::Bed;

const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Snooze {
    pub(crate) id: i64,
    pub(crate) user_email: String,
    pub(crate) subject: String,
}

impl FromRow<'_, PgRow> for Snooze {
    fn from_row(row: &PgRow) -> sqlx::Result<Snooze> {
        Ok(Snooze {
            id: row.try_get("id")?,
            user_email: row.try_get("user_email")?,
            subject: row.try_get("subject")?,
        })
    }
}

/// Runs the worker until its counters say so.
pub(crate) async fn runs_until<A: Send + Sync + 'static>(
    worker: adopt::Worker<A>,
    what: &str,
    over: impl Fn(&Counters) -> bool,
) -> Arc<Counters> {
    let worker = worker.poll(Duration::from_millis(20));
    let counters = worker.counters();
    let look = until(what, PATIENCE, || async { over(&counters).then_some(()) });
    worker.run_until(look).await.unwrap();
    counters
}

/// The handler, tried again soon after it failed.
pub(crate) fn soon<A>(handler: adopt::Handler<A>) -> adopt::Handler<A> {
    handler.backoff(
        Backoff::new()
            .base(Duration::from_millis(20))
            .max(Duration::from_millis(100)),
    )
}

/// Runs the worker until so many rows are done.
pub(crate) async fn worked_off<A: Send + Sync + 'static>(worker: adopt::Worker<A>, rows: u64) -> Arc<Counters> {
    let counters = runs_until(worker, "every row to be done", |c| c.settled(Ended::Done) >= rows).await;
    assert_eq!(counters.settled(Ended::Done), rows);
    counters
}

pub(crate) async fn remind(_cx: adopt::Ctx, row: Snooze, mut tx: adopt::Tx) -> adopt::Outcome {
    let insert = sqlx::query("insert into sent values ($1, $2)");
    insert.bind(row.id).bind(row.user_email).execute(&mut *tx).await?;
    tx.done().ok()
}

async fn a_retention_that_makes_no_sense_is_refused(mut bed: Bed) {
    fill(&mut bed.eye, 0).await;
    let keep = Retention::new().history(Duration::from_secs(60));
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .retention(keep)
        .handle(soon(atomic(remind)));
    let refused = worker.run_until(std::future::pending()).await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "retention: history must be kept for at least an hour"
    );
}

async fn a_row_and_what_its_handler_wrote_are_one_commit(mut bed: Bed) {
    fill(&mut bed.eye, 100).await;
    let adopted = opened(&bed.rowlock).await;
    assert_eq!(adopted.queue(), "email_snoozes");
    let counters = worked_off(adopted.worker().handle(soon(atomic(remind))), 100).await;
    assert_eq!(bed.count("select count(*) from sent").await, 100);
    assert_eq!(bed.count("select count(distinct id) from sent").await, 100);
    let over = "select count(*) from email_snoozes where inactive and claimed_at is null and claimed_by is null
        and claim_token is null and attempts = 0 and last_error is null";
    assert_eq!(bed.count(over).await, 100);
    assert_eq!((counters.claimed(), counters.lease_lost()), (100, 0));
    assert_eq!(
        bed.count("select count(*) from rowlock.job").await,
        0,
        "no job for a row that succeeds"
    );
}

/// What each row's handler returns, by its number.
async fn moody(cx: adopt::Ctx, row: Snooze, mut tx: adopt::Tx) -> adopt::Outcome {
    let insert = sqlx::query("insert into sent values ($1, $2)");
    insert.bind(row.id).bind(row.subject).execute(&mut *tx).await?;
    match row.id {
        1 if cx.attempt() == 1 => Err(Fail::retry("the first time")),
        2 => Err(Fail::retire("a bad row")),
        3 => Err(Fail::cancel("not wanted any more")),
        4 => Err(Fail::defer(Duration::from_secs(600))),
        5 => Err(rowlock::AlreadyHandled.into()),
        6 => Err(Fail::retry("every time")),
        7 => panic!("the handler broke"),
        8 => {
            let later = sqlx::query("update email_snoozes set remind_at = now() + interval '1 day' where id = 8");
            later.execute(&mut *tx).await?;
            tx.keep().ok()
        }
        9 => {
            sqlx::raw_sql("commit").execute(&mut *tx).await?;
            tx.done().ok()
        }
        _ => tx.done().ok(),
    }
}

async fn every_outcome_leads_where_it_should(mut bed: Bed) {
    fill(&mut bed.eye, 10).await;
    let mut one = bed.session().await;
    one.run("update email_snoozes set max_attempts = 3; update email_snoozes set subject = null where id = 10")
        .await;
    let adopted = opened(&bed.rowlock).await;
    let counters = runs_until(adopted.worker().handle(soon(atomic(moody))), "every row to end", |c| {
        let of = |ended| c.settled(ended);
        (
            of(Ended::Done),
            of(Ended::Retired),
            of(Ended::Cancelled),
            of(Ended::Deferred),
        ) == (3, 5, 1, 1)
    })
    .await;
    assert_eq!(
        (counters.settled(Ended::Retried), counters.already_handled()),
        (1 + 2 + 2, 1)
    );
    let rows = [
        (1, true, 1, None),
        (2, true, 0, Some("a bad row")),
        (3, true, 0, Some("not wanted any more")),
        (4, false, 0, None),
        (5, true, 0, None),
        (6, true, 3, Some("every time")),
        (7, true, 3, Some("handler panicked: the handler broke")),
        (8, false, 0, None),
        (9, true, 0, Some("handler committed its own transaction")),
    ];
    for (id, inactive, attempts, error) in rows {
        let found = stand(&mut bed.eye, id).await;
        let seen = (
            found.inactive,
            found.claimed,
            found.attempts,
            found.last_error.as_deref(),
        );
        assert_eq!(seen, (inactive, false, attempts, error), "row {id}");
    }
    let unread = stand(&mut bed.eye, 10).await;
    let said = unread.last_error.unwrap();
    assert!(
        unread.inactive && said.starts_with("the row cannot be read: "),
        "{said}"
    );
    // Only what was done left something behind; row 9 had committed by its own hand.
    let kept = bed.count("select coalesce(sum(id), 0)::bigint from sent").await;
    assert_eq!(kept, 1 + 8 + 9);
    assert_eq!(bed.count("select count(*) from rowlock.case_file").await, 5);
}

async fn staged(cx: adopt::Staged, row: Snooze) -> adopt::Outcome {
    if row.id % 2 == 0 {
        return cx.done().ok();
    }
    let mut tx = cx.begin().await?;
    let insert = sqlx::query("insert into sent values ($1, $2)");
    insert.bind(row.id).bind(row.user_email).execute(&mut *tx).await?;
    tx.done().ok()
}

async fn a_staged_handler_ends_with_or_without_writes_of_its_own(mut bed: Bed) {
    fill(&mut bed.eye, 20).await;
    worked_off(
        opened(&bed.rowlock)
            .await
            .worker()
            .handle(soon(rowlock::staged(staged))),
        20,
    )
    .await;
    assert_eq!(bed.count("select count(*) from sent").await, 10);
    assert_eq!(bed.count("select count(*) from email_snoozes where inactive").await, 20);
}

async fn a_claim_is_renewed_while_its_handler_runs(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let adopted = opened(&bed.rowlock).await;
    let slow = |cx: adopt::Staged, _row: Snooze| async move {
        tokio::time::sleep(Duration::from_secs(15)).await;
        cx.done().ok()
    };
    // Two leases and a half, and the worker looks for stale claims all the time.
    let worker = adopted
        .worker()
        .lease(Duration::from_secs(6))
        .handle(soon(rowlock::staged(slow)));
    let counters = worked_off(worker, 1).await;
    assert_eq!(
        (counters.claimed(), counters.expired(), counters.lease_lost()),
        (1, 0, 0)
    );
    assert_eq!(stand(&mut bed.eye, 1).await.attempts, 0);
}

async fn a_handler_that_blocks_its_executor_keeps_its_claim(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let blocks = |cx: adopt::Staged, _row: Snooze| async move {
        std::thread::sleep(Duration::from_secs(10));
        cx.done().ok()
    };
    let worker = opened(&bed.rowlock).await.worker().lease(Duration::from_secs(5));
    let counters = worked_off(worker.handle(soon(rowlock::staged(blocks))), 1).await;
    assert_eq!(
        (counters.claimed(), counters.expired(), counters.lease_lost()),
        (1, 0, 0)
    );
}

async fn a_listener_that_panics_stops_nothing(mut bed: Bed) {
    fill(&mut bed.eye, 10).await;
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .on_event(|_| panic!("a bad listener"));
    worked_off(worker.handle(soon(atomic(remind))), 10).await;
    assert_eq!(bed.count("select count(*) from sent").await, 10);
}

async fn a_late_handler_is_stopped_and_nothing_of_it_counts(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let adopted = opened(&bed.rowlock).await;
    let begun = Arc::new(tokio::sync::Notify::new());
    let slow = |cx: adopt::Ctx<Arc<tokio::sync::Notify>>, row: Snooze, mut tx: adopt::Tx| async move {
        sqlx::query("insert into sent values ($1, 'x')")
            .bind(row.id)
            .execute(&mut *tx)
            .await?;
        cx.state().notify_one();
        std::future::pending::<()>().await;
        tx.done().ok()
    };
    let worker = adopted
        .worker()
        .state(begun.clone())
        .lease(Duration::from_secs(2))
        .handle(soon(atomic(slow)));
    let (counters, url) = (worker.counters(), bed.url.clone());
    let lost = async {
        begun.notified().await;
        // Somebody else has it by now.
        let mut other = crate::steps::session::Session::open(&url).await;
        other
            .run("update email_snoozes set claim_token = gen_random_uuid(), claimed_at = now()")
            .await;
        until("the handler to be stopped", PATIENCE, || async {
            (counters.lease_lost() == 1).then_some(())
        })
        .await;
    };
    worker.run_until(lost).await.unwrap();
    assert_eq!(bed.count("select count(*) from sent").await, 0);
    let Stand { claimed, attempts, .. } = stand(&mut bed.eye, 1).await;
    assert_eq!((claimed, attempts), (true, 0), "the other's claim is untouched");
}

async fn a_stop_gives_back_what_was_not_begun(mut bed: Bed) {
    fill(&mut bed.eye, 4).await;
    let adopted = opened(&bed.rowlock).await;
    let waits = |cx: adopt::Ctx, _row: Snooze, tx: adopt::Tx| async move {
        cx.stopping().await;
        tx.done().ok()
    };
    let worker = adopted.worker().slots(2).handle(soon(atomic(waits)));
    let counters = runs_until(worker, "four rows to be in hand", |c| c.claimed() >= 4).await;
    assert_eq!(
        (counters.settled(Ended::Done), counters.settled(Ended::Released)),
        (2, 2)
    );
    let back = "select count(*) from email_snoozes where not inactive and claim_token is null and attempts = 0";
    assert_eq!(bed.count(back).await, 2);
}

async fn a_handler_that_takes_too_long_fails_its_attempt(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let hangs = |_cx: adopt::Ctx, _row: Snooze, mut tx: adopt::Tx| async move {
        sqlx::raw_sql("select pg_sleep(60)").execute(&mut *tx).await?;
        tx.done().ok()
    };
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .handle(soon(atomic(hangs)).time_limit(Duration::from_millis(300)));
    runs_until(worker, "the limit to count", |c| c.settled(Ended::Retried) >= 1).await;
    let said = stand(&mut bed.eye, 1).await.last_error.unwrap();
    assert_eq!(said, "handler ran longer than its time limit of 300ms");
}

async fn a_handler_that_committed_by_hand_and_hangs_is_not_tried_again(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let hangs = |_cx: adopt::Ctx, row: Snooze, mut tx: adopt::Tx| async move {
        let insert = sqlx::query("insert into sent values ($1, 'x')");
        insert.bind(row.id).execute(&mut *tx).await?;
        sqlx::raw_sql("commit").execute(&mut *tx).await?;
        std::future::pending::<()>().await;
        tx.done().ok()
    };
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .handle(soon(atomic(hangs)).time_limit(Duration::from_millis(300)));
    runs_until(worker, "it to be retired", |c| c.settled(Ended::Retired) == 1).await;
    let said = stand(&mut bed.eye, 1).await.last_error.unwrap();
    assert_eq!(
        said,
        "handler committed its own transaction; then: handler ran longer than its time limit of 300ms"
    );
    assert_eq!(bed.count("select count(*) from sent").await, 1);
}

async fn a_row_that_was_always_due_is_worked_off_with_the_rest(mut bed: Bed) {
    fill(&mut bed.eye, 3).await;
    let mut one = bed.session().await;
    one.run("update email_snoozes set remind_at = '-infinity' where id = 2")
        .await;
    worked_off(opened(&bed.rowlock).await.worker().handle(soon(atomic(remind))), 3).await;
    assert_eq!(bed.count("select count(distinct id) from sent").await, 3);
}

async fn a_dependency_that_is_down_stops_claims_until_a_probe_succeeds(mut bed: Bed) {
    fill(&mut bed.eye, 12).await;
    let adopted = opened(&bed.rowlock).await;
    let calls = Arc::new(AtomicUsize::new(0));
    let call = |cx: adopt::Staged<Arc<AtomicUsize>>, _row: Snooze| async move {
        match cx.state().fetch_add(1, Ordering::SeqCst) {
            // The third opens it; the first probe fails too.
            0..=3 => Err(Fail::dependency("mail", "connection refused")),
            _ => cx.done().ok(),
        }
    };
    let breaker = Breaker::after(3).cooldown(Duration::from_secs(1));
    let changes = Arc::new(Mutex::new(Vec::new()));
    let heard = changes.clone();
    let worker = adopted.worker().state(calls.clone()).slots(1).on_event(move |event| {
        if let Event::BreakerChanged { state, .. } = event {
            heard.lock().unwrap().push(*state);
        }
    });
    let handler = soon(rowlock::staged(call)).breaker("mail", breaker);
    let counters = runs_until(worker.handle(handler), "all rows to be done", |c| {
        c.settled(Ended::Done) >= 12
    })
    .await;
    let (open, closed) = (BreakerState::Open, BreakerState::Closed);
    assert_eq!(*changes.lock().unwrap(), [open, open, closed]);
    assert_eq!(counters.breakers_opened(), 2);
    assert_eq!(calls.load(Ordering::SeqCst), 16, "four in vain, and one for each row");
    assert_eq!(
        bed.count("select sum(attempts) from email_snoozes").await,
        3,
        "a probe costs nothing"
    );
}

async fn a_pause_of_the_queue_stops_claims(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let operate = bed.rowlock.operate();
    let queue = Target::queue("email_snoozes");
    operate.pause(&queue, "me").await.unwrap();
    let adopted = opened(&bed.rowlock).await;
    let worker = adopted
        .worker()
        .poll(Duration::from_millis(20))
        .handle(soon(atomic(remind)));
    let counters = worker.counters();
    let resumed = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(counters.claimed(), 0);
        operate.resume(&queue, "me").await.unwrap();
        let done = async || (counters.settled(Ended::Done) == 1).then_some(());
        until("the row to be done", PATIENCE, done).await;
    };
    worker.run_until(resumed).await.unwrap();
}

async fn events_count_what_the_table_shows(mut bed: Bed) {
    fill(&mut bed.eye, 30).await;
    let mut one = bed.session().await;
    one.run("update email_snoozes set max_attempts = 1 where id > 25").await;
    // Three that a worker has left behind long ago, the last of them with its last attempt.
    let left: Vec<i64> = claim(&mut bed.eye, 2, &[]).await.iter().map(|claim| claim.id).collect();
    assert_eq!(left, [1, 2]);
    one.run(
        "update email_snoozes set claimed_at = now() - interval '1 hour', claim_token = gen_random_uuid() where id in (1, 2, 26)",
    )
    .await;
    let fails = |_cx: adopt::Ctx, row: Snooze, tx: adopt::Tx| async move {
        match row.id {
            27.. => Err(Fail::retry("no luck")),
            _ => tx.done().ok(),
        }
    };
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .lease(Duration::from_secs(8))
        .handle(soon(atomic(fails)));
    let counters = runs_until(worker, "every row to end", |c| {
        c.settled(Ended::Done) == 25 && c.settled(Ended::Retired) == 4 && c.expired() == 3
    })
    .await;
    assert_eq!(
        counters.claimed(),
        29,
        "the one that was out of attempts is not claimed any more"
    );
    assert_eq!(
        bed.count("select count(*) from email_snoozes where inactive and last_error is null")
            .await,
        25
    );
    assert_eq!(
        bed.count("select count(*) from email_snoozes where inactive and last_error is not null")
            .await,
        5
    );
    assert_eq!(bed.count("select count(*) from rowlock.case_file").await, 5);
}

on_postgresql!(
    a_retention_that_makes_no_sense_is_refused,
    a_row_and_what_its_handler_wrote_are_one_commit,
    every_outcome_leads_where_it_should,
    a_staged_handler_ends_with_or_without_writes_of_its_own,
    a_claim_is_renewed_while_its_handler_runs,
    a_handler_that_blocks_its_executor_keeps_its_claim,
    a_listener_that_panics_stops_nothing,
    a_late_handler_is_stopped_and_nothing_of_it_counts,
    a_stop_gives_back_what_was_not_begun,
    a_handler_that_takes_too_long_fails_its_attempt,
    a_handler_that_committed_by_hand_and_hangs_is_not_tried_again,
    a_row_that_was_always_due_is_worked_off_with_the_rest,
    a_dependency_that_is_down_stops_claims_until_a_probe_succeeds,
    a_pause_of_the_queue_stops_claims,
    events_count_what_the_table_shows,
);
