//! The workspace's own commands, called as `cargo xtask <command>`.
//!
//! `test` is what CI runs: it finds every PostgreSQL on the machine, starts a throw-away server of
//! each, and runs the checks against them. `counts` is a part of it on its own. `servers` starts the
//! same servers for work by hand. `bench` starts one server sized for throughput and runs the
//! benchmark against it. `proof` runs the chaos, which starts servers of its own.
//! Everything here is std and anyhow: this crate is compiled before anything else, so a dependency
//! here is a wait before every run.
//!
//! Invariant: whatever a command starts ends with it, however it ends. See `keeper.rs`, which alone
//! owns servers and temporary folders.

mod apt;
mod bench;
mod counts;
mod emulator;
mod extras;
mod keeper;
mod packages;
mod postgres;
mod program;
mod proof;
mod report;
mod servers;
mod step;
mod test;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

const HELP: &str = "\
usage: cargo xtask <command>

  test [--allow-missing] [--only-tests] [-- <filters>]
      format, lints, tests on SQLite and on every PostgreSQL found, docs, the short proof, counts
      --allow-missing   go on without PostgreSQL, Redis, valgrind and packages, and install nothing
      --only-tests      skip the format, lints, docs, proof and counts
      <filters>         passed to the test runner; doc tests are skipped

  counts [--accept]
      count the instructions of the hot path under valgrind and compare them with the accepted figures
      --accept          accept what was counted instead

  servers
      start the servers the tests use, print their addresses, run until ctrl-c

  proof [--smoke | --minutes N] [--seed S] [--database postgres|sqlite|both] [--workload NAME] [--json]
      workers, producers and a provider under every fault there is, then a checker over what happened
      --smoke     two minutes, as a part of `test`; otherwise --minutes on each database (10)
      --seed      which fault comes when; every run prints its own
      --workload  only this one: transfers, tallies, chains, charges, dials, errands, groups, guards, keys, poison, unknown;
                  or sqs: ten thousand jobs that two emulators of SQS trigger at their worst (--jobs N for fewer,
                  --emulator moto|ministack for one of them), compared with a run without SQS
      --json      print one object on standard output beside the table
      --keep      keep the logs also of a run in which nothing was broken
      --out       where logs go (target/proof)
      --record    a folder for the tables and the object of this run
      --mutants   put known bugs into the workers one by one; each must be caught
      --mutant    only those whose name has this in it
      The exit code is 3 when a check was broken.

  bench [--lane S1,S5,…] [--quick] [--peers river,awa,…|none] [--json] [--rounds N] [--out DIR]
      our lanes, the raw-SQL ceilings and the peers in one interleaved run
      --lane     only these lanes: S1 to S13, growth, C1, G1, Q1
      --quick    every lane in reduced size, about ten minutes after the builds
      --peers    only these peers; `none` for a run without them
      --json     print one object on standard output instead of the table
      --rounds   how often each figure is taken (3; with --quick 1)
      --out      where the samples, tables and pictures go (bench/runs/<date>)
      --redraw   measure nothing: write the tables and pictures of this run's folder again
      The exit code is 3 when a job's effect was lost or doubled.

PostgreSQL is looked for in PG_BIN_DIRS (folders separated by `:`), in PATH and in Debian's folder;
redis-server in ROWLOCK_TEST_REDIS_SERVER (the program itself), in PATH and in Debian's folder, and
pgbouncer in ROWLOCK_TEST_PGBOUNCER and there. Root on Debian gets them installed, and valgrind.
Without redis-server, pgbouncer or valgrind what needs them is skipped, and the last line says so.
Packages from PyPI (two emulators of SQS, a PostgreSQL driver) and npm are installed once, below the target folder, by
python3 and npm with their own settings. Without them the tests that need them fail, or with --allow-missing are skipped.
";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words.as_slice() {
        ["test", rest @ ..] => match test::Options::parse(rest) {
            Ok(options) => test::run(&options),
            Err(error) => return refuse(&error),
        },
        ["counts", rest @ ..] => match counts::Options::parse(rest) {
            Ok(options) => counts::run(&options),
            Err(error) => return refuse(&error),
        },
        ["servers"] => servers::run(),
        ["servers", extra, ..] => {
            return refuse(&format!("servers takes no argument, got `{extra}`"));
        }
        ["bench", rest @ ..] => bench::run(rest),
        ["proof", rest @ ..] => proof::run(rest),
        [keeper::COMMAND, rest @ ..] => keeper::keep(rest),
        ["help" | "--help" | "-h"] => {
            print!("{HELP}");
            return ExitCode::SUCCESS;
        }
        [] => return refuse(&"no command given"),
        [unknown, ..] => return refuse(&format!("unknown command `{unknown}`")),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            note(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn refuse(reason: &dyn Display) -> ExitCode {
    note(&format!("error: {reason}\n\n{HELP}"));
    ExitCode::from(2)
}

/// Prints a line on standard error, and goes on when nobody reads it any more: cleaning up must not
/// stop at a closed terminal.
fn note(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", line.trim_end());
}
