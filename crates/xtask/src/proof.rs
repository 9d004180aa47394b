//! `cargo xtask proof`: the chaos run. The `chaos` program starts its own servers and reads its own arguments; this
//! finds or installs what it needs. Its crate turns on the fail points.

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::keeper::Keeper;
use crate::machine::apt;
use crate::machine::extras::Extras;
use crate::machine::postgres::{self, Server};
use crate::machine::program::PGBOUNCER;
use crate::step::Step;
use crate::test::HOW_TO_GET_POSTGRES;
use crate::test::suites;

/// The workload that needs emulators of SQS and none of the faults.
const RUN_SQS: &str = "run --locked --quiet --package proof-sqs --bin sqs --";

/// Debian's package of the library that makes a process's clock wrong, and a file of it below `/usr/lib/<machine>`.
const FAKETIME: (&str, &str) = ("libfaketime", "faketime/libfaketimeMT.so.1");

/// Runs it with the arguments after `proof`; the exit code is the program's own.
pub(crate) fn run(args: &[&str]) -> Result<ExitCode> {
    let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
    let only_sqlite = args.windows(2).any(|pair| pair == ["--database", "sqlite"]);
    let found = match only_sqlite {
        true => Vec::new(),
        false => postgres::find_or_install()?,
    };
    if found.is_empty() && !only_sqlite {
        bail!("no PostgreSQL server found; {HOW_TO_GET_POSTGRES}, or pass --database sqlite");
    }
    if args.windows(2).any(|pair| pair == ["--workload", "sqs"]) {
        return sqs(&args, &found);
    }
    let mut keeper = Keeper::start(&[], postgres::Use::Tests)?;
    prepare(true);
    build(&mut keeper)?;
    let code = chaos("chaos", &found)?.args(&args).run_for_code(&mut keeper)?;
    Ok(ExitCode::from(code))
}

/// The SQS workload, on the servers and emulators that the tests have.
fn sqs(args: &[String], found: &[Server]) -> Result<ExitCode> {
    let mut keeper = Keeper::start(found, postgres::Use::Tests)?;
    let step = Step::cargo(RUN_SQS).args(args);
    let step = step.env("ROWLOCK_TEST_PG_URLS", &keeper.urls());
    let extras = Extras::get(&mut keeper, true).set;
    let step = extras.iter().fold(step, |step, (var, value)| step.env(var, value));
    Ok(ExitCode::from(step.run_for_code(&mut keeper)?))
}

/// The short run that is a part of the tests.
pub(crate) fn smoke(keeper: &mut Keeper, found: &[Server], may_install: bool) -> Result<()> {
    prepare(may_install);
    let database = if found.is_empty() { "sqlite" } else { "both" };
    let args = ["--smoke", "--json", "--database", database].map(str::to_owned);
    build(keeper)?;
    chaos("two minutes of chaos", found)?.args(&args).run(keeper)
}

/// Two of the known bugs; a check must notice each of them.
pub(crate) fn mutants(keeper: &mut Keeper, found: &[Server]) -> Result<()> {
    let args = ["--mutants", "--smoke"].map(str::to_owned);
    chaos("two mutants", found)?.args(&args).run(keeper)
}

/// The shortest run that kills, as a part of the quick tests: the demo, on a file and on the newest server. It fails
/// when anything was lost or doubled.
pub(crate) fn kill_run(keeper: &mut Keeper) -> Result<()> {
    let own = std::env::current_exe().context("could not find this program's own file")?;
    let program = own.with_file_name("rowlock");
    let server = keeper.servers.last().map(|(_, url)| url.clone());
    for database in [None, server.as_deref()] {
        let mut command = Command::new(&program);
        command.args(["demo", "--json"]);
        if let Some(url) = database {
            command.args(["--database", url]);
        }
        let name = format!("rowlock demo on {}", database.unwrap_or("a SQLite file"));
        Step::of(&name, command).called("kill run").run(keeper)?;
        if server.is_none() {
            break;
        }
    }
    Ok(())
}

/// The programs of the suites, with the features that the tests have.
fn build(keeper: &mut Keeper) -> Result<()> {
    let build = format!("build --locked {} --bins", suites::quick_packages());
    Step::cargo(&build).called("build of the programs").run(keeper)
}

/// The program, with the address of the newest server.
fn chaos(name: &'static str, found: &[Server]) -> Result<Step> {
    let own = std::env::current_exe().context("could not find this program's own file")?;
    let program = own.with_file_name("chaos");
    let step = Step::of(&program.display().to_string(), Command::new(&program)).called(name);
    let step = match PGBOUNCER.find_or_install(false) {
        Ok(path) => step.env(PGBOUNCER.var, &path.to_string_lossy()),
        Err(_) => step,
    };
    Ok(match found.last() {
        Some(server) => step.env("PG_BIN_DIRS", &server.bin_dir.to_string_lossy()),
        None => step,
    })
}

/// Gets what one fault needs. Without it the run says that it had to do without.
fn prepare(may_install: bool) {
    if let Err(error) = PGBOUNCER.find_or_install(may_install) {
        crate::note(&format!("nobody goes through a pooler: {error:#}"));
    }
    let installed = || {
        let machines = std::fs::read_dir("/usr/lib").into_iter().flatten().flatten();
        machines
            .map(|entry| entry.path())
            .any(|path: std::path::PathBuf| has_faketime(&path))
    };
    if !installed()
        && may_install
        && apt::is_possible()
        && let Err(error) = apt::install(FAKETIME.0)
    {
        crate::note(&format!("no worker's clock will be wrong: {error:#}"));
    }
}

fn has_faketime(machine: &Path) -> bool {
    machine.join(FAKETIME.1).exists()
}
