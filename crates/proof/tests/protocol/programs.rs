//! Programs in other languages: the quickstarts of docs/languages.md as they stand there, and a late worker in each.

use std::{path::Path, process::Stdio, time::Duration};

use proof::child::told;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::protocol::stage::{Side, alone};

const PATIENCE: Duration = Duration::from_secs(60);

const PAGE: &str = include_str!("../../../../docs/languages.md");

const ORDERS: &str =
    "create table orders (id bigint primary key, cents int not null, paid boolean not null default false)";

#[derive(Clone, Copy)]
enum Language {
    Python,
    Node,
}

impl Language {
    /// What the page calls it, and how its files end.
    fn marks(self) -> (&'static str, &'static str) {
        match self {
            Language::Python => ("python", "py"),
            Language::Node => ("js", "js"),
        }
    }

    /// Its interpreter, with the driver that `cargo xtask test` has installed; `None` where the run could not have it.
    fn command(self) -> Option<Command> {
        Some(match self {
            Language::Python => Command::new(told("ROWLOCK_TEST_PYTHON")?),
            Language::Node => {
                let mut node = Command::new("node");
                node.env("NODE_PATH", Path::new(&told("ROWLOCK_TEST_NODE")?).join("node_modules"));
                node
            }
        })
    }

    /// The code of its quickstart.
    fn quickstart(self) -> &'static str {
        let opening = format!("```{} quickstart\n", self.marks().0);
        let (_, rest) = PAGE.split_once(&opening).expect("the page has a quickstart");
        rest.split_once("```").expect("it ends").0
    }
}

async fn the_quickstart_runs(case: &str, language: Language) {
    if language.command().is_none() {
        return;
    }
    alone(case, async |side| {
        side.run(ORDERS).await;
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(format!("quickstart.{}", language.marks().1));
        std::fs::write(&file, language.quickstart()).unwrap();
        let mut command = language.command().unwrap();
        command.arg(&file).env("DATABASE_URL", side.url()).kill_on_drop(true);
        let ended = timeout(PATIENCE, command.output()).await.unwrap().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
        assert_eq!(
            side.text("select string_agg(id || ' ' || paid, ',') from orders").await,
            "1 true"
        );
        let job = "select concat_ws(' ', kind, state, last_outcome, attempt, key, result::jsonb) from rowlock.jobs";
        let done = "charge finished done 1 charge:1 {\"paid\": true}";
        assert_eq!(side.text(job).await, done);
        assert_eq!(
            side.text("select string_agg(dead::text, ',') from rowlock.worker")
                .await,
            "true"
        );
    })
    .await;
}

struct Late {
    child: Child,
    say: ChildStdin,
    says: Lines<BufReader<ChildStdout>>,
}

impl Late {
    fn start(language: Language, side: &Side) -> Late {
        let program = format!("programs/late.{}", language.marks().1);
        let mut command = language.command().unwrap();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(program));
        command.env("DATABASE_URL", side.url()).kill_on_drop(true);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        Late {
            say: child.stdin.take().unwrap(),
            says: BufReader::new(child.stdout.take().unwrap()).lines(),
            child,
        }
    }

    async fn hears(&mut self) -> String {
        let line = timeout(PATIENCE, self.says.next_line()).await.unwrap().unwrap();
        line.expect("it says something before it ends")
    }

    async fn goes_on(&mut self) {
        self.say.write_all(b"go on\n").await.unwrap();
    }
}

async fn a_late_worker_is_refused(case: &str, language: Language) {
    if language.command().is_none() {
        return;
    }
    alone(case, async |side| {
        side.run(ORDERS).await;
        side.run(
            "insert into orders (id, cents) values (1, 900);
             select rowlock.enqueue_v1('charge', '{\"order\": 1}')",
        )
        .await;
        let mut late = Late::start(language, side);
        let stale = late.hears().await;
        // It was silent for too long, and another has its job.
        side.run("update rowlock.worker set beat = beat - interval '1 day', lease_ms = 1; select rowlock.recover_v1()")
            .await;
        let owner = side.join().await;
        let claim = format!("select token from rowlock.claim_v1({owner}, 'default', '{{charge}}')");
        let token = side.text(&claim).await;
        assert_ne!(token, stale);
        late.goes_on().await;
        assert_eq!(late.hears().await, "RL001 the lease of job 1 is lost");
        assert!(timeout(PATIENCE, late.child.wait()).await.unwrap().unwrap().success());
        assert_eq!(
            side.text("select paid::text from orders").await,
            "false",
            "its write is not kept"
        );
        side.run(&format!("select rowlock.done_v1('{token}')")).await;
        // One that is in time.
        side.run("select rowlock.enqueue_v1('charge', '{\"order\": 1}')").await;
        let mut timely = Late::start(language, side);
        timely.hears().await;
        timely.goes_on().await;
        assert_eq!(timely.hears().await, "done");
        assert_eq!(side.text("select paid::text from orders").await, "true");
    })
    .await;
}

#[tokio::test]
async fn the_quickstart_in_python_runs() {
    the_quickstart_runs("the_quickstart_in_python_runs", Language::Python).await;
}

#[tokio::test]
async fn the_quickstart_in_node_runs() {
    the_quickstart_runs("the_quickstart_in_node_runs", Language::Node).await;
}

#[tokio::test]
async fn a_late_worker_in_python_is_refused() {
    a_late_worker_is_refused("a_late_worker_in_python_is_refused", Language::Python).await;
}

#[tokio::test]
async fn a_late_worker_in_node_is_refused() {
    a_late_worker_is_refused("a_late_worker_in_node_is_refused", Language::Node).await;
}

/// A driver that knows no microseconds carries the slot through all the same, and only the first has one.
#[tokio::test]
async fn an_answer_is_stored_through_a_driver_of_milliseconds() {
    if Language::Node.command().is_none() {
        return;
    }
    alone("an_answer_is_stored_through_a_driver_of_milliseconds", async |side| {
        let mut command = Language::Node.command().unwrap();
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/once.js"));
        command.env("DATABASE_URL", side.url()).kill_on_drop(true);
        let ended = timeout(PATIENCE, command.output()).await.unwrap().unwrap();
        let (said, error) = (
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr),
        );
        assert_eq!(said, "true null true\nfalse 7 false\n", "{error}");
    })
    .await;
}
