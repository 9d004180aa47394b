//! `rowlock demo` and the hidden commands of its processes; the scenes are in `rowlock-demo`.

use std::process::ExitCode;

use anyhow::Result;
pub(crate) use rowlock_demo::{Args, ProviderArgs, WorkerArgs, provide, work};

use super::signal::interrupted;
use crate::output::Advice;

pub(crate) async fn run(database: Option<&str>, args: Args) -> Result<ExitCode> {
    rowlock_demo::run(database, args, interrupted()).await.map_err(advised)
}

/// What the scenes advise, with the exit codes of the command line.
fn advised(error: anyhow::Error) -> anyhow::Error {
    match error.downcast::<rowlock_demo::Advice>() {
        Ok(advice) if advice.is_usage() => Advice::usage(advice.to_string(), advice.next()),
        Ok(advice) => Advice::error(advice.to_string(), advice.next()),
        Err(error) => error,
    }
}
