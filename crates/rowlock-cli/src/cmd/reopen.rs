//! `rowlock reopen`: puts a case back to ready, or to waiting while what it waits for has not come.

use anyhow::Result;
use rowlock::{Admin, State};

use super::{Actor, Place};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's id
    id: i64,
    #[command(flatten)]
    actor: Actor,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let line = one(&place.checked().await?, args.id, place.actor(&args.actor)).await?;
    output::print(&format!("{line}\n"))
}

/// Reopens a case, and says where it stands then.
pub(super) async fn one(admin: &Admin, id: i64, actor: &str) -> Result<String> {
    admin.operate().reopen(id, actor).await?;
    told(admin, id).await
}

/// Says that a case was reopened, and what it waits for if it does.
pub(super) async fn told(admin: &Admin, id: i64) -> Result<String> {
    let job = admin.observe().job(id).await?;
    let waits = job
        .filter(|job| job.state == State::Waiting)
        .and_then(|job| job.waits_for);
    let waits = waits.map(|name| format!("; it waits for {name} (rowlock complete {name})"));
    Ok(format!("reopened {id}{}", waits.unwrap_or_default()))
}
