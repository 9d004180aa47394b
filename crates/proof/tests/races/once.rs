//! Races for one key of the ledger, through the library: who waits, who is first, and what the others get.

use rowlock::{Error, Hold, Once, postgres::Rowlock};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::steps::session::{Bed, Session};

/// What a call of `once` came to.
#[derive(Debug, PartialEq)]
enum Got {
    First,
    Seen(Option<String>),
    Conflict,
    TryAgain(String),
}

fn got(asked: Result<Once<sqlx::Postgres>, Error>) -> Got {
    match asked {
        Ok(Once::First(_)) => Got::First,
        Ok(Once::Seen(answer)) => Got::Seen(answer.get().unwrap()),
        Err(Error::KeyConflict { .. }) => Got::Conflict,
        Err(error) if error.is_retryable() => Got::TryAgain(error.code().unwrap()),
        Err(error) => panic!("{error}: {error:?}"),
    }
}

fn seen(answer: &str) -> Got {
    Got::Seen(Some(answer.to_owned()))
}

async fn takes_and_stores(rowlock: &Rowlock, tx: &mut sqlx::Transaction<'_, sqlx::Postgres>, key: &str, answer: &str) {
    let Once::First(slot) = rowlock.once(tx, key).request("request").await.unwrap() else {
        panic!("somebody was here before")
    };
    slot.store(tx, answer).await.unwrap();
}

/// One whole transaction: begin as ordered, `once`, and a commit of what came of it.
async fn attempt(rowlock: &Rowlock, pg: &mut PgConnection, begin: &'static str, request: &str) -> Got {
    let mut tx = pg.begin_with(begin).await.unwrap();
    let got = got(rowlock.once(&mut tx, "k").request(request).await);
    match got {
        Got::TryAgain(_) => tx.rollback().await.unwrap(),
        _ => tx.commit().await.unwrap(),
    }
    got
}

const READ_COMMITTED: &str = "begin isolation level read committed";

/// A concurrent caller, once it waits for the open first one; the first then ends as ordered.
async fn twin_of(bed: &mut Bed, commits: bool, begin: &'static str, request: &'static str) -> Got {
    let (rowlock, mut first, twin) = (bed.rowlock.clone(), bed.session().await, bed.session().await);
    let mut tx = first.pg.begin().await.unwrap();
    takes_and_stores(&rowlock, &mut tx, "k", "the first's").await;
    let pid = twin.pid;
    let waiting = twin.start(async move |pg| attempt(&rowlock, pg, begin, request).await);
    bed.blocked(pid).await;
    match commits {
        true => tx.commit().await.unwrap(),
        false => tx.rollback().await.unwrap(),
    }
    waiting.await.unwrap().1
}

async fn a_twin_waits_and_gets_the_firsts_answer(mut bed: Bed) {
    assert_eq!(
        twin_of(&mut bed, true, READ_COMMITTED, "request").await,
        seen("the first's")
    );
}

async fn a_twin_waits_and_is_first_after_a_rollback(mut bed: Bed) {
    assert_eq!(twin_of(&mut bed, false, READ_COMMITTED, "request").await, Got::First);
    assert_eq!(
        bed.count("select count(*) from rowlock.ledger where answer is null")
            .await,
        1
    );
}

async fn a_twin_with_another_request_waits_and_is_refused(mut bed: Bed) {
    assert_eq!(twin_of(&mut bed, true, READ_COMMITTED, "another").await, Got::Conflict);
    // Nobody is refused for what was never committed.
    sqlx::raw_sql("delete from rowlock.ledger")
        .execute(&mut bed.eye)
        .await
        .unwrap();
    assert_eq!(twin_of(&mut bed, false, READ_COMMITTED, "another").await, Got::First);
}

async fn a_twin_that_may_not_wait_longer_is_told_to_try_again(bed: Bed) {
    let (rowlock, mut first, mut twin) = (bed.rowlock.clone(), bed.session().await, bed.session().await);
    let mut tx = first.pg.begin().await.unwrap();
    takes_and_stores(&rowlock, &mut tx, "k", "the first's").await;
    let mut late = twin.pg.begin().await.unwrap();
    let bound = rowlock
        .once(&mut late, "k")
        .timeout(std::time::Duration::from_millis(20))
        .await;
    assert_eq!(got(bound), Got::TryAgain("55P03".into()));
    late.rollback().await.unwrap();

    // The bound is on this wait only, not on what the transaction does next.
    let mut free = twin.pg.begin().await.unwrap();
    let other = rowlock
        .once(&mut free, "other")
        .timeout(std::time::Duration::from_millis(20))
        .await;
    assert_eq!(got(other), Got::First);
    let bound: String = sqlx::query_scalar("show lock_timeout")
        .fetch_one(&mut *free)
        .await
        .unwrap();
    assert_eq!(bound, "30s");
    free.commit().await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(
        attempt(&rowlock, &mut twin.pg, READ_COMMITTED, "request").await,
        seen("the first's")
    );
}

/// The first commits after the second caller's snapshot was taken: while the second waits for it, and before it asks.
async fn stricter_levels_are_told_to_try_again(mut bed: Bed, begin: &'static str) {
    assert_eq!(
        twin_of(&mut bed, true, begin, "request").await,
        Got::TryAgain("40001".into())
    );
    let mut again = bed.session().await;
    let rowlock = bed.rowlock.clone();
    assert_eq!(
        attempt(&rowlock, &mut again.pg, begin, "request").await,
        seen("the first's")
    );
    assert_eq!(attempt(&rowlock, &mut again.pg, begin, "another").await, Got::Conflict);
    sqlx::raw_sql("delete from rowlock.ledger")
        .execute(&mut bed.eye)
        .await
        .unwrap();
    // A rollback leaves nothing that the snapshot could have missed.
    assert_eq!(twin_of(&mut bed, false, begin, "request").await, Got::First);

    sqlx::raw_sql("delete from rowlock.ledger")
        .execute(&mut bed.eye)
        .await
        .unwrap();
    let mut late = again.pg.begin_with(begin).await.unwrap();
    sqlx::query("select 1 from rowlock.ledger")
        .execute(&mut *late)
        .await
        .unwrap();
    let mut first = bed.session().await;
    let mut tx = first.pg.begin().await.unwrap();
    takes_and_stores(&rowlock, &mut tx, "k", "the first's").await;
    tx.commit().await.unwrap();
    let asked = rowlock.once(&mut late, "k").request("request").await;
    assert_eq!(got(asked), Got::TryAgain("40001".into()));
    late.rollback().await.unwrap();
    assert_eq!(bed.count("select count(*) from rowlock.ledger").await, 1);
}

async fn under_repeatable_read_a_first_after_the_snapshot_is_a_try_again(bed: Bed) {
    stricter_levels_are_told_to_try_again(bed, "begin isolation level repeatable read").await;
}

async fn under_serializable_a_first_after_the_snapshot_is_a_try_again(bed: Bed) {
    stricter_levels_are_told_to_try_again(bed, "begin isolation level serializable").await;
}

async fn two_keys_in_opposite_order_are_a_try_again_and_nothing_is_lost(mut bed: Bed) {
    let (rowlock, mut one, other) = (bed.rowlock.clone(), bed.session().await, bed.session().await);
    one.run("set deadlock_timeout = '20ms'").await;
    let mut tx = one.pg.begin().await.unwrap();
    takes_and_stores(&rowlock, &mut tx, "a", "one's").await;
    let (handle, pid) = (rowlock.clone(), other.pid);
    let crossing = other.start(async move |pg| {
        // The server's second look must come from the other side: who looks first is the one to go.
        sqlx::raw_sql("set deadlock_timeout = '10s'")
            .execute(&mut *pg)
            .await
            .unwrap();
        let mut tx = pg.begin().await.unwrap();
        takes_and_stores(&handle, &mut tx, "b", "other's").await;
        let second = got(handle.once(&mut tx, "a").request("request").await);
        tx.commit().await.unwrap();
        second
    });
    bed.blocked(pid).await;
    let crossed = got(rowlock.once(&mut tx, "b").request("request").await);
    assert_eq!(crossed, Got::TryAgain("40P01".into()));
    tx.rollback().await.unwrap();
    // The other went on: nobody had committed under its second key.
    assert_eq!(crossing.await.unwrap().1, Got::First);

    let mut tx = one.pg.begin().await.unwrap();
    assert_eq!(got(rowlock.once(&mut tx, "a").await), Got::Seen(None));
    assert_eq!(got(rowlock.once(&mut tx, "b").await), seen("other's"));
    tx.commit().await.unwrap();
    assert_eq!(bed.count("select count(*) from rowlock.ledger").await, 2);
}

/// Makes a session wait in the ledger's statements of one kind, for as long as `gate` is held: after an insert, when it
/// has met a row and left it alone, or before an update, when it has its snapshot.
async fn gate(bed: &mut Bed) -> Session {
    let trigger = "
        create function public.gate() returns trigger language plpgsql as $$
        begin
          if current_setting('race.gate', true) = tg_op then
            perform pg_advisory_xact_lock_shared(4711);
          end if;
          return null;
        end $$;
        create trigger gate_after after insert on rowlock.ledger for each statement execute function public.gate();
        create trigger gate_before before update on rowlock.ledger for each statement execute function public.gate()";
    sqlx::raw_sql(trigger).execute(&mut bed.eye).await.unwrap();
    let mut gate = bed.session().await;
    gate.run("select pg_advisory_lock(4711)").await;
    gate
}

/// A call of `once` that has come as far as the gate.
async fn at_the_gate(bed: &mut Bed, statement: &str) -> tokio::task::JoinHandle<(Session, Got)> {
    let (rowlock, mut session) = (bed.rowlock.clone(), bed.session().await);
    let set = format!("set race.gate = '{statement}'");
    sqlx::raw_sql(AssertSqlSafe(set))
        .execute(&mut session.pg)
        .await
        .unwrap();
    let pid = session.pid;
    let waiting = session.start(async move |pg| attempt(&rowlock, pg, READ_COMMITTED, "request").await);
    bed.blocked(pid).await;
    waiting
}

async fn an_entry_removed_between_the_two_statements_makes_a_new_first(mut bed: Bed) {
    let (rowlock, mut old) = (bed.rowlock.clone(), bed.session().await);
    let mut tx = old.pg.begin().await.unwrap();
    takes_and_stores(&rowlock, &mut tx, "k", "an old one").await;
    tx.commit().await.unwrap();

    let mut gate = gate(&mut bed).await;
    let waiting = at_the_gate(&mut bed, "INSERT").await;
    // The insert has met the entry; retention removes it before it is read.
    old.run("delete from rowlock.ledger").await;
    gate.run("select pg_advisory_unlock(4711)").await;
    assert_eq!(waiting.await.unwrap().1, Got::First);
    assert_eq!(
        bed.count("select count(*) from rowlock.ledger where answer is null")
            .await,
        1
    );
}

async fn of_two_that_find_the_same_period_over_one_is_first(mut bed: Bed) {
    let (rowlock, mut old) = (bed.rowlock.clone(), bed.session().await);
    let mut tx = old.pg.begin().await.unwrap();
    let hold = Hold::For(std::time::Duration::from_secs(3600));
    let take = rowlock.once(&mut tx, "k").request("long ago").hold(hold).await;
    assert_eq!(got(take), Got::First);
    tx.commit().await.unwrap();
    old.run("update rowlock.ledger set expires_at = made_at").await;

    let mut gate = gate(&mut bed).await;
    let waiting = at_the_gate(&mut bed, "UPDATE").await;
    // It has seen that the period is over; another takes the entry over before it can.
    let mut tx = old.pg.begin().await.unwrap();
    takes_and_stores(&rowlock, &mut tx, "k", "the quicker one's").await;
    tx.commit().await.unwrap();
    gate.run("select pg_advisory_unlock(4711)").await;
    assert_eq!(waiting.await.unwrap().1, seen("the quicker one's"));
    assert_eq!(bed.count("select count(*) from rowlock.ledger").await, 1);
}

races!(
    a_twin_waits_and_gets_the_firsts_answer,
    a_twin_waits_and_is_first_after_a_rollback,
    a_twin_with_another_request_waits_and_is_refused,
    a_twin_that_may_not_wait_longer_is_told_to_try_again,
    under_repeatable_read_a_first_after_the_snapshot_is_a_try_again,
    under_serializable_a_first_after_the_snapshot_is_a_try_again,
    two_keys_in_opposite_order_are_a_try_again_and_nothing_is_lost,
    an_entry_removed_between_the_two_statements_makes_a_new_first,
    of_two_that_find_the_same_period_over_one_is_first,
);
