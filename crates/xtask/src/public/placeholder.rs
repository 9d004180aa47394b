//! The address of the repository is one string, and RELEASING lists every file that has it.
//!
//! The manifest of the workspace is the source. So these tests also hold after the placeholder is replaced.

use std::path::Path;

use super::{read, root};

/// The value of `repository` in the manifest of the workspace.
fn address() -> String {
    let manifest = read("Cargo.toml");
    let line = manifest.lines().find_map(|line| line.strip_prefix("repository = "));
    line.expect("the workspace has a repository")
        .trim_matches('"')
        .to_owned()
}

/// Every text file of the repository, as its path from the root and its text.
fn files() -> Vec<(String, String)> {
    fn walk(folder: &Path, into: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            let (path, kind) = (entry.path(), entry.file_type().unwrap());
            let name = entry.file_name().to_string_lossy().into_owned();
            if kind.is_dir() && !["target", ".git", "node_modules"].contains(&name.as_str()) {
                walk(&path, into);
            } else if kind.is_file()
                && name != ".git"
                && let Ok(text) = std::fs::read_to_string(&path)
            {
                into.push((path.strip_prefix(root()).unwrap().display().to_string(), text));
            }
        }
    }
    let mut found = Vec::new();
    walk(&root(), &mut found);
    found.sort();
    found
}

/// The files that RELEASING lists: items of a list that are one path in backticks.
fn listed() -> Vec<String> {
    let page = read("RELEASING.md");
    let item = |line: &str| line.strip_prefix("- `")?.strip_suffix('`').map(str::to_owned);
    let mut listed: Vec<String> = page.lines().filter_map(item).collect();
    listed.sort();
    listed
}

#[test]
fn every_file_with_the_address_is_listed_and_every_listed_file_has_it() {
    let address = address();
    let with = files().into_iter().filter(|(_, text)| text.contains(&address));
    let with: Vec<String> = with.map(|(path, _)| path).collect();
    assert!(with.len() > 5, "{with:?}");
    assert_eq!(with, listed());
}

#[test]
fn there_is_no_second_placeholder() {
    // Put together here, so that this file does not find itself.
    let marks = [["OWN", "ER/"], [".inva", "lid/"], ["/rowlock/blob", "/"]].map(|parts| parts.concat());
    let address = address();
    let mut found = Vec::new();
    for (path, text) in files() {
        for (n, line) in (1..).zip(text.lines()) {
            let rest = line.replace(&address, "");
            if marks.iter().any(|mark| rest.contains(mark)) {
                found.push(format!("{path}:{n}: {}", line.trim()));
            }
        }
    }
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn a_link_to_a_page_of_the_repository_leads_somewhere() {
    let prefix = format!("{}/blob/main/", address());
    let mut seen = 0;
    for (path, text) in files() {
        for rest in text.split(&prefix).skip(1) {
            let page = rest.split([')', '#', '>', '"', ' ', '\n']).next().unwrap_or_default();
            seen += 1;
            assert!(root().join(page).exists(), "{path}: {page}");
        }
    }
    assert!(seen > 0);
}
