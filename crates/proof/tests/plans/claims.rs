//! What a claim costs: the ranges of its queues, and no more than it did before there were breakers, groups and
//! traces.

use super::{KIND, PRIORITY, backlog, claim_args, explain, on_each_server, script, sql};

const BEFORE: &str = include_str!("../../../bench/sql/claim_before.sql");

#[tokio::test]
async fn a_claim_reads_no_more_pages_than_before_breakers_and_groups() {
    on_each_server(
        "a_claim_reads_no_more_pages_than_before_breakers_and_groups",
        async |mut bed| {
            backlog(&mut bed.eye, 2_000).await;
            script(&mut bed.eye, "vacuum analyze").await.unwrap();
            let args = claim_args("'epoch'");
            // The first of each reads the catalogue too.
            for text in [BEFORE, sql!("claim/take")] {
                explain(&mut bed.eye, text, &args, true).await;
            }
            let (before, now) = (
                explain(&mut bed.eye, BEFORE, &args, true).await,
                explain(&mut bed.eye, sql!("claim/take"), &args, true).await,
            );
            let (old, new) = (before.buffers(), now.buffers());
            assert!(
                old > 0 && new <= old,
                "{new} buffers, and {old} before: {}",
                now.shown()
            );
        },
    )
    .await;
}

#[tokio::test]
async fn a_claim_looks_at_the_lanes_of_each_queue_once() {
    on_each_server("a_claim_looks_at_the_lanes_of_each_queue_once", async |mut bed| {
        const QUEUES: i64 = 100;
        let each = |value: &dyn Fn(i64) -> String| (1..=QUEUES).map(value).collect::<Vec<_>>().join(",");
        let same = |value: &str| each(&|_| value.to_owned());
        let own = each(&|n| n.to_string());
        let args = format!(
            "1, '{{{own}}}', '{{{}}}', '{{{own}}}', '{{{}}}', '{{{}}}', array[{}]::timestamptz[], '{{{}}}', null, false, '{{{own}}}'",
            same("10"),
            same(&KIND.to_string()),
            same(&PRIORITY.to_string()),
            same("'epoch'"),
            same("0"),
        );
        let plan = explain(&mut bed.eye, sql!("claim/take"), &args, true).await;
        let removed: i64 = plan.nodes().iter().map(|n| n.removed()).sum();
        assert_eq!(removed, 0, "lanes of other queues: {}", plan.shown());
        let probes: i64 = plan.scans("ready").iter().map(|n| n.loops()).max().unwrap();
        assert_eq!(probes, QUEUES, "{}", plan.shown());
    })
    .await;
}
