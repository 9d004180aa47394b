//! `rowlock rollout`: shows and sets how many of a hundred keys take a new way.

use anyhow::Result;
use comfy_table::Cell;

use super::{Actor, Place};
use crate::output::{self, right, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The rollout; without it every one that was ever set is listed
    name: Option<String>,
    /// How many of a hundred keys take the new way, 0 to 100; without it the present setting is shown
    #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
    percent: Option<u8>,
    #[command(flatten)]
    actor: Actor,
    /// Print a JSON array, each rollout with when and by whom it was set
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
            Some(name) => format!("{name} was never set: it is at 0 %\n"),
            None => "no rollout was ever set\n".to_owned(),
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
