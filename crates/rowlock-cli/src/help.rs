//! `rowlock --help` in groups, and the examples at the end of every command's own help.
//!
//! clap knows no groups of commands. So the list is rendered here, from the table in `help/table.rs` and from what each
//! command says about itself; tests hold that every visible command is in exactly one group and has an example.

mod table;

use clap::{CommandFactory, builder::Styles};

use self::table::{EXAMPLES, GROUPS, NOTES};
use crate::cmd::Cli;

/// Wide enough for the longest name and two blanks.
const NAME_WIDTH: usize = 13;

/// The whole command line, with its help.
pub(crate) fn command() -> clap::Command {
    let command = with_examples(Cli::command(), "");
    let template = template(&command);
    command.help_template(template)
}

/// The same without what is hidden, for completions and man pages.
pub(crate) fn visible() -> clap::Command {
    let whole = command();
    let shown = whole.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
    let mut visible = clap::Command::new("rowlock")
        .version(env!("CARGO_PKG_VERSION"))
        .args(whole.get_arguments().cloned())
        .subcommands(shown.collect::<Vec<_>>())
        .subcommand_required(true);
    if let Some(about) = whole.get_about() {
        visible = visible.about(about.clone());
    }
    visible
}

fn template(command: &clap::Command) -> String {
    let header = *Styles::styled().get_header();
    let title = |text: &str| format!("{header}{text}{header:#}");
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for group in &GROUPS {
        text += &format!("\n{}\n", title(&format!("{}:", group.title)));
        for name in group.commands {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            text += &format!("  {name:<NAME_WIDTH$}{about}\n");
        }
        text += &format!("    $ {}\n", group.example);
    }
    text += &format!("\n{}\n{{options}}\n\n", title("Options:"));
    text + "New here? Run `rowlock demo`. `rowlock COMMAND --help` explains a command, with examples."
}

/// Adds notes and examples below the help of every command, after what the command itself adds there.
fn with_examples(mut command: clap::Command, path: &str) -> clap::Command {
    let names: Vec<String> = command.get_subcommands().map(|sub| sub.get_name().to_owned()).collect();
    for name in names {
        let path = [path, &name].join(" ");
        command = command.mut_subcommand(name, |sub| with_examples(sub, path.trim()));
    }
    let own = command.get_after_help().map(|own| format!("{}\n\n", own.ansi()));
    match ending(path) {
        Some(ending) => command.after_help(format!("{}{ending}", own.unwrap_or_default())),
        None => command,
    }
}

fn ending(path: &str) -> Option<String> {
    let (_, examples) = EXAMPLES.iter().find(|(of, _)| *of == path)?;
    let header = *Styles::styled().get_header();
    let note = NOTES.iter().find(|(of, _)| *of == path);
    let note = note.map(|(_, note)| format!("{note}\n\n")).unwrap_or_default();
    let examples: Vec<String> = examples.iter().map(|example| format!("  $ {example}")).collect();
    Some(format!("{note}{header}Examples:{header:#}\n{}", examples.join("\n")))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Commands without `--json`, each with the reason.
    const NO_ANSWER: [(&str, &str); 5] = [
        ("work", "runs until it is stopped, and prints no data"),
        (
            "bridge",
            "runs until it is stopped; `bridge sqs --json` prints its counters, one object per line",
        ),
        ("completions", "prints a script for a shell"),
        ("man", "prints pages for man"),
        ("demo", "its scenes share one --json, tested with the demo"),
    ];

    /// Every visible command with those below it, by its path.
    fn all() -> BTreeMap<String, clap::Command> {
        fn collect(command: &clap::Command, path: &str, into: &mut BTreeMap<String, clap::Command>) {
            for sub in command.get_subcommands().filter(|sub| sub.get_name() != "help") {
                let path = [path, sub.get_name()].join(" ");
                into.insert(path.trim().to_owned(), sub.clone());
                collect(sub, path.trim(), into);
            }
        }
        let mut whole = visible();
        whole.build();
        let mut all = BTreeMap::new();
        collect(&whole, "", &mut all);
        all
    }

    #[test]
    fn every_visible_command_is_in_exactly_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|group| group.commands).copied().collect();
        grouped.sort_unstable();
        let whole = visible();
        let mut visible: Vec<&str> = whole.get_subcommands().map(clap::Command::get_name).collect();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn every_command_has_an_example_that_the_command_line_understands() {
        for path in all().keys() {
            assert!(
                EXAMPLES.iter().any(|(of, _)| of == path),
                "no example of rowlock {path}"
            );
        }
        let of_groups = GROUPS.iter().map(|group| group.example);
        for example in EXAMPLES.iter().flat_map(|(_, all)| *all).copied().chain(of_groups) {
            // What a shell does around the command.
            let words = example.split(" | ").last().unwrap_or_default();
            let words = words.split(" > ").next().unwrap_or_default();
            let words = shell_words(words);
            let parsed = command().try_get_matches_from(&words);
            assert!(parsed.is_ok(), "{example}: {}", parsed.unwrap_err());
        }
    }

    /// Words as a shell splits them, as far as the examples need it.
    fn shell_words(line: &str) -> Vec<String> {
        let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
        for c in line.chars() {
            match (c, quote) {
                ('\'' | '"', None) => quote = Some(c),
                (c, Some(open)) if c == open => quote = None,
                (' ', None) if word.is_empty() => {}
                (' ', None) => words.push(std::mem::take(&mut word)),
                (c, _) => word.push(c),
            }
        }
        if !word.is_empty() {
            words.push(word);
        }
        words
    }

    #[test]
    fn every_example_and_note_is_of_a_command() {
        let all = all();
        let paths = EXAMPLES
            .iter()
            .map(|(path, _)| path)
            .chain(NOTES.iter().map(|(path, _)| path));
        for path in paths.filter(|path| cfg!(feature = "sqs") || **path != "bridge sqs") {
            assert!(all.contains_key(*path), "{path}");
        }
    }

    #[test]
    fn every_command_that_answers_has_json() {
        let mut seen = 0;
        for (path, command) in all() {
            let excepted = NO_ANSWER.iter().any(|(of, _)| path.split(' ').next() == Some(*of));
            let answers = command.get_subcommands().next().is_none();
            if excepted || !answers {
                continue;
            }
            seen += 1;
            let json = command.get_arguments().any(|arg| arg.get_long() == Some("json"));
            assert!(json, "rowlock {path} has no --json");
        }
        assert!(seen > 25, "{seen}");
        for (path, reason) in NO_ANSWER {
            assert!(all().contains_key(path) && !reason.is_empty(), "{path}");
        }
    }

    #[test]
    fn what_a_command_says_after_its_help_comes_before_its_examples() {
        let help = command().try_get_matches_from(["rowlock", "demo", "charges", "--help"]);
        let help = help.unwrap_err().to_string();
        let at = |text: &str| help.find(text).unwrap_or_else(|| panic!("{text}: {help}"));
        assert!(at("--json prints: jobs, done") < at("Exits with 1 if"), "{help}");
        assert!(at("--record FILE writes a JSON object") < at("Examples:"), "{help}");
    }

    #[test]
    fn no_line_of_any_help_is_longer_than_100_columns() {
        for path in all().into_keys().chain([String::new()]) {
            let words = ["rowlock"].into_iter().chain(path.split_whitespace()).chain(["--help"]);
            let help = command().try_get_matches_from(words).unwrap_err().to_string();
            for line in help.lines() {
                assert!(line.chars().count() <= 100, "rowlock {path} --help: {line}");
            }
        }
    }
}
