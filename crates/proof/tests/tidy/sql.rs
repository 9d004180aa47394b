//! Every statement can be found: one file each, in a folder by its noun, with a promise, a caller and a counterpart in
//! the other dialect. Folders and files have a limit.

use std::{collections::BTreeMap, path::Path};

use super::{LINES_MAX, assert_none, read, tree};

const FOLDER: &str = "crates/rowlock/sql/";
const ENTRIES_MAX: usize = 20;

/// Every file below `sql/`, with its text.
fn files() -> Vec<(String, String)> {
    let mut files = tree(&[".sql"]);
    files.retain(|(path, _)| path.starts_with(FOLDER));
    assert!(files.len() > 50, "only {} files found", files.len());
    files
}

/// What is wrong with one statement's file. `caller` is the text that must name it, `twin` whether the other dialect
/// has it.
fn statement_breaches(name: &str, text: &str, caller: &str, twin: bool) -> Vec<String> {
    let lines: Vec<&str> = text.lines().collect();
    let mut breaches = Vec::new();
    if !lines.first().is_some_and(|line| line.starts_with("-- ")) {
        breaches.push("line one is not its promise".to_owned());
    }
    if !lines.get(1).is_some_and(|line| line.starts_with("-- Index:")) {
        breaches.push("line two does not say which index it leans on (`-- Index: …`)".to_owned());
    }
    if !caller.contains(&format!("\"{name}\"")) {
        breaches.push("no caller".to_owned());
    }
    let excused = lines.iter().any(|line| {
        line.strip_prefix("-- only here: ")
            .is_some_and(|why| !why.trim().is_empty())
    });
    if !twin && !excused {
        breaches.push("no counterpart in the other dialect and no line `-- only here: why`".to_owned());
    }
    if twin && excused {
        breaches.push("says `-- only here`, but there is one".to_owned());
    }
    breaches
}

/// What is wrong with a file that creates a part of the schema. `migrate` is the text that must list it, under its
/// folder.
fn script_breaches(folder: &str, name: &str, text: &str, migrate: &str) -> impl Iterator<Item = &'static str> {
    let list = migrate.split(&format!("texts!(\"{folder}\":")).nth(1);
    let list = list.and_then(|list| list.split(");").next()).unwrap_or_default();
    let listed = list.contains(&format!("\"{name}\""));
    let said = text.starts_with("-- ");
    let breaches = [
        (said, "line one does not say what it is"),
        (listed, "not in the list of `migrate.rs`"),
    ];
    breaches.into_iter().filter(|(fine, _)| !fine).map(|(_, breach)| breach)
}

#[test]
fn the_script_check_sees_each_breach() {
    let migrate = "BASE = texts!(\"schema\": \"job\", \"case\"); FUNCTIONS = texts!(\"functions\": \"names\");";
    let breaches = |folder, name, text| script_breaches(folder, name, text, migrate).count();
    assert_eq!(breaches("schema", "case", "-- Cases.\n"), 0);
    assert_eq!(breaches("functions", "names", "-- Names.\n"), 0);
    assert_eq!(breaches("functions", "case", "-- Cases.\n"), 1);
    assert_eq!(breaches("schema", "job", "create table"), 1);
    assert_eq!(breaches("views", "names", "create view"), 2);
}

#[test]
fn every_statement_has_a_promise_a_caller_and_a_twin() {
    let files = files();
    let mut found = Vec::new();
    for (dialect, other) in [("postgres", "sqlite"), ("sqlite", "postgres")] {
        let folder = format!("{FOLDER}{dialect}/");
        let callers = read(&format!("crates/rowlock/src/store/{dialect}/sql.rs"));
        let migrate = read(&format!("crates/rowlock/src/store/{dialect}/migrate.rs"));
        for (path, text) in files.iter().filter(|(path, _)| path.starts_with(&folder)) {
            let file = path.trim_start_matches(&folder);
            let name = file.trim_end_matches(".sql");
            if let Some((folder @ ("schema" | "functions"), script)) = name.rsplit_once('/') {
                found.extend(script_breaches(folder, script, text, &migrate).map(|breach| format!("{path}: {breach}")));
            } else {
                let twin = files.iter().any(|(path, _)| *path == format!("{FOLDER}{other}/{file}"));
                let breaches = statement_breaches(name, text, &callers, twin);
                found.extend(breaches.into_iter().map(|breach| format!("{path}: {breach}")));
            }
        }
    }
    assert_none(found, "statements");
}

#[test]
fn the_statement_check_sees_each_breach() {
    let good = "-- Takes.\n-- Index: none.\nselect 1\n";
    let caller = "statements!(key_take = \"key/take\")";
    assert_eq!(statement_breaches("key/take", good, caller, true), [""; 0]);
    let excused = "-- Takes.\n-- Index: none.\n-- only here: because.\nselect 1\n";
    assert_eq!(statement_breaches("key/take", excused, caller, false), [""; 0]);
    for (text, caller, twin) in [
        ("select 1", caller, true),
        ("-- Takes.\nselect 1", caller, true),
        (good, "key_take_two = \"key/take_two\"", true),
        (good, caller, false),
        (excused, caller, true),
    ] {
        assert_ne!(
            statement_breaches("key/take", text, caller, twin),
            [""; 0],
            "{text:?} {caller:?} {twin}"
        );
    }
}

#[test]
fn no_sql_file_is_longer_than_a_file_may_be() {
    let lines = files().into_iter().map(|(path, text)| (text.lines().count(), path));
    let long = lines.filter(|(lines, _)| *lines > LINES_MAX);
    assert_none(
        long.map(|(lines, path)| format!("{path}: {lines} lines")).collect(),
        "a file stops at 500 lines",
    );
}

/// How many entries, files and folders, each folder has directly in it.
fn entries<'a>(paths: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, usize> {
    let below = |path: &'a str| Path::new(path).ancestors().filter_map(Path::to_str);
    let mut all: Vec<&str> = paths.flat_map(below).collect();
    all.sort_unstable();
    all.dedup();
    let mut counts = BTreeMap::new();
    for folder in all.into_iter().filter_map(|path| Path::new(path).parent()?.to_str()) {
        *counts.entry(folder).or_default() += 1;
    }
    counts
}

#[test]
fn no_folder_of_statements_is_longer_than_a_reader_can_take_in() {
    let files = files();
    let paths = files.iter().map(|(path, _)| path.trim_start_matches(FOLDER));
    let full = entries(paths).into_iter().filter(|(_, count)| *count > ENTRIES_MAX);
    assert_none(
        full.map(|(folder, count)| format!("{FOLDER}{folder}: {count} entries"))
            .collect(),
        "a folder stops at 20 entries",
    );
}

#[test]
fn the_folder_check_counts_files_and_folders_once() {
    let counts = entries(["pg/a/x", "pg/a/y", "pg/b/c/z", "pg/one"].into_iter());
    let expected = [("", 1), ("pg", 3), ("pg/a", 2), ("pg/b", 1), ("pg/b/c", 1)];
    assert_eq!(counts.into_iter().collect::<Vec<_>>(), expected);
}
