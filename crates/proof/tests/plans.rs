//! What the hot statements cost: the generic plans that the engine's connections get, on a table with a backlog.

mod claims;
mod verify;

use rowlock::{Ended, State};
use sqlx::{AssertSqlSafe, PgConnection};

use crate::steps::{
    APPLIED, KIND, PRIORITY, QUEUE,
    catalog::script,
    claim, enqueue,
    explain::{PLANNER, Plan, explain},
    register,
    session::{self, Bed},
    settle, sql,
};

/// Kinds in the backlog; the steps' own is the first.
const LANES: i64 = 5;
/// Jobs that each claim asks for.
const PLACES: i64 = 50;

/// Adds jobs to every range: so many due, and as many more that are scheduled for tomorrow.
async fn backlog(pg: &mut PgConnection, due_per_lane: i64) {
    let fill = format!(
        "with new as (
           select nextval('rowlock.job_id') as id, {KIND} + n % {LANES} as kind_no, n % {due} as place, n >= {due} * {LANES} as later
           from generate_series(0, {due} * {LANES} * 2 - 1) n
         ), body as (
           insert into rowlock.job (id, uid, kind, version, queue, priority, attempts_max, payload, position, created_at)
           select id, gen_random_uuid(), 'step', 1, 'steps', {PRIORITY}, 3, '{{}}', 0, clock_timestamp() from new
         )
         insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
         select {QUEUE}, kind_no, false, {PRIORITY},
           clock_timestamp() + case when later then interval '1 day' else interval '-1 hour' end + place * interval '1 ms',
           id, 0, 0, 3
         from new",
        due = due_per_lane,
    );
    sqlx::raw_sql(AssertSqlSafe(fill)).execute(pg).await.unwrap();
}

/// The arguments of a claim of every range from this cursor.
fn claim_args(from: &str) -> String {
    let each = |value: &dyn Fn(i64) -> String| (0..LANES).map(value).collect::<Vec<_>>().join(",");
    format!(
        "1, '{{1}}', '{{{PLACES}}}', '{{{}}}', '{{{}}}', '{{{}}}', array[{}]::timestamptz[], '{{{}}}', null, false, '{{{LANES}}}'",
        each(&|_| QUEUE.to_string()),
        each(&|n| (KIND + n).to_string()),
        each(&|_| PRIORITY.to_string()),
        each(&|_| from.to_owned()),
        each(&|_| "0".into()),
    )
}

async fn claim_plan(pg: &mut PgConnection, from: &str, analyze: bool) -> Plan {
    explain(pg, sql!("claim/take"), &claim_args(from), analyze).await
}

const FROM_START: &str = "'epoch'";
/// A little before the backlog's first job, as a cursor is.
const FROM_CURSOR: &str = "now() - interval '2 hours'";

fn assert_no_walk(plan: &Plan) {
    for node in plan.nodes() {
        let walks = [
            "Seq Scan",
            "Sort",
            "Incremental Sort",
            "Bitmap Heap Scan",
            "Hash Join",
            "Merge Join",
        ];
        assert!(!walks.contains(&node.kind()), "{} in {}", node.kind(), plan.shown());
    }
}

async fn on_each_server(case: &str, look: impl AsyncFn(Bed)) {
    let look = &look;
    let race = async move |mut bed: Bed| {
        register(&mut bed.eye, 1).await;
        look(bed).await;
    };
    session::on_each_server(&format!("plans::{case}"), race).await;
}

#[test]
fn the_planner_settings_are_the_engines() {
    let engine = include_str!("../../rowlock/src/store/postgres.rs");
    for setting in PLANNER {
        let (name, value) = setting.trim_start_matches("set ").split_once(" = ").unwrap();
        let said = format!(".with(\"{name}\", \"{value}\")");
        assert!(engine.contains(&said), "the engine does not say `{said}`");
    }
}

#[tokio::test]
async fn a_claim_is_one_index_range_per_lane_whatever_the_statistics_say() {
    on_each_server(
        "a_claim_is_one_index_range_per_lane_whatever_the_statistics_say",
        async |mut bed| {
            let empty = claim_plan(&mut bed.eye, FROM_CURSOR, false).await;
            backlog(&mut bed.eye, 10_000).await;
            let unknown = claim_plan(&mut bed.eye, FROM_CURSOR, false).await;
            script(&mut bed.eye, "analyze").await.unwrap();
            let known = claim_plan(&mut bed.eye, FROM_CURSOR, false).await;

            for plan in [empty, unknown, known] {
                assert_no_walk(&plan);
                let scans = plan.scans("ready");
                let probe = scans.iter().find(|n| n.index() == "ready_order");
                let probe = probe.unwrap_or_else(|| panic!("no probe of ready_order in {}", plan.shown()));
                for part in [
                    "ROW(due_at, id) >= ROW(",
                    "due_at <= ",
                    "queue_no = ",
                    "kind_no = ",
                    "alone = ",
                    "priority = ",
                ] {
                    assert!(
                        probe.cond().contains(part),
                        "{part:?} is not in the range: {}",
                        probe.cond()
                    );
                }
                assert_eq!(probe.text("Filter"), "", "everything is in the range");
                for scan in scans {
                    assert!(
                        scan.kind() == "Tid Scan" || scan.index() == "ready_order",
                        "{}",
                        plan.shown()
                    );
                }
            }
        },
    )
    .await;
}

#[tokio::test]
async fn a_claim_costs_the_same_with_a_hundred_times_the_backlog() {
    on_each_server("a_claim_costs_the_same_with_a_hundred_times_the_backlog", async |mut bed| {
        let mut cost = Vec::new();
        for due_per_lane in [100, 9_900] {
            backlog(&mut bed.eye, due_per_lane).await;
            script(&mut bed.eye, "analyze").await.unwrap();
            for from in [FROM_CURSOR, FROM_START] {
                // The first run warms up; what it did is taken back.
                claim_plan(&mut bed.eye, from, true).await;
                cost.push(claim_plan(&mut bed.eye, from, true).await.buffers());
            }
        }
        let ready = bed.count("select count(*) from rowlock.ready").await;
        assert_eq!(ready, 100_000, "half of them scheduled for later");
        let [few_cursor, few_start, many_cursor, many_start] = cost[..] else {
            panic!("{cost:?}")
        };
        println!(
            "buffers of a claim of {PLACES}: 1,000 ready {few_cursor}, {few_start} from the start; 100,000 {many_cursor}, {many_start}"
        );
        assert!(
            many_cursor <= few_cursor * 2,
            "{many_cursor} buffers with 100,000 ready, {few_cursor} with 1,000"
        );
        assert!(
            many_start <= few_start * 2,
            "a sweep: {many_start} buffers with 100,000 ready, {few_start} with 1,000"
        );
    })
    .await;
}

#[tokio::test]
async fn bodies_are_looked_up_in_their_own_partition_only() {
    on_each_server("bodies_are_looked_up_in_their_own_partition_only", async |mut bed| {
        backlog(&mut bed.eye, 100).await;
        for plan in [
            claim_plan(&mut bed.eye, FROM_START, true).await,
            explain(&mut bed.eye, sql!("job/one"), "7", true).await,
        ] {
            let partitions =
                ["job_0", "job_1", "job_rest"].map(|p| plan.scans(p).iter().map(|n| n.loops()).sum::<i64>());
            assert!(partitions[0] > 0, "{}", plan.shown());
            assert_eq!(partitions[1..], [0, 0], "{}", plan.shown());
            assert!(
                plan.scans("job_0").iter().all(|n| n.index() == "job_0_pkey"),
                "{}",
                plan.shown()
            );
        }
    })
    .await;
}

#[tokio::test]
async fn settle_and_expire_find_leases_by_their_key() {
    on_each_server("settle_and_expire_find_leases_by_their_key", async |mut bed| {
        backlog(&mut bed.eye, 2_000).await;
        let take = "insert into rowlock.lease
            select id, 1, 1, 1, 3, queue_no, kind_no, alone, priority, clock_timestamp() from rowlock.ready;
            delete from rowlock.ready; analyze";
        script(&mut bed.eye, take).await.unwrap();

        let one = "'{7}', '{1}', '{1}', '{done}', '{finished}', '{0}', '{null}', '{null}', null, null";
        let settle = explain(&mut bed.eye, sql!("settle/attempts"), one, true).await;
        assert_no_walk(&settle);
        assert!(
            settle.scans("lease").iter().all(|n| n.index() == "lease_pkey"),
            "{}",
            settle.shown()
        );
        assert!(
            settle.buffers() < 50,
            "one of 20,000 leases costs {} buffers",
            settle.buffers()
        );

        // Looking for dead workers' leases every other second must cost nothing while nobody is dead.
        let nobody = explain(&mut bed.eye, sql!("worker/expire"), "1000, null, 'worker lost'", true).await;
        assert_eq!(
            nobody.scans("lease").iter().map(|n| n.loops()).sum::<i64>(),
            0,
            "{}",
            nobody.shown()
        );
        assert!(
            nobody.buffers() < 10,
            "with nobody dead it costs {} buffers",
            nobody.buffers()
        );
        script(&mut bed.eye, "update rowlock.worker set dead = true")
            .await
            .unwrap();
        let expire = explain(&mut bed.eye, sql!("worker/expire"), "1000, null, 'worker lost'", true).await;
        let leases = expire.scans("lease");
        assert_eq!(leases.len(), 2, "{}", expire.shown());
        assert_eq!(
            leases[0].loops(),
            1,
            "the leases are looked through once per dead worker: {}",
            expire.shown()
        );
        assert_eq!(
            (leases[1].index(), leases[1].loops()),
            ("lease_pkey", 1000),
            "{}",
            expire.shown()
        );
    })
    .await;
}

#[tokio::test]
async fn a_sweep_of_waits_costs_next_to_nothing_while_nobody_waits() {
    on_each_server(
        "a_sweep_of_waits_costs_next_to_nothing_while_nobody_waits",
        async |mut bed| {
            let done = "insert into rowlock.completion
                select 'approval:' || n, null, clock_timestamp() from generate_series(1, 10000) n; analyze";
            script(&mut bed.eye, done).await.unwrap();
            let idle = explain(&mut bed.eye, sql!("wait/due"), "null, true", true).await;
            assert_no_walk(&idle);
            assert!(idle.buffers() < 10, "with nobody waiting: {}", idle.shown());

            backlog(&mut bed.eye, 2_000).await;
            let wait = "insert into rowlock.waiting
                select id, 'order:' || id % 1000, queue_no, kind_no, priority, due_at, 0, 0, 3,
                  clock_timestamp() + interval '1 day', 'retired', clock_timestamp()
                from rowlock.ready; delete from rowlock.ready; vacuum analyze";
            for part in wait.split(';') {
                script(&mut bed.eye, part).await.unwrap();
            }
            let limits = explain(&mut bed.eye, sql!("wait/due"), "null, false", true).await;
            assert!(limits.buffers() < 10, "no limit has passed: {}", limits.shown());
            let over = explain(&mut bed.eye, sql!("wait/over"), "500, null, 'a', 'b'", true).await;
            assert_no_walk(&over);
            assert!(over.buffers() < 20, "nothing is over: {} buffers", over.buffers());
            let complete = explain(&mut bed.eye, sql!("wait/complete"), "'order:7', null, null, null", true).await;
            let by_name = complete.nodes().iter().any(|n| n.index() == "waiting_name");
            let walks = complete.nodes().iter().any(|n| n.kind() == "Seq Scan");
            assert!(by_name && !walks, "{}", complete.shown());
        },
    )
    .await;
}

#[tokio::test]
async fn the_journals_statements_cost_the_same_however_long_it_is() {
    on_each_server("the_journals_statements_cost_the_same_however_long_it_is", async |mut bed| {
        backlog(&mut bed.eye, 2_000).await;
        // One effect for each job: every thousandth is in doubt, and the first is in flight.
        let fill = "insert into rowlock.lease
              select id, 1, 1, 1, 3, queue_no, kind_no, alone, priority, clock_timestamp() from rowlock.ready where id = 7;
            insert into rowlock.effect (id, name, key, state, policy, tries, epoch, worker, begun_at, deadline_at)
              select id, 'call', id || ':call', case when id % 1000 = 7 then 'open' else 'replied' end, 'retry', 1, 1, 1,
                clock_timestamp(), clock_timestamp()
              from rowlock.ready;
            analyze";
        script(&mut bed.eye, fill).await.unwrap();
        let statements = [
            ("begin", sql!("effect/begin"), "7, 1, 1, 'new', 'k', 'retry', null, 1, null, true"),
            ("begin again", sql!("effect/begin"), "7, 1, 1, 'call', 'k', 'retry', null, 1, null, true"),
            ("end", sql!("effect/end"), "7, 1, 1, 'call', 'replied', '1', null, null"),
            ("known", sql!("effect/known"), "7, 1, 1, 'call'"),
            ("one", sql!("effect/one"), "7"),
            ("of a job", sql!("effect/of_job"), "7, false, 100"),
            ("newest", sql!("effect/list"), "10"),
            ("in doubt", sql!("effect/doubtful"), "100"),
            ("lock", sql!("effect/lock"), "7"),
            ("resolve", sql!("effect/resolve"), "7, 'undone', null, 'tester', null"),
        ];
        for (what, text, args) in statements {
            let plan = explain(&mut bed.eye, text, args, true).await;
            assert!(plan.nodes().iter().all(|n| n.kind() != "Seq Scan"), "{what}: {}", plan.shown());
            let limit = if what == "in doubt" { 400 } else { 80 };
            assert!(plan.buffers() < limit, "{what} costs {} buffers: {}", plan.buffers(), plan.shown());
        }
    })
    .await;
}

#[tokio::test]
async fn a_compensation_is_looked_up_however_many_jobs_there_are() {
    on_each_server("a_compensation_is_looked_up_however_many_jobs_there_are", async |mut bed| {
        backlog(&mut bed.eye, 20_000).await;
        // Every job a link of a chain, with an effect and an outcome; one of them was just retired.
        let fill = r#"update rowlock.job set chain = id - 1, position = 1, if_retired = json_build_object('uid', uid,
                'kind', 'undo', 'version', 1, 'queue', 'default', 'queue_no', 1, 'kind_no', 1, 'priority', 2,
                'attempts_max', 3, 'payload', 1);
            insert into rowlock.effect
                (id, name, key, state, policy, tries, epoch, worker, begun_at, deadline_at, ended_at, resolved_by)
              select id, 'call', id || ':call', 'undone', 'park', 1, 1, 1, 'epoch', 'epoch', 'epoch', 'somebody'
              from rowlock.job;
            insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
              select id, 2, 1, 1, 'retired', clock_timestamp(), clock_timestamp() from rowlock.job;
            insert into rowlock.case_file
              select id, 2, 1, 3, 1, 1, 2, 'why', clock_timestamp(), '[]' from rowlock.job;
            analyze"#;
        script(&mut bed.eye, fill).await.unwrap();
        // A function's plan is not shown, but what it reads is: any table from end to end is more. The first one counts
        // the reading of the catalogue too.
        explain(&mut bed.eye, sql!("settle/compensate"), "'{7}', null", true).await;
        let plan = explain(&mut bed.eye, sql!("settle/compensate"), "'{8}', null", true).await;
        assert!(plan.buffers() < 150, "{} buffers: {}", plan.buffers(), plan.shown());
    })
    .await;
}

#[tokio::test]
async fn the_ledger_is_found_by_its_key_however_long_it_is() {
    on_each_server("the_ledger_is_found_by_its_key_however_long_it_is", async |mut bed| {
        let fill = "insert into rowlock.ledger (key, hold, made_at)
            select 'k' || n, 'policy', 'epoch' from generate_series(1, 50000) n; analyze";
        script(&mut bed.eye, fill).await.unwrap();
        let at = "'epoch'";
        for (text, args) in [
            (sql!("ledger/read"), "'k7', null".to_owned()),
            (sql!("ledger/store"), format!("'k7', '1', {at}")),
            (
                sql!("ledger/take_over"),
                format!("'k7', null, 'policy', null, null, {at}"),
            ),
        ] {
            let plan = explain(&mut bed.eye, text, &args, true).await;
            assert_no_walk(&plan);
            let scans = plan.scans("ledger");
            assert!(scans.iter().all(|n| n.index() == "ledger_pkey"), "{}", plan.shown());
            assert!(plan.buffers() < 50, "{} buffers: {}", plan.buffers(), plan.shown());
        }
    })
    .await;
}

#[tokio::test]
async fn a_sweep_of_completions_looks_bodies_up_by_name_and_other_jobs_are_not_in_that_index() {
    on_each_server(
        "a_sweep_of_completions_looks_bodies_up_by_name_and_other_jobs_are_not_in_that_index",
        async |mut bed| {
            let size = "select coalesce(sum(pg_relation_size(i.inhrelid)), 0)::bigint from pg_inherits i
                where i.inhparent = 'rowlock.job_waits_for'::regclass";
            let empty = bed.count(size).await;
            backlog(&mut bed.eye, 2_000).await;
            assert_eq!(bed.count(size).await, empty, "20,000 ordinary jobs write nothing to it");

            let fill = "insert into rowlock.completion (name, completed_at)
                  select 'n' || n, 'epoch' from generate_series(1, 100) n;
                update rowlock.job set waits_for = 'n' || id where id <= 50;
                analyze";
            script(&mut bed.eye, fill).await.unwrap();
            let sweep = explain(&mut bed.eye, sql!("wait/complete_sweep"), "now(), 5000", true).await;
            let nodes = sweep.nodes();
            assert!(nodes.iter().all(|n| n.kind() != "Seq Scan"), "{}", sweep.shown());
            let by_name = |index: &str| index.contains("waits_for");
            assert!(nodes.iter().any(|n| by_name(n.index())), "{}", sweep.shown());
            let per_name = sweep.buffers() / 100;
            assert!(per_name < 60, "{per_name} buffers for a name: {}", sweep.shown());
        },
    )
    .await;
}

#[tokio::test]
async fn a_batch_of_settlements_is_joined_with_nothing_row_by_row_whatever_the_statistics_say() {
    on_each_server(
        "a_batch_of_settlements_is_joined_with_nothing_row_by_row_whatever_the_statistics_say",
        async |mut bed| {
            const JOBS: i64 = 200;
            let ids = |from: i64| {
                let ids: Vec<String> = (from..from + JOBS).map(|id| id.to_string()).collect();
                format!("'{{{}}}'", ids.join(","))
            };
            let each = |value: &str| format!("array_fill({value}, array[{JOBS}])");
            let tokens = |from| format!("{}, {}, {}", ids(from), each("1::bigint"), each("1::bigint"));
            let none = each("null::text");
            let lean = format!("{}, {none}, null", tokens(1));
            let whole = format!(
                "{}, {}, {}, {}, {none}, {none}, null, null",
                tokens(JOBS + 1),
                each("'done'::text"),
                each("'finished'::text"),
                each("0::bigint"),
            );
            // An analyze that comes when nothing is leased says so until the next one, however much is leased then.
            let empty = "delete from pg_statistic where starelid = 'rowlock.lease'::regclass;
                update pg_class set reltuples = 0 where oid in ('rowlock.lease'::regclass, 'rowlock.lease_pkey'::regclass)";
            for said in ["select", empty] {
                let take = format!(
                    "delete from rowlock.lease;
                     insert into rowlock.lease
                     select g, 1, 1, 1, 3, 1, {KIND}, false, {PRIORITY}, clock_timestamp() from generate_series(1, {}) g;
                     vacuum analyze rowlock.lease",
                    2 * JOBS
                );
                for text in take.split(';').chain([said]) {
                    script(&mut bed.eye, text).await.unwrap();
                }
                for (text, args) in [(sql!("settle/done"), &lean), (sql!("settle/attempts"), &whole)] {
                    let plan = explain(&mut bed.eye, text, args, true).await;
                    let removed: i64 = plan.nodes().iter().map(|n| n.removed()).sum();
                    assert!(removed <= 2 * JOBS, "{removed} rows thrown away: {}", plan.shown());
                }
            }
        },
    )
    .await;
}

/// The user's session may plan as it likes: a small table it would read whole.
#[tokio::test]
async fn a_handlers_settle_walks_no_leases_whatever_its_session_would_plan() {
    on_each_server(
        "a_handlers_settle_walks_no_leases_whatever_its_session_would_plan",
        async |mut bed| {
            let ids = enqueue(&mut bed.eye, 5, 3).await;
            let held = claim(&mut bed.eye, 1, 5).await.unwrap();
            assert_eq!(held.len(), ids.len());
            script(&mut bed.eye, "vacuum analyze rowlock.lease").await.unwrap();
            for held in held {
                script(&mut bed.eye, "begin; set local rowlock_tx.marker = 'ours'")
                    .await
                    .unwrap();
                let settled = settle(&mut bed.eye, held, Ended::Done, State::Finished, Some("ours")).await;
                assert_eq!(settled.unwrap(), APPLIED);
                let walks = "select seq_scan from pg_stat_xact_user_tables where relid = 'rowlock.lease'::regclass";
                let walks: i64 = sqlx::query_scalar(walks).fetch_one(&mut bed.eye).await.unwrap();
                assert_eq!(walks, 0);
                script(&mut bed.eye, "commit").await.unwrap();
            }
        },
    )
    .await;
}
