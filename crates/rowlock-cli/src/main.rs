//! The `rowlock` binary: one command per file under `cmd`, on the library's public API only.
//!
//! Data goes to stdout, everything else to stderr. An error is at most a few lines, `error:`, `cause:`, `try:`, and
//! never holds a password.

mod cmd;
mod config;
mod exit;
mod help;
mod output;
mod place;
mod usage;

use std::process::ExitCode;

use clap::{FromArgMatches, parser::ValueSource};

use crate::cmd::{Cli, Command};

fn main() -> ExitCode {
    let (cli, named) = match parse() {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return output::fail(&anyhow::Error::new(error).context("the async runtime could not start")),
    };
    let ended = runtime.block_on(run(cli, named));
    // A connection that is still closing must not delay the exit.
    runtime.shutdown_background();
    ended.unwrap_or_else(|error| output::fail(&error))
}

/// The command, and whether `--database` is on the command line.
fn parse() -> Result<(Cli, bool), ExitCode> {
    let parsed = help::command().try_get_matches().and_then(|matches| {
        let mut innermost = &matches;
        while let Some((_, inner)) = innermost.subcommand() {
            innermost = inner;
        }
        let named = innermost.value_source("database") == Some(ValueSource::CommandLine);
        Ok((Cli::from_arg_matches(&matches)?, named))
    });
    parsed.map_err(|error| {
        let error = if error.use_stderr() {
            usage::improved(error)
        } else {
            error
        };
        // clap quotes what it does not understand, and that may be a URL.
        let text = output::without_passwords(&error.render().ansi().to_string());
        let code = u8::try_from(error.exit_code()).unwrap_or(1);
        if error.use_stderr() {
            anstream::eprint!("{text}");
        } else {
            anstream::print!("{text}");
        }
        ExitCode::from(code)
    })
}

async fn run(cli: Cli, named: bool) -> anyhow::Result<ExitCode> {
    let mut place = cli.place;
    if uses_config(&cli.command) {
        place.read_config()?;
        output::pass_on_warnings();
    }
    match cli.command {
        Command::Demo(args) => return cmd::demo::run(place.url_if(named), args).await,
        Command::DemoWorker(args) => cmd::demo::work(place.url()?, place.schema(), args).await?,
        Command::DemoProvider(args) => cmd::demo::provide(args).await?,
        Command::Migrate(args) => cmd::migrate::run(&place, args).await?,
        Command::Adopt(args) => return cmd::adopt::run(&place, args).await,
        Command::Status(args) => cmd::observe::status::run(&place, args).await?,
        Command::Jobs(args) => cmd::observe::jobs::run(&place, args).await?,
        Command::Workers(args) => cmd::observe::workers::run(&place, args).await?,
        Command::Inspect(args) => cmd::observe::inspect::run(&place, args).await?,
        Command::Chain(args) => cmd::observe::chain::run(&place, args).await?,
        Command::Cases(args) => cmd::observe::cases::run(&place, args).await?,
        Command::Case(args) => return cmd::operate::case::run(&place, args).await,
        Command::Reopen(args) => cmd::operate::reopen::run(&place, args).await?,
        Command::Audit(args) => cmd::observe::audit::run(&place, args).await?,
        Command::Effects(args) => cmd::observe::effects::run(&place, args).await?,
        Command::Effect(args) => cmd::operate::effect::run(&place, args).await?,
        Command::Rollout(args) => cmd::operate::rollout::run(&place, args).await?,
        Command::Breaker(args) => cmd::operate::breaker::run(&place, args).await?,
        Command::Pause(args) => cmd::operate::pause::run(&place, args, true).await?,
        Command::Resume(args) => cmd::operate::pause::run(&place, args, false).await?,
        Command::Delay(args) => return cmd::operate::delay::delay(&place, args).await,
        Command::RunNow(args) => return cmd::operate::delay::run_now(&place, args).await,
        Command::Cancel(args) => return cmd::operate::delay::cancel(&place, args).await,
        Command::Retire(args) => return cmd::operate::delay::retire(&place, args).await,
        Command::Rerun(args) => return cmd::operate::delay::rerun(&place, args).await,
        Command::Complete(args) => cmd::operate::complete::run(&place, args).await?,
        Command::Enqueue(args) => cmd::enqueue::run(&place, args).await?,
        Command::Work(args) => return cmd::work::run(&place, args).await,
        Command::Bridge(args) => cmd::bridge::run(&place, args).await?,
        Command::Prune(args) => return cmd::operate::prune::run(&place, args).await,
        Command::Doctor(args) => return cmd::observe::doctor::run(&place, args).await,
        Command::Verify(args) => return cmd::observe::verify::run(&place, args).await,
        Command::Completions(args) => cmd::completions::run(args)?,
        Command::Man(args) => cmd::man::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// The demo runs on its own database, and the last two use none: a broken config file does not stop these.
fn uses_config(command: &Command) -> bool {
    !matches!(
        command,
        Command::Demo(_)
            | Command::DemoWorker(_)
            | Command::DemoProvider(_)
            | Command::Completions(_)
            | Command::Man(_)
    )
}
