//! `docs/grants.sql` as it is: each role can do its part, no role can do another's, and no grant is there for nothing.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod steps;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use proof::bed::{Database, Server, postgres_servers, until};
use rowlock::{
    Counters, EffectFilter, Ended, Error, Fail, Hold, Job, JobFilter, Once, Resolution, State,
    postgres::{Ctx, Outcome, Rowlock, Staged, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, PgConnection};
use tokio_util::sync::CancellationToken;

use crate::steps::{catalog::script, enqueue, partitions, register, sql};

const GRANTS: &str = include_str!("../../../docs/grants.sql");

const PRODUCER: &str = "rowlock_producer";
const WORKER: &str = "rowlock_worker";
const OPERATOR: &str = "rowlock_operator";

/// A database migrated by an owner without any other right, with the documented grants.
struct Granted {
    database: Database,
    /// Roles are the server's, so they do not go with the database.
    logins: Vec<String>,
    root: PgConnection,
}

impl Granted {
    async fn new(server: &Server, case: &str) -> Granted {
        let database = Database::fresh(server, &format!("grants::{case}")).await.unwrap();
        let mut granted = Granted {
            root: PgConnection::connect(&database.url).await.unwrap(),
            database,
            logins: Vec::new(),
        };
        let owner = granted.login(None).await;
        let name = granted.database.url.rsplit('/').next().unwrap();
        let create = format!("grant create on database {name} to {owner}");
        script(&mut granted.root, &create).await.unwrap();
        let owner = granted.url(&owner);
        Rowlock::open(&owner).unwrap().migrate().await.unwrap();
        // Twice: whoever may create roles, then the owner, who may not.
        script(&mut granted.root, GRANTS).await.unwrap();
        let mut owner = PgConnection::connect(&owner).await.unwrap();
        script(&mut owner, GRANTS).await.unwrap();
        granted
    }

    /// The same database under another role.
    fn url(&self, role: &str) -> String {
        let (scheme, rest) = self.database.url.split_once("://").unwrap();
        let (_, host) = rest.split_once('@').unwrap();
        format!("{scheme}://{role}@{host}")
    }

    /// A new role that may log in and is a member of one other at most.
    async fn login(&mut self, member_of: Option<&str>) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("login_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let within = member_of.map(|role| format!("in role {role}")).unwrap_or_default();
        script(&mut self.root, &format!("create role {name} login {within}"))
            .await
            .unwrap();
        self.logins.push(name.clone());
        name
    }

    /// A handle and a connection of a new login that is a member of `role` and nothing else.
    async fn member(&mut self, role: &str) -> (Rowlock, PgConnection) {
        let login = self.login(Some(role)).await;
        let url = self.url(&login);
        let rowlock = Rowlock::connect(&url).await.unwrap();
        (rowlock, PgConnection::connect(&url).await.unwrap())
    }

    async fn end(self, server: &Server) {
        self.database.remove().await.unwrap();
        let mut root = PgConnection::connect(&server.url).await.unwrap();
        script(&mut root, &format!("drop role {}", self.logins.join(", ")))
            .await
            .unwrap();
    }
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "first", attempts = 2)]
struct First {
    sold_out: bool,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "second")]
struct Second {}

async fn first(_cx: Ctx, job: First, mut tx: Tx) -> Outcome {
    sqlx::query("insert into public.effects default values")
        .execute(&mut *tx)
        .await?;
    if job.sold_out {
        return Err(Fail::retire("sold out"));
    }
    tx.done().then(Second {}).ok()
}

async fn second(cx: Staged, _job: Second) -> Outcome {
    cx.effect("call", |_| async { Ok::<_, Fail>(1) }).await?;
    cx.done().ok()
}

/// Leaves one job with a worker that has not beaten for an hour.
async fn lose_a_worker(pg: &mut PgConnection) {
    let lane: (i64, i64, i16) = sqlx::query_as("select queue_no, kind_no, priority from rowlock.ready limit 1")
        .fetch_one(&mut *pg)
        .await
        .unwrap();
    register(pg, 1).await;
    let moved = "with gone as (delete from rowlock.ready returning *) insert into rowlock.lease
        select id, epoch + 1, 1, attempt + 1, attempts_max, queue_no, kind_no, alone, priority, clock_timestamp() from gone
        where queue_no = $1";
    sqlx::query(moved).bind(lane.0).execute(&mut *pg).await.unwrap();
    sqlx::query("update rowlock.worker set beat = beat - interval '1 hour'")
        .execute(pg)
        .await
        .unwrap();
}

/// Runs a worker on this handle until so many attempts are done.
async fn work_until_done(rowlock: &Rowlock, jobs: u64) -> Arc<Counters> {
    let worker = Worker::new(rowlock).queue("default", 4).lease(Duration::from_secs(2));
    let worker = worker.atomic(first).staged(second);
    let (counters, stop) = (worker.counters(), CancellationToken::new());
    let stopped = stop.clone();
    let running = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
    let all = async || (counters.settled(Ended::Done) >= jobs).then_some(());
    until("everything to be done", Duration::from_secs(30), all).await;
    stop.cancel();
    running.await.unwrap().unwrap();
    counters
}

#[tokio::test]
async fn every_role_can_do_its_part() {
    for server in postgres_servers() {
        let mut granted = Granted::new(&server, "every_role_can_do_its_part").await;
        script(
            &mut granted.root,
            "create table public.effects (at timestamptz default now())",
        )
        .await
        .unwrap();
        script(
            &mut granted.root,
            &format!("grant insert on public.effects to {WORKER}"),
        )
        .await
        .unwrap();

        let (producer, mut own) = granted.member(PRODUCER).await;
        let mut tx = own.begin().await.unwrap();
        let lost = producer.enqueue(&mut tx, First { sold_out: false }).await.unwrap().id();
        tx.commit().await.unwrap();
        let mut tx = own.begin().await.unwrap();
        for first in [true, false] {
            let once = producer.once(&mut tx, "k").wait(Duration::from_secs(1)).await.unwrap();
            assert_eq!(matches!(once, Once::First(_)), first);
            if let Once::First(slot) = once {
                slot.store(&mut tx, "stored").await.unwrap();
            }
        }
        tx.commit().await.unwrap();
        let (worker, mut upkeep) = granted.member(WORKER).await;
        lose_a_worker(&mut upkeep).await;
        let retired = producer
            .enqueue_now(First { sold_out: true })
            .if_retired(Second {})
            .await
            .unwrap()
            .id();
        for (rowlock, conn) in [(&producer, &mut own), (&worker, &mut upkeep)] {
            let mut tx = conn.begin().await.unwrap();
            let seen = rowlock.version(&mut tx, "thing").await.unwrap();
            rowlock.unchanged_version(&mut tx, "thing", seen).await.unwrap();
            tx.commit().await.unwrap();
        }
        producer
            .enqueue_all_now((0..20).map(|_| First { sold_out: false }))
            .await
            .unwrap();

        // 21 first links, their 21 second ones, and the compensation of the one that was retired.
        let counters = work_until_done(&worker, 43).await;
        assert_eq!((counters.expired(), counters.settled(Ended::Retired)), (1, 1));
        assert_eq!(counters.settled(Ended::Done), 43);
        partitions(&mut upkeep).await.unwrap();
        for text in [
            "select rowlock.drop_history('epoch')",
            "delete from rowlock.job where id < 0",
        ] {
            script(&mut upkeep, text).await.unwrap();
        }

        let (operator, _own) = granted.member(OPERATOR).await;
        let look = operator.observe();
        assert_eq!(
            look.status().await.unwrap().lanes.iter().map(|l| l.cases).sum::<i64>(),
            1
        );
        assert_eq!(look.jobs(&JobFilter::default()).await.unwrap().len(), 44);
        assert_eq!(look.attempts(lost).await.unwrap().len(), 2);
        assert_eq!(look.chain(lost).await.unwrap().len(), 2);
        assert_eq!(look.cases(10).await.unwrap().len(), 1);
        let effects = look.effects(&EffectFilter::default()).await.unwrap();
        assert_eq!(effects.len(), 22);
        script(&mut granted.root, "update rowlock.effect set state = 'uncertain'")
            .await
            .unwrap();
        let operate = operator.operate();
        let resolved = operate.resolve_effect(effects[0].no, Resolution::NotHappened, "tester");
        assert_eq!(resolved.await.unwrap(), effects[0].id);
        operate.reopen(retired, "tester").await.unwrap();
        operator.operate().set_rollout("gate", 100, "tester").await.unwrap();
        assert!(worker.rollout("gate", "x").await.unwrap() && producer.rollout("gate", "x").await.unwrap());
        assert_eq!(look.job(retired).await.unwrap().unwrap().state, State::Ready);
        granted.end(&server).await;
    }
}

#[tokio::test]
async fn a_producer_gets_what_holds_its_key_and_takes_over_what_is_free() {
    for server in postgres_servers() {
        let case = "a_producer_gets_what_holds_its_key_and_takes_over_what_is_free";
        let mut granted = Granted::new(&server, case).await;
        let effects = format!("create table public.effects (n int); grant insert on public.effects to {WORKER}");
        script(&mut granted.root, &effects).await.unwrap();
        let (producer, mut own) = granted.member(PRODUCER).await;
        let (worker, _own) = granted.member(WORKER).await;
        let mut tx = own.begin().await.unwrap();
        let put = producer.enqueue(&mut tx, Second {}).key("second").hold(Hold::WhileOpen);
        let id = put.await.unwrap().id();
        let conflict = producer.enqueue(&mut tx, First { sold_out: true }).key("second").await;
        assert!(matches!(conflict, Err(Error::KeyConflict { .. })), "{conflict:?}");
        tx.commit().await.unwrap();
        let again = producer.enqueue_now(Second {}).key("second").await.unwrap();
        assert_eq!((again.is_new(), again.id()), (false, id));

        work_until_done(&worker, 1).await;
        let next = producer.enqueue_now(Second {}).key("second").await.unwrap();
        assert!(next.is_new(), "taken over");
        let (operator, _own) = granted.member(OPERATOR).await;
        let filter = JobFilter {
            key: Some("second".into()),
            ..JobFilter::default()
        };
        let found = operator.observe().jobs(&filter).await.unwrap();
        assert_eq!(found.iter().map(|j| j.id).collect::<Vec<_>>(), [next.id()]);
        granted.end(&server).await;
    }
}

#[tokio::test]
async fn no_role_can_do_anothers_part() {
    let nobodys = [
        "create table rowlock.mine (id int)",
        "drop table rowlock.lease",
        "alter table rowlock.ready add column mine int",
        "truncate rowlock.outcome",
        "insert into rowlock.migration (version, name, oldest) values (99, 'mine', 99)",
        "update rowlock.job set payload = '{}'",
        "update rowlock.ready set due_at = now()",
        "update rowlock.lease set worker = 1",
        "update rowlock.outcome set outcome = 'done'",
        "delete from rowlock.outcome",
        "delete from rowlock.audit",
        "create or replace function rowlock.drop_history(before timestamptz) returns int language sql as 'select 1'",
    ];
    let forbidden = [
        (PRODUCER, "claim", sql!("claim")),
        (PRODUCER, "settle", sql!("settle")),
        (PRODUCER, "expire", sql!("expire")),
        (PRODUCER, "register", sql!("register")),
        (PRODUCER, "job", sql!("job")),
        (PRODUCER, "waits_over", sql!("waits_over")),
        (PRODUCER, "body_lock_take", sql!("body_lock_take")),
        (PRODUCER, "reopen", sql!("reopen")),
        (PRODUCER, "partitions", sql!("partitions")),
        (PRODUCER, "effect_begin", sql!("effect_begin")),
        (WORKER, "reopen", sql!("reopen")),
        (WORKER, "effect_resolve", sql!("effect_resolve")),
        (WORKER, "an effect's key", "update rowlock.effect set key = 'mine'"),
        (OPERATOR, "effect_begin", sql!("effect_begin")),
        (OPERATOR, "effect_end", sql!("effect_end")),
        (PRODUCER, "turn a gate", sql!("set_rollout")),
        (WORKER, "turn a gate", sql!("set_rollout")),
        (WORKER, "the case", "update rowlock.case_file set reason = 'mine'"),
        (PRODUCER, "a payload", "select payload from rowlock.job"),
        (PRODUCER, "an error", "select error from rowlock.outcome"),
        (PRODUCER, "a reason", "select reason from rowlock.case_file"),
        (PRODUCER, "forget a key", "delete from rowlock.job_key"),
        (PRODUCER, "sweep_keys", sql!("sweep_keys")),
        (OPERATOR, "job_key_put", sql!("job_key_put")),
        (OPERATOR, "sweep_keys", sql!("sweep_keys")),
        (OPERATOR, "sweep_cases", sql!("sweep_cases")),
        (
            WORKER,
            "the audit",
            "insert into rowlock.audit (actor, verb, id) values ('me', 'reopen', 1)",
        ),
        (WORKER, "a worker's name", "update rowlock.worker set name = 'me'"),
        (OPERATOR, "enqueue", sql!("enqueue")),
        (OPERATOR, "once_take", sql!("once_take")),
        (OPERATOR, "once_store", sql!("once_store")),
        (OPERATOR, "enqueue_waiting", sql!("enqueue_waiting")),
        (OPERATOR, "body_lock_take", sql!("body_lock_take")),
        (OPERATOR, "claim", sql!("claim")),
        (OPERATOR, "settle", sql!("settle")),
        (OPERATOR, "raise a version", sql!("guard_raise")),
        (OPERATOR, "expire", sql!("expire")),
        (OPERATOR, "beat", sql!("beat")),
        (OPERATOR, "prune", sql!("prune")),
        (OPERATOR, "partitions", sql!("partitions")),
        (OPERATOR, "drop_history", sql!("drop_history")),
    ];
    for server in postgres_servers() {
        let mut granted = Granted::new(&server, "no_role_can_do_anothers_part").await;
        let everyone = [PRODUCER, WORKER, OPERATOR];
        for (role, what, text) in everyone
            .iter()
            .flat_map(|role| nobodys.iter().map(move |text| (*role, *text, *text)))
        {
            let said = as_role(&mut granted.root, role, text, Run::Really).await;
            assert!(refused(&said), "{role} may {what}: {said:?}");
        }
        for (role, what, text) in forbidden {
            let said = as_role(&mut granted.root, role, text, Run::Explain).await;
            assert!(refused(&said), "{role} may {what}: {said:?}");
        }
        let stranger = granted.login(None).await;
        for text in ["select from rowlock.jobs", "select rowlock.make_partitions(1, 1)"] {
            let said = as_role(&mut granted.root, &stranger, text, Run::Really).await;
            assert!(refused(&said), "a stranger may {text}: {said:?}");
        }
        granted.end(&server).await;
    }
}

/// What each role must be able to do; taking any of its grants away must break one of these.
const PARTS: [(&str, &[&str]); 3] = [
    (
        PRODUCER,
        &[
            sql!("schema_version"),
            sql!("enqueue"),
            NEXT_ID,
            sql!("once_take"),
            sql!("once_read"),
            sql!("once_take_over"),
            sql!("once_store"),
            sql!("lock_wait"),
            sql!("enqueue_waiting"),
            sql!("complete"),
            sql!("guard_version"),
            sql!("guard_raise"),
            sql!("rollouts"),
            sql!("job_key_put"),
            sql!("job_key_read"),
            sql!("job_key_take"),
        ],
    ),
    (
        WORKER,
        &[
            sql!("schema_version"),
            sql!("register"),
            sql!("beat"),
            sql!("claim"),
            sql!("settle"),
            sql!("enqueue"),
            sql!("enqueue_waiting"),
            sql!("complete"),
            NEXT_ID,
            sql!("once_take"),
            sql!("once_read"),
            sql!("once_take_over"),
            sql!("once_store"),
            sql!("compensate"),
            sql!("effect_begin"),
            sql!("effect_end"),
            sql!("effect_known"),
            sql!("waits_due"),
            sql!("waits_completed"),
            sql!("waits_over"),
            sql!("answer"),
            sql!("body_lock_take"),
            sql!("body_lock_release"),
            sql!("resolve_lock"),
            sql!("resolve_outcome"),
            sql!("mark_dead"),
            sql!("expire"),
            sql!("lock_dead"),
            sql!("forget_dead"),
            sql!("leave"),
            sql!("lock_worker"),
            sql!("own_leases"),
            sql!("alone_due"),
            sql!("partitions"),
            sql!("drop_history"),
            sql!("prune"),
            sql!("job_key_put"),
            sql!("job_key_read"),
            sql!("job_key_take"),
            sql!("keys_page"),
            sql!("ledger_page"),
            sql!("notify"),
            sql!("sweep_body_locks"),
            sql!("sweep_cases"),
            sql!("sweep_completions"),
            sql!("sweep_keys"),
            sql!("sweep_ledger"),
            sql!("terminate"),
            sql!("guard_version"),
            sql!("guard_raise"),
            sql!("rollouts"),
        ],
    ),
    (
        OPERATOR,
        &[
            sql!("schema_version"),
            sql!("status"),
            sql!("workers"),
            sql!("jobs"),
            sql!("job"),
            sql!("chain"),
            sql!("attempts"),
            sql!("cases"),
            sql!("effect"),
            sql!("effects"),
            sql!("effects_doubtful"),
            sql!("effects_of"),
            sql!("effect_lock"),
            sql!("effect_resolve"),
            sql!("reopen"),
            sql!("complete"),
            sql!("stand"),
            sql!("stand_chain"),
            sql!("rollouts"),
            sql!("set_rollout"),
            "select at, actor, verb, id from rowlock.audit",
            sql!("once_read"),
        ],
    ),
];

/// A sequence's right is asked for when it is used, not when a plan is made.
const NEXT_ID: &str = "explain analyze select nextval('rowlock.job_id')";

/// Each grant of `$1` in the schema, as the statement that takes it away.
const REVOCATIONS: &str = "
    select format('revoke %s on %s rowlock.%I from %s', a.privilege_type,
      case c.relkind when 'S' then 'sequence' else 'table' end, c.relname, $1)
    from pg_class c cross join aclexplode(c.relacl) a
    where c.relnamespace = 'rowlock'::regnamespace and a.grantee = $1::regrole
    union all
    select format('revoke %s (%I) on rowlock.%I from %s', a.privilege_type, t.attname, c.relname, $1)
    from pg_attribute t join pg_class c on c.oid = t.attrelid cross join aclexplode(t.attacl) a
    where c.relnamespace = 'rowlock'::regnamespace and a.grantee = $1::regrole
    union all
    select format('revoke execute on function %s from %s', p.oid::regprocedure, $1)
    from pg_proc p cross join aclexplode(p.proacl) a
    where p.pronamespace = 'rowlock'::regnamespace and a.grantee = $1::regrole
    union all
    select format('revoke %s on schema rowlock from %s', a.privilege_type, $1)
    from pg_namespace n cross join aclexplode(n.nspacl) a
    where n.nspname = 'rowlock' and a.grantee = $1::regrole";

#[tokio::test]
async fn every_grant_is_needed_and_none_is_missing() {
    for server in postgres_servers() {
        let mut granted = Granted::new(&server, "every_grant_is_needed_and_none_is_missing").await;
        enqueue(&mut granted.root, 1, 1).await;
        for (role, part) in PARTS {
            for text in part {
                as_role(&mut granted.root, role, text, Run::Explain)
                    .await
                    .unwrap_or_else(|e| panic!("{role}: {text}: {e}"));
            }
            let revocations: Vec<String> = sqlx::query_scalar(REVOCATIONS)
                .bind(role)
                .fetch_all(&mut granted.root)
                .await
                .unwrap();
            assert!(revocations.len() >= 5, "{role} has only {revocations:?}");
            for revocation in revocations {
                let mut without = granted.root.begin().await.unwrap();
                script(&mut without, &revocation).await.unwrap();
                let mut missed = false;
                for text in part {
                    missed |= refused(&as_role(&mut without, role, text, Run::Explain).await);
                }
                without.rollback().await.unwrap();
                assert!(
                    missed,
                    "{role} does its part after `{revocation}`: the grant is not needed"
                );
            }
        }
        granted.end(&server).await;
    }
}

/// Whether a statement is only planned, which checks the rights on every table, or run.
#[derive(Clone, Copy, PartialEq)]
enum Run {
    Explain,
    Really,
}

/// One statement under a role, taken back whatever it did.
async fn as_role(root: &mut PgConnection, role: &str, text: &str, run: Run) -> Result<(), sqlx::Error> {
    // The caller may have a transaction open; this one is then a savepoint in it.
    let mut tx = root.begin().await.unwrap();
    script(&mut tx, &format!("set local role {role}")).await.unwrap();
    let said = if run == Run::Really || text == NEXT_ID {
        script(&mut tx, text).await
    } else {
        explain(&mut tx, text).await
    };
    tx.rollback().await.unwrap();
    said
}

async fn explain(pg: &mut PgConnection, text: &str) -> Result<(), sqlx::Error> {
    script(pg, "set local plan_cache_mode = force_generic_plan").await?;
    // A prepared statement outlives its transaction, so each has a name of its own.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let part = format!("part_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    script(pg, &format!("prepare {part} as {text}")).await?;
    let count = "select cardinality(parameter_types) from pg_prepared_statements where name = $1";
    let count: i32 = sqlx::query_scalar(count).bind(&part).fetch_one(&mut *pg).await?;
    let nulls = vec!["null"; count as usize].join(", ");
    let args = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    script(pg, &format!("explain execute {part} {args}")).await
}

/// Refused for want of a right, and for no other reason.
fn refused(said: &Result<(), sqlx::Error>) -> bool {
    let code = said
        .as_ref()
        .err()
        .and_then(|e| e.as_database_error())
        .and_then(|e| e.code());
    code.as_deref() == Some("42501")
}
