//! `rowlock rollout`: shows and sets the percentage of keys that take a new code path.

use anyhow::Result;
use comfy_table::Cell;

use super::{Actor, Place};
use crate::output::{self, right, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Name of the rollout; without it, all rollouts are listed
    name: Option<String>,
    /// Percentage of keys that take the new code path, 0 to 100; without it, the setting is shown
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    percent: Option<u8>,
    #[command(flatten)]
    actor: Actor,
    /// Print a JSON array, each rollout with the time and actor of its last change
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let admin = place.checked().await?;
    if let (Some(name), Some(percent)) = (&args.name, args.percent) {
        admin
            .operate()
            .set_rollout(name, percent, place.actor(&args.actor))
            .await?;
    }
    let mut rollouts = admin.observe().rollouts().await?;
    if let Some(name) = &args.name {
        rollouts.retain(|rollout| rollout.name == *name);
    }
    if args.json {
        return output::print_json(&rollouts);
    }
    if rollouts.is_empty() {
        return output::print(&match args.name {
            Some(name) => format!("{name} is not set: 0 %\n"),
            None => "no rollouts\n".to_owned(),
        });
    }
    let mut rows = table(["rollout", "percent", "set", "by"]);
    for rollout in &rollouts {
        rows.add_row([
            Cell::new(&rollout.name),
            right(rollout.percent),
            Cell::new(when(rollout.changed_at)),
            Cell::new(&rollout.changed_by),
        ]);
    }
    output::print(&text(&rows))?;
    if args.percent.is_some() {
        output::note("every worker follows within a second, without a restart");
    }
    Ok(())
}
