//! `rowlock case`: operator commands on cases. Reopen one, some, or all with the same error; annotate them; close them.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use rowlock::{Admin, JobId, observe::ErrorNo};
use serde_json::json;

use super::{
    Actor, Place,
    bulk::{self, Answer},
    job_id, reopen,
};
use crate::{
    exit::Exit,
    output::{self, Advice, CYAN, PLAIN, RED},
};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
    #[command(flatten)]
    actor: Actor,
    /// Print JSON: an array with one object per case, or one object for a note or an error
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Subcommand)]
enum What {
    /// Reopen cases by id, or all cases of an error, a few per minute until the error comes back
    Reopen {
        /// Ids of the jobs
        #[arg(required_unless_present = "error", conflicts_with = "error", value_parser = job_id)]
        ids: Vec<JobId>,
        /// All open cases of this error, as `rowlock cases --by-error` lists them
        #[arg(long, value_name = "ERROR", value_parser = error_no)]
        error: Option<ErrorNo>,
        /// With --error: how many cases per minute
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=20_000))]
        per_minute: u32,
        /// New payload for one case, as JSON; the old payload is kept in the audit
        #[arg(long, value_name = "JSON", conflicts_with = "error")]
        payload: Option<String>,
        /// Confirm the action on several cases; without it, only count them and exit with 2
        #[arg(long)]
        yes: bool,
    },
    /// Write an owner and a note on a case
    Note {
        /// Id of the job
        #[arg(value_parser = job_id)]
        id: JobId,
        /// The note, such as what you found out
        #[arg(required_unless_present = "owner")]
        text: Option<String>,
        /// Who takes care of the case
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
    },
    /// Close cases for good: their jobs are finished, as cancelled
    Close {
        /// Ids of the jobs
        #[arg(required = true, value_parser = job_id)]
        ids: Vec<JobId>,
        /// Reason, kept with the job and in the audit
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
        /// Confirm the action on several cases; without it, only count them and exit with 2
        #[arg(long)]
        yes: bool,
    },
}

/// An error's number as it is printed: twelve hexadecimal digits.
pub(crate) fn error_no(text: &str) -> Result<ErrorNo, String> {
    text.parse()
        .map_err(|_| "use the twelve digits that `rowlock cases --by-error` prints".into())
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let admin = place.checked().await?;
    let (operate, actor, json) = (admin.operate(), place.actor(&args.actor), args.json);
    match args.what {
        What::Reopen {
            error: Some(error),
            per_minute,
            yes,
            ..
        } => {
            if !yes {
                return would_reopen_error(&admin, error, json).await;
            }
            return reopen_error(&admin, error, per_minute, actor, json).await;
        }
        What::Reopen { ids, payload, yes, .. } => {
            if payload.is_none() && needs_yes(&ids, yes) {
                return would(json, "reopen", &ids);
            }
            if payload.is_some() && ids.len() > 1 {
                return Err(Advice::usage(
                    "--payload is for one case, and several are named",
                    "name one case at a time",
                ));
            }
            let act = async |id| {
                let reopened = match &payload {
                    Some(payload) => {
                        operate.reopen_with(id, payload, actor).await?;
                        reopen::now(&admin, id).await?
                    }
                    None => reopen::one(&admin, id, actor).await?,
                };
                Ok(Answer::with(reopened.line(), serde_json::to_value(&reopened)?))
            };
            return bulk::named(&ids, "reopened", json, act).await;
        }
        What::Note { id, text, owner } => {
            operate.note_case(id, owner.as_deref(), text.as_deref(), actor).await?;
            match json {
                true => {
                    let case = admin.observe().case(id).await?;
                    let (owner, note) = case.map(|case| (case.owner, case.note)).unwrap_or_default();
                    output::print_json(&json!({ "id": id, "owner": owner, "note": note }))?;
                }
                false => output::print(&format!("noted on {id}\n"))?,
            }
        }
        What::Close { ids, reason, yes } => {
            if needs_yes(&ids, yes) {
                return would(json, "close", &ids);
            }
            let act = async |id| {
                operate.close_case(id, reason.as_deref(), actor).await?;
                Ok(Answer::new(format!("closed {id}")))
            };
            return bulk::named(&ids, "closed", json, act).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether `--yes` is missing: an action on several cases needs it.
fn needs_yes(ids: &[JobId], yes: bool) -> bool {
    ids.len() > 1 && !yes
}

fn would(json: bool, verb: &str, ids: &[JobId]) -> Result<ExitCode> {
    let cases = ids.len();
    output::would(json, &format!("{verb} {cases} cases"), json!({ "cases": cases }))
}

async fn would_reopen_error(admin: &Admin, error: ErrorNo, json: bool) -> Result<ExitCode> {
    let errors = admin.observe().case_errors(100_000).await?;
    let cases = errors.iter().find(|e| e.no == error).map_or(0, |e| e.cases);
    // There may be more that no worker has grouped yet.
    let what = format!("reopen all open cases of error {error}, {cases} now");
    output::would(json, &what, json!({ "cases": cases }))
}

async fn reopen_error(admin: &Admin, error: ErrorNo, per_minute: u32, actor: &str, json: bool) -> Result<ExitCode> {
    let tell = |reopened| output::progress(&format!("reopened {reopened}"));
    let ended = admin.operate().reopen_error(error, per_minute, actor, tell).await?;
    match json {
        true => output::print_json(&json!({
            "error": error.to_string(),
            "reopened": ended.reopened,
            "left": ended.left,
            "stopped": ended.stopped,
        }))?,
        false => output::print(&format!("reopened {}, {} left\n", ended.reopened, ended.left))?,
    }
    let Some(why) = ended.stopped else {
        return Ok(ExitCode::SUCCESS);
    };
    output::note(&format!("{RED}error:{PLAIN} stopped: {why}"));
    output::note(&format!(
        "{CYAN}try:  {PLAIN} rowlock inspect ID   shows how; fix the cause, then run the same command again"
    ));
    // The error came back.
    Ok(Exit::NotMet.into())
}
