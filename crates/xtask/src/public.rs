//! What strangers and their tools read: workflows, templates, package metadata and the one placeholder.
//!
//! No build looks at these files, so a slip in them shows up only on somebody else's machine. These tests look.

mod metadata;
mod placeholder;
mod templates;
mod workflows;

use std::path::PathBuf;

use saphyr::{LoadableYamlNode, YamlOwned};

/// The root of the workspace, wherever the tests run.
fn root() -> PathBuf {
    let manifest = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap().to_owned()
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// A file that is one YAML document.
fn yaml(path: &str) -> YamlOwned {
    let mut documents = YamlOwned::load_from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
    assert_eq!(documents.len(), 1, "{path} is not one document");
    documents.remove(0)
}

/// The files of a folder that are YAML, as paths from the root.
fn yaml_files(folder: &str) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let names = entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned());
    let mut paths: Vec<String> = names
        .filter(|name| name.ends_with(".yml") || name.ends_with(".yaml"))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    paths.sort();
    paths
}

/// The value under a key, or an empty answer.
fn get<'a>(node: &'a YamlOwned, key: &str) -> Option<&'a YamlOwned> {
    node.as_mapping_get(key)
}

/// The text under a key.
fn text<'a>(node: &'a YamlOwned, key: &str) -> Option<&'a str> {
    get(node, key).and_then(|value| value.as_str())
}

/// Whether `cargo xtask` accepts a command line.
fn accepts(line: &str) -> Result<(), String> {
    let words: Vec<&str> = line.split(' ').collect();
    match words.as_slice() {
        ["cargo", "xtask", rest @ ..] => crate::command::Command::parse(rest).map(|_| ()),
        _ => Err(format!("`{line}` is not `cargo xtask …`")),
    }
}

#[test]
fn only_one_existing_command_makes_a_line() {
    assert!(accepts("cargo xtask lint").is_ok());
    assert!(accepts("cargo xtask lint --format").is_ok());
    for line in [
        "cargo test",
        "cargo xtask",
        "cargo xtask lnit",
        "cargo xtask lint\ncargo xtask docs",
        "cargo xtask lint && cargo xtask docs",
        "cargo xtask lint | tee log",
        "cargo  xtask lint",
    ] {
        assert!(accepts(line).is_err(), "{line}");
    }
}
