//! What people do about cases on the command line, and what the doctor says: the same on both databases.

use rowlock::{Fail, Job, atomic, observe::ErrorNo};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::common::{Database, File, Said, lines, postgres_urls, rowlock};

#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "charge", queue = "orders")]
struct Charge {
    order: i64,
}

/// Three charges, each declined and retired, their errors named; the number of the error.
macro_rules! three_declined {
    ($db:ident, $url:expr) => {{
        use rowlock::$db::{Ctx, Rowlock, Tx, Worker};

        let store = Rowlock::open($url).unwrap();
        store.migrate().await.unwrap();
        for order in 1..=3 {
            assert!(store.enqueue_now(Charge { order }).await.unwrap().is_new());
        }
        let declined =
            async |_: Ctx<()>, job: Charge, _: Tx| Err(Fail::retire(format!("card {} was declined", job.order)));
        let worker = Worker::new(&store).queue("orders", 1).handle(atomic(declined));
        let look = store.observe();
        let named = async {
            for _ in 0..1500 {
                match &look.case_errors(10).await.unwrap()[..] {
                    [error] if error.cases == 3 => return,
                    _ => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                }
            }
            panic!("the cases were not named in half a minute");
        };
        worker.run_until(named).await.unwrap();
        store.observe().case_errors(10).await.unwrap()[0].no
    }};
}

fn at(url: &str, args: &[&str]) -> Said {
    let mut all = args.to_vec();
    all.extend(["--database", url]);
    rowlock(&all)
}

fn ok(url: &str, args: &[&str]) -> String {
    let said = at(url, args);
    assert_eq!(said.code, Some(0), "{args:?}: {}", said.err);
    said.out
}

fn cases_from_the_list_to_the_last_decision(url: &str, error: ErrorNo) {
    let error = error.to_string();
    let said = at(url, &["cases", "--by-error"]);
    let shown = lines(&said.out);
    assert_eq!(shown[0], "error cases first seen last seen newest reason");
    assert!(shown[1].starts_with(&format!("{error} 3 ")), "{shown:?}");
    assert!(shown[1].ends_with(" 3 card # was declined"), "{shown:?}");
    assert!(
        said.err
            .starts_with("rowlock cases --error ERROR lists the cases of an error;"),
        "{}",
        said.err
    );
    let listed = lines(&ok(url, &["cases", "--error", &error]));
    assert_eq!(listed.len(), 4, "{listed:?}");
    assert_eq!(lines(&ok(url, &["cases", "--error", "0"])), ["no open cases"]);

    let unsure = at(url, &["case", "reopen", "--error", &error]);
    assert_eq!((unsure.code, unsure.err.as_str()), (Some(2), ""));
    assert_eq!(
        unsure.out,
        format!("would reopen all open cases of error {error}, 3 now; add --yes to do it\n")
    );
    let several = at(url, &["case", "close", "1", "2"]);
    assert_eq!(
        (several.code, several.out.as_str(), several.err.as_str()),
        (Some(2), "would close 2 cases; add --yes to do it\n", "")
    );
    one_by_one(url);
    assert_eq!(
        ok(
            url,
            &["case", "reopen", "--error", &error, "--per-minute", "6000", "--yes"]
        ),
        "reopened 1, 0 left\n"
    );
    let none = at(url, &["case", "reopen", "--error", &error, "--yes"]);
    assert_eq!(none.code, Some(4), "{}", none.err);
    assert!(
        none.err.starts_with(&format!("error: no open case has error {error}")),
        "{}",
        none.err
    );
    let bad = at(url, &["case", "reopen", "--error", "xyz"]);
    assert!(
        bad.code == Some(2) && bad.err.contains("use the twelve digits"),
        "{}",
        bad.err
    );
}

/// The first is noted on, the second closed, the third reopened.
fn one_by_one(url: &str) {
    assert_eq!(
        ok(url, &["case", "note", "1", "asked the bank", "--owner", "payments"]),
        "noted on 1\n"
    );
    let inspected = lines(&ok(url, &["inspect", "1"]));
    for line in ["owner payments", "note asked the bank"] {
        assert!(inspected.iter().any(|l| l == line), "{line}: {inspected:?}");
    }
    assert_eq!(
        ok(url, &["case", "close", "2", "--reason", "a test order"]),
        "closed 2\n"
    );
    let closed = at(url, &["case", "close", "2"]);
    assert_eq!(
        (closed.code, closed.err.as_str()),
        (
            Some(5),
            "error: job 2 is finished, and cannot be closed, because it is not a case\n"
        )
    );
    let bad = at(url, &["case", "reopen", "3", "--payload", "{"]);
    assert!(
        bad.code == Some(1) && bad.err.starts_with("error: payload: not valid JSON"),
        "{}",
        bad.err
    );
    assert_eq!(
        ok(url, &["case", "reopen", "3", "--payload", r#"{"order": 9}"#]),
        "reopened 3\n"
    );
    let job: Value = serde_json::from_str(&ok(url, &["inspect", "3", "--json"])).unwrap();
    assert_eq!(job["job"]["payload"], json!({"order": 9}));
}

fn a_doctor_who_finds_nobody_at_work(url: &str) {
    let said = at(url, &["doctor"]);
    assert_eq!(said.code, Some(3), "{}", said.err);
    let shown = lines(&said.out);
    assert_eq!(shown[0], "check seen");
    assert!(
        shown.contains(&"workers fail 0 at work, 2 jobs due".to_owned()),
        "{shown:?}"
    );
    assert!(shown.contains(&"cases ok none is open".to_owned()), "{shown:?}");
    let fix = "start a worker: run your program, or `rowlock work`";
    assert!(shown.contains(&format!("try: workers: {fix}")), "{shown:?}");
    assert!(
        said.err.starts_with("error: 1 of ") && said.err.ends_with(" checks fails\n"),
        "{}",
        said.err
    );
    let all: Value = serde_json::from_str(&at(url, &["doctor", "--json"]).out).unwrap();
    assert_eq!(all["healthy"], false);
    let findings = all["findings"].as_array().unwrap();
    let workers = findings.iter().find(|finding| finding["check"] == "workers").unwrap();
    let told = json!({"check": "workers", "health": "fail", "detail": "0 at work, 2 jobs due", "fix": fix});
    assert_eq!(*workers, told);
}

#[tokio::test(flavor = "multi_thread")]
async fn cases_and_the_doctor_on_sqlite() {
    let file = File::missing();
    let error = three_declined!(sqlite, &file.url);
    cases_from_the_list_to_the_last_decision(&file.url, error);
    a_doctor_who_finds_nobody_at_work(&file.url);
}

#[test]
fn cases_and_the_doctor_on_postgres() {
    for server in postgres_urls() {
        let database = Database::fresh(&server);
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let error = runtime.block_on(async { three_declined!(postgres, &database.url) });
        cases_from_the_list_to_the_last_decision(&database.url, error);
        a_doctor_who_finds_nobody_at_work(&database.url);
    }
}
