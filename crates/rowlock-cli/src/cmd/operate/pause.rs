//! `rowlock pause` and `rowlock resume`: stop all workers from claiming a queue, kind or group, and let them claim
//! again.

use anyhow::Result;
use comfy_table::Cell;
use rowlock::{observe::Observe, operate::Target};

use super::{Actor, Place};
use crate::output::{self, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    what: What,
    #[command(flatten)]
    actor: Actor,
    /// Print a JSON array of all pauses after this command, each with its time and actor
    #[arg(long)]
    json: bool,
}

#[derive(clap::Args)]
#[group(multiple = false)]
struct What {
    /// All jobs of this queue
    #[arg(long, value_name = "NAME")]
    queue: Option<String>,
    /// All jobs of this kind, in every queue
    #[arg(long, value_name = "NAME")]
    kind: Option<String>,
    /// All jobs of this group
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
}

impl What {
    fn target(self) -> Option<Target> {
        let queue = self.queue.map(Target::queue);
        queue.or(self.kind.map(Target::kind)).or(self.group.map(Target::group))
    }
}

/// Without a target it lists the pauses.
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
            (false, true) => format!("{target} was already paused"),
            (false, false) => format!("{target} was not paused"),
        });
        if changed && pause {
            warn_of_a_wrong_name(&admin.observe(), target).await?;
        }
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

/// A name that no open job has may be mistyped. It may also be right: a pause can come before the first job.
async fn warn_of_a_wrong_name(observe: &Observe, target: &Target) -> Result<()> {
    let lanes = observe.status().await?.lanes;
    let (known, none) = match target {
        Target::Queue(name) => (lanes.iter().any(|lane| lane.queue == *name), "is in this queue"),
        Target::Kind(name) => (lanes.iter().any(|lane| lane.kind == *name), "is of this kind"),
        // A status does not count groups.
        _ => return Ok(()),
    };
    if !known {
        output::note(&format!("no open job {none} now; check the name if you expected some"));
    }
    Ok(())
}
