//! `rowlock delay`, `run-now`, `cancel`, `retire` and `rerun`: operator commands on one job or many.

use std::{process::ExitCode, time::Duration};

use anyhow::{Context, Result};
use jiff::Timestamp;
use rowlock::{Ended, State};
use serde_json::json;

use super::{
    Place,
    bulk::{self, Answer, Jobs, Verb},
    duration,
};

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("when").required(true).args(["by", "until"]))]
pub(crate) struct Delay {
    #[command(flatten)]
    jobs: Jobs,
    /// How long from now, such as 10m, 2h or 1d
    #[arg(long, value_parser = duration, value_name = "TIME")]
    by: Option<Duration>,
    /// Until this time, such as 2030-01-31T12:00:00Z
    #[arg(long, value_parser = time, value_name = "TIME")]
    until: Option<Timestamp>,
}

fn time(text: &str) -> Result<Timestamp, String> {
    text.parse()
        .map_err(|_| "use a time such as 2026-11-18T12:00:00Z; for a span such as 2h, use --by".to_owned())
}

#[derive(clap::Args)]
pub(crate) struct WithReason {
    #[command(flatten)]
    jobs: Jobs,
    /// Reason, kept with the job
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

pub(crate) async fn delay(place: &Place, args: Delay) -> Result<ExitCode> {
    let until = match (args.until, args.by) {
        (Some(until), _) => until,
        (None, by) => {
            let until = Timestamp::now().checked_add(by.unwrap_or_default());
            until.context("--by: the time is out of range")?
        }
    };
    let admin = place.checked().await?;
    let (operate, actor) = (admin.operate(), place.actor(&args.jobs.actor));
    let verb = Verb {
        done: "delayed",
        to_do: "delay {}",
        from: &[State::Ready, State::Waiting],
        ended: None,
    };
    let act = async |id| {
        operate.delay(id, until, actor).await?;
        Ok(Answer::with(
            format!("job {id} is due at {until}"),
            json!({ "due_at": until }),
        ))
    };
    bulk::each(&admin, &args.jobs, &verb, act).await
}

pub(crate) async fn run_now(place: &Place, jobs: Jobs) -> Result<ExitCode> {
    let admin = place.checked().await?;
    let (operate, actor) = (admin.operate(), place.actor(&jobs.actor));
    let verb = Verb {
        done: "made due now",
        to_do: "make {} due now",
        from: &[State::Ready, State::Waiting],
        ended: None,
    };
    let act = async |id| {
        operate.run_now(id, actor).await?;
        Ok(Answer::new(format!("job {id} is due now")))
    };
    bulk::each(&admin, &jobs, &verb, act).await
}

pub(crate) async fn cancel(place: &Place, args: WithReason) -> Result<ExitCode> {
    let admin = place.checked().await?;
    let (operate, actor) = (admin.operate(), place.actor(&args.jobs.actor));
    let verb = Verb {
        done: "cancelled",
        to_do: "cancel {}",
        from: &[State::Ready, State::Waiting, State::Leased],
        ended: None,
    };
    let act = async |id| {
        operate.cancel(id, args.reason.as_deref(), actor).await?;
        Ok(Answer::new(format!("job {id} is cancelled")))
    };
    bulk::each(&admin, &args.jobs, &verb, act).await
}

pub(crate) async fn retire(place: &Place, args: WithReason) -> Result<ExitCode> {
    let admin = place.checked().await?;
    let (operate, actor) = (admin.operate(), place.actor(&args.jobs.actor));
    let verb = Verb {
        done: "retired",
        to_do: "retire {}",
        from: &[State::Ready, State::Waiting, State::Leased],
        ended: None,
    };
    let act = async |id| {
        operate.retire(id, args.reason.as_deref(), actor).await?;
        Ok(Answer::new(format!("job {id} is a case")))
    };
    bulk::each(&admin, &args.jobs, &verb, act).await
}

pub(crate) async fn rerun(place: &Place, args: WithReason) -> Result<ExitCode> {
    let admin = place.checked().await?;
    let (operate, actor) = (admin.operate(), place.actor(&args.jobs.actor));
    let verb = Verb {
        done: "re-run",
        to_do: "run {} once more",
        from: &[State::Finished],
        // A selection never re-runs cancelled jobs; name them by id.
        ended: Some(Ended::Done),
    };
    let act = async |id| {
        operate.rerun(id, args.reason.as_deref(), actor).await?;
        Ok(Answer::new(format!("job {id} runs once more")))
    };
    bulk::each(&admin, &args.jobs, &verb, act).await
}
