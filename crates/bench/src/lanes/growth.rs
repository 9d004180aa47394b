//! S10, C1, G1 and the growth benchmarks: more processes, more rows that are not due, more queues, more kinds, larger
//! payloads, groups. Ours only.

use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::{Attempt, Bench};
use crate::lanes::store::{PATTERN, Rows, fill};
use crate::place::Place;
use crate::programs::{Kind, Program, Role};
use crate::sample::{Ended, Sample};
use crate::verb::{self, Said};

/// How many processes share one backlog.
pub(crate) const PROCESSES: [usize; 5] = [1, 2, 4, 8, 16];
/// Queues the worker serves, of however many there are.
const SERVED: usize = 100;
/// Jobs in each queue that is only there.
const JOBS_PER_QUEUE: u64 = 10;

fn ours(bench: &Bench) -> Option<Arc<Program>> {
    bench
        .run
        .programs
        .all
        .iter()
        .find(|program| program.role == Role::Ours)
        .cloned()
}

/// S10: several worker processes over one backlog.
pub(super) async fn share(bench: &mut Bench) {
    let Some(program) = ours(bench) else { return };
    for round in 0..bench.run.sizes.rounds {
        for processes in PROCESSES {
            let case = format!("share-{processes}");
            let attempt = Attempt {
                case: &case,
                program: &program,
                round,
                jobs: bench.run.sizes.share,
                limit_s: bench.run.sizes.limit_s,
            };
            let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
                continue;
            };
            let (count, payload) = (attempt.jobs.to_string(), bench.run.sizes.payload.to_string());
            let enqueue = ["enqueue", "--jobs", &count, "--payload", &payload, "--kind", "noop"];
            if bench.prepared(&attempt, &place, &enqueue).await {
                let sample = share_one(&attempt, &place, processes).await;
                bench.record(sample);
            }
            place.remove(&bench.server).await;
        }
    }
}

async fn share_one(attempt: &Attempt<'_>, place: &Place, processes: usize) -> Sample {
    let started = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..processes {
        let (url, file, limit_s) = (place.url(), attempt.program.again(), attempt.limit_s);
        let count = attempt.jobs.to_string();
        running.spawn(async move {
            let words = ["drain", "--jobs", &count, "--kind", "noop", "--share", "true"];
            verb::run(&file, &url, &words, limit_s).await
        });
    }
    let mut ended = Vec::new();
    while let Some(said) = running.join_next().await {
        ended.push(said.unwrap_or_else(|error| Said::Failed(error.to_string())));
    }
    judge_share(attempt, &ended, started.elapsed().as_secs_f64())
}

/// All the jobs by the time from the first worker's start to the last completion, where the programs say when that was.
fn judge_share(attempt: &Attempt<'_>, ended: &[Said], wall_s: f64) -> Sample {
    let mut lines: Vec<Value> = Vec::new();
    for said in ended {
        match said {
            Said::Done(said) => lines.extend(said.last().cloned()),
            Said::Unsupported(why) => return attempt.sample(Ended::Unsupported).note(why),
            Said::Failed(why) => return attempt.sample(Ended::Failed).note(why),
            Said::Stalled { .. } => return attempt.sample(Ended::Stalled).note("a process did not end"),
        }
    }
    let numbers = |name: &str| lines.iter().filter_map(|line| line[name].as_f64()).collect::<Vec<_>>();
    let jobs: f64 = numbers("jobs").iter().sum();
    if jobs != attempt.jobs as f64 {
        let text = format!("the processes did {jobs} jobs of {}", attempt.jobs);
        return attempt.sample(Ended::Failed).note(text);
    }
    // A process that came too late for any job says nothing about when the last was done.
    let began = numbers("began_us").into_iter().reduce(f64::min);
    let last = numbers("ended_us").into_iter().reduce(f64::max);
    let seconds = began.zip(last).map_or(wall_s, |(began, last)| (last - began) / 1e6);
    let least = numbers("jobs").into_iter().fold(f64::INFINITY, f64::min);
    attempt
        .sample(Ended::Measured)
        .with("per_s", jobs / seconds)
        .with("seconds", seconds)
        .with("wall_s", wall_s)
        .with("least_jobs", least)
}

/// The growth benchmarks beside S6 and S10.
pub(super) async fn run(bench: &mut Bench) {
    let Some(program) = ours(bench) else { return };
    for round in 0..bench.run.sizes.rounds {
        plain(bench, &program, round, "grow-base", None).await;
        plain(bench, &program, round, "grow-future", Some(bench.run.sizes.future)).await;
        queues(bench, &program, round, "grow-queues-base", false).await;
        queues(bench, &program, round, "grow-queues", true).await;
        kinds(bench, &program, round, "grow-kinds-1", "1").await;
        kinds(bench, &program, round, "grow-kinds-50", "50").await;
        let (many, few) = (bench.run.sizes.growth, bench.run.sizes.growth_wide);
        for (case, bytes, jobs) in [
            ("grow-payload-200", "200", many),
            ("grow-payload-2048", "2048", many),
            ("grow-payload-65536", "65536", few),
        ] {
            payload(bench, &attempt(bench, case, &program, round, jobs), bytes).await;
        }
    }
}

/// C1: the claim's statement, against the one from before breakers, groups and traces.
pub(super) async fn claims(bench: &mut Bench) {
    let Some(program) = ours(bench) else { return };
    for round in 0..bench.run.sizes.rounds {
        let mut cases = [("claims", "now"), ("claims-before", "before")];
        cases.rotate_left(round % 2);
        for (case, mode) in cases {
            let attempt = attempt(bench, case, &program, round, bench.run.sizes.noop);
            let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
                continue;
            };
            let count = attempt.jobs.to_string();
            let enqueue = ["enqueue", "--jobs", &count, "--kind", "noop"];
            if bench.prepared(&attempt, &place, &enqueue).await {
                let words = ["claims", "--jobs", &count, "--mode", mode];
                bench.timed(&attempt, &place, &words).await;
            }
            place.remove(&bench.server).await;
        }
    }
}

/// G1: as many groups as jobs, beside one with a long line behind a head that is not due; against jobs of no group.
pub(super) async fn groups(bench: &mut Bench) {
    let Some(program) = ours(bench) else { return };
    for round in 0..bench.run.sizes.rounds {
        let mut cases = ["groups-none", "groups-many"];
        cases.rotate_left(round % 2);
        for case in cases {
            let attempt = attempt(bench, case, &program, round, bench.run.sizes.groups);
            let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
                continue;
            };
            let grouped = case == "groups-many";
            let (count, line) = (attempt.jobs.to_string(), (attempt.jobs / 5).to_string());
            let hot = [
                "enqueue",
                "--jobs",
                &line,
                "--kind",
                "noop",
                "--groups",
                "1",
                "--after-s",
                "86400",
            ];
            let spread = if grouped { count.as_str() } else { "0" };
            let enqueue = ["enqueue", "--jobs", &count, "--kind", "noop", "--groups", spread];
            if (!grouped || bench.prepared(&attempt, &place, &hot).await)
                && bench.prepared(&attempt, &place, &enqueue).await
            {
                let words = ["drain", "--jobs", &count, "--kind", "noop", "--part", "true"];
                bench.timed(&attempt, &place, &words).await;
            }
            place.remove(&bench.server).await;
        }
    }
}

fn attempt<'a>(bench: &Bench, case: &'a str, program: &'a Program, round: usize, jobs: usize) -> Attempt<'a> {
    Attempt {
        case,
        program,
        round,
        jobs,
        limit_s: bench.run.sizes.limit_s.max(60),
    }
}

/// A drain, beside rows that are not due if there are any.
async fn plain(bench: &mut Bench, program: &Program, round: usize, case: &str, future: Option<u64>) {
    let attempt = attempt(bench, case, program, round, bench.run.sizes.growth);
    let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
        return;
    };
    let filled = match future {
        Some(rows) => fill(program, &place.url(), &PATTERN, Rows::Future, rows).await,
        None => Ok(()),
    };
    if let Err(error) = filled {
        bench.record(attempt.sample(Ended::Failed).note(format!("{error:#}")));
    } else {
        let count = attempt.jobs.to_string();
        if bench
            .prepared(&attempt, &place, &["enqueue", "--jobs", &count, "--kind", "noop"])
            .await
        {
            let words = ["drain", "--jobs", &count, "--kind", "noop", "--part", "true"];
            bench.timed(&attempt, &place, &words).await;
        }
    }
    place.remove(&bench.server).await;
}

/// A hundred queues with work, alone or among thousands that nobody here serves.
async fn queues(bench: &mut Bench, program: &Program, round: usize, case: &str, crowded: bool) {
    let attempt = attempt(bench, case, program, round, bench.run.sizes.growth);
    let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
        return;
    };
    let others = (bench.run.sizes.queues - SERVED) as u64;
    let filled = match crowded {
        true => {
            fill(
                program,
                &place.url(),
                &["grow-enqueue", "--jobs", "1"],
                Rows::Crowd(others),
                others * JOBS_PER_QUEUE,
            )
            .await
        }
        false => Ok(()),
    };
    let (count, served, known) = (attempt.jobs.to_string(), SERVED.to_string(), (SERVED + 1).to_string());
    if let Err(error) = filled {
        bench.record(attempt.sample(Ended::Failed).note(format!("{error:#}")));
    } else if bench
        .prepared(
            &attempt,
            &place,
            &["grow-enqueue", "--jobs", &count, "--queues", &served],
        )
        .await
    {
        // One queue more than it serves: it need not find the whole database empty.
        let words = ["grow-drain", "--jobs", &count, "--queues", &known, "--serve", &served];
        bench.timed(&attempt, &place, &words).await;
    }
    place.remove(&bench.server).await;
}

async fn kinds(bench: &mut Bench, program: &Program, round: usize, case: &str, kinds: &str) {
    let attempt = attempt(bench, case, program, round, bench.run.sizes.growth);
    let Some(place) = bench.fresh(Kind::Postgres, &attempt).await else {
        return;
    };
    let count = attempt.jobs.to_string();
    if bench
        .prepared(&attempt, &place, &["grow-enqueue", "--jobs", &count, "--kinds", kinds])
        .await
    {
        bench
            .timed(&attempt, &place, &["grow-drain", "--jobs", &count, "--kinds", kinds])
            .await;
    }
    place.remove(&bench.server).await;
}

async fn payload(bench: &mut Bench, attempt: &Attempt<'_>, bytes: &str) {
    let Some(place) = bench.fresh(Kind::Postgres, attempt).await else {
        return;
    };
    let count = attempt.jobs.to_string();
    let enqueue = ["enqueue", "--jobs", &count, "--payload", bytes, "--kind", "noop"];
    if bench.prepared(attempt, &place, &enqueue).await {
        bench
            .timed(attempt, &place, &["drain", "--jobs", &count, "--kind", "noop"])
            .await;
    }
    place.remove(&bench.server).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn judged(lines: &[Value]) -> Sample {
        let program = Program::for_test("true", &[]);
        let attempt = Attempt {
            case: "share-2",
            program: &program,
            round: 0,
            jobs: 100,
            limit_s: 10,
        };
        let ended: Vec<Said> = lines.iter().map(|line| Said::Done(vec![line.clone()])).collect();
        judge_share(&attempt, &ended, 4.0)
    }

    #[test]
    fn shared_work_is_timed_from_the_first_start_to_the_last_completion() {
        let one = json!({"jobs": 60, "began_us": 1_000_000, "ended_us": 2_000_000});
        let two = json!({"jobs": 40, "began_us": 1_500_000, "ended_us": 3_000_000});
        let sample = judged(&[one, two]);
        assert_eq!((sample.values["per_s"], sample.values["least_jobs"]), (50.0, 40.0));
    }

    #[test]
    fn jobs_done_twice_or_not_at_all_are_no_measurement() {
        let sample = judged(&[json!({"jobs": 60}), json!({"jobs": 39})]);
        assert_eq!(sample.ended, Ended::Failed);
    }
}
