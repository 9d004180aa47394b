//! The front page holds: it is short, it names both commands, and its quickstart compiles in a user's own crate.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .expect("the crate lies two folders deep")
        .to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// The only block of the README with this mark.
fn block(mark: &str) -> String {
    only_block(&read("README.md"), mark)
}

fn only_block(page: &str, mark: &str) -> String {
    let fence = format!("```{mark}\n");
    let blocks: Vec<&str> = page
        .split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect();
    assert_eq!(blocks.len(), 1, "blocks of {mark}");
    blocks[0].to_owned()
}

/// The workspace's own settings for crates that are not ours. With them a user's crate shares what is built.
fn profile() -> String {
    let manifest = read("Cargo.toml");
    let mut wanted = false;
    let mut kept = String::new();
    for line in manifest.lines() {
        if line.starts_with('[') {
            wanted = line.starts_with("[profile.dev") && !line.contains("model");
        }
        if wanted {
            kept += line;
            kept += "\n";
        }
    }
    kept
}

#[test]
fn the_front_page_is_short_and_names_both_commands() {
    let readme = read("README.md");
    let lines = readme.lines().count();
    assert!(lines <= 150, "the README has {lines} lines, at most 150");
    for needed in [
        "cargo run -- demo",
        "cargo xtask test",
        "docs/pictures/demo.svg",
        "docs/pictures/speed.svg",
    ] {
        assert!(readme.contains(needed), "the README does not have {needed}");
    }
    let (_, read_on) = readme
        .split_once("## Read on\n")
        .expect("the README says where to read on");
    let links = read_on.lines().filter(|line| line.starts_with("- [")).count();
    assert_eq!(links, 5, "links under Read on");
}

#[test]
fn the_quickstart_is_at_most_forty_lines_with_a_subscriber() {
    let code = block("rust");
    let lines = code.lines().count();
    assert!(lines <= 40, "the quickstart has {lines} lines, at most 40");
    assert!(code.contains("tracing_subscriber::fmt"), "the quickstart shows no logs");
}

/// A crate of a user's, with a clone of this repository beside it.
struct UserCrate {
    folder: tempfile::TempDir,
}

impl UserCrate {
    /// Of what a page says about `Cargo.toml`, and one source file.
    fn new(dependencies: &str, source: &str, file: &str) -> UserCrate {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let library = root().join("crates/rowlock");
        let beside = "../rowlock/crates/rowlock";
        assert!(
            dependencies.contains(beside),
            "the page names a clone beside the user's project"
        );
        let dependencies = dependencies.replace(beside, library.to_str().expect("the checkout's path is text"));
        let package = "[package]\nname = \"quickstart\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n";
        let manifest = format!("{package}\n{dependencies}\n{}", profile());
        fs::write(folder.path().join("Cargo.toml"), manifest).expect("the manifest is written");
        // The same versions as here: nothing is downloaded, and what is built already is used.
        fs::copy(root().join("Cargo.lock"), folder.path().join("Cargo.lock")).expect("the lock file is copied");
        fs::create_dir(folder.path().join("src")).expect("a folder for the source");
        fs::write(folder.path().join("src").join(file), source).expect("the source is written");
        UserCrate { folder }
    }

    fn check(&self, arguments: &[&str]) {
        let test = std::env::current_exe().expect("a test has a path");
        let target = test
            .ancestors()
            .nth(3)
            .expect("a test lies three folders below the target folder");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| env!("CARGO").into());
        let mut check = Command::new(cargo);
        check
            .args(["check", "--offline", "--quiet"])
            .args(arguments)
            .current_dir(self.folder.path())
            .env("CARGO_TARGET_DIR", target);
        // These describe the crate of this test. A build script that watches them would run again, here and in the next
        // build.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                check.env_remove(&name);
            }
        }
        let check = check.output().expect("cargo starts");
        assert!(check.status.success(), "{}", String::from_utf8_lossy(&check.stderr));
    }
}

#[test]
fn the_quickstart_compiles_as_a_users_crate() {
    UserCrate::new(&block("toml"), &block("rust"), "main.rs").check(&[]);
}

#[test]
fn handlers_that_are_written_once_build_for_both_databases() {
    let page = read("docs/databases.md");
    let (_, page) = page
        .split_once("## One source for both\n")
        .expect("the page says how one source serves both");
    let written_once = UserCrate::new(&only_block(page, "toml"), &only_block(page, "rust"), "lib.rs");
    written_once.check(&[]);
    written_once.check(&["--tests", "--features", "sqlite"]);
}
