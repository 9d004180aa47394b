//! `rowlock prune`: applies a retention now, instead of waiting for a worker's upkeep.
//!
//! Keys and the audit are left to the workers: only they know how long operations may be repeated, and a key that is
//! forgotten too early is an effect that happens twice. Keys whose own hold is over go here too.

use std::{str::FromStr, time::Duration};

use anyhow::Result;
use jiff::Timestamp;
use rowlock::{JobFilter, Observe, Pruned, Retention, State};

use super::{Actor, Place, duration};
use crate::output::{self, Advice};

/// Finished jobs are counted up to here, so many at a time.
const FINISHED_MAX: usize = 10_000;
const PAGE: i64 = 500;
/// Cases come with their history.
const CASES_MAX: i64 = 1000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Remove finished jobs, with their attempts and results, that ended longer ago than this, such as 7d; an hour at least
    #[arg(long, value_name = "TIME")]
    finished: Age,
    /// Remove open cases too that nobody decided on for so long; without it they are kept
    #[arg(long, value_name = "TIME")]
    cases: Option<Age>,
    /// Do it
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    actor: Actor,
    /// Print one JSON object: how many of what were removed
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
            return Err("give an hour at least, such as 1h or 7d".into());
        }
        Ok(Age {
            typed: text.to_owned(),
            time,
        })
    }
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let admin = place.checked().await?;
    let keep = Retention {
        history: args.finished.time,
        cases: args.cases.as_ref().map(|age| age.time),
        keys: None,
        audit: None,
    };
    if !args.yes {
        return Err(Advice::unsure(would(&admin.observe(), &args).await?));
    }
    let tell = |so_far: &Pruned| output::progress(&format!("removed {} jobs", so_far.jobs + so_far.cases));
    let removed = admin.operate().prune(&keep, place.actor(&args.actor), tell).await?;
    match args.json {
        true => output::print_json(&removed),
        false => output::print(&said(&removed)),
    }
}

/// What would go, counted as far as that is cheap.
async fn would(observe: &Observe, args: &Args) -> Result<String> {
    let cases = match &args.cases {
        Some(age) => {
            let cases = observe.cases(CASES_MAX).await?;
            let old = cases.iter().filter(|case| case.retired_at < ago(age)).count();
            match (cases.len() as i64) < CASES_MAX {
                true => format!("and {old} open cases older than {}", age.typed),
                false => format!("and all open cases older than {}", age.typed),
            }
        }
        None => "and open cases are kept".into(),
    };
    let age = &args.finished.typed;
    let count = finished(observe, ago(&args.finished)).await?;
    Ok(match count {
        FINISHED_MAX.. => format!("{FINISHED_MAX} finished jobs or more, older than {age}, would be removed, {cases}"),
        count => format!("{count} finished jobs older than {age} would be removed, {cases}"),
    })
}

fn ago(age: &Age) -> Timestamp {
    let at = Timestamp::now().checked_sub(age.time);
    at.unwrap_or(Timestamp::MIN)
}

/// How many finished jobs ended before that, counted up to a bound.
async fn finished(observe: &Observe, before: Timestamp) -> Result<usize> {
    let mut filter = JobFilter {
        state: Some(State::Finished),
        below: Some(first_since(observe, before).await?),
        max: PAGE,
        ..JobFilter::default()
    };
    let mut count = 0;
    loop {
        let page = observe.jobs(&filter).await?;
        let over = page
            .iter()
            .filter(|job| job.last_ended_at.is_some_and(|at| at < before));
        count += over.count();
        filter.below = page.last().map(|job| job.id);
        if (page.len() as i64) < PAGE || count >= FINISHED_MAX {
            return Ok(count.min(FINISHED_MAX));
        }
    }
}

/// The id from which on all jobs are younger. Ids rise with time, so it is found by halves, and no young job is read.
async fn first_since(observe: &Observe, since: Timestamp) -> Result<i64> {
    let is_young = async |below: i64| -> Result<bool> {
        let newest = JobFilter {
            below: Some(below),
            max: 1,
            ..JobFilter::default()
        };
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
    Ok(old)
}

fn said(removed: &Pruned) -> String {
    let count = |count: u64, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    format!(
        "removed {}, {}, {}, {}\n",
        count(removed.jobs, "finished job", "finished jobs"),
        count(removed.cases, "case", "cases"),
        count(removed.keys, "key", "keys"),
        count(removed.ledger, "entry of the ledger", "entries of the ledger"),
    )
}
