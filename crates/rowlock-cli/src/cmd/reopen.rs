//! `rowlock reopen`: puts a case back to ready, or to waiting while what it waits for has not come.

use anyhow::Result;
use rowlock::State;

use super::Place;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The job's id
    id: i64,
    /// Who decided it; kept in the audit
    #[arg(long, env = "USER", default_value = "operator")]
    actor: String,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let admin = place.checked().await?;
    admin.operate().reopen(args.id, &args.actor).await?;
    let job = admin.observe().job(args.id).await?;
    let waits = job
        .filter(|job| job.state == State::Waiting)
        .and_then(|job| job.waits_for);
    let waits = waits.map(|name| format!("; it waits for {name} (rowlock complete {name})"));
    output::print(&format!("reopened {}{}\n", args.id, waits.unwrap_or_default()))
}
