//! `rowlock man`: the manual as pages for `man`, made from the same texts as `--help`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap_mangen::Man;

use crate::{help, output};

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write one page per command into this directory instead of printing the main page
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let Some(dir) = args.dir else {
        return output::print(&page()?);
    };
    let context = || format!("the man pages could not be written to {}", dir.display());
    std::fs::create_dir_all(&dir).with_context(context)?;
    clap_mangen::generate_to(help::visible(), &dir).with_context(context)
}

fn page() -> Result<String> {
    let mut page = Vec::new();
    Man::new(help::visible()).render(&mut page)?;
    Ok(String::from_utf8(page)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_man_page_has_its_header_every_visible_command_and_no_hidden_one() {
        let page = page().unwrap();
        assert!(page.contains("\n.TH rowlock 1 "), "{page}");
        for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH SUBCOMMANDS"] {
            assert!(page.contains(section), "{section}: {page}");
        }
        for command in help::visible().get_subcommands() {
            let name = format!("rowlock\\-{}(1)", command.get_name().replace('-', "\\-"));
            assert!(page.contains(&name), "{name}: {page}");
        }
        assert!(!page.contains("demo\\-worker"), "{page}");
    }

    #[test]
    fn each_command_gets_a_page_in_the_directory() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("man/man1");
        run(Args { dir: Some(dir.clone()) }).unwrap();
        for name in ["rowlock.1", "rowlock-cancel.1", "rowlock-case-reopen.1"] {
            let page = std::fs::read_to_string(dir.join(name)).unwrap();
            assert!(page.contains("\n.TH rowlock"), "{name}: {page}");
        }
        assert!(!dir.join("rowlock-demo-worker.1").exists());
    }
}
