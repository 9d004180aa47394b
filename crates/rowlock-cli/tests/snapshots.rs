//! Every command on the same scene, on both databases: what it prints, as text and as JSON, what it says, and how it
//! exits.

mod book;
mod normal;
mod scene;

use book::Book;
use rowlock::Backend;
use sqlx::{AssertSqlSafe, Connection};

use crate::common::{self, Database, File, postgres_urls, rowlock, until};

/// Moves the history of the first three jobs ten days back.
const AGED: [(&str, [&str; 3]); 2] = [
    (
        "sqlite",
        [
            "update rowlock_outcome set ended_at = ended_at - 864000000000 where id < 4",
            "update rowlock_job set created_at = created_at - 864000000000 where id < 4",
            "update rowlock_job_key set made_at = made_at - 864000000000 where id < 4",
        ],
    ),
    (
        "postgres",
        [
            "update rowlock.outcome set ended_at = ended_at - interval '10 days' where id < 4",
            "update rowlock.job set created_at = created_at - interval '10 days' where id < 4",
            "update rowlock.job_key set made_at = made_at - interval '10 days' where id < 4",
        ],
    ),
];

fn every_command<DB: Backend>(label: &'static str, url: &str, known: Vec<(String, String)>)
where
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let mut book = Book::new(label, url, known);
    before_there_is_anything(&mut book);
    runtime.block_on(scene::build::<DB>(url));
    let holder = runtime.block_on(scene::Holder::start::<DB>(url));
    what_looks(&mut book);
    what_is_refused(&mut book);
    what_is_only_counted(&mut book);
    what_explains(&mut book);
    what_people_set(&mut book);
    what_people_do_to_cases(&mut book);
    what_people_do_to_jobs(&mut book);
    runtime.block_on(async {
        let mut conn = DB::Connection::connect(url).await.unwrap();
        let (_, aged) = AGED.iter().find(|(of, _)| *of == label).unwrap();
        for sql in aged {
            sqlx::raw_sql(AssertSqlSafe(*sql)).execute(&mut conn).await.unwrap();
        }
    });
    what_goes(&mut book);
    what_is_adopted(&mut book, |sql| {
        runtime.block_on(async {
            let mut conn = DB::Connection::connect(url).await.unwrap();
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
        });
    });
    book.run(&["cancel", "13"]);
    holder.vanish();
    until("the worker to be silent", || {
        common::said(book.command(&["workers"])).out.contains("silent")
    });
    book.run(&["workers"]);
    book.run(&["doctor"]);
    demo(&mut book, url);
    book.close();
}

fn before_there_is_anything(book: &mut Book) {
    book.run(&["migrate"]);
    book.run(&["migrate"]);
    book.run(&["migrate", "--json"]);
    let mut sql = common::said(book.command(&["migrate", "--sql"]));
    sql.out = beginning(&sql.out);
    book.keep("migrate", "migrate --sql", sql);
    for args in [
        &["status"][..],
        &["workers"],
        &["jobs"],
        &["cases"],
        &["cases", "--by-error"],
        &["effects"],
        &["effects", "--all"],
        &["rollout"],
        &["pause"],
        &["breaker"],
        &["audit"],
    ] {
        book.run(args);
    }
}

/// The first lines of a long text.
fn beginning(text: &str) -> String {
    let first: Vec<&str> = text.lines().take(3).collect();
    format!("{}\n…\n", first.join("\n"))
}

fn what_looks(book: &mut Book) {
    for args in [
        &["status"][..],
        &["workers"],
        &["jobs"],
        &["jobs", "--state", "case"],
        &["jobs", "--state", "done"],
        &["jobs", "--group", "account:42"],
        &["inspect", "1"],
        &["inspect", "4"],
        &["inspect", "6"],
        &["chain", "2"],
        &["cases"],
        &["cases", "--by-error"],
        &["effects"],
        &["effects", "--all"],
        &["breaker"],
        &["doctor"],
        &["verify"],
    ] {
        book.run(args);
        let json = [args, &["--json"]].concat();
        let said = book.run(&json);
        serde_json::from_str::<serde_json::Value>(&said.out).unwrap();
    }
    book.run(&["jobs", "--max", "2"]);
    book.run(&["inspect", "2"]);
    book.run(&["inspect", "9"]);
    book.run(&["inspect", "10"]);
    book.run(&["inspect", "13"]);
    book.run(&["chain", "12"]);
}

/// Nothing is there, nothing fits, or a word is missing; nothing is changed by it.
fn what_is_refused(book: &mut Book) {
    for args in [
        &["inspect", "99"][..],
        &["chain", "99"],
        &["reopen", "99"],
        &["reopen", "1"],
        &["case", "reopen", "99"],
        &["case", "reopen", "4", "5", "--payload", "{}"],
        &["case", "note", "1", "look at it"],
        &["case", "close", "1"],
        &["effect", "resolve", "99", "--not-happened"],
        &["effect", "resolve", "2", "--not-happened"],
        &["effect", "resolve", "2", "--not-happened", "--json"],
        &["effect", "resolve", "1"],
        &["breaker", "none"],
        &["breaker", "none", "open"],
        &["rollout", "new way", "5"],
        &["rollout", "new-way", "500"],
        &["pause", "--queue", "no such"],
        &["complete", "approval:42", "{"],
        &["enqueue", "letter", "{"],
        &["enqueue", "letter", "{}", "--priority", "9"],
        &["delay", "1", "--by", "1h"],
        &["delay", "12"],
        &["run-now", "99"],
        &["cancel", "99", "1"],
        &["cancel", "--queue", "post", "--state", "finished"],
        &["enqueue", "letter", "{}", "--priority", "9", "--json"],
        &["bridge"],
        &["bridge", "sqs"],
        &["bridge", "sqs", "--queue-url", "orders", "--json"],
        &[
            "bridge",
            "sqs",
            "--queue-url",
            "http://127.0.0.1:1/1/orders",
            "--visibility",
            "1h",
        ],
        &["prune", "--finished", "1m", "--yes"],
        &["prune"],
        &["jobs", "--state", "lost"],
        &["jobs", "--state", "scheduled"],
        &["work"],
        &["work", "--exec", "resize"],
        &["work", "--exec", "resize=./no-such-program"],
        &["work", "--exec", "resize=[\"true\"", "--until-empty"],
        &["work", "--exec", "resize=true", "--http", "resize=http://127.0.0.1:1/"],
        &["work", "--http", "resize=ftp://127.0.0.1/"],
        &["work", "--exec", "re size=true", "--until-empty"],
        &["work", "--exec", "resize=true", "--output-max", "1m"],
        &["work", "--exec", "resize=true", "--history", "1m"],
        &["inspect", "abc"],
        &["delay", "1", "--until", "tomorrow"],
        &["nonsense"],
        &["retry", "1"],
        &["version"],
    ] {
        let said = book.run(args);
        assert!(matches!(said.code, Some(1 | 2 | 4 | 5)), "{args:?}: {:?}", said.code);
        assert_eq!(said.out, "", "{args:?}");
    }
    let mut bare = common::command(&["status"]);
    bare.env_remove("ROWLOCK_DATABASE");
    book.keep("status", "status", common::said(bare));
}

/// Without `--yes`: what would be done, and nothing is.
fn what_is_only_counted(book: &mut Book) {
    for (args, code) in [
        (&["cancel", "--queue", "post"][..], 2),
        (&["cancel", "--queue", "post", "--json"], 2),
        (&["cancel", "--queue", "none"], 0),
        (&["cancel", "--queue", "none", "--json"], 0),
        (&["case", "reopen", "4", "5"], 2),
        (&["case", "reopen", "4", "5", "--json"], 2),
        (&["prune", "--finished", "7d"], 0),
    ] {
        let said = book.run(args);
        assert_eq!((said.code, said.err.as_str()), (Some(code), ""), "{args:?}");
    }
}

fn what_explains(book: &mut Book) {
    book.run(&["--help"]);
    book.run(&["cancel", "--help"]);
    book.run(&["work", "--help"]);
    book.run(&["enqueue", "--help"]);
    book.run(&["bridge", "--help"]);
    if cfg!(feature = "sqs") {
        book.run(&["bridge", "sqs", "--help"]);
    }
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let mut script = common::said(book.command(&["completions", shell]));
        script.out = beginning(&script.out);
        book.keep("completions", &format!("completions {shell}"), script);
    }
    let mut man = common::said(book.command(&["man"]));
    man.out = beginning(&man.out);
    book.keep("man", "man", man);
}

fn what_people_set(book: &mut Book) {
    for args in [
        &["rollout", "new-way", "25"][..],
        &["rollout", "--json"],
        &["rollout", "other"],
        &["pause", "--queue", "post"],
        &["pause", "--queue", "post"],
        &["pause", "--kind", "charge", "--json"],
        &["breaker", "bank", "open"],
        &["breaker", "bank", "open"],
        &["breaker", "bank"],
        &["breaker", "bank", "--json"],
        &["status"],
        &["breaker", "bank", "auto"],
        &["resume", "--queue", "post"],
        &["resume", "--queue", "post"],
        &["resume", "--kind", "charge", "--json"],
        &["complete", "approval:42", r#"{"by":"ann"}"#],
        &["complete", "approval:42"],
        &["complete", "approval:42", "--json"],
        &["complete", "approval:43", "--json"],
    ] {
        assert_eq!(book.run(args).code, Some(0), "{args:?}");
    }
}

fn what_people_do_to_cases(book: &mut Book) {
    let errors: serde_json::Value =
        serde_json::from_str(&common::said(book.command(&["cases", "--by-error", "--json"])).out).unwrap();
    let declined = errors.as_array().unwrap().iter().find(|error| error["cases"] == 2);
    let error = format!("{:012x}", declined.unwrap()["no"].as_i64().unwrap());
    book.run(&["cases", "--error", &error]);
    book.run(&["case", "reopen", "--error", &error]);
    book.run(&["case", "note", "4", "asked the bank", "--owner", "payments"]);
    book.run(&["case", "note", "4", "asked again", "--json"]);
    book.run(&["inspect", "4"]);
    book.run(&["reopen", "4"]);
    book.run(&["case", "close", "4", "5", "--yes", "--reason", "a test order"]);
    book.run(&["effect", "resolve", "1", "--happened", r#""refund 82""#]);
    book.run(&["case", "reopen", "6"]);
    // Retired by hand and reopened again, so that each answer is there as JSON too.
    book.run(&["retire", "11", "--json"]);
    book.run(&["reopen", "11", "--json"]);
    book.run(&["retire", "11", "10", "--json"]);
    book.run(&["case", "reopen", "11", "10", "99", "--yes", "--json"]);
    book.run(&["retire", "11"]);
    book.run(&["case", "close", "11", "99", "--yes", "--json"]);
    book.run(&["cases"]);
}

fn what_people_do_to_jobs(book: &mut Book) {
    for args in [
        &["enqueue", "letter", r#"{"order":5}"#, "--queue", "post"][..],
        &["enqueue", "letter", "{}", "--key", "letter:6", "--hold", "30d"],
        &["enqueue", "letter", "{}", "--key", "letter:6"],
        &["enqueue", "letter", "[]", "--key", "letter:6"],
        &["enqueue", "letter", "{}", "--key", "letter:6", "--json"],
        &["delay", "12", "1", "--until", "2100-01-01T00:00:00Z"],
        &["run-now", "12"],
        &["delay", "12", "1", "--until", "2100-01-01T00:00:00Z", "--json"],
        &["run-now", "12", "99", "--json"],
        &["run-now", "--queue", "none", "--yes", "--json"],
        &["run-now", "--queue", "post", "--yes"],
        &["delay", "--kind", "booking", "--until", "2100-01-01T00:00:00Z", "--yes"],
        &["cancel", "14", "99", "14", "--reason", "a mistake"],
        &["cancel", "--kind", "letter", "--state", "ready", "--yes"],
        &["cancel", "--kind", "letter", "--yes"],
        &["cancel", "14", "99", "--json"],
        &["rerun", "14", "99", "--reason", "it was none"],
        &["rerun", "14"],
        &["rerun", "14", "99", "--json"],
        &["rerun", "--kind", "letter", "--queue", "post"],
        &["inspect", "14"],
        &["retire", "14", "1", "--reason", "bad address"],
        &["retire", "--kind", "letter", "--yes"],
        &[
            "work",
            "--exec",
            "nobodys@2=[\"true\"]",
            "--queue",
            "nobodys=1",
            "--until-empty",
        ],
        &["jobs"],
    ] {
        book.run(args);
    }
}

fn what_goes(book: &mut Book) {
    book.run(&["prune", "--finished", "7d"]);
    book.run(&["prune", "--finished", "7d", "--cases", "90d"]);
    book.run(&["prune", "--finished", "7d", "--json"]);
    book.run(&["prune", "--finished", "7d", "--yes"]);
    book.run(&["prune", "--finished", "7d", "--yes", "--json"]);
    book.run(&["jobs", "--state", "finished"]);
    book.run(&["verify"]);
    for args in [
        &["audit"][..],
        &["audit", "14"],
        &["audit", "14", "--json"],
        &["audit", "--by", "nobody"],
        &["audit", "--max", "2", "--below", "5"],
    ] {
        assert_eq!(book.run(args).code, Some(0), "{args:?}");
    }
}

/// A table of the application's own, which a SQLite file may have too.
fn what_is_adopted(book: &mut Book, make: impl Fn(&'static str)) {
    make("create table reminder (no integer primary key, remind_at timestamp with time zone, state text)");
    for args in [
        &["adopt", "reminder", "--due", "remind_at"][..],
        &["adopt", "reminder", "--due", "remind_at", "--json"],
        &["adopt", "reminder", "--due", "state", "--inactive", "state"],
        &["adopt", "reminder", "--due", "state"],
        &["adopt", "nowhere", "--due", "remind_at"],
        &["adopt", "reminder", "--due", "remind_at", "--apply"],
        &["adopt", "reminder", "--due", "remind_at", "--apply"],
        &["adopt", "reminder"],
    ] {
        book.run(args);
    }
    make("drop table reminder");
}

/// A demo makes its own scene; what it finds is a matter of chance, but for what matters.
fn demo(book: &mut Book, url: &str) {
    let temp = tempfile::tempdir().unwrap();
    for args in [
        &["--orders", "4", "--kills", "0", "--workers", "2", "--seed", "7"][..],
        &["orders", "--orders", "4", "--kills", "0", "--workers", "2", "--json"],
        &["charges", "--orders", "4", "--kills", "0", "--drops", "0", "--json"],
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
            "--json",
        ],
        &["snoozes", "--rows", "20", "--kills", "0", "--workers", "2", "--json"],
    ] {
        let on = match url.starts_with("postgres") {
            true => vec!["--database", url],
            false => Vec::new(),
        };
        let args = [args, &on].concat();
        let mut said = common::said(common::demo(temp.path(), &args));
        said.out = normal::without_figures(&said.out);
        book.keep("demo", &format!("demo {}", args.join(" ")), said);
    }
}

/// Headings of the help below which commands are listed.
const LISTS: [&str; 6] = ["Commands:", "Run:", "Look:", "Decide:", "Operate:", "Set up:"];

/// Every command that the help of a command lists, with those below it.
fn commands(above: &[&str]) -> Vec<Vec<String>> {
    let help = rowlock(&[above, &["--help"]].concat()).out;
    let mut heading = "";
    let mut names = Vec::new();
    for line in help.lines() {
        match line.strip_prefix("  ") {
            None if line.ends_with(':') => heading = line,
            Some(entry) if LISTS.contains(&heading) && entry.starts_with(|c: char| c.is_ascii_lowercase()) => {
                names.extend(entry.split_whitespace().next());
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    for name in names.into_iter().filter(|name| *name != "help") {
        let path = [above, &[name]].concat();
        all.push(path.iter().map(ToString::to_string).collect());
        all.extend(commands(&path));
    }
    all
}

#[test]
fn every_command_has_its_snapshot() {
    let all: String = book::files()
        .iter()
        .map(|name| std::fs::read_to_string(book::folder().join(name)).unwrap())
        .collect();
    let runs: Vec<&str> = all.lines().filter_map(|line| line.strip_prefix("$ rowlock ")).collect();
    let commands = commands(&[]);
    assert!(commands.len() > 25, "{commands:?}");
    for command in commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let of_it = |run: &&&str| run.split(' ').take(words.len()).eq(words.iter().copied());
        let its: Vec<_> = runs.iter().filter(of_it).collect();
        assert!(!its.is_empty(), "no snapshot of rowlock {}", words.join(" "));
        let help = rowlock(&[&words[..], &["--help"]].concat()).out;
        let json = its.iter().any(|run| run.contains("--json"));
        assert!(
            json || !help.contains("--json"),
            "none with --json of {}",
            words.join(" ")
        );
    }
}

#[test]
fn nothing_is_coloured_without_a_terminal_or_with_no_color() {
    let file = File::migrated();
    file.ok(&["enqueue", "letter", "{}"]);
    for args in [
        &["status"][..],
        &["jobs"],
        &["inspect", "1"],
        &["cancel", "9"],
        &["nonsense"],
        &["--help"],
    ] {
        let all = [args, &["--database", &file.url]].concat();
        let mut forced = common::command(&all);
        forced.env("CLICOLOR_FORCE", "1");
        let mut never = common::command(&all);
        never.env("NO_COLOR", "1").env("CLICOLOR_FORCE", "1");
        let [plain, forced, never] = [common::command(&all), forced, never].map(common::said);
        let coloured = |said: &common::Said| format!("{}{}", said.out, said.err).contains('\x1b');
        assert!(!coloured(&plain) && !coloured(&never), "{args:?}");
        assert!(coloured(&forced), "{args:?}: {}{}", forced.out, forced.err);
    }
}

#[test]
fn every_command_says_on_sqlite_what_its_snapshot_says() {
    let file = File::missing();
    let known = vec![
        (file.url.clone(), "<database>".to_owned()),
        (file.path.display().to_string(), "<file>".to_owned()),
    ];
    every_command::<sqlx::Sqlite>("sqlite", &file.url, known);
}

#[test]
fn every_command_says_on_postgres_what_its_snapshot_says() {
    for server in postgres_urls() {
        let database = Database::fresh(&server);
        let known = vec![(database.url.clone(), "<database>".to_owned())];
        every_command::<sqlx::Postgres>("postgres", &database.url, known);
    }
}
