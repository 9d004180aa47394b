//! What only PostgreSQL has: notifications that are sent with a commit, row locks, schemas by name, partitions.

use std::{future::pending, sync::Arc, time::Duration};

use rowlock::{Ended, Error, Fail, Job, State, atomic, staged};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, postgres::PgListener};
use tokio::sync::Barrier;

use super::{
    cases::{AT_ONCE, Bed, Note, Other, Running, fail, note, until, write},
    db::{Ctx, Rowlock, Staged, Tx, Worker},
};

async fn a_rolled_back_enqueue_leaves_not_even_a_wake(bed: &Bed) {
    let mut listener = PgListener::connect(&bed.database.url).await.unwrap();
    listener.listen("rowlock_wake").await.unwrap();
    let mut conn = bed.conn().await;
    for (queue, commit) in [("never", false), ("kept", true)] {
        let mut tx = conn.begin().await.unwrap();
        let _ = bed
            .rowlock
            .enqueue(&mut *tx, Note::new("x"))
            .queue(queue)
            .await
            .unwrap();
        if commit {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
    }
    let kept = bed.count("select queue_no from rowlock.ready").await;
    let heard = tokio::time::timeout(Duration::from_secs(5), listener.recv())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        heard.payload(),
        kept.to_string(),
        "the first wake heard is that of the commit"
    );
}

async fn writes_outcome_and_next_link_are_of_one_transaction(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Ctx, _: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "x").await?;
        tx.done().then(Other { n: 1 }).ok()
    };
    bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    let same = "select count(*) from ledger l, rowlock.outcome o, rowlock.job j, rowlock.ready r
                where j.kind = 'other' and l.xmin = o.xmin and o.xmin = j.xmin and j.xmin = r.xmin";
    assert_eq!(bed.count(same).await, 1);
}

async fn a_compensating_job_is_of_the_transaction_that_retires(bed: &Bed) {
    let put = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .attempts(1)
        .if_retired(Other { n: 1 });
    let id = put.await.unwrap().id();
    let fails = |_: Ctx, _: Note, _tx: Tx| async { fail("no") };
    bed.work(bed.worker().handle(atomic(fails)), &[id]).await;
    let same = "select count(*) from rowlock.case_file c, rowlock.job j
                where j.kind = 'other' and c.xmin = j.xmin";
    assert_eq!(bed.count(same).await, 1);
}

async fn a_job_that_commits_late_behind_newer_ones_is_found(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut slow = conn.begin().await.unwrap();
    let late = bed.rowlock.enqueue(&mut *slow, Note::new("late")).await.unwrap().id();
    let running = Running::start(bed.worker().handle(atomic(note)));
    let newer = bed
        .rowlock
        .enqueue_all_now((0..20).map(|_| Note::new("quick")))
        .await
        .unwrap();
    for id in newer {
        until("the newer ones to finish", async || {
            bed.job(id).await.state == State::Finished
        })
        .await;
    }
    slow.commit().await.unwrap();
    until("the late one to finish", async || {
        bed.job(late).await.state == State::Finished
    })
    .await;
    running.stop().await;
}

/// On SQLite a leaked transaction keeps the only writer for as long as the process lives; nothing safe can take it
/// back.
async fn a_leaked_transaction_is_a_failed_attempt_and_keeps_no_lock_for_long(bed: &Bed) {
    bed.run("insert into ledger (job, note) values (-1, 'free')").await;
    let id = bed.note("x").await;
    let leak = |cx: Ctx, _: Note, mut tx: Tx| async move {
        sqlx::query("update ledger set note = 'mine' where job = -1")
            .execute(&mut *tx)
            .await?;
        if cx.attempt() == 1 {
            std::mem::forget(tx);
            return fail("leaked it");
        }
        tx.done().ok()
    };
    bed.work(bed.hasty_worker().handle(atomic(leak).backoff(AT_ONCE)), &[id])
        .await;
    let ends = bed.ends(id).await;
    assert_eq!(
        (ends.first(), ends.last()),
        (Some(&Ended::Retried), Some(&Ended::Done)),
        "{ends:?}"
    );
    assert_eq!(bed.count("select count(*) from ledger where note = 'mine'").await, 1);
}

/// The transaction is spoilt by then, whatever the handler believes.
async fn a_swallowed_sql_error_is_a_failed_attempt(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Ctx, _: Note, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "x").await?;
        if cx.attempt() == 1 {
            let bad = sqlx::query("insert into ledger (job, note) values (1, null)")
                .execute(&mut *tx)
                .await;
            assert!(bad.is_err());
        }
        tx.done().ok()
    };
    bed.work(bed.worker().handle(atomic(handler).backoff(AT_ONCE)), &[id])
        .await;
    assert_eq!(
        (bed.ends(id).await, bed.ledger().await),
        (vec![Ended::Retried, Ended::Done], 1)
    );
    let error = bed.attempts(id).await[0].error.clone().unwrap();
    assert!(error.contains("current transaction is aborted"), "{error}");
}

/// Two handlers that lock two rows in opposite order, once.
async fn a_deadlock_between_handlers_is_retried_soon(bed: &Bed) {
    bed.run("insert into ledger (job, note) values (-1, ''), (-2, '')")
        .await;
    let ids = bed
        .rowlock
        .enqueue_all_now(["-1 -2", "-2 -1"].map(Note::new))
        .await
        .unwrap();
    let meet = Arc::new(Barrier::new(2));
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let meet = meet.clone();
        async move {
            let rows: Vec<i64> = job.text.split(' ').map(|n| n.parse().unwrap()).collect();
            for row in rows {
                let add = "update ledger set note = note || 'x' where job = $1";
                sqlx::query(add).bind(row).execute(&mut *tx).await?;
                if cx.epoch() == 1 {
                    let _ = tokio::time::timeout(Duration::from_millis(100), meet.wait()).await;
                }
            }
            tx.done().ok()
        }
    };
    bed.work(bed.worker().handle(atomic(handler)), &ids).await;
    let mut ends = [bed.ends(ids[0]).await, bed.ends(ids[1]).await];
    ends.sort_by_key(Vec::len);
    assert_eq!(ends, [vec![Ended::Done], vec![Ended::Deferred, Ended::Done]]);
    assert_eq!(bed.count("select count(*) from ledger where note = 'xx'").await, 2);
    let soon = "select count(*) from rowlock.outcome d join rowlock.outcome r using (id)
                where d.outcome = 'done' and r.outcome = 'deferred' and d.started_at - r.ended_at < interval '700 ms'";
    assert_eq!(bed.count(soon).await, 1, "sooner than the backoff of a second");
}

/// Two statements of recovery, or of a settle that waits, would share a snapshot under a stricter level.
async fn a_stricter_default_isolation_level_does_not_reach_the_engine(bed: &Bed) {
    let name = bed.database.url.rsplit_once('/').unwrap().1;
    bed.run(&format!(
        "alter database {name} set default_transaction_isolation = 'serializable'"
    ))
    .await;
    let rowlock = Rowlock::open(&bed.database.url).unwrap();
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let id = rowlock.enqueue(&mut *tx, Note::new("x")).await.unwrap().id();
    tx.commit().await.unwrap();
    let handler = |_: Ctx, _: Note, mut tx: Tx| async move {
        let level: String = sqlx::query_scalar("show transaction_isolation")
            .fetch_one(&mut *tx)
            .await?;
        tx.done().result(&level).ok()
    };
    bed.work(Worker::new(&rowlock).queue("default", 1).handle(atomic(handler)), &[id])
        .await;
    assert_eq!(bed.job(id).await.result, Some("read committed".into()));
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "hasty", time_limit = "300ms", attempts = 1)]
struct Hasty {}

async fn a_handler_stuck_in_a_query_is_cut_at_its_time_limit_and_keeps_no_lock(bed: &Bed) {
    bed.run("insert into ledger (job, note) values (-1, 'free')").await;
    let id = bed.rowlock.enqueue_now(Hasty {}).await.unwrap().id();
    let stuck = |_: Ctx, _: Hasty, mut tx: Tx| async move {
        sqlx::query("update ledger set note = 'mine' where job = -1")
            .execute(&mut *tx)
            .await?;
        sqlx::query("select pg_sleep(60)").execute(&mut *tx).await?;
        pending::<()>().await;
        tx.done().ok()
    };
    let running = Running::start(bed.worker().handle(atomic(stuck)).handle(atomic(note)));
    until("the attempt to be cut", async || bed.job(id).await.state == State::Case).await;
    let mut conn = bed.conn().await;
    sqlx::raw_sql("set lock_timeout = '100ms'")
        .execute(&mut conn)
        .await
        .unwrap();
    let theirs = sqlx::query("update ledger set note = 'theirs' where job = -1 and note = 'free'");
    assert_eq!(theirs.execute(&mut conn).await.unwrap().rows_affected(), 1);
    let next = bed.note("next").await;
    until("the worker to go on", async || {
        bed.job(next).await.state == State::Finished
    })
    .await;
    running.stop().await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert_eq!(case.reason, "handler ran longer than its time limit of 300ms");
    let sleeping = "select count(*) from pg_stat_activity
                    where datname = current_database() and query like 'select pg_sleep%' and state = 'active'";
    assert_eq!(bed.count(sleeping).await, 0, "its backend is gone");
}

async fn another_schema_name_works_from_end_to_end(bed: &Bed) {
    assert!(matches!(
        Rowlock::open_in(&bed.database.url, "Jobs 2"),
        Err(Error::Invalid { .. })
    ));
    let here = Rowlock::open_in(&bed.database.url, "jobs_2").unwrap();
    here.migrate().await.unwrap();
    bed.run("create table ledger (job bigint not null, note text not null)")
        .await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let id = here.enqueue(&mut *tx, Note::new("x")).await.unwrap().id();
    tx.commit().await.unwrap();
    let retired = here
        .enqueue_now(Other { n: 1 })
        .attempts(1)
        .if_retired(Note::new("undo"))
        .await
        .unwrap()
        .id();

    let give_up = |_: Ctx, _: Other, _tx: Tx| async { fail("no") };
    let worker = Worker::new(&here).queue("default", 2).handle(atomic(note));
    let running = Running::start(worker.handle(atomic(give_up)));
    until("both jobs and the compensating one", async || bed.ledger().await == 2).await;
    running.stop().await;
    assert_eq!(here.observe().job(id).await.unwrap().unwrap().state, State::Finished);
    assert_eq!(here.observe().chain(retired).await.unwrap().len(), 2);
    here.operate().reopen(retired, "ana").await.unwrap();
    assert_eq!(here.observe().status().await.unwrap().lanes[0].due, 1);

    let elsewhere = "select count(*) from pg_namespace where nspname = 'rowlock'";
    assert_eq!(bed.count(elsewhere).await, 0, "nothing was made under the default name");
}

async fn history_and_bodies_land_in_their_partitions_and_not_in_the_default_ones(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now((0..20).map(|_| Note::new("x")))
        .await
        .unwrap();
    bed.work(bed.worker().handle(atomic(note)), &ids).await;
    assert_eq!(bed.count("select count(*) from rowlock.outcome").await, 20);
    assert_eq!(bed.count("select count(*) from rowlock.outcome_rest").await, 0);
    assert_eq!(bed.count("select count(*) from rowlock.job_rest").await, 0);
}

const PARTITIONS: &str = "select count(*) from pg_inherits where inhparent = 'rowlock.outcome'::regclass";

async fn old_history_is_dropped_by_whole_partitions_and_new_ones_are_made_ahead(bed: &Bed) {
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    let before = bed.count(PARTITIONS).await;
    bed.run(
        "create table rowlock.outcome_20200101 partition of rowlock.outcome
           for values from ('2020-01-01 00:00:00+00') to ('2020-01-02 00:00:00+00');
         insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
         values (99, 1, 1, 1, 'done', '2020-01-01 10:00Z', '2020-01-01 10:00Z')",
    )
    .await;
    let drop = "select rowlock.drop_history(now() - interval '14 days')::bigint";
    assert_eq!(bed.count(drop).await, 1);
    assert_eq!(
        (
            bed.count(PARTITIONS).await,
            bed.count("select count(*) from rowlock.outcome").await
        ),
        (before, 1)
    );

    assert_eq!(
        bed.count("select rowlock.make_partitions(7, 1)::bigint").await,
        0,
        "the coming week is there"
    );
    assert_eq!(bed.count("select rowlock.make_partitions(9, 1)::bigint").await, 2);
}

/// Workers that were down for longer than partitions were made ahead write to the default one first.
async fn rows_in_the_default_partition_do_not_stop_upkeep_for_good(bed: &Bed) {
    bed.run("select rowlock.drop_history(now() + interval '30 days')").await;
    let id = bed.note("x").await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    assert_eq!(bed.count("select count(*) from rowlock.outcome_rest").await, 1);

    let made = sqlx::query_scalar::<_, i64>("select rowlock.make_partitions(7, 1)::bigint");
    let made = made.fetch_one(&mut bed.conn().await).await;
    assert!(made.as_ref().is_ok_and(|n| *n >= 7), "{made:?}");
    assert_eq!(
        bed.ends(id).await,
        [Ended::Done],
        "what was written meanwhile is still there"
    );
    bed.rowlock.migrate().await.unwrap();
}

/// The retention counts from the end of a job: one that waited for long keeps its body as long as any other.
async fn the_body_of_a_job_that_ended_lately_is_kept_however_old_it_is(bed: &Bed) {
    let id = bed.note("x").await;
    bed.run("update rowlock.job set created_at = now() - interval '20 days'")
        .await;
    bed.work(bed.worker().handle(atomic(note)), &[id]).await;
    let prune = include_str!("../../../../rowlock/sql/postgres/job/prune.sql");
    bed.run(&prune.replace("$1", "now() - interval '14 days'").replace("$2", "5000"))
        .await;
    assert!(bed.rowlock.observe().job(id).await.unwrap().is_some());
}

/// A kind whose handlers take turns for a connection.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "turn", time_limit = "1s", attempts = 2)]
struct Turn {}

async fn waiting_for_a_connection_is_not_time_of_the_handler(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now((0..4).map(|_| Turn {})).await.unwrap();
    let handler = |cx: Ctx, _: Turn, mut tx: Tx| async move {
        write(&mut tx, cx.id(), "x").await?;
        tokio::time::sleep(Duration::from_millis(400)).await;
        tx.done().ok()
    };
    let worker = Worker::new(&bed.rowlock).queue("default", 4).connections(1);
    bed.work(worker.handle(atomic(handler)), &ids).await;
    for id in ids {
        let seen = (bed.job(id).await.attempt, bed.ends(id).await);
        assert_eq!(seen, (1, vec![Ended::Done]), "{:?}", bed.attempts(id).await);
    }
    assert_eq!(bed.ledger().await, 4);
}

/// A login beside the owner's, which unlike a superuser may run out of connections.
async fn limited(bed: &Bed) -> (String, String) {
    let (start, name) = bed.database.url.rsplit_once('/').unwrap();
    let (scheme, host) = start.split_once("://").unwrap();
    let (owner, host) = host.split_once('@').unwrap();
    let owner = owner.split(':').next().unwrap();
    let login = format!("{name}_limited");
    // The bed's tables may be in a schema of the owner's name, which a search path finds for the owner alone.
    bed.run_as_it_is(&format!(
        "create role {login} login in role {owner}; alter role {login} set search_path = {owner}, public"
    ))
    .await;
    (format!("{scheme}://{login}@{host}/{name}"), login)
}

async fn a_server_without_connections_left_is_asked_seldom_and_costs_no_attempt(bed: &Bed) {
    let (url, login) = limited(bed).await;
    let give_up = |_: Staged, _: Other| async { fail(Fail::retire("on purpose")) };
    let rowlock = Rowlock::open(&url).unwrap();
    let worker = Worker::new(&rowlock).queue("default", 4).lease(Duration::from_secs(3));
    let running = Running::start(worker.handle(staged(give_up)).handle(atomic(note)));
    // The engine gets the connections that it needs, and the handlers none.
    let first = bed.rowlock.enqueue_all_now((0..8).map(|n| Other { n })).await.unwrap();
    until("the engine to be at work", async || {
        let beaten = "select count(*) from rowlock.worker where beat > started_at + interval '500 ms'";
        bed.job(first[7]).await.state == State::Case && bed.count(beaten).await == 1
    })
    .await;
    bed.run_as_it_is(&format!("alter role {login} connection limit 1"))
        .await;

    let ids = bed
        .rowlock
        .enqueue_all_now((0..4).map(|_| Note::new("x")))
        .await
        .unwrap();
    let released = "select count(*) from rowlock.outcome where outcome = 'released' and error like 'could not begin%'";
    until("it to be out of connections", async || bed.count(released).await >= 4).await;
    // Not a wait for a state: this long nothing may run wild.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let most =
        "select max(n) from (select count(*) as n from rowlock.outcome where outcome = 'released' group by id) x";
    let most = bed.count(most).await;
    assert!((2..=10).contains(&most), "a job was tried {most} times");

    bed.run_as_it_is(&format!("alter role {login} connection limit -1"))
        .await;
    for id in &ids {
        until("the job to be done", async || {
            bed.job(*id).await.state == State::Finished
        })
        .await;
        let job = bed.job(*id).await;
        assert_eq!((job.attempt, job.last_outcome), (1, Some(Ended::Done)));
    }
    assert_eq!(running.stop().await.declared_dead(), 0);
    assert_eq!(bed.ledger().await, 4);
    bed.run_as_it_is(&format!("drop role {login}")).await;
}

async fn a_transition_moves_an_enum_or_a_domain_like_any_text(bed: &Bed) {
    bed.run(
        "create type order_status as enum ('pending', 'paid');
         create domain short as varchar(10);
         create schema shop;
         create table shop.orders (id uuid primary key, status order_status not null, other short not null);
         insert into shop.orders values ('00000000-0000-0000-0000-000000000001', 'pending', 'a')",
    )
    .await;
    let mut conn = bed.conn().await;
    // Whatever an old setting makes of backslashes, none is let in.
    for strings in ["on", "off"] {
        let mut tx = conn.begin().await.unwrap();
        let set = format!("set local standard_conforming_strings = {strings}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(set)).execute(&mut *tx).await.unwrap();
        let id = uuid::Uuid::from_u128(1);
        bed.rowlock
            .transition(&mut tx, "shop.orders", id, "pending", "paid")
            .await
            .unwrap();
        let step = bed
            .rowlock
            .transition(&mut tx, "shop.orders", id.to_string(), "a", "it's");
        step.column("other").await.unwrap();
        let refused = bed
            .rowlock
            .transition(&mut tx, "shop.orders", id, "paid", "\\'; --")
            .await
            .unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
        let again = bed
            .rowlock
            .transition(&mut tx, "shop.orders", id, "pending", "paid")
            .await
            .unwrap_err();
        assert!(matches!(again, Error::AlreadyHandled { .. }), "{again:?}");
        tx.rollback().await.unwrap();
    }
    let mut tx = conn.begin().await.unwrap();
    let no_such = bed
        .rowlock
        .transition(&mut tx, "shop.orders", 1, "pending", "lost")
        .await
        .unwrap_err();
    assert!(
        matches!(no_such, Error::Database { .. }),
        "no status of this name is no handled row: {no_such:?}"
    );
}

mod tests {
    super::super::cases!(
        a_rolled_back_enqueue_leaves_not_even_a_wake,
        writes_outcome_and_next_link_are_of_one_transaction,
        a_compensating_job_is_of_the_transaction_that_retires,
        a_job_that_commits_late_behind_newer_ones_is_found,
        a_leaked_transaction_is_a_failed_attempt_and_keeps_no_lock_for_long,
        a_swallowed_sql_error_is_a_failed_attempt,
        a_deadlock_between_handlers_is_retried_soon,
        a_stricter_default_isolation_level_does_not_reach_the_engine,
        a_handler_stuck_in_a_query_is_cut_at_its_time_limit_and_keeps_no_lock,
        waiting_for_a_connection_is_not_time_of_the_handler,
        a_server_without_connections_left_is_asked_seldom_and_costs_no_attempt,
        history_and_bodies_land_in_their_partitions_and_not_in_the_default_ones,
        old_history_is_dropped_by_whole_partitions_and_new_ones_are_made_ahead,
        rows_in_the_default_partition_do_not_stop_upkeep_for_good,
        the_body_of_a_job_that_ended_lately_is_kept_however_old_it_is,
        a_transition_moves_an_enum_or_a_domain_like_any_text,
    );
    super::super::cases!(bare: another_schema_name_works_from_end_to_end);
}
