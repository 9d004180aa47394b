//! `rowlock completions`: a script for a shell that completes commands and options.

use anyhow::Result;
use clap_complete::Shell;

use crate::{help, output};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: Args) -> Result<()> {
    output::print(&script(args.shell))
}

fn script(shell: Shell) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut help::visible(), "rowlock", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn the_completions_of_each_shell_name_every_visible_command_and_no_hidden_one() {
        assert_eq!(Shell::value_variants().len(), 5);
        for shell in Shell::value_variants() {
            let script = script(*shell);
            for command in help::visible().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell}: {}", command.get_name());
            }
            assert!(script.contains("database"), "{shell}");
            assert!(
                !script.contains("demo-worker") && !script.contains("demo__worker"),
                "{shell}"
            );
        }
    }
}
