//! `rowlock reopen`: puts a case back to ready, or to waiting if the name it waits for is not completed.

use anyhow::Result;
use rowlock::{Admin, JobId, State};
use serde::Serialize;

use super::{Actor, Place};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Id of the job
    #[arg(value_parser = super::job_id)]
    id: JobId,
    #[command(flatten)]
    actor: Actor,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let reopened = one(&place.checked().await?, args.id, place.actor(&args.actor)).await?;
    match args.json {
        true => output::print_json(&reopened),
        false => output::print(&format!("{}\n", reopened.line())),
    }
}

/// A case that was reopened, and where its job is now.
#[derive(Serialize)]
pub(super) struct Reopened {
    id: JobId,
    /// None if the job was removed a moment later.
    state: Option<&'static str>,
    waits_for: Option<String>,
}

impl Reopened {
    pub(super) fn line(&self) -> String {
        let waits = self.waits_for.as_ref();
        let waits = waits.map(|name| format!("; it waits for {name} (rowlock complete {name})"));
        format!("reopened {}{}", self.id, waits.unwrap_or_default())
    }
}

/// Reopens a case.
pub(super) async fn one(admin: &Admin, id: JobId, actor: &str) -> Result<Reopened> {
    admin.operate().reopen(id, actor).await?;
    now(admin, id).await
}

/// Where the job of a reopened case is.
pub(super) async fn now(admin: &Admin, id: JobId) -> Result<Reopened> {
    let job = admin.observe().job(id).await?;
    let waiting = job.as_ref().filter(|job| job.state == State::Waiting);
    Ok(Reopened {
        id,
        state: job.as_ref().map(|job| job.state.as_str()),
        waits_for: waiting.and_then(|job| job.waits_for.clone()),
    })
}
