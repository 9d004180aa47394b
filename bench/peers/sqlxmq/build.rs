//! sqlxmq has no migrator: it asks its users to copy the SQL files of its package. They are taken from the package
//! that the lock file pins, so that the schema is always the one this version expects.

use std::path::PathBuf;
use std::process::Command;
use std::{env, fs};

use serde_json::Value;

fn main() {
    println!("cargo::rerun-if-changed=Cargo.lock");
    let cargo = env::var("CARGO").expect("cargo runs this");
    let asked = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked"])
        .output()
        .expect("cargo metadata starts");
    assert!(
        asked.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&asked.stderr)
    );
    let metadata: Value = serde_json::from_slice(&asked.stdout).expect("cargo metadata is JSON");
    let manifest = metadata["packages"]
        .as_array()
        .and_then(|packages| packages.iter().find(|package| package["name"] == "sqlxmq"))
        .and_then(|package| package["manifest_path"].as_str())
        .expect("sqlxmq is a dependency");
    let folder = PathBuf::from(manifest).with_file_name("migrations");
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .expect("the package has migrations")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.retain(|file| file.to_string_lossy().ends_with(".up.sql"));
    files.sort();
    let schema: Vec<String> = files
        .iter()
        .map(|file| fs::read_to_string(file).expect("a migration is text"))
        .collect();
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets it")).join("schema.sql");
    fs::write(out, schema.join(";\n")).expect("the schema is written");
}
