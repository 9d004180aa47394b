//! `rowlock case`: what people do about cases: reopen them, one, some or all that failed alike; note on them; close them.

use std::process::ExitCode;

use anyhow::Result;
use clap::Subcommand;
use rowlock::Admin;

use super::{Actor, Place, bulk, reopen};
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
}

#[derive(Subcommand)]
enum What {
    /// Puts cases back, with all their attempts: these, or all of an error, so many a minute until it is back
    Reopen {
        /// The jobs' ids
        #[arg(required_unless_present = "error", conflicts_with = "error")]
        ids: Vec<i64>,
        /// All open cases of this error, as `rowlock cases --by-error` lists them
        #[arg(long, value_name = "ERROR", value_parser = error_no)]
        error: Option<i64>,
        /// How many of an error's cases a minute
        #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=20_000))]
        per_minute: u32,
        /// Another payload for the one case that is named, as JSON; the old one is kept in the audit
        #[arg(long, value_name = "JSON", conflicts_with = "error")]
        payload: Option<String>,
        /// Do it to several at once
        #[arg(long)]
        yes: bool,
    },
    /// Says on a case whose it is and what was found out
    Note {
        /// The job's id
        id: i64,
        /// What was found out
        #[arg(required_unless_present = "owner")]
        text: Option<String>,
        /// Whose it is
        #[arg(long, value_name = "NAME")]
        owner: Option<String>,
    },
    /// Closes cases for good: their jobs are finished, as cancelled
    Close {
        /// The jobs' ids
        #[arg(required = true)]
        ids: Vec<i64>,
        /// Why; kept in the audit and with the job
        #[arg(long)]
        reason: Option<String>,
        /// Do it to several at once
        #[arg(long)]
        yes: bool,
    },
}

/// As it is printed: twelve hexadecimal digits.
pub(super) fn error_no(text: &str) -> Result<i64, String> {
    i64::from_str_radix(text, 16).map_err(|_| "give the twelve digits that `rowlock cases --by-error` prints".into())
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let admin = place.checked().await?;
    let (operate, actor) = (admin.operate(), place.actor(&args.actor));
    match args.what {
        What::Reopen {
            error: Some(error),
            per_minute,
            yes,
            ..
        } => return reopen_error(&admin, error, per_minute, actor, yes).await,
        What::Reopen { ids, payload, yes, .. } => {
            if payload.is_none() {
                sure(ids.len(), yes, "reopened")?;
            }
            match (payload, &ids[..]) {
                (Some(payload), [id]) => {
                    operate.reopen_with(*id, &payload, actor).await?;
                    output::print(&format!("{}\n", reopen::told(&admin, *id).await?))?;
                }
                (Some(_), _) => {
                    return Err(Advice::usage(
                        "one payload for several cases",
                        "name one case at a time",
                    ));
                }
                (None, ids) => {
                    let act = async |id| reopen::one(&admin, id, actor).await;
                    return bulk::named(ids, "reopened", act).await;
                }
            }
        }
        What::Note { id, text, owner } => {
            operate.note_case(id, owner.as_deref(), text.as_deref(), actor).await?;
            output::print(&format!("noted on {id}\n"))?;
        }
        What::Close { ids, reason, yes } => {
            sure(ids.len(), yes, "closed")?;
            let act = async |id| {
                operate.close_case(id, reason.as_deref(), actor).await?;
                Ok(format!("closed {id}"))
            };
            return bulk::named(&ids, "closed", act).await;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Several at once need a word more.
fn sure(cases: usize, yes: bool, what: &str) -> Result<()> {
    match cases > 1 && !yes {
        true => Err(Advice::unsure(format!("{cases} cases would be {what}"))),
        false => Ok(()),
    }
}

async fn reopen_error(admin: &Admin, error: i64, per_minute: u32, actor: &str, yes: bool) -> Result<ExitCode> {
    let errors = admin.observe().case_errors(100_000).await?;
    let cases = errors.iter().find(|e| e.no == error).map_or(0, |e| e.cases);
    if !yes {
        // There may be more that nobody has named yet.
        return Err(Advice::unsure(format!(
            "all open cases of error {error:012x} would be reopened, at present {cases}"
        )));
    }
    let tell = |reopened| output::progress(&format!("reopened {reopened}"));
    let ended = admin.operate().reopen_error(error, per_minute, actor, tell).await?;
    output::print(&format!("reopened {}, {} left\n", ended.reopened, ended.left))?;
    let Some(why) = ended.stopped else {
        return Ok(ExitCode::SUCCESS);
    };
    output::note(&format!("{RED}error:{PLAIN} stopped: {why}"));
    output::note(&format!(
        "{CYAN}try:  {PLAIN} rowlock inspect ID   shows how; mend it, and go on with the same command"
    ));
    // The error was back.
    Ok(Exit::NotMet.into())
}
