//! Guards: two workers never both act on the same observed state.

use std::{sync::Arc, time::Duration};

use anyhow::Context;
use rowlock::{Applied, Ended, Error, Fail, Guard, Job, atomic, staged};
use serde::{Deserialize, Serialize};
use sqlx::Connection;
use tokio::sync::Barrier;

use super::Bed;
use super::db::{Backend, Conn, Ctx, Outcome, Staged, Tx};

/// The open incidents of one entity, as a policy's evaluation sees them.
#[derive(Clone)]
pub(crate) struct OpenIncidents(pub(crate) i64);

impl Guard<Backend> for OpenIncidents {
    type Seen = Vec<i64>;

    fn key(&self) -> String {
        format!("incidents:{}", self.0)
    }

    async fn look(&self, conn: &mut Conn) -> sqlx::Result<Vec<i64>> {
        sqlx::query_scalar("select id from incident where entity = $1 and open = 1 order by id")
            .bind(self.0)
            .fetch_all(conn)
            .await
    }
}

/// The rule that no unique index states here: at most one open incident per entity.
pub(crate) async fn incidents(bed: &Bed) {
    let id = match bed.database.is_sqlite() {
        true => "id integer primary key",
        false => "id bigint generated always as identity primary key",
    };
    bed.run_as_it_is(&format!(
        "create table incident ({id}, entity bigint not null, open int not null default 1)"
    ))
    .await;
}

pub(crate) async fn open(conn: &mut Conn, entity: i64) -> sqlx::Result<()> {
    let insert = sqlx::query("insert into incident (entity) values ($1)");
    insert.bind(entity).execute(conn).await.map(|_| ())
}

async fn open_count(bed: &Bed) -> i64 {
    bed.count("select count(*) from incident where open = 1").await
}

#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "evaluate", attempts = 3)]
struct Evaluate {
    entity: i64,
}

/// Looks, meets the others after its slow evaluation, and opens an incident if nothing changed.
async fn evaluate(mut cx: Staged<Arc<Barrier>>, job: Evaluate) -> Outcome {
    let guard = OpenIncidents(job.entity);
    let mut read = cx.prepare().await?;
    let seen = guard.look(&mut read).await?;
    read.commit().await?;
    if !seen.is_empty() {
        return cx.done().ok();
    }
    cx.state().wait().await;
    let mut tx = cx.begin().await?;
    tx.unchanged(&guard, &seen).await?;
    open(&mut tx, job.entity).await?;
    tx.done().ok()
}

async fn of_two_evaluations_at_once_one_opens_the_incident_and_the_other_is_done_quietly(bed: &Bed) {
    incidents(bed).await;
    let jobs = [Evaluate { entity: 1 }, Evaluate { entity: 1 }];
    let ids = bed.rowlock.enqueue_all_now(jobs).await.unwrap();
    let worker = bed.worker().state(Arc::new(Barrier::new(2))).handle(staged(evaluate));
    let counters = bed.work(worker, &ids).await;

    assert_eq!(open_count(bed).await, 1);
    assert_eq!((counters.settled(Ended::Done), counters.changed()), (2, 1));
    assert_eq!(counters.already_handled(), 0);
    for id in ids {
        assert_eq!(
            bed.ends(id).await,
            [Ended::Done],
            "no retry: the next trigger looks again"
        );
    }
}

async fn what_is_unchanged_goes_through_and_what_changed_does_not(bed: &Bed) {
    incidents(bed).await;
    let mut conn = bed.conn().await;
    let guard = OpenIncidents(7);
    let seen = guard.look(&mut conn).await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    bed.rowlock.unchanged(&mut tx, &guard, &seen).await.unwrap();
    open(&mut tx, 7).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    let refused = bed.rowlock.unchanged(&mut tx, &guard, &seen).await.unwrap_err();
    assert!(
        matches!(&refused, Error::Changed { key, .. } if key == "incidents:7"),
        "{refused:?}"
    );
    assert_eq!(refused.to_string(), "\"incidents:7\" has changed since it was read");
    // Another entity's guard is none of this one's business, in the same transaction.
    bed.rowlock
        .unchanged(&mut tx, &OpenIncidents(8), &vec![])
        .await
        .unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(open_count(bed).await, 1);
}

async fn opened_and_closed_again_is_caught_by_the_version_counter_alone(bed: &Bed) {
    incidents(bed).await;
    let (mut mine, mut theirs) = (bed.conn().await, bed.conn().await);
    let (guard, key) = (OpenIncidents(1), "incidents:1");
    let seen = guard.look(&mut mine).await.unwrap();
    let version = bed.rowlock.version(&mut mine, key).await.unwrap();
    assert_eq!(version, 0, "nobody has raised it yet");

    for sql in [
        "insert into incident (entity) values (1)",
        "update incident set open = 0 where entity = 1",
    ] {
        let mut tx = theirs.begin().await.unwrap();
        bed.rowlock.raise_version(&mut tx, key).await.unwrap();
        sqlx::query(sql).execute(&mut *tx).await.unwrap();
        tx.commit().await.unwrap();
    }

    let mut tx = mine.begin().await.unwrap();
    bed.rowlock
        .unchanged(&mut tx, &guard, &seen)
        .await
        .expect("what is open looks as it did");
    let caught = bed.rowlock.unchanged_version(&mut tx, key, version).await.unwrap_err();
    assert!(matches!(caught, Error::Changed { .. }), "{caught:?}");
    tx.rollback().await.unwrap();
    assert_eq!(bed.rowlock.version(&mut mine, key).await.unwrap(), 2);
}

async fn a_version_counts_commits_and_a_rollback_leaves_it_alone(bed: &Bed) {
    let mut conn = bed.conn().await;
    for (n, commit) in [(0, true), (1, false), (1, true), (2, true)] {
        assert_eq!(bed.rowlock.version(&mut conn, "k").await.unwrap(), n);
        let mut tx = conn.begin().await.unwrap();
        assert_eq!(bed.rowlock.unchanged_version(&mut tx, "k", n).await.unwrap(), n + 1);
        let again = bed.rowlock.unchanged_version(&mut tx, "k", n).await.unwrap_err();
        assert!(
            matches!(again, Error::Changed { .. }),
            "one look allows one write: {again:?}"
        );
        match commit {
            true => tx.commit().await.unwrap(),
            false => tx.rollback().await.unwrap(),
        }
    }
    let mut tx = conn.begin().await.unwrap();
    assert_eq!(bed.rowlock.raise_version(&mut tx, "k").await.unwrap(), 4);
    for wrong in [0, 3, 5, -1, i64::MAX, i64::MIN] {
        let refused = bed.rowlock.unchanged_version(&mut tx, "k", wrong).await.unwrap_err();
        assert!(matches!(refused, Error::Changed { .. }), "{wrong}: {refused:?}");
    }
    // A counter that somebody removed is not the one that was seen.
    sqlx::query(super::sql("delete from rowlock.guard_version"))
        .execute(&mut *tx)
        .await
        .unwrap();
    let refused = bed.rowlock.unchanged_version(&mut tx, "k", 4).await.unwrap_err();
    assert!(matches!(refused, Error::Changed { .. }), "{refused:?}");
}

async fn several_guards_are_checked_together_and_the_changed_one_is_named(bed: &Bed) {
    incidents(bed).await;
    let mut conn = bed.conn().await;
    let (a, b, none) = (OpenIncidents(1), OpenIncidents(2), vec![]);

    let mut tx = conn.begin().await.unwrap();
    let all = bed.rowlock.guards(&mut tx).add(&a, &none).add(&b, &none);
    all.version("policy", 0)
        .version("policy", 0)
        .version("zone", 0)
        .await
        .unwrap();
    open(&mut tx, 2).await.unwrap();
    tx.commit().await.unwrap();

    let mut tx = conn.begin().await.unwrap();
    let both = bed.rowlock.guards(&mut tx).add(&a, &none).add(&b, &none);
    let changed = both.version("policy", 1).await.unwrap_err();
    assert!(
        matches!(&changed, Error::Changed { key, .. } if key == "incidents:2"),
        "{changed:?}"
    );
    let version = bed.rowlock.version(&mut tx, "policy").await.unwrap();
    assert_eq!(version, 1, "a counter is raised only if the rest is unchanged");
    let stale = bed
        .rowlock
        .guards(&mut tx)
        .add(&a, &none)
        .version("zone", 0)
        .await
        .unwrap_err();
    assert!(
        matches!(&stale, Error::Changed { key, .. } if key == "zone"),
        "{stale:?}"
    );
    bed.rowlock.guards(&mut tx).await.expect("no guard, nothing changed");
}

async fn a_counter_that_is_gone_has_changed(bed: &Bed) {
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    assert_eq!(bed.rowlock.raise_version(&mut tx, "k").await.unwrap(), 1);
    tx.commit().await.unwrap();
    bed.run("delete from rowlock.guard_version").await;
    let mut tx = conn.begin().await.unwrap();
    let told = bed.rowlock.unchanged_version(&mut tx, "k", 1).await.unwrap_err();
    assert!(matches!(told, Error::Changed { .. }), "{told:?}");
    assert_eq!(bed.rowlock.unchanged_version(&mut tx, "k", 0).await.unwrap(), 1);
}

async fn a_bad_key_is_refused_before_any_sql(bed: &Bed) {
    struct Bad(String);
    impl Guard<Backend> for Bad {
        type Seen = ();
        fn key(&self) -> String {
            self.0.clone()
        }
        async fn look(&self, _: &mut Conn) -> sqlx::Result<()> {
            Ok(())
        }
    }
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    for key in ["", "a\0b", &"x".repeat(251)] {
        let asked = [
            bed.rowlock.unchanged(&mut tx, &Bad(key.into()), &()).await,
            bed.rowlock
                .guards(&mut tx)
                .add(&OpenIncidents(1), &vec![])
                .version(key, 1)
                .await,
            bed.rowlock.unchanged_version(&mut tx, key, 0).await.map(|_| ()),
            bed.rowlock.raise_version(&mut tx, key).await.map(|_| ()),
            bed.rowlock.version(&mut tx, key).await.map(|_| ()),
        ];
        for refused in asked {
            assert!(
                matches!(&refused, Err(Error::Invalid { field, .. }) if field == "guard"),
                "{refused:?}"
            );
        }
    }
    bed.rowlock.unchanged(&mut tx, &Bad("fine".into()), &()).await.unwrap();
    tx.commit().await.unwrap();
}

async fn a_handler_may_settle_a_change_as_it_chooses(bed: &Bed) {
    incidents(bed).await;
    open(&mut bed.conn().await, 1).await.unwrap();
    let id = bed.rowlock.enqueue_now(Evaluate { entity: 1 }).await.unwrap().id();
    let handler = |cx: Ctx, job: Evaluate, mut tx: Tx| async move {
        // The first attempt has seen nothing; the second one looks.
        let guard = OpenIncidents(job.entity);
        let seen = match cx.attempt() {
            1 => vec![],
            _ => guard.look(&mut tx).await?,
        };
        let unchanged = tx.unchanged(&guard, &seen).await;
        unchanged.map_err(|e| Fail::retry_after(Duration::ZERO, e.to_string()))?;
        tx.raise_version("seen").await?;
        tx.done().ok()
    };
    let counters = bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
    assert_eq!(counters.changed(), 0);
    let first = &bed.attempts(id).await[0];
    assert_eq!(
        first.error.as_deref(),
        Some("\"incidents:1\" has changed since it was read")
    );
    assert_eq!(bed.rowlock.version(&mut bed.conn().await, "seen").await.unwrap(), 1);
}

async fn a_change_behind_any_wrapping_is_done_quietly_with_nothing_written(bed: &Bed) {
    let id = bed.rowlock.enqueue_now(Evaluate { entity: 1 }).await.unwrap().id();
    let handler = |_: Ctx, _: Evaluate, mut tx: Tx| async move {
        tx.raise_version("a").await?;
        tx.unchanged_version("b", 9).await.context("while opening")?;
        tx.done().ok()
    };
    let counters = bed.work(bed.worker().handle(atomic(handler)), &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Done]);
    assert_eq!((counters.changed(), counters.already_handled()), (1, 0));
    assert_eq!(bed.rowlock.version(&mut bed.conn().await, "a").await.unwrap(), 0);
    assert_eq!(bed.attempts(id).await[0].error, None);
}

/// Where an index can state the rule, no guard is needed: the recipe of the guards page.
async fn a_static_rule_is_kept_by_a_partial_unique_index_alone(bed: &Bed) {
    incidents(bed).await;
    bed.run("create unique index one_open on incident (entity) where open = 1")
        .await;
    let jobs = [1, 1, 1, 2].map(|entity| Evaluate { entity });
    let ids = bed.rowlock.enqueue_all_now(jobs).await.unwrap();
    let handler = |_: Ctx, job: Evaluate, mut tx: Tx| async move {
        sqlx::query("insert into incident (entity) values ($1) on conflict do nothing")
            .bind(job.entity)
            .execute(&mut *tx)
            .await?
            .applied()?;
        tx.done().ok()
    };
    let counters = bed.work(bed.worker().handle(atomic(handler)), &ids).await;
    assert_eq!((open_count(bed).await, counters.already_handled()), (2, 2));
    bed.run("update incident set open = 0").await;
    let again = bed.rowlock.enqueue_now(Evaluate { entity: 1 }).await.unwrap().id();
    bed.work(bed.worker().handle(atomic(handler)), &[again]).await;
    assert_eq!(open_count(bed).await, 1, "closed ones are not in its way");
}

mod tests {
    super::super::cases!(
        of_two_evaluations_at_once_one_opens_the_incident_and_the_other_is_done_quietly,
        what_is_unchanged_goes_through_and_what_changed_does_not,
        opened_and_closed_again_is_caught_by_the_version_counter_alone,
        a_version_counts_commits_and_a_rollback_leaves_it_alone,
        several_guards_are_checked_together_and_the_changed_one_is_named,
        a_counter_that_is_gone_has_changed,
        a_bad_key_is_refused_before_any_sql,
        a_handler_may_settle_a_change_as_it_chooses,
        a_static_rule_is_kept_by_a_partial_unique_index_alone,
        a_change_behind_any_wrapping_is_done_quietly_with_nothing_written,
    );
}
