//! `cargo xtask bench`: one throw-away server with benchmark settings, then the `bench` program against it.
//!
//! Everything is built in release and without the fail points: what is measured is what users get. The newest PostgreSQL
//! found is taken. Arguments are read by the `bench` program, which alone knows the lanes.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use crate::keeper::Keeper;
use crate::postgres;
use crate::step::Step;
use crate::test::HOW_TO_GET_POSTGRES;

const RUN: &str = "run --release --locked --quiet --package bench --bin bench --";

/// Runs the benchmark with the arguments after `bench`.
pub(crate) fn run(args: &[&str]) -> Result<ExitCode> {
    if args.contains(&"--redraw") {
        // Nothing is measured, so nothing is started.
        let mut keeper = Keeper::start(&[], postgres::Use::Bench)?;
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let code = Step::cargo(RUN).args(&args).run_for_code(&mut keeper)?;
        return Ok(ExitCode::from(code));
    }
    let mut found = postgres::find_or_install()?;
    let Some(server) = found.pop() else {
        bail!("no PostgreSQL server found; {HOW_TO_GET_POSTGRES}");
    };
    let mut keeper = Keeper::start(&[server], postgres::Use::Bench)?;
    let (label, url) = keeper.servers.first().context("the keeper started no server")?.clone();
    crate::note(&format!("{label} runs at {url}"));
    Step::cargo("build --release --locked --package bench --bins").run(&mut keeper)?;
    let told = [
        ("ROWLOCK_BENCH_URL", url),
        (
            "ROWLOCK_BENCH_LOG",
            keeper.dir.join(&label).join(postgres::LOG).display().to_string(),
        ),
        ("ROWLOCK_BENCH_DIR", keeper.dir.display().to_string()),
    ];
    let mut step = Step::cargo(RUN);
    for (name, value) in &told {
        step = step.env(name, value);
    }
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let code = step.args(&args).run_for_code(&mut keeper)?;
    Ok(ExitCode::from(code))
}
