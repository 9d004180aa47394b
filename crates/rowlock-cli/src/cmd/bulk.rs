//! A verb on several jobs: those that are named, or all that a selection finds. A refusal of one keeps no other from its
//! turn; each is told, and the worst one is the exit code.

use std::{collections::HashSet, process::ExitCode};

use anyhow::Result;
use rowlock::{Admin, Ended, JobFilter, Observe, State};

use super::{Actor, jobs};
use crate::{
    exit::Exit,
    output::{self, Advice},
};

/// Jobs read at a time.
const PAGE: i64 = 500;
/// More are not done at once: each is a commit of its own.
const JOBS_MAX: usize = 1_000_000;

/// Which jobs.
#[derive(clap::Args)]
pub(crate) struct Jobs {
    /// The jobs' ids
    #[arg(
        value_name = "ID",
        required_unless_present_any = ["queue", "kind"],
        conflicts_with_all = ["queue", "kind", "state"]
    )]
    ids: Vec<i64>,
    /// Instead of ids: all of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Instead of ids: all of this kind
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Of those, only the ones in this state
    #[arg(long, value_parser = jobs::state, value_name = "ready|waiting|leased|case|finished")]
    state: Option<State>,
    /// Do it to all of a queue or kind
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) actor: Actor,
}

/// What is done to each.
pub(crate) struct Verb {
    /// As in "3 jobs would be cancelled".
    pub(crate) done: &'static str,
    /// Where a job may stand for it; a selection looks nowhere else.
    pub(crate) from: &'static [State],
    /// Of those, only the ones that ended like this.
    pub(crate) ended: Option<Ended>,
}

/// Does it to each, one commit after the other. `act` gives the line to print.
pub(crate) async fn each(
    admin: &Admin,
    jobs: &Jobs,
    verb: &Verb,
    act: impl AsyncFn(i64) -> Result<String>,
) -> Result<ExitCode> {
    if !jobs.ids.is_empty() {
        return named(&jobs.ids, verb.done, act).await;
    }
    let mut selection = Selection::new(admin, jobs, verb)?;
    let mut found = selection.look().await?;
    if found.is_empty() {
        output::print("no such jobs\n")?;
        return Ok(ExitCode::SUCCESS);
    }
    if !jobs.yes {
        let done = verb.done;
        return Err(Advice::unsure(match found.len() {
            1 => format!("1 job would be {done}"),
            count => format!("{count} jobs would be {done}"),
        }));
    }
    let mut tally = Tally::default();
    // Again, for those that stood elsewhere for a moment.
    while !found.is_empty() {
        tally.all(&found, &act).await?;
        found = selection.look().await?;
    }
    tally.sum_up(verb.done);
    Ok(tally.worst.into())
}

/// Does it to each of these.
pub(crate) async fn named(ids: &[i64], done: &str, act: impl AsyncFn(i64) -> Result<String>) -> Result<ExitCode> {
    let mut tally = Tally::default();
    tally.all(ids, &act).await?;
    if ids.len() > 1 {
        tally.sum_up(done);
    }
    Ok(tally.worst.into())
}

/// How it went so far.
#[derive(Default)]
struct Tally {
    done: usize,
    refused: usize,
    worst: Exit,
}

impl Tally {
    async fn all(&mut self, ids: &[i64], act: &impl AsyncFn(i64) -> Result<String>) -> Result<()> {
        for id in ids {
            match act(*id).await {
                Ok(line) => {
                    output::print(&format!("{line}\n"))?;
                    self.done += 1;
                }
                Err(error) if is_refusal(&error) => {
                    output::tell(&error);
                    self.refused += 1;
                    self.worst = self.worst.worse(Exit::of(&error));
                }
                // It would be the same with all the others.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn sum_up(&self, done: &str) {
        let refused = match self.refused {
            0 => String::new(),
            refused => format!(", {refused} refused"),
        };
        output::note(&format!("{} {done}{refused}", self.done));
    }
}

/// About this one job, and no other.
fn is_refusal(error: &anyhow::Error) -> bool {
    let busy = error.downcast_ref::<rowlock::Error>().is_some_and(|e| e.is_retryable());
    busy || matches!(Exit::of(error), Exit::NotFound | Exit::Conflict)
}

/// The jobs of a queue or kind that a verb can do something to.
struct Selection {
    observe: Observe,
    queue: Option<String>,
    kind: Option<String>,
    states: Vec<State>,
    ended: Option<Ended>,
    /// Found before: whatever became of them, they had their turn.
    seen: HashSet<i64>,
    /// Jobs that come while it goes on are not meant.
    below: Option<i64>,
}

impl Selection {
    fn new(admin: &Admin, jobs: &Jobs, verb: &Verb) -> Result<Selection> {
        let states = match jobs.state {
            None => verb.from.to_vec(),
            Some(state) if verb.from.contains(&state) => vec![state],
            Some(state) => {
                let words: Vec<&str> = verb.from.iter().map(|state| state.as_str()).collect();
                return Err(Advice::usage(
                    format!("a {} job cannot be {}", state.as_str(), verb.done),
                    format!("--state {}, or leave it out", words.join(" or ")),
                ));
            }
        };
        Ok(Selection {
            observe: admin.observe(),
            queue: jobs.queue.clone(),
            kind: jobs.kind.clone(),
            states,
            ended: verb.ended,
            seen: HashSet::new(),
            below: None,
        })
    }

    /// Those that were not found before, newest first within each state.
    async fn look(&mut self) -> Result<Vec<i64>> {
        let mut found = Vec::new();
        for state in self.states.clone() {
            let mut filter = JobFilter {
                queue: self.queue.clone(),
                kind: self.kind.clone(),
                state: Some(state),
                below: self.below,
                max: PAGE,
                ..JobFilter::default()
            };
            loop {
                let page = self.observe.jobs(&filter).await?;
                let meant = page
                    .iter()
                    .filter(|job| self.ended.is_none() || job.last_outcome == self.ended);
                found.extend(meant.map(|job| job.id).filter(|id| self.seen.insert(*id)));
                if self.seen.len() > JOBS_MAX {
                    return Err(Advice::error(
                        format!("more than {JOBS_MAX} jobs at once"),
                        "choose fewer: both --queue and --kind, or one --state at a time",
                    ));
                }
                filter.below = page.last().map(|job| job.id);
                if (page.len() as i64) < PAGE {
                    break;
                }
            }
        }
        self.below = self.below.or(found.iter().max().map(|newest| newest + 1));
        Ok(found)
    }
}
