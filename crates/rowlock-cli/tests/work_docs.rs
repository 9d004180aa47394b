//! The quickstart of docs/programs.md runs as it is written there, and prints the text below it.

use std::{path::Path, process::Command};

/// The first fenced block of a page with this mark.
fn block<'a>(page: &'a str, mark: &str) -> &'a str {
    let (_, rest) = page.split_once(&format!("```{mark}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

/// Whether a line is what the page shows, `…` standing for anything.
fn is_shown(line: &str, shown: &str) -> bool {
    let (begin, end) = shown.split_once('…').unwrap_or((shown, ""));
    let whole = !shown.contains('…') && line.trim_end() == shown;
    whole || shown.contains('…') && line.starts_with(begin) && line.ends_with(end)
}

#[test]
fn the_quickstart_of_the_programs_page_runs_as_it_stands_there() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/programs.md");
    let page = std::fs::read_to_string(page).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let programs = Path::new(env!("CARGO_BIN_EXE_rowlock")).parent().unwrap();
    let path = std::env::var("PATH").unwrap();
    let output = Command::new("sh")
        .args(["-euc", &format!("exec 2>&1\n{}", block(&page, "sh"))])
        .current_dir(folder.path())
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env_remove("ROWLOCK_CONFIG")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    let mut lines = said.lines();
    for shown in block(&page, "text").lines() {
        assert!(
            lines.any(|line| is_shown(line, shown)),
            "{shown:?} is not in its place in\n{said}"
        );
    }
}
