//! `rowlock jobs`: lists jobs, newest first.

use anyhow::Result;
use rowlock::{
    Ended, JobId, State,
    observe::{JobFilter, JobView, Observe},
};

use super::{Place, tables};
use crate::output;

/// Jobs read at a time, and at most, to find those that ended in one way.
const PAGE: u32 = 500;
const READ_MAX: u32 = 100_000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only jobs of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Only jobs of this kind
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Only jobs in this state; done and cancelled are the two ways to be finished
    #[arg(long, value_parser = wanted, value_name = "ready|waiting|leased|case|finished|done|cancelled")]
    state: Option<Wanted>,
    /// Only jobs with this tag
    #[arg(long, value_name = "TAG")]
    tag: Option<String>,
    /// Only the job that holds this idempotency key
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// Only jobs of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Maximum number of jobs
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    max: u32,
    /// Only ids below this one, for the next page
    #[arg(long, value_name = "ID", value_parser = super::job_id)]
    below: Option<JobId>,
    /// Print a JSON array
    #[arg(long)]
    json: bool,
}

/// The state of a job as the table of jobs shows it.
#[derive(Clone, Copy)]
struct Wanted {
    state: State,
    ended: Option<Ended>,
}

fn wanted(word: &str) -> Result<Wanted, String> {
    let finished = |ended| Wanted {
        state: State::Finished,
        ended: Some(ended),
    };
    match word {
        "done" => Ok(finished(Ended::Done)),
        "cancelled" => Ok(finished(Ended::Cancelled)),
        _ => match State::parse(word) {
            Some(state) => Ok(Wanted { state, ended: None }),
            None if is_ready(word) => Err(USE_READY.into()),
            None => Err("use ready, waiting, leased, case, finished, done or cancelled".into()),
        },
    }
}

/// A state for commands that act on jobs.
pub(crate) fn state(word: &str) -> Result<State, String> {
    State::parse(word).ok_or_else(|| {
        let hint = match word {
            "done" => "use finished",
            // A re-run is the only action on finished jobs, and it takes cancelled jobs by id only.
            "cancelled" => "cancelled jobs cannot be selected; name them by id",
            word if is_ready(word) => USE_READY,
            _ => "use ready, waiting, leased, case or finished",
        };
        hint.to_owned()
    })
}

const USE_READY: &str = "use ready; a ready job is due now or scheduled for later";

/// Words of `rowlock status` for two kinds of ready jobs. Only the database's clock can tell the two apart.
fn is_ready(word: &str) -> bool {
    matches!(word, "due" | "scheduled")
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let mut filter = JobFilter::new().below(args.below).limit(args.max);
    filter = args.queue.into_iter().fold(filter, JobFilter::queue);
    filter = args.kind.into_iter().fold(filter, JobFilter::kind);
    filter = args
        .state
        .iter()
        .fold(filter, |filter, wanted| filter.state(wanted.state));
    filter = args.tag.into_iter().fold(filter, JobFilter::tag);
    filter = args.key.into_iter().fold(filter, JobFilter::key);
    filter = args.group.into_iter().fold(filter, JobFilter::group);
    let observe = place.checked().await?.observe();
    let found = match args.state.and_then(|wanted| wanted.ended) {
        Some(ended) => that_ended(&observe, filter, ended, args.max as usize).await?,
        None => {
            let jobs = observe.jobs(&filter).await?;
            let full = u32::try_from(jobs.len()).is_ok_and(|n| n == args.max);
            let below = jobs.last().map(|job| job.id).filter(|_| full);
            Found { jobs, below }
        }
    };
    let more = found
        .below
        .map(|id| format!("there may be more jobs: add --below {id}"));
    match (args.json, found.jobs.is_empty()) {
        (true, _) => output::print_json(&found.jobs)?,
        (false, true) => output::print("no matching jobs\n")?,
        (false, false) => output::print(&tables::jobs(&found.jobs))?,
    }
    if let Some(more) = more.filter(|_| !args.json) {
        output::note(&more);
    }
    Ok(())
}

/// Some jobs, and where to look for more of them.
struct Found {
    jobs: Vec<JobView>,
    below: Option<JobId>,
}

/// Finished jobs that ended like this. The database finds finished jobs, and this picks from them, up to a bound.
async fn that_ended(observe: &Observe, mut filter: JobFilter, ended: Ended, max: usize) -> Result<Found> {
    filter = filter.limit(PAGE);
    let (mut jobs, mut read) = (Vec::new(), 0);
    loop {
        let page = observe.jobs(&filter).await?;
        let last_page = page.len() < PAGE as usize;
        read += PAGE;
        let below = page.last().map(|job| job.id);
        filter = filter.below(below);
        jobs.extend(page.into_iter().filter(|job| job.last_outcome == Some(ended)));
        if jobs.len() >= max {
            jobs.truncate(max);
            let below = jobs.last().map(|job| job.id);
            return Ok(Found { jobs, below });
        }
        if last_page {
            return Ok(Found { jobs, below: None });
        }
        if read >= READ_MAX {
            return Ok(Found { jobs, below });
        }
    }
}
