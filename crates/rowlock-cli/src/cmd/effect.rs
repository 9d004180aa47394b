//! `rowlock effect resolve`: records what somebody found out about an effect in doubt.

use anyhow::Result;
use rowlock::{Admin, CaseView, EffectFilter, Resolution};

use super::{Actor, Place};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Records whether an effect in doubt happened, and reopens the case that it parked
    Resolve(Resolve),
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("found").required(true).args(["happened", "not_happened"]))]
struct Resolve {
    /// The effect's number, as `rowlock effects` shows it
    no: i64,
    /// It happened; later attempts get this reply without a call
    #[arg(long, value_name = "JSON", value_parser = json)]
    happened: Option<serde_json::Value>,
    /// It did not happen and cannot happen any more; the next attempt calls
    #[arg(long)]
    not_happened: bool,
    /// Leave the case as it is, also without the compensation that the doubt withheld
    #[arg(long)]
    no_reopen: bool,
    #[command(flatten)]
    actor: Actor,
}

fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not json: {error}"))
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let Verb::Resolve(args) = args.verb;
    let admin = place.checked().await?;
    let (resolution, word) = match args.happened {
        Some(reply) => (Resolution::Happened(reply), "happened"),
        None => (Resolution::NotHappened, "did not happen"),
    };
    let actor = place.actor(&args.actor);
    let job = admin.operate().resolve_effect(args.no, resolution, actor).await?;
    let mut text = format!("effect {} of job {job} {word}\n", args.no);
    if !args.no_reopen {
        text += &reopen(&admin, job, actor).await?;
    }
    output::print(&text)
}

/// Whether it is a doubt that made a case of the job.
pub(super) fn is_parked(case: &CaseView) -> bool {
    case.reason.starts_with("effect ") && case.reason.contains(" is in doubt since ")
}

/// Reopens the job's case, unless another effect would park it again at once.
async fn reopen(admin: &Admin, job: i64, actor: &str) -> Result<String> {
    let observe = admin.observe();
    let Some(case) = observe.case(job).await? else {
        return Ok(format!("job {job} is no case; nothing to reopen\n"));
    };
    if !is_parked(&case) {
        return Ok(format!(
            "not reopened: job {job} was not parked, it was retired because {}; `rowlock reopen {job}` does\n",
            case.reason
        ));
    }
    let doubts = EffectFilter {
        job: Some(job),
        doubtful: true,
        max: 100,
    };
    let doubts = observe.effects(&doubts).await?;
    if let Some(other) = doubts.iter().find(|effect| effect.policy == "park") {
        return Ok(format!(
            "not reopened: effect {} {:?} of job {job} is in doubt too\n",
            other.no, other.name
        ));
    }
    admin.operate().reopen(job, actor).await?;
    Ok(format!("reopened {job}\n"))
}
