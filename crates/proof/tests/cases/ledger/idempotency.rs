//! The axum layer over real HTTP: one effect per idempotency key, and the stored response for every repeat.

mod front;

use std::{sync::Arc, time::Duration};

use axum::http::HeaderName;
use tokio::{io::AsyncWriteExt, net::TcpStream, sync::Barrier};

use self::front::{Front, Reply, request};
use super::{Bed, until};

async fn counted(bed: &Bed) -> i64 {
    bed.count("select n from counter").await
}

async fn a_repeat_gets_the_first_response_and_makes_no_effect(bed: &Bed) {
    let front = Front::new(bed).await;
    let first = front.post("/charge", "k1", "ten").await;
    assert_eq!((first.status, first.text()), (201, "charge 1 of ten".to_owned()));
    assert_eq!(
        first.header("server"),
        Some("mine"),
        "the first keeps all of its headers"
    );
    assert!(!first.is_replay());
    for key in ["k1", "\"k1\""] {
        let repeat = front.post("/charge", key, "ten").await;
        assert_eq!((repeat.status, repeat.text()), (201, "charge 1 of ten".to_owned()));
        assert_eq!(repeat.header("location"), Some("/charges/1"));
        assert_eq!(repeat.header("content-type"), first.header("content-type"));
        assert_eq!(repeat.header("server"), None, "only chosen headers are stored");
        assert!(repeat.is_replay());
    }
    let other = front.post("/charge", "k2", "ten").await;
    assert_eq!((other.text(), other.is_replay()), ("charge 2 of ten".to_owned(), false));
    assert_eq!(counted(bed).await, 2);
    front.end().await;
}

async fn fifty_clients_racing_one_key_get_one_effect_and_its_response(bed: &Bed) {
    let front = Arc::new(Front::new(bed).await);
    let together = Arc::new(Barrier::new(50));
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (front, together) = (front.clone(), together.clone());
        racing.spawn(async move {
            together.wait().await;
            front.post("/charge", "race", ["ten", "twenty"][n % 2]).await
        });
    }
    let all = racing.join_all().await;
    let created: Vec<&Reply> = all.iter().filter(|reply| reply.status == 201).collect();
    let (replays, firsts): (Vec<&Reply>, Vec<&Reply>) = created.iter().partition(|reply| reply.is_replay());
    let refused = all.iter().filter(|reply| reply.status == 422).count();
    assert_eq!((firsts.len(), replays.len(), refused), (1, 24, 25), "{all:?}");
    assert!(replays.iter().all(|reply| reply.body == firsts[0].body));
    assert_eq!(counted(bed).await, 1);
    Arc::into_inner(front).unwrap().end().await;
}

/// SQLite knows no other level; PostgreSQL is given each as the database's default.
async fn under_stricter_levels_racing_clients_still_make_one_effect(bed: &Bed) {
    let levels = match bed.database.is_sqlite() {
        true => &["serializable"][..],
        false => &["repeatable read", "serializable"],
    };
    bed.run(front::COUNTER).await;
    for (n, level) in (1..).zip(levels) {
        if let Some((_, name)) = bed.database.url.rsplit_once('/').filter(|_| !bed.database.is_sqlite()) {
            let set = format!("alter database {name} set default_transaction_isolation = '{level}'");
            bed.run_as_it_is(&set).await;
        }
        let front = Arc::new(Front::on(bed, |layer| layer).await);
        let mut racing = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let front = front.clone();
            racing.spawn(async move {
                loop {
                    let reply = front.post("/charge", &format!("k{n}"), "ten").await;
                    match reply.status {
                        // It tries again when asked to, as a client does.
                        409 | 503 => assert_eq!(reply.header("retry-after"), Some("1")),
                        _ => return reply,
                    }
                }
            });
        }
        let all = racing.join_all().await;
        let statuses: Vec<u16> = all.iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [201; 20], "{level}");
        assert_eq!(all.iter().filter(|reply| !reply.is_replay()).count(), 1, "{level}");
        assert_eq!(counted(bed).await, n, "{level}");
        Arc::into_inner(front).unwrap().end().await;
    }
}

async fn a_body_that_is_no_text_comes_back_byte_for_byte(bed: &Bed) {
    let front = Front::with(bed, |layer| layer.keep_header(HeaderName::from_static("x-kept"))).await;
    let first = front.post("/bytes", "k", "").await;
    let repeat = front.post("/bytes", "k", "").await;
    assert_eq!(first.body, [0, 159, 146, 150, b'\n', 0, 255]);
    assert_eq!(repeat.body, first.body);
    assert_eq!(repeat.header("content-type"), Some("application/octet-stream"));
    assert_eq!(repeat.header("x-kept"), Some("kept"));
    assert!(repeat.is_replay());
    front.end().await;
}

async fn a_missing_or_malformed_key_is_refused_and_nothing_runs(bed: &Bed) {
    let front = Front::new(bed).await;
    let long = "x".repeat(201);
    let bad: [&[(&str, &str)]; 5] = [
        &[],
        &[("idempotency-key", "")],
        &[("idempotency-key", "a b")],
        &[("idempotency-key", &long)],
        &[("idempotency-key", "a"), ("idempotency-key", "b")],
    ];
    for headers in bad {
        let refused = front.send("POST", "/charge", headers, b"ten").await;
        assert_eq!(refused.status, 400, "{headers:?}: {refused:?}");
        assert!(refused.text().starts_with("idempotency-key: "), "{}", refused.text());
    }
    assert_eq!(counted(bed).await, 0);
    assert_eq!(bed.count("select count(*) from rowlock.ledger").await, 0);
    front.end().await;
}

async fn another_body_path_or_method_under_the_same_key_is_refused(bed: &Bed) {
    let front = Front::new(bed).await;
    let key = [("idempotency-key", "k")];
    assert_eq!(front.post("/charge", "k", "ten").await.status, 201);
    for (method, path, body) in [
        ("POST", "/charge", "eleven"),
        ("POST", "/charge?twice=1", "ten"),
        ("POST", "/nested/charge", "ten"),
        ("POST", "/bytes", "ten"),
        ("PUT", "/charge", "ten"),
    ] {
        let refused = front.send(method, path, &key, body.as_bytes()).await;
        assert_eq!(refused.status, 422, "{method} {path} {body}: {refused:?}");
    }
    assert!(
        front.post("/charge", "k", "ten").await.is_replay(),
        "the first is as it was"
    );
    assert_eq!(counted(bed).await, 1);
    front.end().await;
}

async fn requests_that_change_nothing_need_no_key(bed: &Bed) {
    let front = Front::new(bed).await;
    let looked = front.send("GET", "/charge", &[], b"").await;
    assert_eq!((looked.status, looked.text()), (200, "looked".to_owned()));
    assert_eq!(front.send("HEAD", "/charge", &[], b"").await.status, 200);
    let outside = front.send("GET", "/outside", &[], b"").await;
    assert_eq!(outside.status, 500);
    assert!(
        outside.text().contains("add the idempotent layer"),
        "{}",
        outside.text()
    );
    assert_eq!(bed.count("select count(*) from rowlock.ledger").await, 0);
    front.end().await;
}

async fn a_refusal_is_remembered_and_keeps_nothing_the_handler_wrote(bed: &Bed) {
    let front = Front::new(bed).await;
    for status in [402, 404, 409] {
        let path = format!("/status/{status}");
        let key = format!("k{status}");
        assert_eq!(front.post(&path, &key, "").await.status, status);
        let repeat = front.post(&path, &key, "").await;
        assert_eq!((repeat.status, repeat.is_replay()), (status, true));
    }
    assert_eq!(counted(bed).await, 0);
    front.end().await;
}

async fn a_failure_keeps_nothing_and_the_repeat_runs_again(bed: &Bed) {
    let front = Front::new(bed).await;
    for status in [408, 425, 429, 500, 503] {
        let path = format!("/status/{status}");
        for _ in 0..2 {
            let reply = front.post(&path, &format!("k{status}"), "").await;
            assert_eq!((reply.status, reply.is_replay()), (status, false));
        }
    }
    // The connection breaks off, as it would without the layer.
    assert_eq!(front.post("/panic", "panic", "").await.status, 0);
    let over = front.post("/big", "big", "").await;
    assert_eq!((over.status, over.text().contains("nothing was changed")), (500, true));
    assert_eq!(counted(bed).await, 0);
    assert_eq!(bed.count("select count(*) from rowlock.ledger").await, 0);
    front.end().await;
}

/// A success that the database has refused a part of is no success.
async fn a_success_in_a_spoilt_transaction_is_a_failure_on_postgresql(bed: &Bed) {
    let front = Front::new(bed).await;
    let reply = front.post("/status/201", "k", "").await;
    if bed.database.is_sqlite() {
        // There, a refused statement leaves the rest of the transaction as it was.
        assert_eq!((reply.status, counted(bed).await), (201, 1));
    } else {
        assert_eq!((reply.status, counted(bed).await), (503, 0), "{reply:?}");
    }
    front.end().await;
}

async fn a_client_that_goes_away_does_not_cut_its_request(bed: &Bed) {
    let front = Front::new(bed).await;
    let mut socket = TcpStream::connect(front.address).await.unwrap();
    let asked = request("POST", "/wait", &[("idempotency-key", "k")], b"");
    socket.write_all(&asked).await.unwrap();
    until("the handler to hold its transaction", async || front.entered() == 1).await;
    drop(socket);
    front.gate.add_permits(1);
    until("the effect to be committed", async || counted(bed).await == 1).await;
    let repeat = front.post("/wait", "k", "").await;
    assert_eq!((repeat.text(), repeat.is_replay()), ("waited for 1".to_owned(), true));
    assert_eq!(counted(bed).await, 1);
    front.end().await;
}

async fn a_twin_waits_for_the_first_and_gets_its_response(bed: &Bed) {
    let front = Arc::new(Front::new(bed).await);
    let ask = |front: &Arc<Front>| {
        let front = front.clone();
        tokio::spawn(async move { front.post("/wait", "k", "").await })
    };
    let pair = [ask(&front), ask(&front)];
    until("one to be in its handler, the other to have come", async || {
        front.entered() == 1 && front.pool.size() as usize >= front.pool.num_idle() + 2
    })
    .await;
    assert!(pair.iter().all(|reply| !reply.is_finished()));
    // One permit only: a second run of the handler would hang.
    front.gate.add_permits(1);
    let [one, two] = pair;
    let (one, two) = (one.await.unwrap(), two.await.unwrap());
    assert_eq!([one.status, two.status], [200, 200]);
    assert_eq!(one.body, two.body);
    assert!(one.is_replay() != two.is_replay());
    assert_eq!(front.entered(), 1);
    assert_eq!(counted(bed).await, 1);
    Arc::into_inner(front).unwrap().end().await;
}

async fn a_twin_of_one_that_takes_too_long_is_told_so(bed: &Bed) {
    let front = Arc::new(Front::with(bed, |layer| layer.timeout(Duration::from_millis(50))).await);
    let slow = front.clone();
    let first = tokio::spawn(async move { slow.post("/wait", "k", "").await });
    until("the handler to hold its transaction", async || front.entered() == 1).await;
    // On SQLite the connection's own busy time-out decides, which is the driver's 5 s here.
    let twin = front.post("/wait", "k", "").await;
    assert_eq!((twin.status, twin.header("retry-after")), (409, Some("1")), "{twin:?}");
    assert!(twin.text().contains("still running"), "{}", twin.text());
    front.gate.add_permits(1);
    assert_eq!(first.await.unwrap().status, 200);
    let repeat = front.post("/wait", "k", "").await;
    assert!(repeat.is_replay());
    Arc::into_inner(front).unwrap().end().await;
}

async fn a_body_over_the_limit_is_refused(bed: &Bed) {
    let front = Front::with(bed, |layer| layer.body_limit(10)).await;
    assert_eq!(front.post("/charge", "k", "ten bytes!").await.status, 201);
    let over = front.post("/charge", "k2", "ten bytes!!").await;
    assert_eq!(over.status, 413, "{over:?}");
    assert_eq!(counted(bed).await, 1);
    front.end().await;
}

async fn a_transaction_that_does_not_come_back_commits_nothing(bed: &Bed) {
    let front = Front::new(bed).await;
    let reply = front.post("/keep", "k", "").await;
    assert_eq!(reply.status, 500);
    assert!(
        reply.text().contains("did not give the request's transaction back"),
        "{}",
        reply.text()
    );
    front.gate.add_permits(1);
    until("the transaction to be dropped", async || {
        front.pool.size() as usize == front.pool.num_idle()
    })
    .await;
    assert_eq!(front.post("/forget", "k3", "").await.status, 500);
    assert_eq!(counted(bed).await, 0);
    assert_eq!(bed.count("select count(*) from rowlock.ledger").await, 0);
    let two = front.post("/two", "k2", "").await;
    assert!(two.text().contains("already in use"), "{}", two.text());
    front.end().await;
}

async fn the_same_key_of_two_scopes_names_two_operations(bed: &Bed) {
    let front = Front::with(bed, |layer| {
        layer.scope(|parts| {
            let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
            user.unwrap_or_default().to_owned()
        })
    })
    .await;
    for (user, charge, replayed) in [("ann", 1, false), ("bob", 2, false), ("ann", 1, true), ("bob", 2, true)] {
        let headers = [("idempotency-key", "k"), ("x-user", user)];
        let reply = front.send("POST", "/charge", &headers, b"ten").await;
        assert_eq!(
            (reply.text(), reply.is_replay()),
            (format!("charge {charge} of ten"), replayed)
        );
    }
    front.end().await;
}

async fn a_job_enqueued_by_the_request_is_there_once(bed: &Bed) {
    let front = Front::new(bed).await;
    let first = front.post("/job", "k", "").await;
    let repeat = front.post("/job", "k", "").await;
    assert_eq!((first.status, repeat.text()), (200, first.text()));
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 1);
    front.end().await;
}

async fn a_key_taken_inside_a_request_commits_with_it(bed: &Bed) {
    let front = Front::new(bed).await;
    let said = [
        front.post("/inner", "k1", "").await,
        front.post("/inner", "k2", "").await,
    ];
    assert_eq!(said.map(|reply| reply.text()), ["first 1", "seen"]);
    assert_eq!(counted(bed).await, 1);
    front.end().await;
}

mod tests {
    super::super::cases!(
        a_repeat_gets_the_first_response_and_makes_no_effect,
        fifty_clients_racing_one_key_get_one_effect_and_its_response,
        under_stricter_levels_racing_clients_still_make_one_effect,
        a_body_that_is_no_text_comes_back_byte_for_byte,
        a_missing_or_malformed_key_is_refused_and_nothing_runs,
        another_body_path_or_method_under_the_same_key_is_refused,
        requests_that_change_nothing_need_no_key,
        a_refusal_is_remembered_and_keeps_nothing_the_handler_wrote,
        a_failure_keeps_nothing_and_the_repeat_runs_again,
        a_success_in_a_spoilt_transaction_is_a_failure_on_postgresql,
        a_client_that_goes_away_does_not_cut_its_request,
        a_twin_waits_for_the_first_and_gets_its_response,
        a_twin_of_one_that_takes_too_long_is_told_so,
        a_body_over_the_limit_is_refused,
        a_transaction_that_does_not_come_back_commits_nothing,
        the_same_key_of_two_scopes_names_two_operations,
        a_job_enqueued_by_the_request_is_there_once,
        a_key_taken_inside_a_request_commits_with_it,
    );
}
