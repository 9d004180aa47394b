//! What claims and recovery read of a large table: as much as they take, in the order of an index.

use super::bed::{fill, filled};
use crate::steps::{
    catalog::script,
    explain::{Plan, as_engine, explain},
    session::Bed,
};

/// What the connections for adopted tables have set beside the engine's own; `store/postgres.rs` has the same.
const ROWS: [&str; 2] = ["set enable_bitmapscan = off", "set enable_sort = off"];

async fn plan(bed: &mut Bed, template: &str, order: &str, args: &str) -> Plan {
    let text = filled(&template.replace("{order}", order)).0;
    as_engine(&mut bed.eye).await;
    for setting in ROWS {
        script(&mut bed.eye, setting).await.unwrap();
    }
    explain(&mut bed.eye, &text, args, true).await
}

fn assert_walks(plan: &Plan, index: &str) {
    let scans = plan.scans("email_snoozes");
    let walk = scans.iter().find(|node| node.index() == index);
    let walk = walk.unwrap_or_else(|| panic!("{index} is not walked: {}", plan.shown()));
    assert_eq!((walk.kind(), walk.removed()), ("Index Scan", 0), "{}", plan.shown());
    let sorts = plan.nodes().iter().filter(|node| node.kind().ends_with("Sort")).count();
    assert_eq!(sorts, 0, "{}", plan.shown());
    assert!(plan.buffers() < 1000, "{} buffers: {}", plan.buffers(), plan.shown());
}

/// Twenty thousand rows that are due, as many that are done, and some that somebody has.
async fn backlog(bed: &mut Bed) {
    fill(&mut bed.eye, 40_000).await;
    script(
        &mut bed.eye,
        "update email_snoozes set inactive = true where id % 2 = 0",
    )
    .await
    .unwrap();
    let claimed = "update email_snoozes set claimed_at = now() - interval '1 hour', claim_token = gen_random_uuid()
        where id % 1000 = 1";
    script(&mut bed.eye, claimed).await.unwrap();
    // Rows that were written leave entries behind, which are not what this is about.
    script(&mut bed.eye, "vacuum analyze email_snoozes").await.unwrap();
}

async fn a_claim_reads_as_much_as_it_takes_by_whichever_index_there_is(mut bed: Bed) {
    backlog(&mut bed).await;
    let (claim, args) = (crate::steps::sql!("adopt/claim"), "16, 'me', '{}', null, '{}', null");
    let users = plan(&mut bed, claim, "t.claimed_at, t.remind_at", args).await;
    assert_walks(&users, "idx_email_snoozes_due");
    script(&mut bed.eye, "drop index idx_email_snoozes_due").await.unwrap();
    let columns = super::bed::columns();
    rowlock::adopt::Adopted::migrate(&bed.rowlock, "email_snoozes", &columns)
        .await
        .unwrap();
    let ours = plan(&mut bed, claim, "t.remind_at", args).await;
    assert_walks(&ours, "email_snoozes_rowlock_due");
}

async fn recovery_reads_claims_alone(mut bed: Bed) {
    backlog(&mut bed).await;
    let args = "60000000, 10, 1, 1, null, '{}', null";
    let recovery = plan(&mut bed, crate::steps::sql!("adopt/recover"), "", args).await;
    assert_walks(&recovery, "idx_email_snoozes_claimed");
}

#[test]
fn the_planner_settings_are_those_of_the_connections_for_rows() {
    let store = include_str!("../../../rowlock/src/store/postgres.rs");
    for setting in ROWS {
        let (name, value) = setting.trim_start_matches("set ").split_once(" = ").unwrap();
        let said = format!(".with(\"{name}\", \"{value}\")");
        assert!(store.contains(&said), "the store does not say `{said}`");
    }
}

on_postgresql!(
    a_claim_reads_as_much_as_it_takes_by_whichever_index_there_is,
    recovery_reads_claims_alone,
);
