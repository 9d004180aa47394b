//! The commands.

pub(crate) mod adopt;
pub(crate) mod audit;
pub(crate) mod breaker;
#[cfg(feature = "sqs")]
pub(crate) mod bridge;
mod bulk;
pub(crate) mod case;
pub(crate) mod cases;
pub(crate) mod chain;
pub(crate) mod complete;
pub(crate) mod delay;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod effect;
pub(crate) mod effects;
pub(crate) mod enqueue;
pub(crate) mod inspect;
pub(crate) mod jobs;
pub(crate) mod migrate;
mod own;
pub(crate) mod pause;
pub(crate) mod prune;
pub(crate) mod reopen;
pub(crate) mod rollout;
pub(crate) mod status;
mod tables;
pub(crate) mod verify;
pub(crate) mod work;
pub(crate) mod workers;

use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::output::Advice;
pub(crate) use crate::place::{Actor, Place};

/// Background jobs whose effects happen exactly once, on PostgreSQL and SQLite.
///
/// New here? `rowlock demo` kills its own workers all the time and counts what was lost or doubled.
#[derive(Parser)]
#[command(name = "rowlock", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Runs orders through workers that are killed all the time, and counts what was lost or doubled; on a file of its own,
    /// or where --database says
    Demo(demo::Args),
    #[command(hide = true)]
    DemoWorker(demo::WorkerArgs),
    #[command(hide = true)]
    DemoProvider(demo::ProviderArgs),
    /// Creates or updates the tables
    Migrate(migrate::Args),
    /// Looks at a table of your own, and prints or applies what it needs to be worked off; exits with 3 when it is not ready
    Adopt(adopt::Args),
    /// Shows how many jobs wait, run or were retired, and the workers
    Status(status::Args),
    /// Lists jobs, newest first
    Jobs(jobs::Args),
    /// Lists the worker processes: what each holds, when it last beat, whether it is alive
    Workers(workers::Args),
    /// Shows one job: payload, attempts, chain, and why it was retired
    Inspect(inspect::Args),
    /// Lists every link of a job's chain, first link first
    Chain(chain::Args),
    /// Lists retired jobs that wait for a decision
    Cases(cases::Args),
    /// Reopens cases, one, some or all that failed alike; notes on them; closes them
    Case(case::Args),
    /// Puts a case back to ready, with all its attempts
    Reopen(reopen::Args),
    /// Lists outside calls of which nobody knows whether they happened
    Effects(effects::Args),
    /// Resolves such a doubt
    Effect(effect::Args),
    /// Shows and sets how many of a hundred keys take a new way
    Rollout(rollout::Args),
    /// Stops claims of a queue, a kind or a group in the whole fleet; without any it lists what is paused
    Pause(pause::Args),
    /// Lets a paused queue, kind or group go on
    Resume(pause::Args),
    /// Shows the breakers, how one came where it stands, and moves one by hand
    Breaker(breaker::Args),
    /// Makes jobs due later
    Delay(delay::Delay),
    /// Makes jobs due now
    RunNow(bulk::Jobs),
    /// Cancels jobs that are not finished; one that runs is stopped, and nothing it still does counts
    Cancel(delay::WithReason),
    /// Retires jobs that are not finished, by hand: each becomes a case, and is compensated
    Retire(delay::WithReason),
    /// Runs finished jobs once more; what is kept under a key is not done again
    Rerun(delay::WithReason),
    /// Completes a name that jobs wait for, such as an approval
    Complete(complete::Args),
    /// Enqueues a job by its kind and JSON payload
    Enqueue(enqueue::Args),
    /// Runs a program or calls a server for each job of a kind, until it is stopped
    Work(work::Args),
    /// Runs a bridge between a queue outside and the jobs, until ctrl-c
    #[cfg(feature = "sqs")]
    Bridge(bridge::Args),
    /// Lists what people did, newest first: who, when, to what, before and after
    Audit(audit::Args),
    /// Removes finished jobs of a certain age now, as the workers do every ten minutes or so
    Prune(prune::Args),
    /// Looks for what is or will be in the way of jobs, and says what mends it; exits with 3 when something fails
    Doctor(doctor::Args),
    /// Looks whether the invariants hold; exits with 3 when one is broken
    Verify(verify::Args),
}

/// There is none with this id.
fn no_job(id: i64) -> anyhow::Error {
    Advice::missing(
        format!("no job {id}, or its retention is over"),
        "rowlock jobs   lists the newest",
    )
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
        _ => return Err("give a whole number and ms, s, m, h or d, such as 5s".into()),
    };
    let number: u64 = number
        .parse()
        .map_err(|_| "give a whole number and a unit, such as 5s".to_owned())?;
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
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
