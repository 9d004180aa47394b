//! `rowlock prune`: applies a retention now, instead of waiting for the upkeep of a worker.
//!
//! Keys and the audit are left to the workers: only they know how long operations may be repeated, and a key that is
//! deleted too early lets an effect happen twice. Keys with their own hold time are deleted here when it is over.

use std::{process::ExitCode, str::FromStr, time::Duration};

use anyhow::Result;
use jiff::Timestamp;
use rowlock::{
    JobId, Retention, State,
    observe::{CaseFilter, JobFilter, Observe},
    operate::Pruned,
};
use serde::Serialize;

use super::{Actor, Place, duration};
use crate::output;

/// Finished jobs are counted up to here, so many at a time.
const FINISHED_MAX: usize = 10_000;
const PAGE: u32 = 500;
/// Cases come with their history.
const CASES_MAX: u32 = 1000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Delete finished jobs, with attempts and results, that ended longer ago than this; at least 1h
    #[arg(long, value_name = "TIME")]
    finished: Age,
    /// Also delete open cases older than this; default: keep them
    #[arg(long, value_name = "TIME")]
    cases: Option<Age>,
    /// Confirm; without it, only count and exit with 2
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    actor: Actor,
    /// Print one JSON object: how many rows of each type were deleted; without --yes: dry_run, jobs, jobs_more
    /// (there are more than were counted) and cases (null if there are too many to count)
    #[arg(long)]
    json: bool,
}

/// A time as it was typed.
#[derive(Clone)]
struct Age {
    typed: String,
    time: Duration,
}

impl FromStr for Age {
    type Err = String;

    fn from_str(text: &str) -> Result<Age, String> {
        let time = duration(text)?;
        if time < Duration::from_secs(3600) {
            return Err("use at least an hour, such as 1h or 7d".into());
        }
        Ok(Age {
            typed: text.to_owned(),
            time,
        })
    }
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let admin = place.checked().await?;
    let keep = Retention::new()
        .history(args.finished.time)
        .keys_for_ever()
        .audit_for_ever();
    let keep = match &args.cases {
        Some(age) => keep.cases(age.time),
        None => keep.cases_for_ever(),
    };
    if !args.yes {
        return Count::of(&admin.observe(), &args).await?.tell(&args);
    }
    let tell = |so_far: &Pruned| output::progress(&format!("deleted {} jobs", so_far.jobs + so_far.cases));
    let removed = admin.operate().prune(&keep, place.actor(&args.actor), tell).await?;
    match args.json {
        true => output::print_json(&removed)?,
        false => output::print(&said(&removed))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What would be deleted, counted as far as that is cheap.
#[derive(Serialize)]
struct Count {
    jobs: usize,
    /// There are more than were counted.
    jobs_more: bool,
    /// None if there are too many to count.
    cases: Option<usize>,
}

impl Count {
    async fn of(observe: &Observe, args: &Args) -> Result<Count> {
        let cases = match &args.cases {
            Some(age) => {
                let cases = observe.cases(&CaseFilter::new().limit(CASES_MAX)).await?;
                let old = cases.iter().filter(|case| case.retired_at < ago(age)).count();
                (cases.len() < CASES_MAX as usize).then_some(old)
            }
            None => Some(0),
        };
        let jobs = finished(observe, ago(&args.finished)).await?;
        Ok(Count {
            jobs,
            jobs_more: jobs >= FINISHED_MAX,
            cases,
        })
    }

    /// Prints what would be deleted, and gives the exit code.
    fn tell(&self, args: &Args) -> Result<ExitCode> {
        let counts = serde_json::to_value(self)?;
        if self.jobs == 0 && self.cases == Some(0) {
            let cases = args.cases.as_ref();
            let cases = cases.map(|age| format!(" and no open cases older than {}", age.typed));
            let why = format!(
                "no finished jobs older than {}{}",
                args.finished.typed,
                cases.unwrap_or_default()
            );
            return output::nothing_to_do(args.json, &why, counts);
        }
        output::would(args.json, &format!("delete {}", self.text(args)), counts)
    }

    fn text(&self, args: &Args) -> String {
        let at_least = if self.jobs_more { "at least " } else { "" };
        let jobs = counted(self.jobs as u64, "finished job", "finished jobs");
        let jobs = format!("{at_least}{jobs} older than {}", args.finished.typed);
        match (&args.cases, self.cases) {
            (None, _) => jobs,
            (Some(age), Some(cases)) => {
                let cases = counted(cases as u64, "open case", "open cases");
                format!("{jobs} and {cases} older than {}", age.typed)
            }
            (Some(age), None) => format!("{jobs} and all open cases older than {}", age.typed),
        }
    }
}

fn ago(age: &Age) -> Timestamp {
    let at = Timestamp::now().checked_sub(age.time);
    at.unwrap_or(Timestamp::MIN)
}

/// How many finished jobs ended before that, counted up to a bound.
async fn finished(observe: &Observe, before: Timestamp) -> Result<usize> {
    let mut filter = JobFilter::new()
        .state(State::Finished)
        .below(first_since(observe, before).await?)
        .limit(PAGE);
    let mut count = 0;
    loop {
        let page = observe.jobs(&filter).await?;
        let over = page
            .iter()
            .filter(|job| job.last_ended_at.is_some_and(|at| at < before));
        count += over.count();
        filter = filter.below(page.last().map(|job| job.id));
        if page.len() < PAGE as usize || count >= FINISHED_MAX {
            return Ok(count.min(FINISHED_MAX));
        }
    }
}

/// The id from which all jobs are younger. Ids rise with time, so a binary search finds it and reads no younger job.
async fn first_since(observe: &Observe, since: Timestamp) -> Result<JobId> {
    let is_young = async |below: i64| -> Result<bool> {
        let newest = JobFilter::new().below(JobId::from(below)).limit(1);
        let newest = observe.jobs(&newest).await?;
        Ok(newest.first().is_some_and(|job| job.created_at >= since))
    };
    // Below `old` none is young, and below `young` one is.
    let (mut old, mut young) = (0, i64::MAX);
    while young - old > 1 {
        let middle = old + (young - old) / 2;
        match is_young(middle).await? {
            true => young = middle,
            false => old = middle,
        }
    }
    Ok(old.into())
}

fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

fn said(removed: &Pruned) -> String {
    format!(
        "deleted {}, {}, {}, {}\n",
        counted(removed.jobs, "finished job", "finished jobs"),
        counted(removed.cases, "case", "cases"),
        counted(removed.keys, "key", "keys"),
        counted(removed.ledger, "ledger entry", "ledger entries"),
    )
}
