//! S5: throughput while an old transaction stays open, which keeps every dead row from being removed.

use std::time::Duration;

use anyhow::{Context, Result};
use sqlx::Connection;
use sqlx::postgres::PgConnection;

use crate::bench::{Attempt, Bench};
use crate::place::Place;
use crate::programs::{Kind, Program, Role};
use crate::sample::{Ended, Sample};
use crate::server;
use crate::stats::mean;
use crate::verb::Running;

/// Start-up is not part of the first part: it would make the last look better than it is.
const WARM_S: usize = 2;
/// A program that says nothing for this long has stalled.
const SILENCE: Duration = Duration::from_secs(15);

/// Ours for the whole time, peers for a part of it, each once.
pub(super) async fn run(bench: &mut Bench) {
    for program in bench.order(Kind::Postgres, 0) {
        let seconds = match program.role {
            Role::Ours => bench.run.sizes.hold_ours_s,
            Role::Peer => bench.run.sizes.hold_peers_s,
            Role::Ceiling => continue,
        };
        let attempt = Attempt {
            case: "hold",
            program: &program,
            round: 0,
            jobs: 0,
            limit_s: seconds + 30,
        };
        let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
            continue;
        };
        match held(bench, &program, &place, seconds).await {
            Ok(series) => bench.record(judge(&attempt, series, seconds)),
            Err(error) => {
                let text = format!("{error:#}");
                let ended = if text.contains("unsupported") {
                    Ended::Unsupported
                } else {
                    Ended::Failed
                };
                bench.record(attempt.sample(ended).note(text));
            }
        }
        place.remove(&bench.server).await;
    }
}

async fn held(bench: &Bench, program: &Program, place: &Place, seconds: u64) -> Result<Vec<f64>> {
    let mut old = hold_snapshot(&place.url()).await?;
    let (count, limit) = (seconds.to_string(), (seconds + 30).to_string());
    let words = ["hold", "--seconds", &count, "--limit-s", &limit];
    let mut running = Running::start(program, &place.url(), &words)?;
    let mut series = Vec::new();
    while (series.len() as u64) < seconds {
        match running.wait_for("second", SILENCE).await {
            Ok(line) => series.push(line["done"].as_f64().unwrap_or_default()),
            Err(error) if series.is_empty() => return Err(error),
            Err(error) => {
                bench.progress.note(&format!("{}: {error:#}", program.name));
                break;
            }
        }
        if series.len().is_multiple_of(60) || series.len() == 10 {
            let latest = mean(&series[series.len().saturating_sub(10)..]).unwrap_or_default();
            let at = series.len();
            bench
                .progress
                .note(&format!("{} at {at} s: {latest:.0} jobs/s", program.name));
        }
    }
    // The snapshot must have been there to the end, or the figure means nothing.
    server::execute(&mut old, "select count(*) from bench_account")
        .await
        .context("the held transaction was lost")?;
    server::execute(&mut old, "rollback").await?;
    old.close().await.context("could not end the held transaction")?;
    Ok(series)
}

/// Opens a transaction whose snapshot keeps what dies from now on.
async fn hold_snapshot(url: &str) -> Result<PgConnection> {
    let mut connection = server::open(url).await?;
    server::execute(&mut connection, "begin isolation level repeatable read").await?;
    server::execute(&mut connection, "select count(*) from bench_account").await?;
    Ok(connection)
}

/// Compares the first part of the time with the last.
fn judge(attempt: &Attempt<'_>, series: Vec<f64>, seconds: u64) -> Sample {
    let part = part_of(seconds);
    let whole = series.len() as u64 == seconds;
    let mut sample = attempt.sample(if whole { Ended::Measured } else { Ended::Stalled });
    if !whole {
        sample = sample.note(format!("silent after {} of {seconds} s", series.len()));
    }
    let first: Vec<f64> = series.iter().copied().skip(WARM_S).take(part).collect();
    let first = mean(&first);
    let last = mean(&series[series.len().saturating_sub(part)..]);
    if let (Some(first), Some(last), Some(all)) = (first, last, mean(&series)) {
        sample = sample
            .with("first_per_s", first)
            .with("last_per_s", last)
            .with("per_s", all)
            .with("held_s", seconds as f64);
        if first > 0.0 {
            sample = sample.with("kept", last / first);
        }
    }
    sample.series = series;
    sample
}

/// A minute of ten, ten seconds of one.
pub(crate) fn part_of(seconds: u64) -> usize {
    (seconds / 10).clamp(10.min(seconds / 2), 60) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_part_is_held_against_the_first() {
        assert_eq!((part_of(600), part_of(60), part_of(20)), (60, 10, 10));
        let program = Program::for_test("true", &[]);
        let attempt = Attempt {
            case: "hold",
            program: &program,
            round: 0,
            jobs: 0,
            limit_s: 10,
        };
        let series: Vec<f64> = [100.0; 30].into_iter().chain([50.0; 30]).collect();
        let sample = judge(&attempt, series.clone(), 60);
        assert_eq!((sample.values["kept"], sample.ended), (0.5, Ended::Measured));
        assert_eq!(judge(&attempt, series, 90).ended, Ended::Stalled);
    }
}
