//! S4: from the commit of a job to the start of its handler.

use crate::bench::{Attempt, Bench};
use crate::programs::{Kind, Program, Role};
use crate::sample::{Ended, Sample};
use crate::stats::percentile;
use crate::verb::{self, Said};

/// Half of what a small machine gets through, when this run has not measured it.
const LOAD_PER_S: f64 = 5_000.0;

/// Peers once, ours in every round and in three ways: woken, polling only, and at half load.
pub(super) async fn run(bench: &mut Bench) {
    for round in 0..bench.run.sizes.rounds {
        for program in bench.order(Kind::Postgres, round) {
            match program.role {
                Role::Ours => {
                    one(bench, &program, round, "pickup", &[]).await;
                    one(bench, &program, round, "pickup-poll", &["--poll-only"]).await;
                    let load = half_load(bench);
                    one(bench, &program, round, "pickup-load", &["--load", &load]).await;
                }
                Role::Peer if round == 0 => one(bench, &program, round, "pickup", &[]).await,
                Role::Peer | Role::Ceiling => {}
            }
        }
    }
}

fn half_load(bench: &Bench) -> String {
    let life = bench.run.samples.median("life", "ours", "per_s");
    format!("{:.0}", life.map_or(LOAD_PER_S, |life| life / 2.0))
}

async fn one(bench: &mut Bench, program: &Program, round: usize, case: &str, more: &[&str]) {
    let attempt = Attempt {
        case,
        program,
        round,
        jobs: bench.run.sizes.pickups,
        limit_s: bench.run.sizes.limit_s + 15,
    };
    let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
        return;
    };
    let count = attempt.jobs.to_string();
    let mut words = vec!["pickup", "--jobs", &count, "--every-ms", "50"];
    words.extend(more);
    let said = verb::run(program, &place.url(), &words, attempt.limit_s).await;
    bench.record(judge(&attempt, &said));
    place.remove(&bench.server).await;
}

fn judge(attempt: &Attempt<'_>, said: &Said) -> Sample {
    let lines = match said {
        Said::Unsupported(why) => return attempt.sample(Ended::Unsupported).note(why),
        Said::Failed(why) => return attempt.sample(Ended::Failed).note(why),
        Said::Stalled { .. } => return attempt.sample(Ended::Stalled).note("did not end in its time"),
        Said::Done(lines) => lines,
    };
    let line = lines.last().cloned().unwrap_or_default();
    let us = line["us"].as_array().cloned().unwrap_or_default();
    let ms: Vec<f64> = us.iter().filter_map(|us| us.as_f64()).map(|us| us / 1000.0).collect();
    let missing = line["missing"].as_f64().unwrap_or_default();
    let ended = if missing > 0.0 { Ended::Stalled } else { Ended::Measured };
    let mut sample = attempt.sample(ended).with("missing", missing);
    for (name, percent) in [("p50_ms", 50.0), ("p95_ms", 95.0), ("p99_ms", 99.0), ("max_ms", 100.0)] {
        if let Some(value) = percentile(&ms, percent) {
            sample = sample.with(name, value);
        }
    }
    if let Some(load) = line["load_per_second"].as_f64() {
        sample = sample.with("load_per_s", load);
    }
    if missing > 0.0 {
        sample = sample.note(format!("{missing} of {} jobs were not started", attempt.jobs));
    }
    sample.series = ms;
    sample
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_job_that_was_not_started_is_a_stall() {
        let program = Program::for_test("true", &[]);
        let attempt = Attempt {
            case: "pickup",
            program: &program,
            round: 0,
            jobs: 3,
            limit_s: 10,
        };
        let said = |missing| {
            Said::Done(vec![
                json!({"event": "pickup", "us": [1000, 3000, 2000], "missing": missing}),
            ])
        };
        let sample = judge(&attempt, &said(0));
        assert_eq!((sample.ended, sample.values["p50_ms"]), (Ended::Measured, 2.0));
        assert_eq!(sample.values["max_ms"], 3.0);
        assert_eq!(judge(&attempt, &said(1)).ended, Ended::Stalled);
    }
}
