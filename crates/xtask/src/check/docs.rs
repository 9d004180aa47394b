//! `cargo xtask docs`: the documentation of the workspace, with warnings as errors.

use std::process::ExitCode;

use anyhow::Result;

use crate::keeper::Keeper;
use crate::machine::postgres::Use;
use crate::step::Step;

const DOC: &str = "doc --workspace --no-deps --locked";

/// Builds the docs; a broken link or any other warning fails.
pub(crate) fn run() -> Result<ExitCode> {
    let mut keeper = Keeper::start(&[], Use::Tests)?;
    Step::cargo(DOC).flags("RUSTDOCFLAGS", "-D warnings").run(&mut keeper)?;
    Ok(ExitCode::SUCCESS)
}
