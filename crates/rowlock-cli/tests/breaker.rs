//! `rowlock breaker`, on a SQLite file, with what it prints.

use rowlock::{Job, atomic, sqlite};
use serde::{Deserialize, Serialize};

use crate::common::File;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge", queue = "orders")]
struct Charge {}

/// A worker whose kind is bound to a breaker comes and goes.
fn bound_once(file: &File) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let rowlock = sqlite::Rowlock::open(&file.url).unwrap();
        let charge = |_: sqlite::Ctx, _: Charge, tx: sqlite::Tx| async move { tx.done().ok() };
        let worker = sqlite::Worker::new(&rowlock)
            .name("worker 7")
            .queue("orders", 1)
            .handle(atomic(charge).breaker("till", rowlock::Breaker::after(5).probes(2)));
        worker.run_until(std::future::ready(())).await.unwrap();
    });
}

#[test]
fn breaker_shows_where_each_stands_and_moves_one_by_hand() {
    let file = File::migrated();
    assert_eq!(
        file.ok(&["breaker"]),
        "no breakers; a breaker appears when a worker uses it\n"
    );
    let unknown = file.run(&["breaker", "till", "open"]);
    assert_eq!(unknown.code, Some(4));
    assert!(unknown.err.contains("no breaker \"till\""), "{}", unknown.err);
    bound_once(&file);
    let listed = file.ok(&["breaker"]);
    let lines: Vec<&str> = listed.lines().collect();
    assert!(
        lines[0].contains("breaker") && lines[0].contains("state") && lines[0].contains("try again"),
        "{lines:?}"
    );
    assert!(
        lines[1].contains("till") && lines[1].contains("closed") && lines[1].contains("worker 7"),
        "{lines:?}"
    );

    let opened = file.run(&["breaker", "till", "open"]);
    assert_eq!(
        (opened.err.as_str(), opened.code),
        (
            "breaker till is forced open; every worker follows within a second\n",
            Some(0)
        )
    );
    assert!(
        opened.out.contains("open (forced)") && opened.out.contains("tess"),
        "{}",
        opened.out
    );
    assert!(
        file.ok(&["status"])
            .contains("\nbreaker till is open, forced, by tess "),
        "{}",
        file.ok(&["status"])
    );
    let again = file.run(&["breaker", "till", "open", "--actor", "joe"]);
    assert_eq!(again.err, "breaker till was already forced open\n");
    assert_eq!(file.run(&["breaker", "till", "auto", "--actor", "joe"]).code, Some(0));

    let one: serde_json::Value = serde_json::from_str(&file.ok(&["breaker", "till", "--json"])).unwrap();
    assert_eq!(one["breaker"]["state"], "closed");
    assert_eq!(one["breaker"]["probes_max"], 2);
    let changes: Vec<_> = one["changes"].as_array().unwrap().iter().collect();
    let changes: Vec<_> = changes.iter().map(|c| (c["to"].as_str(), c["by"].as_str())).collect();
    assert_eq!(changes, [(Some("closed"), Some("joe")), (Some("open"), Some("tess"))]);
    let all: serde_json::Value = serde_json::from_str(&file.ok(&["breaker", "--json"])).unwrap();
    assert_eq!(all[0]["name"], "till");
    let wrong = file.run(&["breaker", "till", "ajar"]);
    assert_eq!(wrong.code, Some(2));
}
