//! Guards, step by step: who waits, who gets *changed*, and what a lock without a second look, or a look without a
//! lock, would miss.

use rowlock::{Error, Guard};
use sqlx::{Connection, PgConnection, Postgres};

use crate::steps::session::{Bed, Session};

/// The open incidents of one entity.
struct Open(i64);

impl Guard<Postgres> for Open {
    type Seen = Vec<i64>;

    fn key(&self) -> String {
        format!("incidents:{}", self.0)
    }

    async fn look(&self, conn: &mut PgConnection) -> sqlx::Result<Vec<i64>> {
        sqlx::query_scalar("select id from public.incident where entity = $1 and open order by id")
            .bind(self.0)
            .fetch_all(conn)
            .await
    }
}

async fn incidents(bed: &mut Bed) {
    let create = "create table public.incident (
        id bigint generated always as identity primary key, entity bigint not null, open boolean not null default true)";
    sqlx::raw_sql(create).execute(&mut bed.eye).await.unwrap();
}

async fn open(conn: &mut PgConnection, entity: i64) {
    let insert = sqlx::query("insert into public.incident (entity) values ($1)");
    insert.bind(entity).execute(conn).await.unwrap();
}

async fn open_count(bed: &mut Bed) -> i64 {
    bed.count("select count(*) from public.incident where open").await
}

/// Advisory locks that a backend has.
async fn locks(bed: &mut Bed, pid: i32) -> i64 {
    let held = "select count(*) from pg_locks where locktype = 'advisory' and granted and pid = $1";
    sqlx::query_scalar(held)
        .bind(pid)
        .fetch_one(&mut bed.eye)
        .await
        .unwrap()
}

/// Evaluates, then asks whether what it saw is unchanged, and opens an incident if so.
fn second(bed: &Bed, session: Session, seen: Vec<i64>) -> tokio::task::JoinHandle<(Session, rowlock::Result<()>)> {
    let rowlock = bed.rowlock.clone();
    session.start(async move |pg| {
        let mut tx = pg.begin().await.unwrap();
        let unchanged = rowlock.unchanged(&mut tx, &Open(1), &seen).await;
        if unchanged.is_ok() {
            open(&mut tx, 1).await;
            tx.commit().await.unwrap();
        }
        unchanged
    })
}

/// T01 to T10 of the incident race: both evaluate, the first commits while the second waits at the lock.
async fn of_two_that_evaluated_at_once_the_second_waits_at_the_lock_and_is_told_of_the_change(mut bed: Bed) {
    incidents(&mut bed).await;
    let (mut w1, mut w2) = (bed.session().await, bed.session().await);
    let seen_by_1 = Open(1).look(&mut w1.pg).await.unwrap();
    let seen_by_2 = Open(1).look(&mut w2.pg).await.unwrap();
    assert_eq!((seen_by_1.len(), seen_by_2.len()), (0, 0), "both see no open incident");

    let mut tx = w1.pg.begin().await.unwrap();
    bed.rowlock.unchanged(&mut tx, &Open(1), &seen_by_1).await.unwrap();
    open(&mut tx, 1).await;
    let pid = w2.pid;
    let waiting = second(&bed, w2, seen_by_2);
    bed.blocked(pid).await;
    assert_eq!(
        open_count(&mut bed).await,
        0,
        "nothing is decided while the first has not committed"
    );
    tx.commit().await.unwrap();

    let (_, told) = waiting.await.unwrap();
    assert!(
        matches!(&told, Err(Error::Changed { key, .. }) if key == "incidents:1"),
        "{told:?}"
    );
    assert_eq!(open_count(&mut bed).await, 1);
}

async fn if_the_first_rolls_back_or_dies_the_second_goes_on(mut bed: Bed) {
    incidents(&mut bed).await;
    for dies in [false, true] {
        let mut w1 = bed.session().await;
        let pid_1 = w1.pid;
        let mut tx = w1.pg.begin().await.unwrap();
        bed.rowlock.unchanged(&mut tx, &Open(1), &vec![]).await.unwrap();
        open(&mut tx, 1).await;

        let w2 = bed.session().await;
        let pid = w2.pid;
        let waiting = second(&bed, w2, vec![]);
        bed.blocked(pid).await;
        match dies {
            false => tx.rollback().await.unwrap(),
            true => {
                let end = sqlx::query("select pg_terminate_backend($1)").bind(pid_1);
                end.execute(&mut bed.eye).await.unwrap();
            }
        }
        let (_, told) = waiting.await.unwrap();
        told.unwrap();
        assert_eq!(open_count(&mut bed).await, 1);
        sqlx::raw_sql("delete from public.incident")
            .execute(&mut bed.eye)
            .await
            .unwrap();
    }
}

/// What the guard's two statements are for: the same lock and look in one statement read what was before the wait.
async fn one_statement_for_lock_and_look_would_be_fooled_and_two_are_not(mut bed: Bed) {
    incidents(&mut bed).await;
    let one_statement = "select count(*) from public.incident, pg_advisory_xact_lock(4711) where open";
    let (mut w1, w2, w3) = (bed.session().await, bed.session().await, bed.session().await);
    let mut tx = w1.pg.begin().await.unwrap();
    bed.rowlock.unchanged(&mut tx, &Open(1), &vec![]).await.unwrap();
    sqlx::raw_sql("select pg_advisory_xact_lock(4711)")
        .execute(&mut *tx)
        .await
        .unwrap();
    open(&mut tx, 1).await;

    let (naive_pid, guard_pid) = (w2.pid, w3.pid);
    let naive = w2.start(async move |pg| sqlx::query_scalar::<_, i64>(one_statement).fetch_one(pg).await.unwrap());
    let guarded = second(&bed, w3, vec![]);
    bed.blocked(naive_pid).await;
    bed.blocked(guard_pid).await;
    tx.commit().await.unwrap();

    assert_eq!(naive.await.unwrap().1, 0, "one statement still counts no open incident");
    assert!(matches!(guarded.await.unwrap().1, Err(Error::Changed { .. })));
    assert_eq!(open_count(&mut bed).await, 1);
}

async fn a_stricter_level_is_refused_without_a_lock_and_the_transaction_stays_usable(mut bed: Bed) {
    incidents(&mut bed).await;
    let mut session = bed.session().await;
    for level in ["repeatable read", "serializable"] {
        let begin = sqlx::AssertSqlSafe(format!("begin isolation level {level}"));
        let mut tx = session.pg.begin_with(begin).await.unwrap();
        let two = bed
            .rowlock
            .guards(&mut tx)
            .add(&Open(1), &vec![])
            .add(&Open(2), &vec![])
            .await;
        for refused in [bed.rowlock.unchanged(&mut tx, &Open(1), &vec![]).await, two] {
            let refused = refused.unwrap_err();
            assert!(
                matches!(&refused, Error::Isolation { found, .. } if found == level),
                "{refused:?}"
            );
            assert_eq!(
                refused.to_string(),
                format!(
                    "guard needs a read committed transaction, but this one is {level}; begin it as read committed"
                )
            );
        }
        assert_eq!(locks(&mut bed, session_pid(&mut tx).await).await, 0);
        open(&mut tx, 1).await;
        tx.commit().await.unwrap();
    }
    assert_eq!(
        open_count(&mut bed).await,
        2,
        "what was written at those levels committed"
    );
    for level in ["read committed", "read uncommitted"] {
        let begin = sqlx::AssertSqlSafe(format!("begin isolation level {level}"));
        let mut tx = session.pg.begin_with(begin).await.unwrap();
        bed.rowlock.unchanged(&mut tx, &Open(3), &vec![]).await.unwrap();
        assert_eq!(locks(&mut bed, session_pid(&mut tx).await).await, 1);
        tx.rollback().await.unwrap();
    }
}

async fn session_pid(conn: &mut PgConnection) -> i32 {
    sqlx::query_scalar("select pg_backend_pid()")
        .fetch_one(conn)
        .await
        .unwrap()
}

/// Somebody holds the guard that comes first. Two who want it and another one, named in opposite orders, both wait
/// there and hold nothing, so neither can wait for the other.
async fn guards_named_in_opposite_orders_are_locked_in_one_order(mut bed: Bed) {
    incidents(&mut bed).await;
    let both = |bed: &Bed, session: Session, order: [i64; 2]| {
        let rowlock = bed.rowlock.clone();
        session.start(async move |pg| {
            let (a, b, none) = (Open(order[0]), Open(order[1]), vec![]);
            let mut tx = pg.begin().await.unwrap();
            rowlock.guards(&mut tx).add(&a, &none).add(&b, &none).await.unwrap();
            tx.commit().await.unwrap();
        })
    };
    let mut first_came_first = Vec::new();
    for held in [1, 2] {
        let (mut holder, p, q) = (bed.session().await, bed.session().await, bed.session().await);
        let pids = [p.pid, q.pid];
        let mut tx = holder.pg.begin().await.unwrap();
        bed.rowlock.unchanged(&mut tx, &Open(held), &vec![]).await.unwrap();
        let p = both(&bed, p, [1, 2]);
        bed.blocked(pids[0]).await;
        let q = both(&bed, q, [2, 1]);
        bed.blocked(pids[1]).await;
        let locked = [locks(&mut bed, pids[0]).await, locks(&mut bed, pids[1]).await];
        // The one that was started first may hold what comes first; the other never holds anything meanwhile.
        assert_eq!(locked[1], 0);
        first_came_first.push(locked[0] == 0);
        tx.commit().await.unwrap();
        p.await.unwrap();
        q.await.unwrap();
    }
    first_came_first.sort_unstable();
    assert_eq!(
        first_came_first,
        [false, true],
        "one of the two keys comes first for everyone"
    );
}

/// Asked one after the other instead of together, guards can meet in a deadlock; one of the two is asked to try again.
async fn guards_asked_one_by_one_in_opposite_orders_answer_try_again(mut bed: Bed) {
    incidents(&mut bed).await;
    let (mut w1, w2) = (bed.session().await, bed.session().await);
    w1.run("set deadlock_timeout = '50ms'").await;
    let mut tx = w1.pg.begin().await.unwrap();
    bed.rowlock.unchanged(&mut tx, &Open(1), &vec![]).await.unwrap();
    let (rowlock, pid) = (bed.rowlock.clone(), w2.pid);
    let other = w2.start(async move |pg| {
        sqlx::raw_sql("set deadlock_timeout = '60s'")
            .execute(&mut *pg)
            .await
            .unwrap();
        let mut tx = pg.begin().await.unwrap();
        rowlock.unchanged(&mut tx, &Open(2), &vec![]).await.unwrap();
        rowlock.unchanged(&mut tx, &Open(1), &vec![]).await.unwrap();
        tx.commit().await.unwrap();
    });
    bed.blocked(pid).await;
    let told = bed.rowlock.unchanged(&mut tx, &Open(2), &vec![]).await.unwrap_err();
    assert_eq!(
        (told.is_retryable(), told.code().as_deref()),
        (true, Some("40P01")),
        "{told:?}"
    );
    tx.rollback().await.unwrap();
    other.await.unwrap();
}

async fn a_lock_that_does_not_come_in_time_is_an_answer_to_try_again(mut bed: Bed) {
    incidents(&mut bed).await;
    let (mut holder, mut waiter) = (bed.session().await, bed.session().await);
    let mut tx = holder.pg.begin().await.unwrap();
    bed.rowlock.unchanged(&mut tx, &Open(1), &vec![]).await.unwrap();
    waiter.run("set lock_timeout = '50ms'").await;
    let mut late = waiter.pg.begin().await.unwrap();
    let told = bed.rowlock.unchanged(&mut late, &Open(1), &vec![]).await.unwrap_err();
    assert!(told.is_retryable(), "{told:?}");
    assert_eq!(told.code().as_deref(), Some("55P03"));
}

async fn a_lock_goes_with_the_savepoint_it_was_taken_in(mut bed: Bed) {
    incidents(&mut bed).await;
    let mut session = bed.session().await;
    let pid = session.pid;
    let mut tx = session.pg.begin().await.unwrap();
    let mut inner = tx.begin().await.unwrap();
    bed.rowlock.unchanged(&mut inner, &Open(1), &vec![]).await.unwrap();
    assert_eq!(locks(&mut bed, pid).await, 1);
    inner.rollback().await.unwrap();
    assert_eq!(locks(&mut bed, pid).await, 0);
    bed.rowlock.unchanged(&mut tx, &Open(1), &vec![]).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(locks(&mut bed, pid).await, 0);
}

races!(
    of_two_that_evaluated_at_once_the_second_waits_at_the_lock_and_is_told_of_the_change,
    if_the_first_rolls_back_or_dies_the_second_goes_on,
    one_statement_for_lock_and_look_would_be_fooled_and_two_are_not,
    a_stricter_level_is_refused_without_a_lock_and_the_transaction_stays_usable,
    guards_named_in_opposite_orders_are_locked_in_one_order,
    guards_asked_one_by_one_in_opposite_orders_answer_try_again,
    a_lock_that_does_not_come_in_time_is_an_answer_to_try_again,
    a_lock_goes_with_the_savepoint_it_was_taken_in,
);
