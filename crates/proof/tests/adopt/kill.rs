//! Four worker processes that are killed all the time, and one that is killed right before its commit.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use proof::{bed::until, child::Lines};

use super::bed::fill;
use crate::steps::{catalog::script, session::Bed};

const SNOOZER: &str = env!("CARGO_BIN_EXE_snoozer");

/// Rows of a run in the suite; `ROWLOCK_ADOPT_ROWS` names another number, such as 100000.
const ROWS: i64 = 3000;
const WORKERS: usize = 4;

/// A worker process; killed when it is dropped.
struct Snoozer {
    child: Child,
    lines: Lines,
}

impl Snoozer {
    fn start(url: &str, fault: Option<&str>) -> Snoozer {
        let mut command = Command::new(SNOOZER);
        command
            .args([url, "email_snoozes"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if let Some(fault) = fault {
            command.env("ROWLOCK_FAULT", fault);
        }
        let mut child = command.spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        Snoozer { child, lines }
    }

    async fn says(&self, line: &str) {
        until(line, Duration::from_secs(30), || async {
            self.lines.have(line).then_some(())
        })
        .await;
    }

    /// SIGKILL.
    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Snoozer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn a_worker_killed_right_before_its_commit_leaves_nothing_behind(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let mut first = Snoozer::start(&bed.url, Some("before-commit"));
    first.says("at before-commit").await;
    first.kill();
    assert_eq!(bed.count("select count(*) from sent").await, 0);
    let _second = Snoozer::start(&bed.url, None);
    drained(&mut bed).await;
    assert_eq!(bed.count("select count(*) from sent").await, 1);
    assert_eq!(
        bed.count("select attempts::bigint from email_snoozes").await,
        1,
        "the lost attempt counts"
    );
}

async fn drained(bed: &mut Bed) {
    let eye = tokio::sync::Mutex::new(&mut bed.eye);
    until("every row to be inactive", Duration::from_secs(280), || async {
        let active = "select exists (select from email_snoozes where not inactive)";
        let active: bool = sqlx::query_scalar(active)
            .fetch_one(&mut **eye.lock().await)
            .await
            .unwrap();
        (!active).then_some(())
    })
    .await;
}

async fn every_reminder_is_sent_once_by_workers_that_are_killed_all_the_time(mut bed: Bed) {
    let rows = std::env::var("ROWLOCK_ADOPT_ROWS").map_or(ROWS, |rows| rows.parse().unwrap());
    fill(&mut bed.eye, rows).await;
    script(
        &mut bed.eye,
        "update email_snoozes set user_email = 'nobody' where id % 200 = 7",
    )
    .await
    .unwrap();
    script(
        &mut bed.eye,
        "update email_snoozes set subject = null where id % 200 = 107",
    )
    .await
    .unwrap();
    script(&mut bed.eye, "analyze email_snoozes").await.unwrap();
    let poison = bed
        .count("select count(*) from email_snoozes where user_email = 'nobody' or subject is null")
        .await;
    let mut crew: Vec<Snoozer> = (0..WORKERS).map(|_| Snoozer::start(&bed.url, None)).collect();
    let kills = 12;
    for kill in 1..=kills {
        // Each part of the work sees a kill.
        let (eye, wanted) = (tokio::sync::Mutex::new(&mut bed.eye), rows * kill / (kills + 4));
        until("some more rows to be done", Duration::from_secs(200), || async {
            let done = "select count(*) from email_snoozes where inactive";
            let done: i64 = sqlx::query_scalar(done)
                .fetch_one(&mut **eye.lock().await)
                .await
                .unwrap();
            (done >= wanted).then_some(())
        })
        .await;
        let number = fastrand::usize(..WORKERS);
        crew[number].kill();
        crew[number] = Snoozer::start(&bed.url, None);
    }
    drained(&mut bed).await;
    drop(crew);

    let sent = bed.count("select count(*) from sent").await;
    let rows_sent = bed.count("select count(distinct id) from sent").await;
    assert_eq!((rows_sent, sent), (rows - poison, rows - poison), "lost or doubled");
    let retired = "select count(*) from email_snoozes where inactive and claim_token is null
        and (last_error = '\"nobody\" is no address' or last_error like 'the row cannot be read: %')";
    assert_eq!(bed.count(retired).await, poison);
    assert_eq!(bed.count("select count(*) from rowlock.case_file").await, poison);
    assert_eq!(
        bed.count("select count(*) from email_snoozes where last_error is not null")
            .await,
        poison
    );
}

on_postgresql!(
    a_worker_killed_right_before_its_commit_leaves_nothing_behind,
    every_reminder_is_sent_once_by_workers_that_are_killed_all_the_time,
);
