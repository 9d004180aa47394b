//! `cargo xtask servers`: the servers the tests use, for work by hand.
//!
//! Standard output has one `label url` line for each server and lines to paste into a shell;
//! everything else is on standard error, so that a script can read it.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::keeper::Keeper;
use crate::machine::extras::Extras;
use crate::machine::postgres;
use crate::machine::program;

/// Starts the servers, prints where they are, and runs until it is stopped.
pub(crate) fn run() -> Result<ExitCode> {
    let found = postgres::find_or_install()?;
    if found.is_empty() {
        bail!("no PostgreSQL server found; {}", crate::test::HOW_TO_GET_POSTGRES);
    }
    let mut keeper = Keeper::start(&found, postgres::Use::Tests)?;
    for (label, url) in &keeper.servers {
        println!("{label} {url}");
    }
    println!("export ROWLOCK_TEST_PG_URLS='{}'", keeper.urls());
    for program in [&program::REDIS, &program::PGBOUNCER] {
        match program.find_or_install(true) {
            Ok(path) => println!("export {}='{}'", program.var, path.display()),
            Err(error) => crate::note(&format!("the {} suite will not run: {error:#}", program.name)),
        }
    }
    for (var, value) in Extras::get(&mut keeper, true).set {
        println!("export {var}='{value}'");
    }
    let dir = keeper.dir.display();
    crate::note(&format!(
        "servers run until ctrl-c; each one's server.log is in its folder under {dir}"
    ));
    keeper.wait()?;
    Ok(ExitCode::FAILURE)
}
