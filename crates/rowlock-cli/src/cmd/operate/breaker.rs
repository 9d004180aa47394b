//! `rowlock breaker`: the state of the breakers, the last changes of one, and opening or closing one by hand.

use anyhow::Result;
use comfy_table::Cell;
use rowlock::breaker::{BreakerView, Force};

use super::{Actor, Place};
use crate::output::{self, table, text, when};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show this breaker with its last changes
    name: Option<String>,
    /// Force the breaker open or closed, until it is set to auto again
    #[arg(requires = "name")]
    to: Option<To>,
    #[command(flatten)]
    actor: Actor,
    /// Number of changes to show
    #[arg(long, default_value_t = 10, value_name = "N")]
    changes: u32,
    /// Print a JSON array of the breakers; with a name, one object with its changes
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum To {
    Open,
    Closed,
    Auto,
}

impl From<To> for Force {
    fn from(to: To) -> Force {
        match to {
            To::Open => Force::Open,
            To::Closed => Force::Closed,
            To::Auto => Force::Auto,
        }
    }
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let admin = place.checked().await?;
    if let (Some(name), Some(to)) = (&args.name, args.to) {
        let actor = place.actor(&args.actor);
        let changed = admin.operate().force_breaker(name, to.into(), actor).await?;
        let said = match to {
            To::Open => "forced open",
            To::Closed => "forced closed",
            To::Auto => "automatic",
        };
        output::note(&match changed {
            true => format!("breaker {name} is {said}; every worker follows within a second"),
            false => format!("breaker {name} was already {said}"),
        });
    }
    let mut breakers = admin.observe().breakers().await?;
    let Some(name) = args.name else {
        return match (args.json, breakers.is_empty()) {
            (true, _) => output::print_json(&breakers),
            (false, true) => output::print("no breakers; a breaker appears when a worker uses it\n"),
            (false, false) => output::print(&listed(&breakers)),
        };
    };
    breakers.retain(|breaker| breaker.name == name);
    let Some(breaker) = breakers.first() else {
        return Err(rowlock::Error::NotFound(format!(
            "no breaker {name:?}; `rowlock breaker` lists the breakers that workers have used"
        ))
        .into());
    };
    let changes = admin.observe().breaker_log(&name, args.changes).await?;
    if args.json {
        return output::print_json(&serde_json::json!({"breaker": breaker, "changes": changes}));
    }
    let mut rows = table(["at", "from", "to", "by", "why"]);
    for change in &changes {
        let forced = if change.forced { " (forced)" } else { "" };
        rows.add_row([
            Cell::new(when(change.at)),
            Cell::new(change.from),
            Cell::new(format!("{}{forced}", change.to)),
            Cell::new(&change.by),
            Cell::new(change.reason.as_deref().unwrap_or("")),
        ]);
    }
    output::print(&format!("{}\n{}", listed(&breakers), text(&rows)))
}

fn listed(breakers: &[BreakerView]) -> String {
    let mut rows = table([
        "breaker",
        "state",
        "since",
        "by",
        "failures",
        "probes",
        "try again",
        "why",
    ]);
    for breaker in breakers {
        let forced = if breaker.forced { " (forced)" } else { "" };
        rows.add_row([
            Cell::new(&breaker.name),
            Cell::new(format!("{}{forced}", breaker.state)),
            Cell::new(when(breaker.changed_at)),
            Cell::new(&breaker.changed_by),
            Cell::new(breaker.failures),
            Cell::new(breaker.probing),
            Cell::new(breaker.open_until.map(when).unwrap_or_default()),
            Cell::new(breaker.reason.as_deref().unwrap_or("")),
        ]);
    }
    text(&rows)
}
