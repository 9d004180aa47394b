//! The run itself: its programs, server and samples, and the one way a verb is timed.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::against;
use crate::args::Args;
use crate::case::case;
use crate::cpu;
use crate::place::Place;
use crate::programs::{self, Kind, Program};
use crate::progress::Progress;
use crate::run::Run;
use crate::sample::{Ended, Sample, Samples};
use crate::server::{Counters, Server};
use crate::sizes::Sizes;
use crate::verb::{self, Said};
use crate::verdict::LANES;

const SETUP_LIMIT_S: u64 = 60;
/// A program that stalled this often in one case is not asked again in it.
const STALLS_MAX: usize = 2;

/// Everything a benchmark needs.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) run: Run,
    pub(crate) dir: PathBuf,
    pub(crate) server: Server,
    pub(crate) progress: Progress,
    places: usize,
}

/// One run of one case, about to be timed.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) case: &'a str,
    pub(crate) program: &'a Program,
    pub(crate) round: usize,
    pub(crate) jobs: usize,
    pub(crate) limit_s: u64,
}

impl Bench {
    pub(crate) async fn prepare(args: &Args) -> Result<Bench> {
        let mut sizes = if args.quick { Sizes::quick() } else { Sizes::full() };
        if args.against.is_some() {
            sizes.rounds = against::PAIRS;
        }
        if let Some(rounds) = args.rounds {
            sizes.rounds = rounds.max(1);
        }
        let out = match &args.out {
            Some(out) => out.clone(),
            None => fresh_folder(&jiff::Zoned::now().date().to_string()),
        };
        std::fs::create_dir_all(&out).with_context(|| format!("could not make {}", out.display()))?;
        let lanes: Vec<String> = match args.lane.as_slice() {
            [] if args.against.is_some() => against::LANES.map(str::to_owned).to_vec(),
            [] => LANES.iter().map(|lane| lane.name.to_owned()).collect(),
            some => some.to_vec(),
        };
        if let (Some(_), Some(lane)) = (
            &args.against,
            lanes.iter().find(|lane| !against::LANES.contains(&lane.as_str())),
        ) {
            bail!(
                "{lane} cannot be compared with a commit; {} can",
                against::LANES.join(", ")
            );
        }
        let mut kinds = Vec::new();
        if lanes.iter().any(|lane| lane != "S8") {
            kinds.push(Kind::Postgres);
        }
        if lanes.iter().any(|lane| lane == "S8") {
            kinds.push(Kind::Sqlite);
        }
        let (Some(url), Some(log), Some(dir)) = (&args.url, &args.log, &args.dir) else {
            bail!("no server; start the benchmark by `cargo xtask bench`");
        };
        let server = Server::connect(url, log.clone()).await?;
        let programs = match &args.against {
            Some(older) => programs::against(older).await?,
            None => programs::prepare(&args.peers, &kinds).await?,
        };
        if let Some(reason) = programs.left_out.get("ours") {
            bail!("our own program does not start: {reason}");
        }
        let run = Run {
            sizes,
            json: args.json,
            samples: Samples::open(&out.join("samples.jsonl"))?,
            out,
            programs,
            violations: Vec::new(),
            lanes,
        };
        Ok(Bench {
            run,
            dir: dir.clone(),
            server,
            progress: Progress::new(0.0),
            places: 0,
        })
    }

    /// A database with the program's own schema; a sample says why if there is none.
    pub(crate) async fn fresh(&mut self, kind: Kind, attempt: &Attempt<'_>) -> Option<Place> {
        self.places += 1;
        let place = match Place::make(kind, &self.server, &self.dir, self.places).await {
            Ok(place) => place,
            Err(error) => {
                self.record(attempt.sample(Ended::Failed).note(format!("{error:#}")));
                return None;
            }
        };
        let (ended, why) = match verb::run(attempt.program, &place.url(), &["setup"], SETUP_LIMIT_S).await {
            Said::Done(_) => return Some(place),
            Said::Stalled { .. } => (Ended::Stalled, "setup did not end".to_owned()),
            Said::Unsupported(why) => (Ended::Unsupported, why),
            Said::Failed(why) => (Ended::Failed, format!("setup {why}")),
        };
        self.record(attempt.sample(ended).note(why));
        place.remove(&self.server).await;
        None
    }

    /// Runs a verb with the counters read before and after.
    pub(crate) async fn measure(&self, attempt: &Attempt<'_>, place: &Place, words: &[&str]) -> Sample {
        let (before, started) = (self.counters(place).await, cpu::of_children());
        let said = verb::run(attempt.program, &place.url(), words, attempt.limit_s).await;
        let (after, ended) = (self.counters(place).await, cpu::of_children());
        let client_s = match (started, ended) {
            (Ok(started), Ok(ended)) => Some(ended - started),
            (Err(error), _) | (_, Err(error)) => {
                self.progress.note(&format!("{error:#}"));
                None
            }
        };
        let counted = before.zip(after);
        judge(attempt, &said, &Used { client_s, counted })
    }

    /// The same, written down. True when it was measured.
    pub(crate) async fn timed(&mut self, attempt: &Attempt<'_>, place: &Place, words: &[&str]) -> bool {
        let sample = self.measure(attempt, place, words).await;
        let measured = sample.ended == Ended::Measured;
        self.record(sample);
        measured
    }

    /// Runs a verb that only prepares; a sample says why if it fails.
    pub(crate) async fn prepared(&mut self, attempt: &Attempt<'_>, place: &Place, words: &[&str]) -> bool {
        let said = verb::run(attempt.program, &place.url(), words, attempt.limit_s).await;
        if let Said::Done(_) = said {
            return true;
        }
        let sample = judge(attempt, &said, &Used::default());
        let why = format!("{}: {}", words[0], sample.note.clone().unwrap_or_default());
        self.record(sample.note(why));
        false
    }

    /// Reads the business tables; what is wrong there makes the run fail.
    pub(crate) async fn check_book(&mut self, attempt: &Attempt<'_>, place: &Place, whole: bool) {
        let violation = match place.check_book(attempt.jobs, whole).await {
            Ok(violation) => violation,
            Err(error) => Some(format!("could not check the effects: {error:#}")),
        };
        if let Some(violation) = violation {
            let text = format!(
                "{} in {}, round {}: {violation}",
                attempt.program.name,
                attempt.case,
                attempt.round + 1
            );
            eprintln!("VIOLATION: {text}");
            self.run.violations.push(text);
        }
    }

    /// Writes a sample down and says so.
    pub(crate) fn record(&mut self, sample: Sample) {
        let figure = describe(&sample);
        self.progress.step(sample.round, &sample.program, &figure);
        self.run.samples.add(sample);
    }

    /// Whether the program has stalled too often, or said that it cannot.
    pub(crate) fn has_given_up(&self, case: &str, program: &str) -> bool {
        self.run.samples.count(case, program, Ended::Stalled) >= STALLS_MAX
            || self.run.samples.count(case, program, Ended::Unsupported) > 0
    }

    /// The programs in the order of a round: each begins one later than in the round before.
    pub(crate) fn order(&self, kind: Kind, round: usize) -> Vec<Arc<Program>> {
        let mut programs = self.run.programs.on(kind);
        let shift = round % programs.len().max(1);
        programs.rotate_left(shift);
        programs
    }

    async fn counters(&self, place: &Place) -> Option<Counters> {
        match place.counters(&self.server).await {
            Ok(counters) => counters,
            Err(error) => {
                self.progress.note(&format!("{error:#}"));
                None
            }
        }
    }
}

impl Attempt<'_> {
    pub(crate) fn sample(&self, ended: Ended) -> Sample {
        Sample::new(self.case, &self.program.name, self.round, ended)
    }
}

/// What a verb used, as far as it could be read.
#[derive(Debug, Default)]
struct Used {
    /// Processor time of the program.
    client_s: Option<f64>,
    /// What the server counted before and after; SQLite has no server.
    counted: Option<(Counters, Counters)>,
}

/// Makes a sample of what a timed verb said.
fn judge(attempt: &Attempt<'_>, said: &Said, used: &Used) -> Sample {
    let sample = match said {
        Said::Unsupported(why) => return attempt.sample(Ended::Unsupported).note(why),
        Said::Failed(why) => return attempt.sample(Ended::Failed).note(why),
        Said::Stalled { done } => {
            return attempt
                .sample(Ended::Stalled)
                .with("done", *done)
                .with("per_s", done / attempt.limit_s as f64)
                .note(format!("{done} of {} done in {} s", attempt.jobs, attempt.limit_s));
        }
        Said::Done(lines) => {
            let last = lines.last().cloned().unwrap_or_default();
            let Some(seconds) = last["seconds"].as_f64().filter(|seconds| *seconds > 0.0) else {
                return attempt.sample(Ended::Failed).note(format!("gave no seconds: {last}"));
            };
            let sample = attempt.sample(Ended::Measured);
            with_numbers(sample, &last)
                .with("seconds", seconds)
                .with("jobs", attempt.jobs as f64)
                .with("per_s", attempt.jobs as f64 / seconds)
        }
    };
    with_used(sample, used, attempt.jobs.max(1) as f64)
}

/// Commits, log and processor time by job. A value that could not be read is left out, and a sum with it.
fn with_used(mut sample: Sample, used: &Used, jobs: f64) -> Sample {
    let mut server_s = Some(0.0);
    if let Some((before, after)) = used.counted {
        sample = sample
            .with("commits_per_job", (after.commits - before.commits) / jobs)
            .with("wal_per_job", (after.wal_bytes - before.wal_bytes) / jobs);
        server_s = after.cpu_s.zip(before.cpu_s).map(|(after, before)| after - before);
        if let Some(server_s) = server_s {
            sample = sample.with("server_us_per_job", server_s * 1e6 / jobs);
        }
    }
    let Some(client_s) = used.client_s else {
        return sample;
    };
    let sample = sample.with("client_us_per_job", client_s * 1e6 / jobs);
    match server_s {
        Some(server_s) => sample.with("cpu_us_per_job", (client_s + server_s) * 1e6 / jobs),
        None => sample,
    }
}

/// Keeps every number a program gave, such as `handlers_seconds`.
fn with_numbers(mut sample: Sample, line: &Value) -> Sample {
    for (name, value) in line.as_object().into_iter().flatten() {
        if let Some(value) = value.as_f64() {
            sample = sample.with(name, value);
        }
    }
    sample
}

fn describe(sample: &Sample) -> String {
    let about = case(&sample.case);
    let figure = sample
        .values
        .get(about.value)
        .map(|value| crate::report::figure(*value, about.unit));
    let note = sample.note.as_deref().unwrap_or_default();
    match sample.ended {
        Ended::Measured => format!("{} {}", sample.case, figure.unwrap_or_default()),
        Ended::Stalled => format!("{} stalled: {note}", sample.case),
        Ended::Unsupported => format!("{} unsupported: {note}", sample.case),
        Ended::Failed => format!("{} failed: {note}", sample.case),
    }
}

/// `bench/runs/<date>`, or the first such name with a number that is free: a run never overwrites another.
fn fresh_folder(date: &str) -> PathBuf {
    let root = PathBuf::from("bench/runs");
    let names = std::iter::once(date.to_owned()).chain((2..).map(|number| format!("{date}-{number}")));
    let mut paths = names.map(|name| root.join(name));
    paths.find(|path| !path.exists()).unwrap_or_else(|| root.join(date))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn attempt(program: &Program) -> Attempt<'_> {
        Attempt {
            case: "drain",
            program,
            round: 1,
            jobs: 1000,
            limit_s: 20,
        }
    }

    #[test]
    fn a_drain_is_jobs_by_its_own_seconds_and_counters_by_job() {
        let program = Program::for_test("true", &[]);
        let line = json!({"event": "drained", "jobs": 1000, "seconds": 0.5, "handlers_seconds": 0.4});
        let counters = |commits, wal_bytes, cpu_s| Counters {
            commits,
            wal_bytes,
            cpu_s: Some(cpu_s),
        };
        let used = Used {
            client_s: Some(0.3),
            counted: Some((counters(10.0, 0.0, 1.0), counters(30.0, 1e6, 1.5))),
        };
        let sample = judge(&attempt(&program), &Said::Done(vec![line]), &used);
        assert_eq!(sample.ended, Ended::Measured);
        assert_eq!(sample.values["per_s"], 2000.0);
        assert_eq!(sample.values["handlers_seconds"], 0.4);
        assert_eq!(sample.values["commits_per_job"], 0.02);
        assert_eq!(sample.values["wal_per_job"], 1000.0);
        assert_eq!(sample.values["client_us_per_job"], 300.0);
        assert_eq!(sample.values["server_us_per_job"], 500.0);
        assert_eq!(sample.values["cpu_us_per_job"], 800.0);
    }

    #[test]
    fn without_a_server_the_program_alone_counts_and_an_unread_server_gives_no_sum() {
        let program = Program::for_test("true", &[]);
        let said = Said::Done(vec![json!({"event": "drained", "seconds": 0.5})]);
        let client_s = Some(0.3);
        let lite = judge(
            &attempt(&program),
            &said,
            &Used {
                client_s,
                counted: None,
            },
        );
        assert_eq!(lite.values["cpu_us_per_job"], 300.0);
        let counted = Some((Counters::default(), Counters::default()));
        let unread = judge(&attempt(&program), &said, &Used { client_s, counted });
        assert_eq!(unread.values.get("cpu_us_per_job"), None);
    }

    #[test]
    fn a_stall_says_how_far_it_came() {
        let program = Program::for_test("true", &[]);
        let sample = judge(&attempt(&program), &Said::Stalled { done: 100.0 }, &Used::default());
        assert_eq!(sample.ended, Ended::Stalled);
        assert_eq!(sample.values["per_s"], 5.0);
        assert_eq!(sample.note.as_deref(), Some("100 of 1000 done in 20 s"));
    }

    #[test]
    fn a_drain_without_its_seconds_is_no_measurement() {
        let program = Program::for_test("true", &[]);
        let said = Said::Done(vec![json!({"event": "drained", "jobs": 1000})]);
        let sample = judge(&attempt(&program), &said, &Used::default());
        assert_eq!(sample.ended, Ended::Failed);
    }
}
