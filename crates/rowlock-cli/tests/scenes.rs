//! The other scenes of the demo, as a newcomer runs them: replies are lost and evaluations race, and no promise breaks;
//! without care one does, and the demo says so.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use crate::common::{Database, Said, assert_nothing_is_left, demo, lines, postgres_urls, rowlock, said};
use serde_json::{Map, Value};

type Found = Map<String, Value>;

/// Runs a scene for its JSON, in a separate folder that must be empty afterwards.
fn played(args: &[&str]) -> (Found, Said) {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(temp.path(), args));
    assert_eq!(said.err, "", "{}", said.out);
    assert_nothing_is_left(temp.path());
    (serde_json::from_str(&said.out).unwrap(), said)
}

fn number(found: &Found, field: &str) -> i64 {
    found[field].as_i64().unwrap_or_else(|| panic!("{field}: {found:?}"))
}

fn assert_fields(found: &Found, expected: &[&str]) {
    let mut expected = expected.to_vec();
    expected.sort_unstable();
    let mut fields: Vec<&str> = found.keys().map(String::as_str).collect();
    fields.sort_unstable();
    assert_eq!(fields, expected);
}

fn assert_charged_or_in_doubt(more: &[&str]) {
    let mut args = vec!["charges", "--json", "--orders", "60", "--kills", "5", "--drops", "20"];
    args.extend(more);
    let (found, said) = played(&args);
    assert_eq!(said.code, Some(0), "{}", said.out);
    assert_fields(
        &found,
        &[
            "jobs",
            "done",
            "effects",
            "lost",
            "doubled",
            "uncertain",
            "kills",
            "dropped_replies",
            "seconds",
        ],
    );
    let of = |field| number(&found, field);
    assert_eq!((of("jobs"), of("lost"), of("doubled")), (60, 0, 0), "{}", said.out);
    assert_eq!(of("done") + of("uncertain"), 60, "{}", said.out);
    assert!((of("done")..=60).contains(&of("effects")), "{}", said.out);
    assert!((1..=30).contains(&of("uncertain")), "{}", said.out);
    assert!(of("kills") >= 5 && of("dropped_replies") > 0, "{}", said.out);
}

#[test]
fn every_order_is_charged_once_or_in_doubt_on_sqlite() {
    assert_charged_or_in_doubt(&[]);
}

#[test]
fn every_order_is_charged_once_or_in_doubt_on_postgresql() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        assert_charged_or_in_doubt(&["--database", &database.url]);
        assert_eq!(database.schemas(), ["public"]);
    }
}

#[test]
fn without_parking_orders_are_charged_twice_and_the_demo_fails() {
    let args = [
        "charges",
        "--careless",
        "--orders",
        "80",
        "--kills",
        "0",
        "--drops",
        "30",
    ];
    let (found, said) = played(&[&args[..], &["--json"]].concat());
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert!(number(&found, "doubled") > 0, "{}", said.out);
    assert_eq!(number(&found, "uncertain"), 0, "{}", said.out);
}

#[test]
fn every_doubt_that_is_kept_is_a_case_with_its_intent() {
    let temp = tempfile::tempdir().unwrap();
    let args = [
        "charges", "--orders", "40", "--kills", "0", "--drops", "30", "--keep", "--json",
    ];
    let said = said(demo(temp.path(), &args));
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    let found: Found = serde_json::from_str(&said.out).unwrap();
    let look = |command: &str| {
        let line = said
            .err
            .lines()
            .find(|line| line.contains(&format!("rowlock {command} ")))
            .unwrap();
        let (_, args) = line.split_once("rowlock ").unwrap();
        let args: Vec<&str> = args.split(' ').chain(["--json"]).collect();
        let shown: Vec<Found> = serde_json::from_str(&rowlock(&args).out).unwrap();
        let mut jobs: Vec<i64> = shown.iter().map(|one| number(one, "id")).collect();
        jobs.sort_unstable();
        (shown, jobs)
    };
    let ((cases, parked), (effects, in_doubt)) = (look("cases"), look("effects"));
    assert_eq!(parked.len() as i64, number(&found, "uncertain"));
    assert_eq!(parked, in_doubt);
    assert!(
        effects.iter().all(|effect| effect["state"] == "uncertain"),
        "{effects:?}"
    );
    for case in &cases {
        let effect = effects.iter().find(|effect| effect["id"] == case["id"]).unwrap();
        let named = format!("effect {} \"charge\" is in doubt", number(effect, "no"));
        assert!(case["reason"].as_str().unwrap().contains(&named), "{case:?}");
    }
}

#[test]
fn the_table_of_charges_tells_a_newcomer_what_happened() {
    let temp = tempfile::tempdir().unwrap();
    let args = [
        "charges",
        "--orders",
        "20",
        "--kills",
        "2",
        "--workers",
        "2",
        "--seed",
        "7",
    ];
    let said = said(demo(temp.path(), &args));
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert_eq!(
        said.err,
        "Charging 20 orders with 2 worker processes on SQLite, with 2 kills (SIGKILL).\n\
         The provider loses 6 % of its replies and honours idempotency keys for half of the orders.\n\
         creating the database\n\
         starting the payment provider\n\
         starting 2 workers\n\
         placing orders and killing workers\n\
         counting orders and charges\n"
    );
    let shown = lines(&said.out);
    for line in [
        "20 charges by 2 worker processes on SQLite seed 7",
        "account with idempotency keys: if uncertain, call again with the same key",
        "charged once 10 one line each in the provider's own log",
        "account without idempotency keys: if uncertain, let a person decide",
        "lost 0 orders not charged and not left to a person",
        "doubled 0 orders charged more than once",
    ] {
        assert!(shown.iter().any(|l| l == line), "{line}\n{}", said.out);
    }
    assert!(!said.out.contains('\x1b'), "colours are for terminals");
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert_nothing_is_left(temp.path());
}

#[test]
fn what_is_kept_already_is_not_suggested_again() {
    for (more, suggested) in [
        (&["--keep"][..], "rowlock demo incidents"),
        (&[], "rowlock demo charges --keep"),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let said = said(demo(
            temp.path(),
            &[&["charges", "--orders", "4", "--kills", "0"], more].concat(),
        ));
        assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
        assert!(said.out.contains(&format!("        {suggested}  ")), "{}", said.out);
        assert_eq!(said.out.contains("--keep"), more.is_empty(), "{}", said.out);
    }
}

const FEW: [&str; 9] = [
    "incidents",
    "--entities",
    "12",
    "--evaluations",
    "10",
    "--workers",
    "30",
    "--pool",
    "4",
];

fn assert_never_two_open(more: &[&str]) {
    let (found, said) = played(&[&FEW, more, &["--json"]].concat());
    assert_eq!(said.code, Some(0), "{}", said.out);
    assert_fields(
        &found,
        &[
            "entities",
            "evaluations",
            "open_incidents_max",
            "changed",
            "stale",
            "lost",
            "pool",
            "workers",
            "at_once",
            "seconds",
        ],
    );
    for (field, expected) in [
        ("entities", 12),
        ("evaluations", 120),
        ("open_incidents_max", 1),
        ("stale", 0),
        ("lost", 0),
        ("pool", 4),
        ("workers", 30),
    ] {
        assert_eq!(number(&found, field), expected, "{field}: {}", said.out);
    }
    assert!(number(&found, "changed") > 0, "{}", said.out);
    assert!(
        number(&found, "at_once") > 4,
        "a connection is held meanwhile: {}",
        said.out
    );
}

#[test]
fn an_entity_never_has_two_open_incidents_on_sqlite() {
    assert_never_two_open(&[]);
}

#[test]
fn an_entity_never_has_two_open_incidents_on_postgresql() {
    for url in postgres_urls() {
        let database = Database::fresh(&url);
        assert_never_two_open(&["--database", &database.url]);
        assert_eq!(database.schemas(), ["public"]);
    }
}

#[test]
fn without_the_guard_entities_have_several_open_incidents_and_the_demo_fails() {
    let (found, said) = played(&[&FEW[..], &["--careless", "--json"]].concat());
    assert_eq!(said.code, Some(1), "{}", said.out);
    assert!(number(&found, "open_incidents_max") > 1, "{}", said.out);
    assert!(number(&found, "stale") > 0, "{}", said.out);
    assert_eq!(number(&found, "changed"), 0, "{}", said.out);
}

#[test]
fn the_table_of_incidents_tells_a_newcomer_what_happened() {
    let temp = tempfile::tempdir().unwrap();
    let said = said(demo(temp.path(), &[&FEW[..], &["--seed", "7"]].concat()));
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    assert_eq!(
        said.err,
        "Evaluating 12 entities 10 times each on SQLite, 30 at a time over 4 connections\n\
         creating the database\n\
         starting 2 worker processes\n\
         placing evaluations\n\
         counting evaluations and incidents\n"
    );
    let shown = lines(&said.out);
    for line in [
        "12 entities, 10 evaluations of each, on SQLite seed 7",
        "evaluations 120 0.1 to 0.6 s each",
        "open incidents, at most 1 for one entity at the same time",
        "stale 0 acted on an outdated state",
        "lost 0 evaluations without a recorded result",
    ] {
        assert!(shown.iter().any(|l| l == line), "{line}\n{}", said.out);
    }
    assert!(!said.out.contains('\x1b'), "colours are for terminals");
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert_nothing_is_left(temp.path());
}

#[test]
fn options_of_every_scene_may_stand_before_its_name_and_others_may_not() {
    let temp = tempfile::tempdir().unwrap();
    let good = said(demo(
        temp.path(),
        &["--json", "orders", "--orders", "2", "--kills", "0"],
    ));
    assert_eq!((good.code, good.err.as_str()), (Some(0), ""));
    assert!(good.out.contains("\"jobs\":6"), "{}", good.out);
    let bad = said(demo(temp.path(), &["--orders", "2", "charges"]));
    assert_eq!((bad.code, bad.out.as_str()), (Some(2), ""));
    assert!(
        bad.err
            .starts_with("error: --orders comes before the name of the scene\ntry:"),
        "{}",
        bad.err
    );
    assert_nothing_is_left(temp.path());
}

#[test]
fn every_scene_on_sqlite_can_be_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("run.json");
    let scenes = [
        (&["charges", "--orders", "6", "--kills", "1"][..], "orders", 6),
        (
            &[
                "incidents",
                "--entities",
                "2",
                "--evaluations",
                "2",
                "--workers",
                "4",
                "--pool",
                "2",
            ],
            "evaluations",
            4,
        ),
    ];
    for (args, unit, size) in scenes {
        let (found, said) = played(&[args, &["--json", "--record", file.to_str().unwrap()]].concat());
        assert_eq!(said.code, Some(0), "{}", said.out);
        let record: Found = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!((&record["scene"], number(&record, unit)), (&args[0].into(), size));
        assert_eq!(record["result"], Value::from(found));
        for list in ["samples", "events"] {
            assert!(!record[list].as_array().unwrap().is_empty(), "{list} of {}", args[0]);
        }
    }
}
