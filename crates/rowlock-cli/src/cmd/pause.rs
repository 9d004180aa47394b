//! `rowlock pause` and `rowlock resume`: stop claims of a queue or a kind in the whole fleet, and let them go on.

use anyhow::Result;
use comfy_table::Cell;
use rowlock::Target;

use super::{Actor, Place};
use crate::output::{self, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    actor: Actor,
    /// Print a JSON array of what is paused then, each with since when and by whom
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct What {
    /// Every job of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// Every job of this kind, in any queue
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// Every job of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

impl What {
    fn target(self) -> Option<Target> {
        let queue = self.queue.map(Target::queue);
        queue.or(self.kind.map(Target::kind)).or(self.group.map(Target::group))
    }
}

/// Without a target it lists what is paused.
pub(crate) async fn run(place: &Place, args: Args, pause: bool) -> Result<()> {
    let admin = place.checked().await?;
    let target = args.what.target();
    if let Some(target) = &target {
        let (operate, actor) = (admin.operate(), place.actor(&args.actor));
        let (changed, done) = match pause {
            true => (operate.pause(target, actor).await?, "paused"),
            false => (operate.resume(target, actor).await?, "resumed"),
        };
        output::note(&match (changed, pause) {
            (true, _) => format!("{target} {done}; every worker follows within a second"),
            (false, true) => format!("{target} was paused before"),
            (false, false) => format!("{target} was not paused"),
        });
    }
    let pauses = admin.observe().pauses().await?;
    if args.json {
        return output::print_json(&pauses);
    }
    if pauses.is_empty() {
        return output::print("nothing is paused\n");
    }
    let mut rows = table(["paused", "since", "by"]);
    for pause in &pauses {
        rows.add_row([
            Cell::new(&pause.target),
            Cell::new(when(pause.since)),
            Cell::new(&pause.by),
        ]);
    }
    output::print(&text(&rows))
}
