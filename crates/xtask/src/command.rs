//! Which command a line of words asks for.
//!
//! Reading the words is a pure function, so that a test can ask whether a command line exists without running it. The
//! workflows under `.github` are checked that way.

use crate::check::{api, claims, counts, coverage, lint};
use crate::{keeper, release, test};

/// What `cargo xtask help` prints.
pub(crate) const HELP: &str = include_str!("help.txt");

/// A command, with its options read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Command {
    Test(test::Options),
    Lint(lint::Options),
    Docs,
    Features,
    Coverage(coverage::Options),
    Release(release::Options),
    Api(api::Options),
    Counts(counts::Options),
    Claims(claims::Options),
    Servers,
    /// The `bench` program reads these arguments.
    Bench(Vec<String>),
    /// The `chaos` program reads these arguments.
    Proof(Vec<String>),
    /// Hidden: see `keeper.rs`.
    Keep(Vec<String>),
    Help,
}

impl Command {
    /// Reads the words after `cargo xtask`. The error names the word that was not understood.
    pub(crate) fn parse(words: &[&str]) -> Result<Command, String> {
        let (&name, rest) = words.split_first().ok_or("no command given")?;
        match name {
            "test" => test::Options::parse(rest).map(Command::Test),
            "lint" => lint::Options::parse(rest).map(Command::Lint),
            "docs" => alone(name, rest, Command::Docs),
            "features" => alone(name, rest, Command::Features),
            "coverage" => coverage::Options::parse(rest).map(Command::Coverage),
            "release" => release::Options::parse(rest).map(Command::Release),
            "api" => api::Options::parse(rest).map(Command::Api),
            "counts" => counts::Options::parse(rest).map(Command::Counts),
            "claims" => claims::Options::parse(rest).map(Command::Claims),
            "servers" => alone(name, rest, Command::Servers),
            "bench" => Ok(Command::Bench(owned(rest))),
            "proof" => Ok(Command::Proof(owned(rest))),
            keeper::COMMAND => Ok(Command::Keep(owned(rest))),
            "help" | "--help" | "-h" => alone(name, rest, Command::Help),
            unknown => Err(format!("unknown command `{unknown}`")),
        }
    }
}

fn alone(name: &str, rest: &[&str], command: Command) -> Result<Command, String> {
    match rest.first() {
        None => Ok(command),
        Some(extra) => Err(format!("{name} takes no argument, got `{extra}`")),
    }
}

fn owned(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of a usage line: two spaces, a name, and options in brackets.
    fn usage_lines() -> Vec<&'static str> {
        let is_usage = |line: &&str| line.starts_with("  ") && !line.starts_with("   ");
        HELP.lines().filter(is_usage).map(str::trim).collect()
    }

    #[test]
    fn every_command_in_the_help_exists() {
        let names: Vec<&str> = usage_lines().iter().filter_map(|line| line.split(' ').next()).collect();
        assert!(names.len() >= 10, "{names:?}");
        for name in names {
            // A command that cannot run without an option still is no unknown command.
            let error = Command::parse(&[name]).err().unwrap_or_default();
            assert!(!error.starts_with("unknown command"), "{name}: {error}");
        }
    }

    #[test]
    fn every_flag_in_the_help_of_a_command_is_accepted() {
        let mut seen = 0;
        for line in usage_lines() {
            let name = line.split(' ').next().unwrap_or_default();
            for flag in line
                .split(['[', ']', ' ', '|'])
                .filter(|word| word.starts_with("--") && word.len() > 2)
            {
                seen += 1;
                let parsed = Command::parse(&[name, flag]);
                assert!(parsed.is_ok(), "{name} {flag}: {parsed:?}");
            }
        }
        assert!(seen >= 10, "only {seen} flags found");
    }

    #[test]
    fn an_unknown_command_and_an_extra_word_are_refused_by_name() {
        let error = |words: &[&str]| Command::parse(words).unwrap_err();
        assert_eq!(error(&[]), "no command given");
        assert_eq!(error(&["tset"]), "unknown command `tset`");
        assert_eq!(error(&["docs", "--open"]), "docs takes no argument, got `--open`");
        assert_eq!(error(&["servers", "now"]), "servers takes no argument, got `now`");
    }

    #[test]
    fn arguments_of_other_programs_are_passed_on_as_they_are() {
        let words = ["proof", "--seed", "7"];
        let expected = Command::Proof(vec!["--seed".to_owned(), "7".to_owned()]);
        assert_eq!(Command::parse(&words), Ok(expected));
    }
}
