//! What a person reads when something is wrong: what, why, and what to try. Exit code 1, nothing on stdout.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common;

use common::{File, rowlock};

#[test]
fn a_missing_schema_names_the_command_that_makes_it() {
    let file = File::missing();
    std::fs::write(&file.path, "").unwrap();
    for args in [
        &["status"][..],
        &["jobs"],
        &["cases"],
        &["effects"],
        &["effect", "resolve", "1", "--not-happened"],
        &["inspect", "1"],
        &["reopen", "1"],
        &["enqueue", "k", "{}"],
        &["verify"],
    ] {
        let expected = "error: no rowlock schema here, this binary needs schema 14; run `rowlock migrate`\n";
        assert_eq!(file.refused(args), expected, "{args:?}");
    }
}

#[test]
fn a_mistyped_file_is_not_created_by_looking_at_it() {
    let file = File::missing();
    let expected = format!(
        "error: there is no file {}\ntry:   rowlock migrate --database {}   creates it; or check the path\n",
        file.path.display(),
        file.url
    );
    assert_eq!(file.refused(&["status"]), expected);
    assert!(!file.path.exists());
}

#[test]
fn a_missing_schema_on_postgresql_reads_the_same() {
    for url in common::postgres_urls() {
        let said = rowlock(&["status", "--schema", "no_such_schema", "--database", &url]);
        assert_eq!(
            said.err,
            "error: no rowlock schema here, this binary needs schema 14; run `rowlock migrate`\n"
        );
    }
}

#[test]
fn a_database_must_be_named() {
    let said = rowlock(&["status"]);
    assert_eq!(said.code, Some(2));
    assert_eq!(
        said.err,
        "error: no database given\n\
         try:   --database sqlite:app.db or postgres://…, or set ROWLOCK_DATABASE, or write database = \"…\" in rowlock.toml\n"
    );
}

#[test]
fn an_unknown_url_scheme_is_refused_without_its_password() {
    for command in [&["status"][..], &["demo"], &["migrate"]] {
        let mut args = command.to_vec();
        args.extend(["--database", "mysql://me:secret@host/db"]);
        let said = rowlock(&args);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{command:?}");
        assert_eq!(
            said.err, "error: cannot use \"mysql\" urls; give postgres://… or sqlite:path\n",
            "{command:?}"
        );
    }
}

#[test]
fn no_error_shows_a_password() {
    let unreachable = rowlock(&["status", "--database", "postgres://me:secret@127.0.0.1:1/db"]);
    assert_eq!(unreachable.code, Some(1));
    assert!(
        unreachable.err.contains("\ntry:   check that the server runs"),
        "{}",
        unreachable.err
    );
    let garbled = rowlock(&["status", "--database", "postgres://me:secret@host:port/db"]);
    let misplaced = rowlock(&["postgres://me:secret@host/db"]);
    assert!(misplaced.err.contains("postgres://me:***@host/db"), "{}", misplaced.err);
    for said in [unreachable, garbled, misplaced] {
        assert!(
            !said.err.contains("secret") && !said.out.contains("secret"),
            "{}",
            said.err
        );
    }
    let mut help = common::command(&["--help"]);
    help.env("ROWLOCK_DATABASE", "postgres://me:secret@host/db");
    assert!(!common::said(help).out.contains("secret"));
}

#[test]
fn where_no_host_takes_writes_each_is_named_with_its_reason() {
    let said = rowlock(&[
        "status",
        "--database",
        "postgres://me:secret@127.0.0.1:1,127.0.0.1:2/db",
    ]);
    assert_eq!(said.code, Some(1));
    let refused = |port| format!("127.0.0.1:{port}: Connection refused (os error 111)");
    let wanted = format!("no host takes writes ({}, {})\n", refused(1), refused(2));
    assert!(said.err.contains(&wanted), "{}", said.err);
    assert!(said.err.contains("try:   check that the server runs"), "{}", said.err);
    assert!(!said.err.contains("secret"), "{}", said.err);
}

#[test]
fn a_demo_takes_one_host() {
    let said = rowlock(&["demo", "--database", "postgres://me:secret@a,b/db"]);
    assert_eq!(
        said.err,
        "error: demo uses one server, and the url names several hosts\n\
         try:   rowlock demo   with the primary's host alone\n"
    );
}

#[test]
fn a_demo_on_a_server_out_of_reach_says_so_and_not_what_followed_from_it() {
    let said = rowlock(&["demo", "--json", "--database", "postgres://me:secret@127.0.0.1:1/db"]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(lines[0], "error: migrate failed");
    assert!(
        lines[1].starts_with("cause: ") && lines[2].starts_with("try:   "),
        "{}",
        said.err
    );
}

#[test]
fn a_database_given_before_the_command_counts_for_the_demo_too() {
    let said = rowlock(&["--database", "mysql://h/db", "demo"]);
    assert_eq!(
        said.err,
        "error: cannot use \"mysql\" urls; give postgres://… or sqlite:path\n"
    );
}

#[test]
fn a_refused_job_names_the_field() {
    let file = File::migrated();
    for (args, expected) in [
        (
            &["k", "{\"a\":"][..],
            "error: payload: not json: EOF while parsing a value at line 1 column 5\n",
        ),
        (
            &["a b", "{}"],
            "error: kind: \"a b\" is not 1 to 100 of a-z, A-Z, 0-9 and -_.:/\n",
        ),
        (
            &["k", "{}", "--priority", "9"],
            "error: priority: 9 is not in 1..=5 (1 runs first, 3 is the default)\n",
        ),
        (
            &["k", "{}", "--attempts", "0"],
            "error: attempts: 0 is not in 1..=10000\n",
        ),
        (
            &["k", "{}", "--queue", ""],
            "error: queue: \"\" is not 1 to 100 of a-z, A-Z, 0-9 and -_.:/\n",
        ),
    ] {
        let mut all = vec!["enqueue"];
        all.extend(args);
        assert_eq!(file.refused(&all), expected);
    }
    assert_eq!(file.ok(&["jobs"]), "no such jobs\n");
}

#[test]
fn an_unknown_job_says_where_to_look() {
    let file = File::migrated();
    let expected = "error: no job 7, or its retention is over\ntry:   rowlock jobs   lists the newest\n";
    assert_eq!(file.refused(&["inspect", "7"]), expected);
    assert_eq!(
        file.refused(&["reopen", "7"]),
        "error: no job 7; `rowlock cases` lists what can be reopened\n"
    );
}

#[test]
fn wrong_usage_ends_with_code_2_and_a_hint() {
    let said = rowlock(&["jobs", "--state", "lost"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert!(
        said.err.contains("give ready, waiting, leased, case or finished"),
        "{}",
        said.err
    );
    assert!(
        rowlock(&["enqueue", "k", "{}", "--after", "5"])
            .err
            .contains("such as 5s")
    );
    let bare = rowlock(&[]);
    assert!(
        bare.err.contains("Usage: rowlock") && !bare.err.contains("demo-worker"),
        "{}",
        bare.err
    );
}

#[test]
fn a_file_in_no_folder_gives_its_cause_and_a_next_step() {
    let file = File::missing();
    let url = format!("sqlite:{}", file.folder.path().join("none/app.db").display());
    let said = rowlock(&["migrate", "--database", &url]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""));
    let labels: Vec<&str> = said.err.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(labels, ["error:", "cause:", "try:"], "{}", said.err);
}
