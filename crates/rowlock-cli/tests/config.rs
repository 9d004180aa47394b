//! The config file: where it is looked for, what it may say, and what comes before it.

use std::{path::Path, process::Command};

use crate::common::{self, File, Said, command, said};

/// A migrated file, and beside it a config file that names it.
fn configured(more: &str) -> File {
    let file = File::migrated();
    write(&file.folder.path().join("rowlock.toml"), &file, more);
    file
}

fn write(path: &Path, file: &File, more: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, format!("database = \"{}\"\n{more}", file.url)).unwrap();
}

/// In the folder of the file.
fn there(file: &File, args: &[&str]) -> Command {
    let mut command = command(args);
    command.current_dir(file.folder.path());
    command
}

fn jobs(command: Command) {
    let said = said(command);
    assert_eq!(
        (said.out.as_str(), said.err.as_str(), said.code),
        ("no matching jobs\n", "", Some(0))
    );
}

fn refused(said: Said, problem: &str) {
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{}", said.err);
    assert!(said.err.starts_with(&format!("error: {problem}\n")), "{}", said.err);
    assert!(said.err.contains("\ntry:   "), "{}", said.err);
    assert!(!said.err.contains("secret"), "{}", said.err);
}

#[test]
fn the_file_is_found_in_the_folder_by_name_and_in_the_users_own_place() {
    let file = configured("");
    jobs(there(&file, &["jobs"]));

    let other = File::migrated();
    let elsewhere = other.folder.path().join("ours.toml");
    write(&elsewhere, &other, "");
    jobs(command(&["jobs", "--config", elsewhere.to_str().unwrap()]));
    let mut from_env = command(&["jobs"]);
    from_env.env("ROWLOCK_CONFIG", &elsewhere);
    jobs(from_env);

    for (folder, variable) in [("xdg", "XDG_CONFIG_HOME"), ("me/.config", "HOME")] {
        let path = other.folder.path().join(folder);
        write(&path.join("rowlock/config.toml"), &other, "");
        let mut own = command(&["jobs"]);
        own.env_remove("XDG_CONFIG_HOME")
            .env(variable, other.folder.path().join(folder.trim_end_matches("/.config")));
        jobs(own);
    }
}

#[test]
fn a_flag_comes_before_the_environment_and_that_before_the_file() {
    let file = configured("");
    let [first, second] = [File::migrated(), File::migrated()];
    first.ok(&["enqueue", "first", "{}"]);
    second.ok(&["enqueue", "second", "{}"]);
    let mut env = there(&file, &["jobs"]);
    env.env("ROWLOCK_DATABASE", &first.url);
    assert!(said(env).out.contains("first"));
    let mut flag = there(&file, &["jobs", "--database", &second.url]);
    flag.env("ROWLOCK_DATABASE", &first.url);
    assert!(said(flag).out.contains("second"));
    let mut empty = there(&file, &["jobs"]);
    empty.env("ROWLOCK_DATABASE", "").env("ROWLOCK_CONFIG", "");
    jobs(empty);
}

#[test]
fn the_actor_is_the_flags_else_the_files_else_the_users() {
    let named = configured("actor = \"on-call\"\n");
    let plain = configured("");
    let by = |command: Command| {
        let all: serde_json::Value = serde_json::from_str(&said(command).out).unwrap();
        all[0]["changed_by"].as_str().unwrap().to_owned()
    };
    let set = ["rollout", "new-way", "5", "--json"];
    assert_eq!(by(there(&named, &set)), "on-call");
    assert_eq!(by(there(&named, &[&set[..], &["--actor", "ann"]].concat())), "ann");
    assert_eq!(by(there(&plain, &set)), "tess");
    let mut nobody = there(&plain, &set);
    nobody.env("USER", "");
    assert_eq!(by(nobody), "operator");
}

#[test]
fn a_schema_may_come_from_the_file() {
    let file = File::migrated();
    let text = "database = \"postgres://me@127.0.0.1:1/db\"\nschema = \"jobs of ours\"\n";
    std::fs::write(file.folder.path().join("rowlock.toml"), text).unwrap();
    let of_file = said(there(&file, &["status"]));
    assert_eq!(of_file.code, Some(1));
    assert!(of_file.err.contains("jobs of ours"), "{}", of_file.err);
    let other = said(there(
        &file,
        &["status", "--database", "postgres://me@127.0.0.1:1/other"],
    ));
    assert!(
        !other.err.contains("jobs of ours"),
        "it is no schema of another database: {}",
        other.err
    );
}

#[test]
fn what_is_wrong_with_the_file_is_told_with_its_name_and_line_and_without_its_database() {
    let file = File::missing();
    let path = file.folder.path().join("rowlock.toml");
    for (text, problem) in [
        (
            "\ndatabse = \"postgres://me:secret@h/d\"\n",
            "line 2: unknown key databse",
        ),
        ("database = 5\n", "line 1: database is of type integer; use a string"),
        ("schema = \"a\"\nschema = \"b\"\n", "line 2: duplicate key"),
    ] {
        std::fs::write(&path, text).unwrap();
        refused(
            said(there(&file, &["jobs"])),
            &format!("config file rowlock.toml, {problem}"),
        );
    }
    std::fs::write(&path, b"database = \"secret\xff\"\n").unwrap();
    refused(
        said(there(&file, &["jobs"])),
        "config file rowlock.toml is not text in UTF-8",
    );
    std::fs::write(&path, "#".repeat(70_000)).unwrap();
    refused(
        said(there(&file, &["jobs"])),
        "config file rowlock.toml is longer than 65536 bytes",
    );
}

#[test]
fn a_file_that_was_named_must_be_there() {
    let file = File::missing();
    let said = said(there(&file, &["jobs", "--config", "none.toml"]));
    assert!(said.err.contains("\ncause: "), "{}", said.err);
    refused(said, "config file none.toml cannot be read");
}

#[test]
fn a_demo_does_not_run_on_what_a_file_names() {
    let file = configured("");
    let temp = tempfile::tempdir().unwrap();
    let mut demo = common::demo(temp.path(), &["--orders", "2", "--kills", "0", "--json"]);
    demo.current_dir(file.folder.path());
    let said = said(demo);
    assert_eq!(said.code, Some(0), "{}", said.err);
    jobs(there(&file, &["jobs"]));
    assert!(file.ok(&["status"]).starts_with("no open jobs"));
}
