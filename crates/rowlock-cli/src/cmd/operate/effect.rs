//! `rowlock effect resolve`: records whether an uncertain external call happened.

use anyhow::Result;
use rowlock::{
    Admin, JobId,
    effect::{EffectFilter, EffectNo, Resolution},
    observe::CaseView,
};

use super::{Actor, Place};
use crate::output;

const HAPPENED: &str = "happened";

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(clap::Subcommand)]
enum Verb {
    /// Record whether an uncertain external call happened, and reopen the case of its job
    Resolve(Resolve),
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("found").required(true).args(["happened", "not_happened"]))]
struct Resolve {
    /// Number of the call, as `rowlock effects` shows it
    no: EffectNo,
    /// The call happened; later attempts get this reply and do not call again
    #[arg(long, value_name = "JSON", value_parser = json)]
    happened: Option<serde_json::Value>,
    /// The call did not happen and no longer can; the next attempt calls
    #[arg(long)]
    not_happened: bool,
    /// Leave the case as it is; its compensation is not enqueued either
    #[arg(long)]
    no_reopen: bool,
    #[command(flatten)]
    actor: Actor,
    /// Print one JSON object: no, job, whether it happened, and whether the case was reopened
    #[arg(long)]
    json: bool,
}

fn json(text: &str) -> Result<serde_json::Value, String> {
    serde_json::from_str(text).map_err(|error| format!("not json: {error}"))
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let Verb::Resolve(args) = args.verb;
    let admin = place.checked().await?;
    let (resolution, word) = match args.happened {
        Some(reply) => (Resolution::Happened(reply), HAPPENED),
        None => (Resolution::NotHappened, "did not happen"),
    };
    let actor = place.actor(&args.actor);
    let job = admin.operate().resolve_effect(args.no, resolution, actor).await?;
    let reopened = match args.no_reopen {
        true => Err("--no-reopen was given".to_owned()),
        false => reopen(&admin, job, actor).await?,
    };
    if args.json {
        return output::print_json(&serde_json::json!({
            "no": args.no,
            "job": job,
            "happened": word == HAPPENED,
            "reopened": reopened.is_ok(),
            "not_reopened": reopened.err(),
        }));
    }
    let mut text = format!("effect {} of job {job} {word}\n", args.no);
    if !args.no_reopen {
        text += &match reopened {
            Ok(()) => format!("reopened {job}\n"),
            Err(why) => format!("not reopened: {why}\n"),
        };
    }
    output::print(&text)
}

/// Whether the job is a case because of an uncertain call.
pub(crate) fn is_parked(case: &CaseView) -> bool {
    case.reason.starts_with("effect ") && case.reason.contains(" is in doubt since ")
}

/// Reopens the job's case, unless another uncertain call would park it again; then it says why not.
async fn reopen(admin: &Admin, job: JobId, actor: &str) -> Result<Result<(), String>> {
    let observe = admin.observe();
    let Some(case) = observe.case(job).await? else {
        return Ok(Err(format!("job {job} is not a case")));
    };
    if !is_parked(&case) {
        return Ok(Err(format!(
            "job {job} was retired for another reason: {}; `rowlock reopen {job}` reopens it",
            case.reason
        )));
    }
    let doubts = EffectFilter::new().job(job).doubtful().limit(100);
    let doubts = observe.effects(&doubts).await?;
    if let Some(other) = doubts.iter().find(|effect| effect.policy == "park") {
        return Ok(Err(format!(
            "effect {} {:?} of job {job} is uncertain too",
            other.no, other.name
        )));
    }
    admin.operate().reopen(job, actor).await?;
    Ok(Ok(()))
}
