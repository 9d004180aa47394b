use super::*;
use crate::{id::JobId, observe::JobFilter};

pub fn compensation(kind: &str, tags: &[&str]) -> String {
    serde_json::json!({
        "uid": Uuid::now_v7(), "kind": kind, "kind_no": kind_no(kind, 1), "version": 1, "queue": "orders",
        "queue_no": queue_no("orders"), "priority": 2, "attempts_max": 5, "payload": r#"{"order":7}"#,
        "tags": serde_json::json!(tags).to_string(),
    })
    .to_string()
}

async fn retired(rig: &Rig, draft: Draft) -> Claimed {
    let first = rig.claimed(draft).await;
    assert!(settle(&rig.store, &first, Ended::Retried).await);
    rig.forward(Duration::from_micros(1_000_123));
    let second = claim(&rig.store, first.token.worker, 1).await.pop().unwrap();
    let mut end = settlement(&second, Ended::Retired);
    end.error = Some("sold out".into());
    assert_eq!(rig.store.settle(&[end]).await.unwrap(), [true]);
    second
}

#[tokio::test]
async fn a_retired_job_is_a_case_with_its_history() {
    let rig = Rig::new().await;
    let last = retired(&rig, numbered(1)).await;
    let id = last.token.id;
    assert_eq!(state_of(&rig.store, id).await, State::Case);
    let case = rig.store.case(id).await.unwrap().unwrap();
    assert_eq!(
        (case.kind.as_str(), case.queue.as_str(), case.reason.as_str()),
        ("charge", "orders", "sold out")
    );
    assert_eq!((case.attempt, case.attempts_max), (2, 3));
    let worker = last.token.worker.0;
    assert_eq!(
        case.history,
        serde_json::json!([
            {"epoch": 1, "attempt": 1, "outcome": "retried", "worker": worker, "error": null,
             "started_at": "2023-11-14T22:13:20.000000Z", "ended_at": "2023-11-14T22:13:20.000000Z"},
            {"epoch": 2, "attempt": 2, "outcome": "retired", "worker": worker, "error": "sold out",
             "started_at": "2023-11-14T22:13:21.000123Z", "ended_at": "2023-11-14T22:13:21.000123Z"},
        ])
    );
    let ended: Timestamp = case.history[1]["ended_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(ended, case.retired_at);
    assert_eq!(rig.store.cases(CaseQuery::Newest { max: 10 }).await.unwrap().len(), 1);
    assert!(rig.store.cases(CaseQuery::Newest { max: 0 }).await.unwrap().is_empty());
    assert!(rig.store.case(id + 1).await.unwrap().is_none());
}

#[tokio::test]
async fn the_commit_that_retires_enqueues_the_compensating_job() {
    let rig = Rig::new().await;
    let mut draft = numbered(1);
    draft.if_retired = Some(compensation("refund", &["money"]));
    let id = retired(&rig, draft).await.token.id;
    let links = rig.store.chain(id).await.unwrap();
    assert_eq!(links.len(), 2);
    let refund = &links[1];
    assert_eq!(
        (refund.kind.as_str(), refund.chain, refund.position),
        ("refund", Some(id.into()), 1)
    );
    assert_eq!(
        (refund.priority, refund.attempts_max, refund.state),
        (2, 5, State::Ready)
    );
    assert_eq!(refund.payload, serde_json::json!({"order": 7}));
    assert_eq!(refund.tags, ["money"]);
}

#[tokio::test]
async fn a_compensating_job_that_does_not_read_leaves_the_case_standing() {
    let rig = Rig::new().await;
    let mut draft = numbered(1);
    draft.if_retired = Some(r#"{"kind":1}"#.into());
    let id = retired(&rig, draft).await.token.id;
    assert_eq!(state_of(&rig.store, id).await, State::Case);
}

#[tokio::test]
async fn a_reopened_case_gets_all_its_attempts_and_no_old_token_fits() {
    let rig = Rig::new().await;
    let last = retired(&rig, numbered(1)).await;
    let id = last.token.id;
    assert!(!rig.store.reopen(id + 1, "ann").await.unwrap());
    assert!(rig.store.reopen(id, "ann").await.unwrap());
    assert!(!rig.store.reopen(id, "ann").await.unwrap(), "it is no case any more");
    assert_eq!(rig.count("rowlock_case_file").await, 0);
    let audit: (String, String, i64) = sqlx::query_as("select actor, verb, id from rowlock_audit")
        .fetch_one(&mut rig.conn().await)
        .await
        .unwrap();
    assert_eq!(audit, ("ann".into(), "reopen".into(), id));
    let again = claim(&rig.store, last.token.worker, 1).await.pop().unwrap();
    assert_eq!((again.attempt, again.token.epoch), (1, 3));
    assert!(!settle(&rig.store, &last, Ended::Done).await);
}

#[tokio::test]
async fn every_filter_narrows() {
    let rig = Rig::new().await;
    let mut tagged = numbered(1);
    tagged.tags = Some(r#"["vip"]"#.into());
    let mut mail = numbered(2);
    mail.queue = "mail".into();
    mail.kind = "send".into();
    let ids = ids_of(rig.store.enqueue(&[tagged, mail, numbered(3)]).await.unwrap());
    let worker = rig.worker().await;
    let leased = claim(&rig.store, worker, 1).await[0].token.id;
    let all = JobFilter::new();
    let list = async |filter: JobFilter| -> Vec<i64> {
        rig.store
            .jobs(JobQuery::Filter(&filter))
            .await
            .unwrap()
            .iter()
            .map(|j| j.id.0)
            .collect()
    };
    assert_eq!(list(all.clone()).await, [ids[2], ids[1], ids[0]]);
    let f = all.clone();
    assert_eq!(list(f.clone().queue("mail")).await, [ids[1]]);
    assert_eq!(list(f.clone().kind("send")).await, [ids[1]]);
    assert_eq!(list(f.clone().state(State::Leased)).await, [leased]);
    assert_eq!(list(f.clone().tag("vip")).await, [ids[0]]);
    assert_eq!(list(f.below(JobId(ids[2])).limit(1)).await, [ids[1]]);
}

#[tokio::test]
async fn status_counts_every_place_by_queue_and_kind() {
    let rig = Rig::new().await;
    retired(&rig, numbered(1)).await;
    let held = rig.claimed(numbered(2)).await;
    let mut later = numbered(3);
    // The counts come from a view, which uses the database's clock and not the rig's.
    later.due = Due::At("2200-01-01T00:00:00Z".parse().unwrap());
    let mut newer = numbered(4);
    newer.version = 2;
    let mut mail = numbered(5);
    mail.queue = "mail".into();
    rig.store.enqueue(&[later, newer, mail]).await.unwrap();
    rig.forward(Duration::from_millis(1500));
    let status = rig.store.status().await.unwrap();
    let lanes: Vec<_> = status
        .lanes
        .iter()
        .map(|l| {
            (
                l.queue.as_str(),
                l.kind.as_str(),
                l.due,
                l.scheduled,
                l.leased,
                l.cases,
                l.oldest_due_ms,
            )
        })
        .collect();
    assert_eq!(
        lanes,
        [
            ("mail", "charge", 1, 0, 0, 0, Some(1500)),
            ("orders", "charge", 1, 1, 1, 1, Some(1500))
        ]
    );
    let holder = status.workers.iter().find(|w| w.id == held.token.worker).unwrap();
    assert_eq!(
        (holder.leases, holder.dead, holder.beat_age_ms, holder.lease_ms),
        (1, false, 1500, 15_000)
    );
}
