//! The answer to a wrong command line: clap's own, without what misleads and with hints for words of other tools.

use clap::{
    builder::StyledStr,
    error::{ContextKind, ContextValue},
};

use crate::help;

/// Commands that people know from other tools, and what to type instead.
const ELSEWHERE: [(&str, &str); 2] = [
    (
        "retry",
        "use 'rowlock reopen ID' for a case, or 'rowlock rerun ID' for a finished job",
    ),
    ("version", "use 'rowlock --version'"),
];

/// The error as users should read it.
pub(crate) fn improved(error: clap::Error) -> clap::Error {
    let mut error = without_environment(error);
    if let Some((_, hint)) = ELSEWHERE.iter().find(|(word, _)| is_command(&error, word)) {
        error.remove(ContextKind::SuggestedSubcommand);
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(*hint)]),
        );
    }
    let hidden = error.get(ContextKind::SuggestedArg).is_some_and(is_hidden);
    if hidden {
        error.remove(ContextKind::SuggestedArg);
    }
    error
}

/// The same error for somebody who has set no variable. A set variable counts as a given option, and the usage line
/// would show an option that was not typed.
fn without_environment(error: clap::Error) -> clap::Error {
    let mut command = help::command();
    for name in ["database", "config"] {
        command = command.mut_arg(name, |arg| arg.env(None::<&'static str>));
    }
    command.try_get_matches().err().unwrap_or(error)
}

fn is_command(error: &clap::Error, word: &str) -> bool {
    let wrong = error.get(ContextKind::InvalidSubcommand);
    matches!(wrong, Some(ContextValue::String(wrong)) if wrong == word)
}

/// Whether this names an option that no help shows.
fn is_hidden(option: &ContextValue) -> bool {
    let ContextValue::String(option) = option else {
        return false;
    };
    hides(&help::command(), option.trim_start_matches('-'))
}

fn hides(command: &clap::Command, long: &str) -> bool {
    let mut hidden = command.get_arguments().filter(|arg| arg.is_hide_set());
    hidden.any(|arg| arg.get_long() == Some(long)) || command.get_subcommands().any(|sub| hides(sub, long))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hidden_options_are_hidden() {
        let option = |long: &str| ContextValue::String(format!("--{long}"));
        assert!(is_hidden(&option("limit")));
        for shown in ["kills", "database", "json"] {
            assert!(!is_hidden(&option(shown)), "{shown}");
        }
    }

    #[test]
    fn no_word_of_another_tool_is_a_command() {
        for (word, hint) in ELSEWHERE {
            assert!(help::command().find_subcommand(word).is_none(), "{word}");
            assert!(hint.starts_with("use 'rowlock "), "{hint}");
        }
    }
}
