//! S6: the same drain over empty tables, over a large backlog and beside a large history.
//!
//! The rows are written by SQL straight into the library's own tables, in its partitions: through the API ten million
//! would take longer than the whole run. Each state is filled once; the rounds go through the three in turn. How long
//! the server worked on each claim is read from its log, switched on for these databases: a claim takes hundreds of
//! jobs, so a line for each costs nothing.

use anyhow::{Context, Result};
use sqlx::Connection;

use crate::bench::{Attempt, Bench};
use crate::lanes::idle::read_from;
use crate::place::Place;
use crate::programs::{Kind, Program, Role};
use crate::sample::Ended;
use crate::server;
use crate::verb::{self, Said};

/// The job whose like is written.
pub(super) const PATTERN: [&str; 7] = ["enqueue", "--jobs", "1", "--payload", "200", "--kind", "noop"];
/// Rows per statement.
const CHUNK: u64 = 500_000;
const CASES: [&str; 3] = ["fill-empty", "fill-backlog", "fill-history"];

/// What is written into the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rows {
    /// Due now.
    Backlog,
    /// Due in a day.
    Future,
    /// Done.
    History,
    /// Due now, spread over this many queues that nobody serves.
    Crowd(u64),
}

/// Fills the three states, then drains each in every round.
pub(super) async fn run(bench: &mut Bench) {
    let Some(program) = bench
        .run
        .programs
        .all
        .iter()
        .find(|program| program.role == Role::Ours)
        .cloned()
    else {
        return;
    };
    let mut places: Vec<(&str, Place)> = Vec::new();
    for case in CASES {
        let attempt = attempt(bench, case, &program, 0);
        let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
            return remove(bench, places).await;
        };
        places.push((case, place));
    }
    let count = bench.run.sizes.filled;
    bench
        .progress
        .note(&format!("writing {count} rows of backlog and of history"));
    // Both at the same time: each is one connection's work.
    let filled = tokio::join!(
        prepare(bench, &program, &places[0].1, None),
        prepare(bench, &program, &places[1].1, Some(Rows::Backlog)),
        prepare(bench, &program, &places[2].1, Some(Rows::History)),
    );
    let filled = [filled.0, filled.1, filled.2];
    let mut ready = Vec::new();
    for ((case, place), filled) in places.into_iter().zip(filled) {
        match filled {
            Ok(()) => ready.push((case, place)),
            Err(error) => {
                let attempt = attempt(bench, case, &program, 0);
                bench.record(attempt.sample(Ended::Failed).note(format!("{error:#}")));
                place.remove(&bench.server).await;
            }
        }
    }
    if let Err(error) = bench.server.execute("checkpoint").await {
        bench.progress.note(&format!("{error:#}"));
    }
    for round in 0..bench.run.sizes.rounds {
        for (case, place) in &ready {
            one(bench, &attempt(bench, case, &program, round), place).await;
        }
    }
    remove(bench, ready).await;
}

async fn remove(bench: &Bench, places: Vec<(&str, Place)>) {
    for (_, place) in places {
        place.remove(&bench.server).await;
    }
}

fn attempt<'a>(bench: &Bench, case: &'a str, program: &'a Program, round: usize) -> Attempt<'a> {
    Attempt {
        case,
        program,
        round,
        jobs: bench.run.sizes.filled_drain,
        limit_s: 120,
    }
}

async fn prepare(bench: &Bench, program: &Program, place: &Place, rows: Option<Rows>) -> Result<()> {
    let Place::Postgres { name, url } = place else {
        anyhow::bail!("only on PostgreSQL");
    };
    if let Some(rows) = rows {
        fill(program, url, &PATTERN, rows, bench.run.sizes.filled).await?;
    }
    let settings = ["log_min_duration_statement = 0", "log_parameter_max_length = 0"];
    for setting in settings {
        bench
            .server
            .execute(&format!("alter database {name} set {setting}"))
            .await?;
    }
    Ok(())
}

async fn one(bench: &mut Bench, attempt: &Attempt<'_>, place: &Place) {
    let (count, payload) = (attempt.jobs.to_string(), bench.run.sizes.payload.to_string());
    let enqueue = ["enqueue", "--jobs", &count, "--payload", &payload, "--kind", "noop"];
    // The backlog is full already: its first jobs are the ones drained.
    if attempt.case != "fill-backlog" && !bench.prepared(attempt, place, &enqueue).await {
        return;
    }
    let from = bench.server.log.metadata().map(|data| data.len()).unwrap_or_default();
    let words = ["drain", "--jobs", &count, "--kind", "noop", "--part", "true"];
    let mut sample = bench.measure(attempt, place, &words).await;
    if let Place::Postgres { name, .. } = place
        && sample.ended == Ended::Measured
        && let Some((count, ms)) = read_from(&bench.server.log, from)
            .ok()
            .and_then(|log| claim_times(&log, name))
    {
        sample = sample
            .with("claims", count as f64)
            .with("claim_ms", ms / count as f64)
            .with("claim_us_per_job", ms * 1000.0 / attempt.jobs as f64);
    }
    bench.record(sample);
}

/// Claims in a log with durations, and their milliseconds in all: binding plans them, executing runs them.
fn claim_times(log: &str, database: &str) -> Option<(usize, f64)> {
    let mark = format!(" db={database} LOG:  duration: ");
    let (mut count, mut total) = (0, 0.0);
    for entry in entries(log) {
        let Some((_, rest)) = entry.split_once(&mark) else {
            continue;
        };
        // The one statement that moves rows from ready into leases.
        if !(rest.contains("delete from rowlock.ready") && rest.contains("insert into rowlock.lease")) {
            continue;
        }
        let Some((ms, what)) = rest.split_once(" ms  ") else {
            continue;
        };
        total += ms.trim().parse::<f64>().unwrap_or_default();
        count += usize::from(what.starts_with("execute"));
    }
    (count > 0).then_some((count, total))
}

/// The entries of a log, each with its further lines, which begin with a tab.
fn entries(log: &str) -> Vec<String> {
    let mut entries: Vec<String> = Vec::new();
    for line in log.lines() {
        match entries.last_mut() {
            Some(entry) if line.starts_with('\t') => {
                entry.push(' ');
                entry.push_str(line.trim_start());
            }
            _ => entries.push(line.to_owned()),
        }
    }
    entries
}

/// Writes rows of the shape that the program itself writes: one job that it enqueues is the pattern, and is removed.
pub(super) async fn fill(program: &Program, url: &str, pattern: &[&str], rows: Rows, count: u64) -> Result<()> {
    let said = verb::run(program, url, pattern, 30).await;
    anyhow::ensure!(
        matches!(said, Said::Done(_)),
        "the pattern could not be enqueued: {said:?}"
    );
    let mut connection = server::open(url).await?;
    let run = async {
        server::execute(
            &mut connection,
            "create table bench_pattern as
            select j.kind, j.version, j.queue, j.priority, j.attempts_max, j.position, r.queue_no, r.kind_no
            from rowlock.job j join rowlock.ready r using (id) limit 1",
        )
        .await?;
        server::execute(&mut connection, "delete from rowlock.ready; delete from rowlock.job").await?;
        server::execute(&mut connection, "select setval('rowlock.job_id', 1)").await?;
        server::execute(
            &mut connection,
            &format!("select rowlock.make_partitions(1, {})", count + 10_000_000),
        )
        .await?;
        more(&mut connection, rows, 1, count).await?;
        server::execute(&mut connection, &format!("select setval('rowlock.job_id', {count})")).await?;
        // As a server that has lived with these rows would have done.
        for table in ["job", "ready", "outcome"] {
            server::execute(&mut connection, &format!("vacuum analyze rowlock.{table}")).await?;
        }
        anyhow::Ok(())
    };
    let result = run.await.context("could not write the rows");
    connection.close().await?;
    result
}

/// Writes such rows under these ids; the pattern must be there.
pub(super) async fn more(connection: &mut sqlx::PgConnection, rows: Rows, mut from: u64, last: u64) -> Result<()> {
    while from <= last {
        let to = (from + CHUNK - 1).min(last);
        server::execute(connection, &bodies(rows, from, to)).await?;
        server::execute(connection, &places(rows, from, to)).await?;
        from = to + 1;
    }
    Ok(())
}

fn bodies(rows: Rows, from: u64, to: u64) -> String {
    let queue = match rows {
        Rows::Crowd(queues) => format!("'other' || n % {queues}"),
        Rows::Backlog | Rows::Future | Rows::History => "p.queue".to_owned(),
    };
    format!(
        "insert into rowlock.job (id, uid, kind, version, queue, priority, attempts_max, payload, position, created_at)
         select n, gen_random_uuid(), p.kind, p.version, {queue}, p.priority, p.attempts_max,
           ('{{\"number\":' || n || ',\"fill\":\"' || repeat(md5(n::text), 5) || '\"}}')::json, p.position, now()
         from bench_pattern p cross join generate_series({from}, {to}) n"
    )
}

fn places(rows: Rows, from: u64, to: u64) -> String {
    let (queue_no, due) = match rows {
        Rows::Backlog => ("p.queue_no".to_owned(), "now()"),
        Rows::Future => ("p.queue_no".to_owned(), "now() + interval '1 day'"),
        // Any number that is not that of a served queue: such rows are on both sides of the served ones in the index.
        Rows::Crowd(queues) => (format!("hashtextextended('other' || n % {queues}, 0)"), "now()"),
        Rows::History => {
            return format!(
                "insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
                 select n, 1, 1, 1, 'done', now(), now() from generate_series({from}, {to}) n"
            );
        }
    };
    format!(
        "insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
         select {queue_no}, p.kind_no, false, p.priority, {due}, n, 0, 0, p.attempts_max
         from bench_pattern p cross join generate_series({from}, {to}) n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_claims_are_timed_and_their_planning_with_them() {
        let log = "\
t [7] db=bench_3 LOG:  duration: 0.500 ms  bind sqlx_s_1: -- Takes up to
\twith taken as (delete from rowlock.ready where x), held as (
\tinsert into rowlock.lease (id) select 1)
t [7] db=bench_3 LOG:  duration: 3.500 ms  execute sqlx_s_1: -- Takes up to
\twith taken as (delete from rowlock.ready where x), held as (
\tinsert into rowlock.lease (id) select 1)
t [7] db=bench_3 LOG:  duration: 9.000 ms  execute sqlx_s_2: delete from rowlock.lease
t [7] db=bench_4 LOG:  duration: 9.000 ms  execute a: delete from rowlock.ready insert into rowlock.lease
";
        assert_eq!(claim_times(log, "bench_3"), Some((1, 4.0)));
        assert_eq!(claim_times(log, "bench_5"), None);
    }
}
