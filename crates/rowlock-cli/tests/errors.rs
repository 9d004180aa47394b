//! What a person reads when something is wrong: what, why, and what to try. Exit code 1, nothing on stdout.

use crate::common::{self, File, rowlock};

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
        let expected =
            "error: the database has no rowlock schema, but this binary needs schema 1; run `rowlock migrate`\n";
        assert_eq!(file.refused(args), expected, "{args:?}");
    }
}

#[test]
fn a_mistyped_file_is_not_created_by_looking_at_it() {
    let file = File::missing();
    let expected = format!(
        "error: database file {} does not exist\ntry:   rowlock migrate --database {}   creates it; or correct the path\n",
        file.path.display(),
        file.url
    );
    assert_eq!(file.refused(&["status"]), expected);
    assert!(!file.path.exists());
}

#[test]
fn a_database_in_memory_is_refused_before_anything_is_advised() {
    for command in [&["status"][..], &["migrate"], &["jobs"]] {
        for url in ["sqlite::memory:", "sqlite://app.db?mode=memory"] {
            let said = rowlock(&[command, &["--database", url]].concat());
            assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{command:?}");
            assert_eq!(
                said.err,
                "error: in-memory SQLite is not supported; use a file, such as sqlite:app.db\n"
            );
        }
    }
}

#[test]
fn a_missing_schema_on_postgresql_reads_the_same() {
    for url in common::postgres_urls() {
        let said = rowlock(&["status", "--schema", "no_such_schema", "--database", &url]);
        assert_eq!(
            said.err,
            "error: the database has no rowlock schema, but this binary needs schema 1; run `rowlock migrate`\n"
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
         try:   use --database sqlite:app.db or postgres://…, set ROWLOCK_DATABASE, or write database = \"…\" in rowlock.toml\n"
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
            said.err, "error: cannot use a \"mysql\" URL; use postgres://… or sqlite:PATH\n",
            "{command:?}"
        );
    }
}

#[test]
fn no_error_shows_a_password() {
    let unreachable = rowlock(&["status", "--database", "postgres://me:secret@127.0.0.1:1/db"]);
    assert_eq!(unreachable.code, Some(1));
    assert!(
        unreachable.err.contains("\ntry:   check that the server is running"),
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
    let wanted = format!("no host accepts writes ({}, {})\n", refused(1), refused(2));
    assert!(said.err.contains(&wanted), "{}", said.err);
    assert!(
        said.err.contains("try:   check that the server is running"),
        "{}",
        said.err
    );
    assert!(!said.err.contains("secret"), "{}", said.err);
}

#[test]
fn a_demo_takes_one_host() {
    let said = rowlock(&["demo", "--database", "postgres://me:secret@a,b/db"]);
    assert_eq!(
        said.err,
        "error: demo uses one server, and the URL has several hosts\n\
         try:   rowlock demo   with the host of the primary only\n"
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
        "error: cannot use a \"mysql\" URL; use postgres://… or sqlite:PATH\n"
    );
}

#[test]
fn a_refused_job_names_the_field() {
    let file = File::migrated();
    for (args, expected) in [
        (
            &["k", "{\"a\":"][..],
            "error: payload: not valid JSON: EOF while parsing a value at line 1 column 5\n",
        ),
        (
            &["a b", "{}"],
            "error: kind: \"a b\" is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/\n",
        ),
        (
            &["k", "{}", "--priority", "9"],
            "error: priority: 9 is out of range (1 to 5; 1 runs first, default 3)\n",
        ),
        (
            &["k", "{}", "--attempts", "0"],
            "error: attempts: 0 is out of range (1 to 10000)\n",
        ),
        (
            &["k", "{}", "--queue", ""],
            "error: queue: \"\" is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/\n",
        ),
    ] {
        let mut all = vec!["enqueue"];
        all.extend(args);
        assert_eq!(file.refused(&all), expected);
    }
    assert_eq!(file.ok(&["jobs"]), "no matching jobs\n");
}

#[test]
fn an_unknown_job_says_where_to_look() {
    let file = File::migrated();
    let expected = "error: no job 7; it never existed, or it was deleted after its retention\n\
                    try:   rowlock jobs   lists the newest jobs\n";
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
        said.err
            .contains("use ready, waiting, leased, case, finished, done or cancelled"),
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

/// What the command line says about arguments that it does not understand.
fn misunderstood(args: &[&str]) -> String {
    let said = rowlock(args);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{args:?}");
    said.err
}

#[test]
fn what_is_not_an_id_or_a_time_is_answered_with_one_that_is() {
    let no_id = "error: invalid value 'abc' for '<ID>': not a job id; use a number such as 42\n";
    for args in [&["inspect", "abc"][..], &["chain", "abc"], &["reopen", "abc"]] {
        assert!(misunderstood(args).starts_with(no_id), "{args:?}");
    }
    for args in [
        &["cancel", "1", "abc"][..],
        &["case", "close", "abc"],
        &["case", "note", "abc", "a note"],
        &["audit", "abc"],
        &["jobs", "--below", "abc"],
        &["effects", "--job", "abc"],
    ] {
        let said = misunderstood(args);
        assert!(said.contains(": not a job id; use a number such as 42\n"), "{said}");
    }
    let said = misunderstood(&["delay", "1", "--until", "tomorrow"]);
    let problem = "use a time such as 2026-11-18T12:00:00Z; for a span such as 2h, use --by";
    assert!(said.contains(problem), "{said}");
}

#[test]
fn words_of_other_tools_are_answered_with_ours() {
    for (word, hint) in [
        (
            "retry",
            "tip: use 'rowlock reopen ID' for a case, or 'rowlock rerun ID' for a finished job",
        ),
        ("version", "tip: use 'rowlock --version'"),
    ] {
        for args in [&[word][..], &[word, "42"]] {
            let said = misunderstood(args);
            assert!(
                said.starts_with(&format!("error: unrecognized subcommand '{word}'\n")),
                "{said}"
            );
            assert!(said.contains(&format!("\n  {hint}\n")), "{said}");
            assert!(!said.contains("similar"), "{said}");
        }
    }
    assert!(misunderstood(&["inspct"]).contains("'inspect'"));
}

#[test]
fn a_hidden_option_is_never_suggested() {
    let said = misunderstood(&["demo", "--list"]);
    assert!(
        said.starts_with("error: unexpected argument '--list' found\n"),
        "{said}"
    );
    assert!(!said.contains("limit"), "{said}");
    assert!(misunderstood(&["demo", "--order", "5"]).contains("'--orders'"));
}

#[test]
fn the_usage_of_a_wrong_command_shows_no_option_that_comes_from_the_environment() {
    for args in [&["completions"][..], &["prune"], &["inspect"]] {
        let mut from_environment = common::command(args);
        from_environment
            .env("ROWLOCK_DATABASE", "sqlite:app.db")
            .env("ROWLOCK_CONFIG", "rowlock.toml");
        let said = common::said(from_environment);
        assert_eq!((said.code, said.err), (Some(2), misunderstood(args)));
    }
    assert!(!misunderstood(&["completions"]).contains("--database"));
}

#[test]
fn a_word_for_a_state_that_cannot_be_used_here_is_answered_with_one_that_can() {
    let ready = "use ready; a ready job is due now or scheduled for later";
    for (args, hint) in [
        (&["jobs", "--state", "due"][..], ready),
        (&["jobs", "--state", "scheduled"], ready),
        (&["cancel", "--kind", "k", "--state", "due"], ready),
        (&["rerun", "--kind", "k", "--state", "done"], "use finished\n"),
        (
            &["rerun", "--kind", "k", "--state", "cancelled"],
            "cancelled jobs cannot be selected; name them by id",
        ),
        (
            &["retire", "--kind", "k", "--state", "lost"],
            "use ready, waiting, leased, case or finished",
        ),
    ] {
        let said = misunderstood(args);
        assert!(said.contains(hint), "{args:?}: {said}");
    }
}
