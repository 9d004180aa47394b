//! Servers as handlers: the real binary and a server that answers as ordered, on both databases.

use std::time::{Duration, Instant};

use crate::{
    common,
    work::{
        desk::{Desk, on_each},
        server::{Server, answer, ca_file},
    },
};

/// Enqueues a job, lets a server with these answers do it, and gives the job's id.
fn done_by(desk: &Desk, answers: Vec<Vec<u8>>, more: &[&str]) -> (i64, Server) {
    let server = Server::start(answers);
    let id = desk.enqueue("mail", r#"{"to":"ann",  "n":1.50}"#, &["--attempts", "4"]);
    let target = format!("mail={}/hook?token=t", server.url);
    desk.work(&[&["--http", &target][..], more].concat());
    (id, server)
}

#[test]
fn a_server_gets_the_payload_and_facts_and_its_answer_is_the_result() {
    on_each(|desk| {
        let (id, server) = done_by(desk, vec![answer("201 Created", "", r#"{"sent":true}"#)], &[]);
        assert_eq!(desk.outcomes(id), ["done"]);
        let job = desk.inspect(id)["job"].clone();
        assert_eq!(job["result"], serde_json::json!({"sent": true}));
        let asked = server.asked();
        assert_eq!(asked.len(), 1);
        assert_eq!(asked[0].line, "POST /hook?token=t HTTP/1.1");
        assert_eq!(asked[0].body, r#"{"to":"ann",  "n":1.50}"#, "byte for byte");
        let uid = job["uid"].as_str().unwrap();
        for (name, value) in [
            ("content-type", "application/json"),
            ("idempotency-key", &format!("{uid}:call")),
            ("rowlock-job-id", &id.to_string()),
            ("rowlock-job-uid", uid),
            ("rowlock-kind", "mail"),
            ("rowlock-version", "1"),
            ("rowlock-queue", "default"),
            ("rowlock-attempt", "1"),
            ("rowlock-attempts-max", "4"),
            ("rowlock-epoch", "1"),
        ] {
            assert_eq!(asked[0].header(name), Some(value), "{name}");
        }
        assert_eq!(asked[0].header("traceparent"), None);
    });
}

#[test]
fn an_answer_of_500_is_asked_again_under_the_same_key() {
    on_each(|desk| {
        let answers = vec![
            answer("500 Internal Server Error", "", "oops"),
            answer("200 OK", "", "sent"),
        ];
        let (id, server) = done_by(desk, answers, &[]);
        assert_eq!(desk.outcomes(id), ["retried", "done"]);
        assert_eq!(desk.inspect(id)["job"]["result"], "sent");
        assert!(
            desk.errors(id).contains("answered 500 Internal Server Error: oops"),
            "{}",
            desk.errors(id)
        );
        assert!(!desk.errors(id).contains("token"), "a query may hold a secret");
        let keys: Vec<_> = server
            .asked()
            .iter()
            .map(|asked| asked.header("idempotency-key").unwrap().to_owned())
            .collect();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[0], keys[1]);
    });
}

#[test]
fn a_refusal_retires_with_the_beginning_of_the_answer() {
    on_each(|desk| {
        let long = format!("no such address {}", "x".repeat(5000));
        let (id, server) = done_by(
            desk,
            vec![answer("422 Unprocessable Entity", "Retry-After: 1\r\n", &long)],
            &[],
        );
        assert_eq!(desk.outcomes(id), ["retired"]);
        let error = desk.inspect(id)["attempts"][0]["error"].as_str().unwrap().to_owned();
        assert!(
            error.contains("answered 422 Unprocessable Entity: no such address xxx"),
            "{error}"
        );
        assert!(error.len() < 1500, "{}", error.len());
        assert_eq!(desk.inspect(id)["effects"][0]["state"], "undone");
        assert_eq!(server.asked().len(), 1);
    });
}

#[test]
fn retry_after_defers_and_gives_the_attempt_back() {
    on_each(|desk| {
        let answers = vec![
            answer("429 Too Many Requests", "Retry-After: 2\r\n", "slow down"),
            answer("200 OK", "", "1"),
        ];
        let start = Instant::now();
        let (id, server) = done_by(desk, answers, &[]);
        assert!(
            start.elapsed() >= Duration::from_secs(2),
            "it waited as long as it was asked to"
        );
        assert_eq!(desk.outcomes(id), ["deferred", "done"]);
        assert!(
            desk.errors(id).contains("answered 429 Too Many Requests: slow down"),
            "{}",
            desk.errors(id)
        );
        let attempts: Vec<_> = server
            .asked()
            .iter()
            .map(|asked| asked.header("rowlock-attempt").unwrap().to_owned())
            .collect();
        assert_eq!(attempts, ["1", "1"]);
    });
}

#[test]
fn retry_after_no_time_is_a_failure_like_any_other() {
    on_each(|desk| {
        let answers = vec![
            answer("429 Too Many Requests", "Retry-After: 0\r\n", "slow down"),
            answer("200 OK", "", "1"),
        ];
        let (id, server) = done_by(desk, answers, &[]);
        assert_eq!(desk.outcomes(id), ["retried", "done"]);
        let attempts: Vec<_> = server
            .asked()
            .iter()
            .map(|asked| asked.header("rowlock-attempt").unwrap().to_owned())
            .collect();
        assert_eq!(attempts, ["1", "2"]);
    });
}

#[test]
fn a_conflict_is_tried_again_because_the_first_call_may_be_under_way() {
    on_each(|desk| {
        let answers = vec![answer("409 Conflict", "", "in progress"), answer("200 OK", "", "1")];
        let (id, _server) = done_by(desk, answers, &[]);
        assert_eq!(desk.outcomes(id), ["retried", "done"]);
    });
}

#[test]
fn a_redirect_is_not_followed() {
    on_each(|desk| {
        let elsewhere = Server::start(vec![answer("200 OK", "", "1")]);
        let location = format!("Location: {}/\r\n", elsewhere.url);
        let answers = vec![
            answer("307 Temporary Redirect", &location, ""),
            answer("200 OK", "", "2"),
        ];
        let (id, _server) = done_by(desk, answers, &[]);
        assert_eq!(desk.outcomes(id), ["retried", "done"]);
        assert!(
            desk.errors(id).contains("redirects are not followed"),
            "{}",
            desk.errors(id)
        );
        assert!(elsewhere.asked().is_empty());
    });
}

#[test]
fn a_server_that_closes_in_the_middle_of_its_answer_is_asked_again() {
    on_each(|desk| {
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":".to_vec();
        let cut = b"HTTP/1.".to_vec();
        let (id, server) = done_by(desk, vec![half, cut, answer("200 OK", "", "1")], &[]);
        assert_eq!(desk.outcomes(id), ["retried", "retried", "done"]);
        assert!(desk.errors(id).contains(" broke: "), "{}", desk.errors(id));
        assert_eq!(server.asked().len(), 3);
    });
}

#[test]
fn a_broken_answer_is_a_doubt_and_is_parked_where_that_was_asked_for() {
    on_each(|desk| {
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\":".to_vec();
        let (id, server) = done_by(desk, vec![half], &["--on-unknown", "park"]);
        assert_eq!(desk.inspect(id)["job"]["state"], "case");
        assert_eq!(desk.inspect(id)["effects"][0]["state"], "uncertain");
        assert_eq!(server.asked().len(), 1);
    });
}

#[test]
fn a_server_that_is_not_there_was_not_asked() {
    on_each(|desk| {
        let server = Server::start(vec![answer("200 OK", "", "")]);
        let gone = server.url.clone();
        drop(server);
        let id = desk.enqueue("mail", "{}", &["--attempts", "1"]);
        // With `park` a doubt would make a case; this is not a doubt.
        desk.work(&["--http", &format!("mail={gone}"), "--on-unknown", "park"]);
        assert_eq!(desk.outcomes(id), ["retired"]);
        assert_eq!(desk.inspect(id)["effects"][0]["state"], "undone");
        assert!(
            desk.errors(id).contains("could not connect to http"),
            "{}",
            desk.errors(id)
        );
    });
}

#[test]
fn a_silent_server_is_left_at_the_time_limit() {
    on_each(|desk| {
        let (id, server) = done_by(desk, vec![Vec::new(), answer("200 OK", "", "1")], &["--timeout", "3s"]);
        assert_eq!(desk.outcomes(id), ["retried", "done"]);
        assert!(
            desk.errors(id).contains("did not answer within 3s"),
            "{}",
            desk.errors(id)
        );
        assert_eq!(server.asked().len(), 2);
    });
}

#[test]
fn an_answer_over_the_limit_is_cut() {
    on_each(|desk| {
        let (id, _server) = done_by(
            desk,
            vec![answer("200 OK", "", &"y".repeat(3_000_000))],
            &["--output-max", "10"],
        );
        assert_eq!(desk.outcomes(id), ["done"]);
        assert_eq!(desk.inspect(id)["job"]["result"], "yyyyyyyyyy… (cut)");
    });
}

#[test]
fn a_server_behind_tls_is_called_only_if_its_certificate_is_trusted() {
    on_each(|desk| {
        let server = Server::start_tls(vec![answer("200 OK", "", "1")]);
        let target = format!("mail={}", server.url);
        let args = ["work", "--until-empty", "--http", &target];
        let trusted = desk.enqueue("mail", "{}", &["--attempts", "1"]);
        let mut command = desk.command(&args);
        command.env("SSL_CERT_FILE", ca_file());
        assert_eq!(common::said(command).code, Some(0));
        assert_eq!(desk.outcomes(trusted), ["done"], "{}", desk.errors(trusted));
        assert_eq!(server.asked().len(), 1);

        let not_trusted = desk.enqueue("mail", "{}", &["--attempts", "1"]);
        let mut command = desk.command(&args);
        command.env_remove("SSL_CERT_FILE");
        let said = common::said(command);
        match said.code {
            Some(0) => {
                let error = desk.errors(not_trusted);
                assert!(
                    error.contains("could not connect to https") && error.contains(": invalid peer certificate"),
                    "{error}"
                );
                assert_eq!(desk.inspect(not_trusted)["effects"][0]["state"], "undone");
            }
            // A machine without any certificate.
            code => assert!(
                code == Some(1) && said.err.contains("trusts no certificate"),
                "{}",
                said.err
            ),
        }
        assert_eq!(server.asked().len(), 1);
    });
}
