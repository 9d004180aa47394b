//! Q1: a drain beside two million finished and half a million live jobs, alone and while somebody looks on.
//!
//! The reader asks for the status, the newest jobs, the newest of one state and the open cases, as the command line
//! and a dashboard do, once a second, from a separate process: this one.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rowlock::{Admin, State, observe::JobFilter};
use sqlx::Connection;

use super::store::{PATTERN, Rows, fill, more};
use crate::bench::{Attempt, Bench};
use crate::place::Place;
use crate::programs::{Kind, Program, Role};
use crate::sample::Ended;
use crate::server;
use crate::stats::spread;

const EVERY: Duration = Duration::from_secs(1);

/// What is asked, and the milliseconds that each answer took.
pub(crate) const ASKED: [&str; 5] = ["status", "jobs", "jobs_ready", "jobs_finished", "cases"];

type Took = Arc<Mutex<BTreeMap<&'static str, Vec<f64>>>>;

pub(super) async fn run(bench: &mut Bench) {
    let ours = bench.run.programs.all.iter().find(|program| program.role == Role::Ours);
    let Some(program) = ours.cloned() else { return };
    let first = attempt(bench, "look-on", &program, 0);
    let Some(place) = bench.fresh(Kind::Postgres, &first).await else {
        return;
    };
    let (finished, live) = (bench.run.sizes.finished, bench.run.sizes.live);
    bench
        .progress
        .note(&format!("writing {finished} finished and {live} live jobs"));
    if let Err(error) = prepare(&program, &place.url(), finished, live).await {
        bench.record(first.sample(Ended::Failed).note(format!("{error:#}")));
        return place.remove(&bench.server).await;
    }
    for round in 0..bench.run.sizes.rounds {
        let mut cases = ["look-on", "look-none"];
        cases.rotate_left(round % 2);
        for case in cases {
            one(bench, &attempt(bench, case, &program, round), &place).await;
        }
    }
    place.remove(&bench.server).await;
}

fn attempt<'a>(bench: &Bench, case: &'a str, program: &'a Program, round: usize) -> Attempt<'a> {
    Attempt {
        case,
        program,
        round,
        jobs: bench.run.sizes.looked,
        limit_s: 120,
    }
}

/// A hundredth of the live ones are cases, under three errors.
async fn prepare(program: &Program, url: &str, finished: u64, live: u64) -> Result<()> {
    fill(program, url, &PATTERN, Rows::History, finished).await?;
    let mut connection = server::open(url).await?;
    more(&mut connection, Rows::Backlog, finished + 1, finished + live).await?;
    let cases = format!(
        "with gone as (delete from rowlock.ready where id > {} returning *)
         insert into rowlock.case_file
           (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history, error_no)
         select id, 1, 1, attempts_max, queue_no, kind_no, priority, 'card ' || id || ' was declined', now(), '[]', id % 3
         from gone",
        finished + live - live / 100
    );
    server::execute(&mut connection, &cases).await?;
    let errors = "insert into rowlock.case_error select n, 'error ' || n, now(), now(), 1 from generate_series(0, 2) n";
    server::execute(&mut connection, errors).await?;
    let id = format!("select setval('rowlock.job_id', {})", finished + live);
    server::execute(&mut connection, &id).await?;
    server::execute(&mut connection, "vacuum analyze").await?;
    connection.close().await.context("could not write the rows")
}

async fn one(bench: &mut Bench, attempt: &Attempt<'_>, place: &Place) {
    let count = attempt.jobs.to_string();
    // As many as are drained, so that there are always as many live ones.
    if !bench
        .prepared(attempt, place, &["enqueue", "--jobs", &count, "--kind", "noop"])
        .await
    {
        return;
    }
    let took = Took::default();
    let onlooker = (attempt.case == "look-on").then(|| tokio::spawn(look(place.url(), took.clone())));
    let words = ["drain", "--jobs", &count, "--kind", "noop", "--part", "true"];
    let mut sample = bench.measure(attempt, place, &words).await;
    if let Some(onlooker) = onlooker {
        onlooker.abort();
        // Cut short it is no error; one that ended by itself has met one.
        if let Ok(Err(error)) = onlooker.await {
            sample = sample.note(format!("{error:#}"));
        }
    }
    for (asked, took) in took.lock().unwrap_or_else(PoisonError::into_inner).iter() {
        let Some(spread) = spread(took) else { continue };
        sample = sample
            .with(&format!("{asked}_ms"), spread.median)
            .with(&format!("{asked}_max_ms"), spread.max);
    }
    bench.record(sample);
}

/// Looks until it is cut short.
async fn look(url: String, took: Took) -> Result<()> {
    let observe = Admin::open(&url, "rowlock")?.observe();
    let of = |state| JobFilter::new().state(state).limit(50);
    let newest = JobFilter::new().limit(50);
    let mut tick = tokio::time::interval(EVERY);
    loop {
        tick.tick().await;
        for asked in ASKED {
            let began = Instant::now();
            match asked {
                "status" => drop(observe.status().await?),
                "jobs" => drop(observe.jobs(&newest).await?),
                "jobs_ready" => drop(observe.jobs(&of(State::Ready)).await?),
                "jobs_finished" => drop(observe.jobs(&of(State::Finished)).await?),
                _ => drop((observe.cases(50).await?, observe.case_errors(50).await?)),
            }
            let ms = began.elapsed().as_secs_f64() * 1000.0;
            let mut took = took.lock().unwrap_or_else(PoisonError::into_inner);
            took.entry(asked).or_default().push(ms);
        }
    }
}
