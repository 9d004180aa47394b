//! Serializable transactions that have nothing to do with each other: none of our verbs makes one of them fail. The
//! tables are small and analysed, so that a planner left to itself reads them whole, which would count as having read
//! every row of them.

use rowlock::{Job, Once, postgres::Rowlock};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};

use crate::steps::session::Bed;

#[derive(Clone, Serialize, Deserialize, Job)]
#[job(kind = "stranger")]
struct Stranger {
    n: i64,
}

/// Twenty rows wherever a verb looks, and the planner knows that they are few.
async fn few_rows(bed: &mut Bed) {
    let clear = "truncate rowlock.guard_version, rowlock.ledger, rowlock.job_key, rowlock.completion, rowlock.waiting,
        rowlock.ready, rowlock.job, rowlock.outcome";
    sqlx::raw_sql(clear).execute(&mut bed.eye).await.unwrap();
    let jobs = || (1..=10).map(|n| Stranger { n });
    let held = bed
        .rowlock
        .enqueue_all_now(jobs())
        .key_by(|job| format!("held-{}", job.n));
    held.await.unwrap();
    for job in jobs().take(2) {
        let name = format!("awaited-{}", job.n);
        let _ = bed.rowlock.enqueue_now(job).waits_for(name).await.unwrap();
    }
    bed.rowlock.enqueue_all_now(jobs()).waits_for("nobody").await.unwrap();
    let fill = "insert into rowlock.guard_version (key, version, changed_at)
            select 'k-' || n, 1, clock_timestamp() from generate_series(1, 20) n;
        insert into rowlock.ledger (key, answer, hold, made_at)
            select 'seen-' || n, '1', 'ever', clock_timestamp() from generate_series(1, 10) n;
        insert into rowlock.ledger (key, answer, hold, expires_at, made_at)
            select 'over-' || n, '1', 'period', clock_timestamp(), clock_timestamp() from generate_series(1, 10) n;
        insert into rowlock.job_key (key, id, fingerprint, hold, made_at)
            select 'over-' || n, 1000000 + n, '', 'open', clock_timestamp() from generate_series(1, 10) n;
        insert into rowlock.completion (name, answer, completed_at)
            select 'completed-' || n, '1', clock_timestamp() from generate_series(1, 20) n;
        analyze rowlock.guard_version, rowlock.ledger, rowlock.job_key, rowlock.completion, rowlock.waiting,
            rowlock.ready, rowlock.job, rowlock.outcome";
    sqlx::raw_sql(fill).execute(&mut bed.eye).await.unwrap();
}

/// Every verb that may run in a caller's transaction.
#[derive(Clone, Copy, Debug)]
enum Verb {
    VersionThenUnchanged,
    Raise,
    RaiseNew,
    OnceFirst,
    OnceSeen,
    OnceOver,
    LookOnce,
    Enqueue,
    EnqueueNewKey,
    EnqueueHeldKey,
    EnqueueOverKey,
    EnqueueWaiting,
    EnqueueCompleted,
    Complete,
}

use Verb::*;

const VERBS: [Verb; 14] = [
    VersionThenUnchanged,
    Raise,
    RaiseNew,
    OnceFirst,
    OnceSeen,
    OnceOver,
    LookOnce,
    Enqueue,
    EnqueueNewKey,
    EnqueueHeldKey,
    EnqueueOverKey,
    EnqueueWaiting,
    EnqueueCompleted,
    Complete,
];

/// What the first half of a verb leaves for the second.
enum Half {
    Whole,
    Seen(i64),
    First(rowlock::handle::OnceSlot<sqlx::Postgres>),
}

type Tx<'c> = sqlx::Transaction<'c, sqlx::Postgres>;

impl Verb {
    /// `n` tells the strangers apart.
    async fn first_half(self, rowlock: &Rowlock, tx: &mut Tx<'_>, n: i64) -> rowlock::Result<Half> {
        let (new, held) = (format!("new-{n}"), format!("held-{n}"));
        let job = Stranger { n };
        match self {
            VersionThenUnchanged => return Ok(Half::Seen(rowlock.version(tx, &format!("k-{n}")).await?)),
            Raise => assert_eq!(rowlock.raise_version(tx, &format!("k-{n}")).await?, 2),
            RaiseNew => assert_eq!(rowlock.raise_version(tx, &new).await?, 1),
            OnceFirst | OnceOver | OnceSeen => {
                let key = match self {
                    OnceFirst => new,
                    OnceOver => format!("over-{n}"),
                    _ => format!("seen-{n}"),
                };
                return match (self, rowlock.once(tx, key).await?) {
                    (OnceSeen, Once::Seen(_)) => Ok(Half::Whole),
                    (OnceFirst | OnceOver, Once::First(slot)) => Ok(Half::First(slot)),
                    (_, other) => panic!("{self:?}: {other:?}"),
                };
            }
            LookOnce => assert!(rowlock.seen(tx, format!("seen-{n}")).await?.is_some()),
            Enqueue => drop(rowlock.enqueue(&mut **tx, job).await?),
            EnqueueNewKey => assert!(rowlock.enqueue(&mut **tx, job).key(new).await?.is_new()),
            EnqueueHeldKey => assert!(!rowlock.enqueue(&mut **tx, job).key(held).await?.is_new()),
            EnqueueOverKey => {
                let over = rowlock.enqueue(&mut **tx, job).key(format!("over-{n}"));
                assert!(over.await?.is_new());
            }
            EnqueueWaiting => drop(rowlock.enqueue(&mut **tx, job).waits_for(new).await?),
            EnqueueCompleted => {
                let completed = rowlock.enqueue(&mut **tx, job).waits_for(format!("completed-{n}"));
                drop(completed.await?);
            }
            Complete => {
                let completed = rowlock.complete(tx, &format!("awaited-{n}"), &"yes").await?;
                assert_eq!(completed, rowlock::Completed::Now(1));
            }
        }
        Ok(Half::Whole)
    }
}

async fn second_half(rowlock: &Rowlock, tx: &mut Tx<'_>, n: i64, half: Half) -> rowlock::Result<()> {
    match half {
        Half::Whole => Ok(()),
        Half::Seen(version) => rowlock
            .unchanged_version(tx, &format!("k-{n}"), version)
            .await
            .map(drop),
        Half::First(slot) => slot.store(tx, &n).await,
    }
}

/// Both are open at the same time and take turns at each half; with the planner as any caller's connection has it.
async fn both_commit(
    rowlock: &Rowlock,
    one: &mut PgConnection,
    other: &mut PgConnection,
    verbs: [Verb; 2],
) -> Result<(), String> {
    const BEGIN: &str = "begin isolation level serializable";
    let mut a = one.begin_with(BEGIN).await.unwrap();
    let mut b = other.begin_with(BEGIN).await.unwrap();
    for tx in [&mut a, &mut b] {
        sqlx::raw_sql("select").execute(&mut **tx).await.unwrap();
    }
    let run = async {
        let half_a = verbs[0].first_half(rowlock, &mut a, 1).await?;
        let half_b = verbs[1].first_half(rowlock, &mut b, 2).await?;
        second_half(rowlock, &mut a, 1, half_a).await?;
        second_half(rowlock, &mut b, 2, half_b).await
    };
    let ran = run.await.map_err(|e| format!("{e}: {:?}", e.code()));
    let planner = "select current_setting('enable_seqscan') || current_setting('plan_cache_mode')";
    for tx in [&mut a, &mut b] {
        if ran.is_ok() {
            let planner: String = sqlx::query_scalar(planner).fetch_one(&mut **tx).await.unwrap();
            assert_eq!(planner, "onauto", "the planner is the caller's again");
        }
    }
    let committed = match ran {
        Ok(()) => async { a.commit().await.and(b.commit().await) }
            .await
            .map_err(|e| e.to_string()),
        refused => refused,
    };
    committed.map_err(|why| format!("{verbs:?}: {why}"))
}

async fn verbs_with_different_keys_never_meet_at_serializable(mut bed: Bed) {
    let mut one = PgConnection::connect(&bed.url).await.unwrap();
    let mut other = PgConnection::connect(&bed.url).await.unwrap();
    let mut met = Vec::new();
    for first in VERBS {
        for second in VERBS {
            few_rows(&mut bed).await;
            met.extend(
                both_commit(&bed.rowlock, &mut one, &mut other, [first, second])
                    .await
                    .err(),
            );
        }
    }
    assert!(met.is_empty(), "{} pairs: {met:#?}", met.len());
}

races!(verbs_with_different_keys_never_meet_at_serializable);
