//! `rowlock reopen`: puts a case back to ready.

use anyhow::Result;

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
    place.checked().await?.operate().reopen(args.id, &args.actor).await?;
    output::print(&format!("reopened {}\n", args.id))
}
