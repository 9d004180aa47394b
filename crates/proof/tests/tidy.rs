//! House style that a reader should not have to check: sizes, statements, the one-way flow, words, and the map.

mod comments;
mod flow;
mod sql;
mod words;

use std::{
    fs,
    path::{Path, PathBuf},
};

const LINES_MAX: usize = 500;
const FUNCTION_LINES_MAX: usize = 70;

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep")
        .to_owned()
}

/// Every file with one of these endings, as its path from the root and its text.
fn tree(endings: &[&str]) -> Vec<(String, String)> {
    fn walk(folder: &Path, into: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                if !["target", ".git", "node_modules"].contains(&name.as_str()) {
                    walk(&path, into);
                }
            } else {
                into.push(path);
            }
        }
    }
    let mut paths = Vec::new();
    walk(&root(), &mut paths);
    paths.sort();
    let named = |path: PathBuf| {
        let name = path.strip_prefix(root()).unwrap().to_string_lossy().into_owned();
        let wanted = endings.iter().any(|ending| name.ends_with(ending));
        wanted.then(|| (name, fs::read_to_string(&path).unwrap()))
    };
    paths.into_iter().filter_map(named).collect()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

fn assert_none(breaches: Vec<String>, rule: &str) {
    assert!(breaches.is_empty(), "{rule}:\n  {}", breaches.join("\n  "));
}

#[test]
fn no_file_is_longer_than_a_file_may_be() {
    let lines = tree(&[".rs"])
        .into_iter()
        .map(|(path, text)| (text.lines().count(), path));
    let long = lines
        .filter(|(lines, _)| *lines > LINES_MAX)
        .map(|(lines, path)| format!("{path}: {lines} lines"));
    assert_none(long.collect(), "a file stops at 500 lines");
}

/// Name and length of each function that is formatted as rustfmt does: it ends at a brace as deep as its first line.
fn functions(text: &str) -> Vec<(String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (n, line) in lines.iter().enumerate() {
        let depth = line.len() - line.trim_start().len();
        let mut words = line.split_whitespace().skip_while(|word| *word != "fn").skip(1);
        let before_name = line.split("fn ").next().unwrap_or_default();
        let declares = before_name
            .split_whitespace()
            .all(|w| w.starts_with("pub") || ["async", "const", "crate)"].contains(&w));
        let (true, Some(name)) = (declares, words.next()) else {
            continue;
        };
        let end = format!("{}}}", &line[..depth]);
        let Some(length) = lines[n..].iter().position(|line| *line == end) else {
            continue;
        };
        // A declaration without a body, or one on a single line, ends before any brace of its depth.
        if !line.ends_with(';') && !line.ends_with('}') {
            found.push((name.split(['(', '<']).next().unwrap_or_default().to_owned(), length + 1));
        }
    }
    found
}

#[test]
fn no_function_is_longer_than_a_function_may_be() {
    let mut long = Vec::new();
    let mut seen = 0;
    for (path, text) in tree(&[".rs"]) {
        for (name, lines) in functions(&text) {
            seen += 1;
            if lines > FUNCTION_LINES_MAX {
                long.push(format!("{path}: {name} has {lines} lines"));
            }
        }
    }
    assert!(seen > 500, "only {seen} functions found");
    assert_none(long, "a function stops at 70 lines");
}

#[test]
fn the_function_check_counts_from_the_name_to_the_closing_brace() {
    let body = "        x();\n".repeat(69);
    let text = format!(
        "impl A {{\n    pub(crate) async fn long<T>(t: T) {{\n{body}    }}\n    fn one() {{}}\n}}\nfn short() {{\n}}\n"
    );
    assert_eq!(functions(&text), [("long".to_owned(), 71), ("short".to_owned(), 2)]);
}

#[test]
fn nothing_is_left_unfinished_or_switched_off() {
    // Put together here, so that this file does not find itself.
    let marks = [["to", "do!("], ["unimple", "mented!("], ["#[ig", "nore"], ["dbg", "!("]].map(|parts| parts.concat());
    let mut found = Vec::new();
    for (path, text) in tree(&[".rs"]) {
        for mark in &marks {
            let lines = (1..).zip(text.lines()).filter(|(_, line)| line.contains(mark));
            found.extend(lines.map(|(n, _)| format!("{path}:{n}: {mark}")));
        }
    }
    assert_none(found, "unfinished");
}

#[test]
fn no_path_of_somebodys_machine_is_in_the_tree() {
    let homes = [["/ho", "me/"], ["/ro", "ot/"], ["/Us", "ers/"], ["/wo", "rk/"]].map(|parts| parts.concat());
    let mut found = Vec::new();
    for (path, text) in tree(&[".rs", ".sql", ".md", ".toml", ".ci/run"]) {
        for (n, line) in (1..).zip(text.lines()) {
            found.extend(
                homes
                    .iter()
                    .filter(|home| line.contains(*home))
                    .map(|home| format!("{path}:{n}: {home}")),
            );
        }
    }
    assert_none(found, "paths of one machine");
}

/// Words that the glossary gives up, in every form they come in. *Message* and *task* mean something else: an item of
/// an external queue, and a unit of the async runtime. So they are banned where only jobs are spoken of: in SQL.
const BANNED: [(&str, &[&str]); 3] = [
    (
        "",
        &[
            "ack",
            "acks",
            "discard",
            "discards",
            "discarded",
            "discarding",
            "rescue",
            "rescues",
            "rescued",
            "rescuing",
            "reap",
            "reaps",
            "reaped",
            "reaper",
            "reaping",
            "manager",
            "managers",
            "service",
            "services",
            "util",
            "utils",
            "helper",
            "helpers",
        ],
    ),
    (".sql", &["task", "tasks", "message", "messages"]),
    ("README.md", &["task", "tasks"]),
];

/// Names that others gave, and the one manager that is not ours: the program that starts and stops processes.
const OTHERS_NAMES: [&str; 24] = [
    "as_service_error",
    "SERVICE_UNAVAILABLE",
    // What SQS calls it.
    "dead-letter",
    "a_dead_letter_queue",
    "DeadLetter",
    "connection-manager",
    "ConnectionManager",
    "tokio-util",
    "tokio_util",
    "io-util",
    "io_util",
    "test-util",
    "TransactionManager",
    "util::SubscriberInitExt",
    "service_name",
    "service.instance.id",
    "ServiceRequest",
    "SERVICES",
    "http-body-util",
    "http_body_util",
    "hyper-util",
    "hyper_util",
    "futures-util",
    "\"server\", \"service\"",
];

/// The banned words of a line, in identifiers, comments and prose alike.
fn banned_in(path: &str, line: &str) -> Vec<String> {
    let mut line = line.to_owned();
    for name in OTHERS_NAMES {
        line = line.replace(name, "");
    }
    let mut words = vec![String::new()];
    let mut before = ' ';
    for c in line.chars() {
        if !c.is_alphabetic() || (c.is_uppercase() && before.is_lowercase()) {
            words.push(String::new());
        }
        if let (true, Some(word)) = (c.is_alphabetic(), words.last_mut()) {
            word.extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    let applying = BANNED
        .iter()
        .filter(|(place, _)| path.ends_with(place))
        .flat_map(|(_, words)| words.iter());
    let mut found: Vec<String> = applying
        .filter(|banned| words.iter().any(|w| w == *banned))
        .map(|w| (*w).to_owned())
        .collect();
    if words
        .windows(2)
        .any(|pair| pair[0] == "dead" && pair[1].starts_with("letter"))
    {
        found.push("dead letter".to_owned());
    }
    found
}

#[test]
fn one_word_is_used_per_thing() {
    let mut found = Vec::new();
    for (path, text) in tree(&[".rs", ".sql", ".md", ".toml"]) {
        // This file has to name them, and the peers' programs speak the peers' words.
        if path.ends_with("tests/tidy.rs") || path.starts_with("bench/peers/") {
            continue;
        }
        for (n, line) in (1..).zip(text.lines()) {
            // The last column of the glossary says what others call a thing, and nothing else may.
            let row = (path == "docs/glossary.md").then(|| line.trim_end_matches(" |").rsplit_once(" | "));
            let line = row.flatten().map_or(line, |(ours, _)| ours);
            found.extend(
                banned_in(&path, line)
                    .into_iter()
                    .map(|word| format!("{path}:{n}: {word}: {}", line.trim())),
            );
        }
    }
    assert_none(found, "words that the glossary does not use");
}

#[test]
fn the_word_check_sees_words_inside_names() {
    assert_eq!(banned_in("a.rs", "struct LeaseManager;"), ["manager"]);
    assert_eq!(banned_in("a.rs", "fn reap_dead() {} // ack"), ["ack", "reap"]);
    assert_eq!(banned_in("a.sql", "-- one task"), ["task"]);
    assert_eq!(banned_in("a.md", "the dead letters"), ["dead letter"]);
    assert_eq!(
        banned_in("a.rs", "tokio_util::task, PgTransactionManager, back, acked, utility"),
        [""; 0]
    );
}

/// The paths that a page names in backticks or links to.
fn named_paths(page: &str) -> Vec<String> {
    let plain = |token: &&str| token.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    let quoted = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|t| t.contains('/') || *t == "docs")
        .filter(plain);
    let linked = page
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(plain);
    quoted.chain(linked).map(str::to_owned).collect()
}

#[test]
fn the_map_matches_the_tree() {
    let map = read("ARCHITECTURE.md");
    let named = named_paths(&map);
    let mut found: Vec<String> = Vec::new();
    found.extend(
        named
            .iter()
            .filter(|path| !root().join(path).exists())
            .map(|path| format!("{path} does not exist")),
    );

    let entries = |folder: &str| -> Vec<String> {
        let entries = fs::read_dir(root().join(folder)).unwrap().map(|e| e.unwrap());
        entries
            .map(|e| format!("{folder}/{}", e.file_name().to_string_lossy()))
            .collect()
    };
    let crates = entries("crates");
    let modules = entries("crates/rowlock/src")
        .into_iter()
        .filter(|path| path.ends_with(".rs"));
    for path in crates.into_iter().chain(modules) {
        if !named.contains(&path) {
            found.push(format!("{path} is not in the map"));
        }
    }
    assert_none(found, "ARCHITECTURE.md");
}
