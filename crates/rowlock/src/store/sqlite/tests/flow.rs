use std::collections::HashSet;

use sqlx::{Connection, Sqlite};

use super::*;
use crate::{observe::JobFilter, store::Resolved};

#[tokio::test]
async fn ids_come_back_in_input_order_and_are_never_reused() {
    let rig = Rig::new().await;
    let drafts: Vec<Draft> = (0..2500).map(numbered).collect();
    let ids = ids_of(rig.store.enqueue(&drafts).await.unwrap());
    assert!(ids.windows(2).all(|w| w[0] < w[1]));
    for n in [0, 999, 1000, 2499] {
        let job = rig.store.job(ids[n]).await.unwrap().unwrap();
        assert_eq!((job.payload, job.uid), (serde_json::json!(n), drafts[n].uid));
    }
    sqlx::raw_sql("delete from rowlock_job; delete from rowlock_ready")
        .execute(&mut rig.conn().await)
        .await
        .unwrap();
    let later = ids_of(rig.store.enqueue(&[numbered(1)]).await.unwrap());
    assert!(later[0] > ids[2499]);
    assert!(ids_of(rig.store.enqueue(&[]).await.unwrap()).is_empty());
}

#[tokio::test]
async fn a_body_is_stored_as_it_was_given() {
    let rig = Rig::new().await;
    let text = r#"{"a": "ü \"quoted\" \\ 'single' \n", "n": 12345678901234567890, "f": 1.50, "e": "\u00e9"}"#;
    let mut given = draft(text);
    given.tags = Some(r#"["vip","eu-1"]"#.into());
    given.expires_at = Some(rig.clock.now().unwrap());
    given.chain = Some(7);
    given.position = 2;
    let claimed = rig.claimed(given.clone()).await;
    let body = claimed.body.as_ref().unwrap();
    assert_eq!(body.payload, text, "byte for byte");
    assert_eq!((body.uid, body.chain, body.position), (given.uid, Some(7), 2));
    assert_eq!(body.created_at, rig.clock.now().unwrap());
    assert!(claimed.expired);
    let view = rig.store.job(claimed.token.id).await.unwrap().unwrap();
    assert_eq!(view.tags, ["vip", "eu-1"]);
}

/// One row that Rust cannot read as JSON does not break the list.
#[tokio::test]
async fn a_number_that_is_too_large_is_listed_as_text() {
    let rig = Rig::new().await;
    rig.store.enqueue(&[draft("1e999"), numbered(1)]).await.unwrap();
    let jobs = rig.store.jobs(JobQuery::Filter(&JobFilter::default())).await.unwrap();
    let mut payloads: Vec<String> = jobs.iter().map(|job| job.payload.to_string()).collect();
    payloads.sort();
    assert_eq!(payloads, ["\"1e999\"", "1"]);
}

#[tokio::test]
async fn an_enqueue_is_all_or_nothing() {
    let rig = Rig::new().await;
    let mut bad = numbered(2);
    bad.payload = "not json".into();
    assert!(rig.store.enqueue(&[numbered(1), bad.clone()]).await.is_err());
    let mut conn = rig.conn().await;
    assert!(
        Sqlite::enqueue_in(&rig.store, &mut conn, &[numbered(1), bad.clone()])
            .await
            .is_err()
    );
    sqlx::raw_sql("begin").execute(&mut conn).await.unwrap();
    assert!(
        Sqlite::enqueue_in(&rig.store, &mut conn, &[numbered(1), bad])
            .await
            .is_err()
    );
    sqlx::raw_sql("commit").execute(&mut conn).await.unwrap();
    assert_eq!(
        (rig.count("rowlock_job").await, rig.count("rowlock_ready").await),
        (0, 0)
    );
}

#[tokio::test]
async fn an_enqueue_shares_the_fate_of_the_callers_transaction() {
    let rig = Rig::new().await;
    let mut conn = rig.conn().await;
    assert_eq!(
        Sqlite::enqueue_in(&rig.store, &mut conn, &[numbered(1)])
            .await
            .unwrap()
            .len(),
        1
    );
    assert_eq!(
        rig.count("rowlock_ready").await,
        1,
        "outside a transaction it stands at once"
    );
    let mut tx = conn.begin().await.unwrap();
    Sqlite::enqueue_in(&rig.store, &mut tx, &[numbered(2)]).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(rig.count("rowlock_ready").await, 1);
    let mut tx = conn.begin().await.unwrap();
    Sqlite::enqueue_in(&rig.store, &mut tx, &[numbered(3)]).await.unwrap();
    tx.commit().await.unwrap();
    for (end, jobs) in [("rollback", 2), ("commit", 3)] {
        sqlx::raw_sql("begin immediate").execute(&mut conn).await.unwrap();
        Sqlite::enqueue_in(&rig.store, &mut conn, &[numbered(4)]).await.unwrap();
        sqlx::raw_sql(sqlx::AssertSqlSafe(end))
            .execute(&mut conn)
            .await
            .unwrap();
        assert_eq!(rig.count("rowlock_ready").await, jobs, "a begin by hand, then {end}");
    }
}

#[tokio::test]
async fn a_transaction_that_read_too_early_to_write_is_told_so() {
    let rig = Rig::new().await;
    let mut conn = rig.conn().await;
    let mut tx = conn.begin().await.unwrap();
    sqlx::query("select count(*) from rowlock_job")
        .execute(&mut *tx)
        .await
        .unwrap();
    rig.store.enqueue(&[numbered(1)]).await.unwrap();
    let error = Sqlite::enqueue_in(&rig.store, &mut tx, &[numbered(2)])
        .await
        .unwrap_err();
    assert_eq!(error.code().as_deref(), Some("517"));
    let source = std::error::Error::source(&error).unwrap().to_string();
    assert!(source.contains("begin immediate"), "{source}");
    tx.rollback().await.unwrap();
    assert_eq!(rig.count("rowlock_job").await, 1);
}

#[tokio::test]
async fn probes_are_served_in_order_up_to_each_queues_limit() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    let mut drafts = Vec::new();
    for n in 0..6 {
        let mut d = numbered(n);
        d.priority = if n < 3 { 4 } else { 2 };
        drafts.push(d);
    }
    for n in 10..15 {
        let mut d = numbered(n);
        d.queue = "mail".into();
        drafts.push(d);
    }
    rig.store.enqueue(&drafts).await.unwrap();
    let mut ask = ask(worker, 4);
    ask.queues.push((queue_no("mail"), 2));
    ask.stretches.push(Stretch {
        queue_no: queue_no("mail"),
        ..stretch(3)
    });
    let jobs = claim_by(&rig.store, &ask).await;
    let mut payloads: Vec<i64> = jobs.iter().map(|j| payload(j).parse().unwrap()).collect();
    payloads.sort_unstable();
    assert_eq!(payloads, [0, 3, 4, 5, 10, 11]);
    assert!(
        jobs.iter()
            .all(|j| (j.attempt, j.token.epoch, j.alone) == (1, 1, false))
    );
    assert!(jobs.iter().all(|j| j.due_at == rig.clock.now().unwrap()));
}

#[tokio::test]
async fn a_probe_takes_only_what_is_due_and_not_before_its_cursor() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    let mut later = numbered(1);
    later.due = Due::In(Duration::from_secs(10));
    let mut past = numbered(2);
    past.due = Due::At(rig.clock.now().unwrap() - Duration::from_secs(99));
    let ids = ids_of(rig.store.enqueue(&[later, past, numbered(3)]).await.unwrap());
    let mut from = ask(worker, 10);
    for stretch in &mut from.stretches {
        stretch.from = Cursor {
            due_at: rig.clock.now().unwrap(),
            id: ids[2],
        };
    }
    let jobs = claim_by(&rig.store, &from).await;
    assert_eq!(jobs.iter().map(|j| j.token.id).collect::<Vec<_>>(), [ids[2]]);
    let jobs = claim(&rig.store, worker, 10).await;
    assert_eq!(
        jobs.iter().map(|j| j.token.id).collect::<Vec<_>>(),
        [ids[1]],
        "a past due time is clamped to now"
    );
    assert_eq!(jobs[0].due_at, rig.clock.now().unwrap());
    rig.forward(Duration::from_secs(10));
    assert_eq!(claim(&rig.store, worker, 10).await.len(), 1);
}

#[tokio::test]
async fn two_stores_on_one_file_never_claim_the_same_job() {
    let rig = Rig::new().await;
    rig.store
        .enqueue(&(0..300).map(numbered).collect::<Vec<_>>())
        .await
        .unwrap();
    let mut tasks = Vec::new();
    for store in [rig.store.clone(), rig.another(), rig.another()] {
        let worker = rig.worker().await;
        tasks.push(tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let jobs = claim(&store, worker, 7).await;
                if jobs.is_empty() {
                    return ids;
                }
                ids.extend(jobs.iter().map(|j| j.token.id));
            }
        }));
    }
    let mut ids = Vec::new();
    for task in tasks {
        ids.extend(task.await.unwrap());
    }
    assert_eq!(ids.len(), 300);
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), 300);
    assert_eq!(
        (rig.count("rowlock_ready").await, rig.count("rowlock_lease").await),
        (0, 300)
    );
}

#[tokio::test]
async fn a_missing_body_does_not_fail_the_claim_of_the_others() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    let ids = ids_of(rig.store.enqueue(&[numbered(1), numbered(2)]).await.unwrap());
    sqlx::query("delete from rowlock_job where id = ?")
        .bind(ids[0])
        .execute(&mut rig.conn().await)
        .await
        .unwrap();
    let jobs = claim(&rig.store, worker, 10).await;
    let missing = jobs.iter().find(|j| j.token.id == ids[0]).unwrap();
    assert!(missing.body.is_none() && !missing.expired);
    assert!(jobs.iter().any(|j| j.body.is_some()));
}

#[tokio::test]
async fn a_stale_token_settles_nothing_and_leaves_the_others_standing() {
    let rig = Rig::new().await;
    let worker = rig.worker().await;
    rig.store.enqueue(&[numbered(1), numbered(2)]).await.unwrap();
    let jobs = claim(&rig.store, worker, 2).await;
    let mut late = settlement(&jobs[0], Ended::Done);
    late.token = stale(late.token);
    late.next = vec![numbered(9)];
    let mut good = settlement(&jobs[1], Ended::Done);
    good.result = Some(r#"{"paid":true}"#.into());
    let batch = [late, good.clone(), good.clone()];
    assert_eq!(
        rig.store.settle(&batch).await.unwrap(),
        [false, true, true],
        "the same end twice is one end"
    );
    assert_eq!(
        rig.count("rowlock_ready").await,
        0,
        "the next link of a lost attempt is not enqueued"
    );
    assert_eq!(
        (rig.count("rowlock_outcome").await, rig.count("rowlock_lease").await),
        (1, 1)
    );
    assert_eq!(rig.store.settle(&[good]).await.unwrap(), [false], "once only");
    let done = rig.store.job(jobs[1].token.id).await.unwrap().unwrap();
    assert_eq!((done.state, done.last_outcome), (State::Finished, Some(Ended::Done)));
    assert_eq!(done.result, Some(serde_json::json!({"paid": true})));
    assert_eq!(state_of(&rig.store, jobs[0].token.id).await, State::Leased);
}

#[tokio::test]
async fn a_retried_job_comes_back_later_and_a_released_one_keeps_its_attempt() {
    let rig = Rig::new().await;
    let first = rig.claimed(numbered(1)).await;
    let worker = first.token.worker;
    let mut retry = settlement(&first, Ended::Retried);
    retry.delay = Duration::from_secs(5);
    retry.error = Some("card declined".into());
    assert_eq!(rig.store.settle(&[retry]).await.unwrap(), [true]);
    assert!(claim(&rig.store, worker, 1).await.is_empty());
    rig.forward(Duration::from_secs(5));
    let second = claim(&rig.store, worker, 1).await.pop().unwrap();
    assert_eq!((second.attempt, second.token.epoch), (2, 2));
    assert!(settle(&rig.store, &second, Ended::Released).await);
    let third = claim(&rig.store, worker, 1).await.pop().unwrap();
    assert_eq!(
        (third.attempt, third.token.epoch),
        (2, 3),
        "the epoch rises for ever, the attempt was given back"
    );
    let words: Vec<Ended> = rig
        .store
        .attempts(first.token.id)
        .await
        .unwrap()
        .iter()
        .map(|a| a.outcome)
        .collect();
    assert_eq!(words, [Ended::Retried, Ended::Released]);
}

#[tokio::test]
async fn the_next_link_is_enqueued_in_the_commit_that_settles() {
    let rig = Rig::new().await;
    let root = rig.claimed(numbered(1)).await;
    let mut done = settlement(&root, Ended::Done);
    let mut next = numbered(2);
    next.chain = Some(root.token.id);
    next.position = 1;
    done.next = vec![next];
    assert_eq!(rig.store.settle(&[done]).await.unwrap(), [true]);
    let links = rig.store.chain(root.token.id).await.unwrap();
    assert_eq!(links.iter().map(|l| l.position).collect::<Vec<_>>(), [0, 1]);
    let from_the_end = rig.store.chain(links[1].id.0).await.unwrap();
    assert_eq!(
        from_the_end.iter().map(|l| l.id).collect::<Vec<_>>(),
        [links[0].id, links[1].id]
    );
}

#[tokio::test]
async fn a_lost_reply_is_resolved_to_what_happened() {
    let rig = Rig::new().await;
    let claimed = rig.claimed(numbered(1)).await;
    let token = claimed.token;
    assert_eq!(rig.store.resolve(token).await.unwrap(), Resolved::StillLeased);
    assert_eq!(rig.store.resolve(stale(token)).await.unwrap(), Resolved::Lost);
    assert!(settle(&rig.store, &claimed, Ended::Cancelled).await);
    assert_eq!(
        rig.store.resolve(token).await.unwrap(),
        Resolved::Ended(Ended::Cancelled)
    );
}

#[tokio::test]
async fn a_claim_whose_reply_was_lost_is_found_among_the_own_leases() {
    let rig = Rig::new().await;
    let claimed = rig.claimed(numbered(1)).await;
    let other = rig.worker().await;
    assert_eq!(
        rig.store.own_leases(claimed.token.worker, true).await.unwrap(),
        [claimed.token]
    );
    assert!(rig.store.own_leases(other, true).await.unwrap().is_empty());
}

#[tokio::test]
async fn verbs_that_share_a_commit_do_not_share_their_fate() {
    let rig = Rig::new().await;
    let hold = Sqlite::begin(&rig.store, handler(token(), Timing::of_lease(LEASE)))
        .await
        .unwrap();
    let mut bad = numbered(2);
    bad.payload = "not json".into();
    // All three wait for the handler's turn to end, and are then written together.
    let (one, two, three) = ([numbered(1)], [bad], [numbered(3)]);
    let together = async {
        tokio::join!(
            rig.store.enqueue(&one),
            rig.store.enqueue(&two),
            rig.store.enqueue(&three),
            async {
                drop(hold);
            }
        )
    };
    let (one, two, three, ()) = together.await;
    assert!(one.is_ok() && two.is_err() && three.is_ok());
    assert_eq!(
        (rig.count("rowlock_job").await, rig.count("rowlock_ready").await),
        (2, 2)
    );
}

fn token() -> Token {
    Token {
        id: 1,
        epoch: 1,
        worker: WorkerId::random(),
    }
}

#[tokio::test]
async fn a_verb_that_panics_takes_nobody_elses_write_with_it() {
    let rig = Rig::new().await;
    let panicked: crate::error::Result<()> = rig
        .store
        .write("claim", (), |_, _, ()| Box::pin(async { panic!("a bug in a verb") }))
        .await;
    assert!(panicked.is_err());
    let ids = rig.store.enqueue(&[numbered(1)]).await.unwrap();
    assert_eq!(ids.len(), 1, "the next write finds a writer");
    assert!(rig.store.beat(WorkerId(1)).await.is_ok());
}
