//! The commands.

pub(crate) mod adopt;
pub(crate) mod bridge;
pub(crate) mod completions;
pub(crate) mod demo;
pub(crate) mod enqueue;
pub(crate) mod man;
pub(crate) mod migrate;
pub(crate) mod observe;
pub(crate) mod operate;
mod signal;
pub(crate) mod work;

use std::time::Duration;

use clap::{Parser, Subcommand};
use rowlock::JobId;

use crate::output::Advice;
pub(crate) use crate::place::{Actor, Place};

/// Background jobs whose effects happen exactly once, on PostgreSQL and SQLite
#[derive(Parser)]
#[command(name = "rowlock", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

// `help.rs` lists them in groups and has their examples.
#[derive(Subcommand)]
pub(crate) enum Command {
    /// Process orders while workers are killed, and count what was lost or doubled
    Demo(demo::Args),
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
    #[command(hide = true)]
    DemoProvider(demo::ProviderArgs),
    /// Create or update the tables
    Migrate(migrate::Args),
    /// Check an existing table, and print or apply what workers need to run its rows
    Adopt(adopt::Args),
    /// Count jobs by queue and kind, and list the workers
    Status(observe::status::Args),
    /// List jobs, newest first
    Jobs(observe::jobs::Args),
    /// List the worker processes: jobs held, last heartbeat, state
    Workers(observe::workers::Args),
    /// Show one job: payload, attempts, external calls, chain, and why it was retired
    Inspect(observe::inspect::Args),
    /// List every job of a chain, first link first
    Chain(observe::chain::Args),
    /// List cases: retired jobs that wait for a decision
    Cases(observe::cases::Args),
    /// Reopen, annotate or close cases
    Case(operate::case::Args),
    /// Reopen one case: its job is ready again, with all its attempts
    Reopen(operate::reopen::Args),
    /// List external calls that may or may not have happened
    Effects(observe::effects::Args),
    /// Record whether an uncertain external call happened
    Effect(operate::effect::Args),
    /// Show or set the percentage of keys that take a new code path
    Rollout(operate::rollout::Args),
    /// Stop every worker from claiming a queue, kind or group; without one, list the pauses
    Pause(operate::pause::Args),
    /// Let workers claim a paused queue, kind or group again
    Resume(operate::pause::Args),
    /// Show the breakers, or open and close one by hand
    Breaker(operate::breaker::Args),
    /// Make jobs due later
    Delay(operate::delay::Delay),
    /// Make jobs due now
    RunNow(operate::bulk::Jobs),
    /// Cancel unfinished jobs; a running job is stopped and its result is dropped
    Cancel(operate::delay::WithReason),
    /// Turn unfinished jobs into cases, and enqueue their compensation
    Retire(operate::delay::WithReason),
    /// Run finished jobs once more; what is stored under a key is not done again
    Rerun(operate::delay::WithReason),
    /// Complete a name that jobs wait for, such as an approval
    Complete(operate::complete::Args),
    /// Add a job by its kind and JSON payload
    Enqueue(enqueue::Args),
    /// Run a program or call a server for each job of a kind, until stopped
    Work(work::Args),
    /// Let messages of an SQS queue trigger jobs, until stopped (needs the feature `sqs`)
    Bridge(bridge::Args),
    /// List what operators did, newest first
    Audit(observe::audit::Args),
    /// Delete old finished jobs now, as workers do about every ten minutes
    Prune(operate::prune::Args),
    /// Check everything that can stop jobs from running, and suggest a fix for each problem
    Doctor(observe::doctor::Args),
    /// Check the invariants of the live database
    Verify(observe::verify::Args),
    /// Print the completion script of a shell
    Completions(completions::Args),
    /// Print the man page, or write one page per command
    Man(man::Args),
}

/// No job has this id.
fn no_job(id: JobId) -> anyhow::Error {
    Advice::missing(
        format!("no job {id}; it never existed, or it was deleted after its retention"),
        "rowlock jobs   lists the newest jobs",
    )
}

/// Reads the id of a job.
fn job_id(text: &str) -> Result<JobId, String> {
    text.parse()
        .map_err(|_| "not a job id; use a number such as 42".to_owned())
}

/// Reads `500ms`, `5s`, `10m`, `2h` or `1d`.
fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_ms = match unit {
        "ms" => 1,
        "s" => 1000,
        "m" => 60 * 1000,
        "h" => 3600 * 1000,
        "d" => 24 * 3600 * 1000,
        _ => return Err("use a whole number and ms, s, m, h or d, such as 5s".into()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "use a whole number and a unit, such as 5s".to_owned())?;
    number
        .checked_mul(unit_ms)
        .map(Duration::from_millis)
        .ok_or_else(|| "too long".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_need_a_number_and_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2h"), Ok(Duration::from_secs(7200)));
        for bad in [
            "",
            "5",
            "s",
            "-5s",
            "5 s",
            "1.5s",
            "99999999999999999999d",
            "99999999999999999d",
        ] {
            assert!(duration(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_command_line_is_well_formed() {
        crate::help::command().debug_assert();
    }
}
