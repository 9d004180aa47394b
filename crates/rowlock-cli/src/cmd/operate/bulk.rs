//! One action on several jobs: those that are named, or all that a selection finds. If one job refuses, the others
//! still get their turn; each refusal is printed, and the worst one is the exit code.

use std::{collections::HashSet, process::ExitCode};

use anyhow::Result;
use rowlock::{
    Admin, Ended, JobId, State,
    observe::{JobFilter, Observe},
};
use serde_json::{Value, json};

use super::{Actor, job_id, jobs};
use crate::{
    exit::Exit,
    output::{self, Advice},
};

/// Jobs read at a time.
const PAGE: u32 = 500;
/// A command does no more than this: each job is its own commit.
const JOBS_MAX: usize = 1_000_000;

/// Which jobs.
#[derive(clap::Args)]
pub(crate) struct Jobs {
    /// Ids of the jobs
    #[arg(
        value_name = "ID",
        value_parser = job_id,
        required_unless_present_any = ["queue", "kind"],
        conflicts_with_all = ["queue", "kind", "state"]
    )]
    ids: Vec<JobId>,
    /// Instead of ids: all jobs of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Instead of ids: all jobs of this kind
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Only the jobs in this state
    #[arg(long, value_parser = jobs::state, value_name = "ready|waiting|leased|case|finished")]
    state: Option<State>,
    /// Confirm the action on all jobs of a queue or kind; without it, only count them and exit with 2
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    pub(crate) actor: Actor,
    /// Print a JSON array, one object per job: id, ok, and the error of a refused one; without a
    /// needed --yes, one object: dry_run, jobs
    #[arg(long)]
    json: bool,
}

/// What is done to each job.
pub(crate) struct Verb {
    /// As in "3 cancelled".
    pub(crate) done: &'static str,
    /// As in "would cancel 3 jobs", with {} for the jobs.
    pub(crate) to_do: &'static str,
    /// States from which it is possible; a selection looks at no other job.
    pub(crate) from: &'static [State],
    /// Only jobs that ended like this.
    pub(crate) ended: Option<Ended>,
}

/// What was done to one job: a line for people, and the same for scripts.
pub(crate) struct Answer {
    line: String,
    facts: Value,
}

impl Answer {
    pub(crate) fn new(line: String) -> Answer {
        Answer { line, facts: json!({}) }
    }

    /// With more fields than `id` and `ok`: a JSON object.
    pub(crate) fn with(line: String, facts: Value) -> Answer {
        Answer { line, facts }
    }
}

/// Does it to each, one commit after the other.
pub(crate) async fn each(
    admin: &Admin,
    jobs: &Jobs,
    verb: &Verb,
    act: impl AsyncFn(JobId) -> Result<Answer>,
) -> Result<ExitCode> {
    if !jobs.ids.is_empty() {
        return named(&jobs.ids, verb.done, jobs.json, act).await;
    }
    let mut selection = Selection::new(admin, jobs, verb)?;
    let mut found = selection.look().await?;
    match (found.len(), jobs.yes) {
        (0, true) if jobs.json => {
            output::print_json(&json!([]))?;
            return Ok(ExitCode::SUCCESS);
        }
        (0, _) => return output::nothing_to_do(jobs.json, "no matching jobs", json!({ "jobs": 0 })),
        (count, false) => {
            let what = match count {
                1 => "1 job".to_owned(),
                _ => format!("{count} jobs"),
            };
            let what = verb.to_do.replace("{}", &what);
            return output::would(jobs.json, &what, json!({ "jobs": count }));
        }
        (_, true) => {}
    }
    let mut tally = Tally::new(jobs.json);
    let ended: Result<()> = async {
        // Look again, for jobs that were in another state for a moment.
        while !found.is_empty() {
            tally.all(&found, &act).await?;
            found = selection.look().await?;
        }
        Ok(())
    }
    .await;
    tally.end(ended, verb.done, true)
}

/// Does it to each of these.
pub(crate) async fn named(
    ids: &[JobId],
    done: &str,
    json: bool,
    act: impl AsyncFn(JobId) -> Result<Answer>,
) -> Result<ExitCode> {
    let mut tally = Tally::new(json);
    let ended = tally.all(ids, &act).await;
    tally.end(ended, done, ids.len() > 1)
}

/// How it went so far.
struct Tally {
    done: usize,
    refused: usize,
    worst: Exit,
    /// One object per job, if JSON is wanted.
    printed: Option<Vec<Value>>,
}

impl Tally {
    fn new(json: bool) -> Tally {
        Tally {
            done: 0,
            refused: 0,
            worst: Exit::Done,
            printed: json.then(Vec::new),
        }
    }

    async fn all(&mut self, ids: &[JobId], act: &impl AsyncFn(JobId) -> Result<Answer>) -> Result<()> {
        for id in ids {
            match act(*id).await {
                Ok(answer) => {
                    self.done += 1;
                    match &mut self.printed {
                        Some(printed) => printed.push(entry(*id, answer.facts)),
                        None => output::print(&format!("{}\n", answer.line))?,
                    }
                }
                Err(error) if is_refusal(&error) => {
                    output::tell(&error);
                    self.refused += 1;
                    self.worst = self.worst.worse(Exit::of(&error));
                    if let Some(printed) = &mut self.printed {
                        printed.push(json!({ "id": id, "ok": false, "error": error.to_string() }));
                    }
                }
                // Every other job would meet the same error.
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Prints the JSON, also of what was done before an error; or the counts, if there are `several` jobs.
    fn end(self, ended: Result<()>, done: &str, several: bool) -> Result<ExitCode> {
        if let Some(printed) = self.printed.filter(|all| ended.is_ok() || !all.is_empty()) {
            output::print_json(&printed)?;
        } else if several && ended.is_ok() {
            let refused = match self.refused {
                0 => String::new(),
                refused => format!(", {refused} refused"),
            };
            output::note(&format!("{} {done}{refused}", self.done));
        }
        ended.map(|()| self.worst.into())
    }
}

fn entry(id: JobId, facts: Value) -> Value {
    let mut entry = json!({ "id": id, "ok": true });
    if let (Some(entry), Value::Object(facts)) = (entry.as_object_mut(), facts) {
        entry.extend(facts);
    }
    entry
}

/// Whether the error is about this one job, and no other.
fn is_refusal(error: &anyhow::Error) -> bool {
    let busy = error.downcast_ref::<rowlock::Error>().is_some_and(|e| e.is_retryable());
    busy || matches!(Exit::of(error), Exit::NotFound | Exit::Conflict)
}

/// The jobs of a queue or kind that an action is possible on.
struct Selection {
    observe: Observe,
    queue: Option<String>,
    kind: Option<String>,
    states: Vec<State>,
    ended: Option<Ended>,
    /// Found before, and not tried a second time.
    seen: HashSet<JobId>,
    /// Leaves out jobs that are enqueued meanwhile.
    below: Option<JobId>,
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
                    format!("--state {}, or no --state", words.join(" or ")),
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

    /// Jobs that were not found before, newest first within each state.
    async fn look(&mut self) -> Result<Vec<JobId>> {
        let mut found = Vec::new();
        for state in self.states.clone() {
            let mut filter = JobFilter::new().state(state).below(self.below).limit(PAGE);
            filter = self.queue.iter().fold(filter, JobFilter::queue);
            filter = self.kind.iter().fold(filter, JobFilter::kind);
            loop {
                let page = self.observe.jobs(&filter).await?;
                let meant = page
                    .iter()
                    .filter(|job| self.ended.is_none() || job.last_outcome == self.ended);
                found.extend(meant.map(|job| job.id).filter(|id| self.seen.insert(*id)));
                if self.seen.len() > JOBS_MAX {
                    return Err(Advice::error(
                        format!("the selection has more than {JOBS_MAX} jobs"),
                        "select fewer: --queue and --kind together, or one --state at a time",
                    ));
                }
                filter = filter.below(page.last().map(|job| job.id));
                if page.len() < PAGE as usize {
                    break;
                }
            }
        }
        self.below = self
            .below
            .or(found.iter().max().map(|newest| JobId::from(i64::from(*newest) + 1)));
        Ok(found)
    }
}
