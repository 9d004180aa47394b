//! `rowlock inspect`: everything about one job.

use anyhow::Result;
use rowlock::{
    JobId, State,
    effect::EffectFilter,
    observe::{CaseView, JobView},
};

use super::{Place, tables};
use crate::output::{self, BOLD, DIM, PLAIN, RED, when};

/// No more of a job's effects are shown.
const EFFECTS_MAX: u32 = 1000;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Id of the job
    #[arg(value_parser = super::job_id)]
    id: JobId,
    /// Print one JSON object: job, attempts, effects, chain, case
    #[arg(long)]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let observe = place.checked().await?.observe();
    let Some(job) = observe.job(args.id).await? else {
        return Err(super::no_job(args.id));
    };
    let attempts = observe.attempts(args.id).await?;
    let effects = EffectFilter::new().job(args.id).limit(EFFECTS_MAX);
    let effects = observe.effects(&effects).await?;
    let chain = observe.chain(args.id).await?;
    let case = observe.case(args.id).await?;
    if args.json {
        let all =
            serde_json::json!({ "job": job, "attempts": attempts, "effects": effects, "chain": chain, "case": case });
        return output::print_json(&all);
    }
    let mut text = facts(&job);
    if let Some(case) = &case {
        text += &reason(case);
    }
    text += &heading("payload");
    text += &format!("{}\n", serde_json::to_string_pretty(&job.payload)?);
    if let Some(result) = &job.result {
        text += &heading("result");
        text += &format!("{}\n", serde_json::to_string_pretty(result)?);
    }
    text += &heading("attempts");
    text += &if attempts.is_empty() {
        "no attempt has ended\n".into()
    } else {
        tables::attempts(&attempts)
    };
    if !effects.is_empty() {
        text += &heading("effects");
        text += &tables::effects(&effects);
    }
    if chain.len() > 1 {
        text += &heading("chain");
        text += &tables::jobs(&chain);
    }
    output::print(&text)
}

fn heading(title: &str) -> String {
    format!("\n{BOLD}{title}{PLAIN}\n")
}

fn facts(job: &JobView) -> String {
    let mut text = format!("{BOLD}job {}{PLAIN}  {}\n", job.id, tables::state(job).content());
    let mut fact = |name: &str, value: String| text += &format!("{DIM}{name:<11}{PLAIN}{value}\n");
    fact("kind", format!("{} (version {})", job.kind, job.version));
    fact("queue", format!("{}, priority {}", job.queue, job.priority));
    fact("uid", job.uid.to_string());
    fact(
        "attempts",
        format!("{} of {}, epoch {}", job.attempt, job.attempts_max, job.epoch),
    );
    fact("enqueued", format!("{} ({})", when(job.created_at), job.created_at));
    if let Some(name) = &job.waits_for {
        let verb = if job.state == State::Waiting { "waits" } else { "waited" };
        fact(&format!("{verb} for"), name.clone());
    }
    if let Some(group) = &job.group {
        let behind = job.state == State::Waiting;
        fact(
            "group",
            format!("{group}{}", if behind { ", waiting for its turn" } else { "" }),
        );
    }
    if let Some(due) = job.due_at {
        fact("due", format!("{} ({due})", when(due)));
    }
    if let (Some(worker), Some(claimed)) = (job.worker.map(i64::from), job.claimed_at) {
        fact("claimed", format!("{} by worker {worker}", when(claimed)));
    }
    if let Some(expires) = job.expires_at {
        fact("expires", format!("{} ({expires})", when(expires)));
    }
    if let Some(key) = &job.key {
        fact("key", key.clone());
    }
    if !job.tags.is_empty() {
        fact("tags", job.tags.join(", "));
    }
    text
}

fn reason(case: &CaseView) -> String {
    let (id, when) = (case.id, when(case.retired_at));
    let mut text = format!("\n{RED}retired {when}:{PLAIN} {}\n", case.reason);
    let known = [("owner", case.owner.clone()), ("note", case.note.clone())];
    let error = case
        .error_no
        .map(|no| format!("{no} (rowlock cases --error {no} lists cases like this)"));
    for (name, value) in known.into_iter().chain([("error", error)]) {
        if let Some(value) = value {
            text += &format!("{DIM}{name:<11}{PLAIN}{value}\n");
        }
    }
    match super::effect::is_parked(case) {
        // Its reason says what to do first.
        true => text,
        false => text + &format!("rowlock reopen {id}   runs it again\n"),
    }
}
