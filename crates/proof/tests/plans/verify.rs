//! What the audit costs: rows are looked up by their key, one by one, and no more than were asked for.

use super::{backlog, explain, on_each_server, script, sql};

/// Every statement that looks at rows of ours, with its arguments after the number of rows.
const STATEMENTS: [(&str, &str, &str); 14] = [
    ("places", sql!("verify/places"), ""),
    ("bodies", sql!("verify/bodies"), ""),
    ("uids", sql!("verify/uids"), ""),
    ("outcomes", sql!("verify/outcomes"), ""),
    ("attempts", sql!("verify/attempts"), ""),
    ("endings", sql!("verify/endings"), ""),
    ("stands", sql!("verify/stands"), ""),
    ("finished", sql!("verify/finished"), ""),
    ("owners", sql!("verify/owners"), ""),
    ("effects", sql!("verify/effects"), ""),
    ("keys", sql!("verify/keys"), ""),
    ("ledger", sql!("verify/ledger"), ""),
    ("leases", sql!("verify/leases"), ", null"),
    ("waits", sql!("verify/waits"), ", null"),
];

/// Rows that each check may look at, of far more.
const ROWS: i64 = 500;

/// 20,000 jobs, a quarter of them in each place, all with an outcome, an effect, a key and an entry.
const FILL: &str = "
    insert into rowlock.lease
      select id, 1, id, 1, 3, queue_no, kind_no, alone, priority, clock_timestamp() from rowlock.ready where id % 4 = 0;
    insert into rowlock.waiting
      select id, 'n' || id, queue_no, kind_no, priority, due_at, 1, 0, 3, null, 'retired', clock_timestamp()
      from rowlock.ready where id % 4 = 1;
    insert into rowlock.case_file
      select id, 1, 1, 3, queue_no, kind_no, priority, 'why', clock_timestamp(), '[]' from rowlock.ready where id % 4 = 2;
    insert into rowlock.worker select id, 'w', 15000, clock_timestamp(), false, clock_timestamp() from rowlock.lease
      where id <> 1;
    insert into rowlock.completion select name, null, clock_timestamp() from rowlock.waiting;
    delete from rowlock.ready where id % 4 <> 3;
    insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
      select id, 1, 1, 1, 'retired', clock_timestamp(), clock_timestamp() from rowlock.job;
    insert into rowlock.effect (id, name, key, state, policy, tries, epoch, worker, begun_at, deadline_at)
      select id, 'call', uid || ':call', 'open', 'retry', 1, 2, 1, clock_timestamp(), clock_timestamp() from rowlock.job;
    insert into rowlock.job_key (key, id, fingerprint, hold, made_at)
      select 'k' || id, id, '', 'policy', clock_timestamp() from rowlock.job;
    insert into rowlock.ledger (key, hold, made_at) select 'k' || id, 'policy', clock_timestamp() from rowlock.job;
    insert into rowlock.audit (actor, verb, id) select 'tess', 'reopen', id from rowlock.job";

/// An analyze that came when the tables were full of dead rows and nothing else says that they are empty.
const FORGET: &str = "delete from pg_statistic where starelid in (
      select oid from pg_class where relnamespace = 'rowlock'::regnamespace);
    update pg_class set reltuples = 0 where relnamespace = 'rowlock'::regnamespace and relkind in ('r', 'i')";

#[tokio::test]
async fn an_audit_costs_what_its_rows_do_whatever_the_statistics_say() {
    let case = "an_audit_costs_what_its_rows_do_whatever_the_statistics_say";
    on_each_server(case, async |mut bed| {
        backlog(&mut bed.eye, 2_000).await;
        for text in FILL.split(';').chain(["vacuum analyze"]) {
            script(&mut bed.eye, text).await.unwrap();
        }
        for said in ["select", FORGET] {
            script(&mut bed.eye, said).await.unwrap();
            for (what, text, more) in STATEMENTS {
                let plan = explain(&mut bed.eye, text, &format!("5, {ROWS}{more}"), true).await;
                let removed: i64 = plan.nodes().iter().map(|n| n.removed()).sum();
                // Up to five tables are looked at, and a row is thrown away once for each rule that it keeps.
                assert!(
                    removed <= ROWS * 20,
                    "{what}: {removed} rows thrown away: {}",
                    plan.shown()
                );
                let each = plan.buffers() / (ROWS * 5);
                assert!(each < 60, "{what}: {each} buffers for a row: {}", plan.shown());
            }
        }
    })
    .await;
}
