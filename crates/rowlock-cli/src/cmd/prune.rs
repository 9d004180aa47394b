//! `rowlock prune`: applies a retention now, instead of waiting for a worker's upkeep.
//!
//! Keys and the audit are left to the workers: only they know how long operations may be repeated, and a key that is
//! forgotten too early is an effect that happens twice. Keys whose own hold is over go here too.

use std::{str::FromStr, time::Duration};

use anyhow::Result;
use rowlock::{Pruned, Retention};

use super::{Actor, Place, duration};
use crate::output::{self, Advice};

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
        let cases = match &args.cases {
            Some(age) => format!("open cases older than {} too", age.typed),
            None => "open cases are kept".into(),
        };
        let finished = &args.finished.typed;
        return Err(Advice::unsure(format!(
            "all finished jobs older than {finished} would be removed, {cases}"
        )));
    }
    let tell = |so_far: &Pruned| output::progress(&format!("removed {} jobs", so_far.jobs + so_far.cases));
    let removed = admin.operate().prune(&keep, place.actor(&args.actor), tell).await?;
    match args.json {
        true => output::print_json(&removed),
        false => output::print(&said(&removed)),
    }
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
