//! `cargo xtask lint`: the format, then clippy with warnings as errors.

use std::process::ExitCode;

use anyhow::Result;

use crate::keeper::Keeper;
use crate::machine::postgres::Use;
use crate::step::Step;

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    /// Only the format, which takes a second.
    format: bool,
}

impl Options {
    /// Reads the arguments after `lint`.
    pub(crate) fn parse(args: &[&str]) -> Result<Options, String> {
        match args {
            [] => Ok(Options::default()),
            ["--format"] => Ok(Options { format: true }),
            [unknown, ..] => Err(format!("lint does not take `{unknown}`")),
        }
    }
}

/// Runs the checks; the first one that fails ends the run.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut keeper = Keeper::start(&[], Use::Tests)?;
    format(&mut keeper)?;
    if !options.format {
        clippy("--workspace", "clippy", &mut keeper)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The format of every crate.
pub(crate) fn format(keeper: &mut Keeper) -> Result<()> {
    Step::cargo("fmt --all --check").called("format").run(keeper)
}

/// clippy on the crates that these words of cargo's choose, under a name for the closing table.
pub(crate) fn clippy(packages: &str, name: &'static str, keeper: &mut Keeper) -> Result<()> {
    Step::cargo(&format!("clippy {packages} --all-targets --locked -- -D warnings"))
        .called(name)
        .run(keeper)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_format_may_be_asked_for() {
        assert_eq!(Options::parse(&[]), Ok(Options { format: false }));
        assert_eq!(Options::parse(&["--format"]), Ok(Options { format: true }));
        assert_eq!(Options::parse(&["--fix"]).unwrap_err(), "lint does not take `--fix`");
    }
}
