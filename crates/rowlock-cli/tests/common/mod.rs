//! The real binary, run as a person would.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

pub(crate) struct Said {
    pub(crate) out: String,
    pub(crate) err: String,
    pub(crate) code: Option<i32>,
}

/// The binary, with a clean environment.
pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rowlock"));
    command
        .args(args)
        .env_remove("ROWLOCK_DATABASE")
        .env_remove("ROWLOCK_CONFIG")
        // Set by `cargo test` as by `cargo run`; the hints then name cargo's commands.
        .env_remove("CARGO_PKG_NAME")
        // Nobody's own config file.
        .env("XDG_CONFIG_HOME", "/nowhere")
        .env_remove("NO_COLOR")
        // Help is as wide as the terminal.
        .env_remove("COLUMNS")
        .env_remove("CLICOLOR_FORCE")
        .env("USER", "tess")
        .stdin(Stdio::null());
    command
}

pub(crate) fn said(mut command: Command) -> Said {
    let output = command.output().unwrap();
    Said {
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
        code: output.status.code(),
    }
}

pub(crate) fn rowlock(args: &[&str]) -> Said {
    said(command(args))
}

/// A folder with a SQLite file in it.
pub(crate) struct File {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) path: PathBuf,
    pub(crate) url: String,
}

impl File {
    /// Not there yet.
    pub(crate) fn missing() -> File {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("app.db");
        let url = format!("sqlite:{}", path.display());
        File { folder, path, url }
    }

    pub(crate) fn migrated() -> File {
        let file = File::missing();
        assert!(file.ok(&["migrate"]).starts_with("applied 0001 base\n"));
        file
    }

    pub(crate) fn run(&self, args: &[&str]) -> Said {
        let mut all = args.to_vec();
        all.extend(["--database", &self.url]);
        rowlock(&all)
    }

    /// What it prints, when it succeeds without a word on stderr.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert_eq!((said.code, said.err.as_str()), (Some(0), ""), "{args:?}");
        said.out
    }

    /// What it says on stderr, when it fails and prints nothing.
    pub(crate) fn refused(&self, args: &[&str]) -> String {
        let said = self.run(args);
        assert!(matches!(said.code, Some(1 | 4 | 5)), "{args:?}: {:?}", said.code);
        assert_eq!(said.out, "", "{args:?}");
        said.err
    }
}

/// Runs of blanks as one, so that column widths do not matter.
pub(crate) fn lines(text: &str) -> Vec<String> {
    text.lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

/// The PostgreSQL servers of this run. Not set, the suite would silently run nothing and look green.
pub(crate) fn postgres_urls() -> Vec<String> {
    let urls = std::env::var("ROWLOCK_TEST_PG_URLS");
    let urls =
        urls.expect("ROWLOCK_TEST_PG_URLS is not set; run `cargo xtask test`, or `cargo xtask servers` for hand work");
    urls.split_whitespace()
        .filter_map(|pair| pair.split_once('='))
        .map(|(_, url)| url.to_owned())
        .collect()
}

/// A database of one test's own on a server, dropped at the end.
pub(crate) struct Database {
    server: String,
    name: String,
    pub(crate) url: String,
}

impl Database {
    pub(crate) fn fresh(server: &str) -> Database {
        let name = format!("cli_{}_{:x}", std::process::id(), fastrand::u64(..));
        sql(server, &format!("create database {name}"));
        let (base, _) = server.rsplit_once('/').unwrap();
        let (server, url) = (server.to_owned(), format!("{base}/{name}"));
        Database { server, name, url }
    }

    /// Those that somebody made.
    pub(crate) fn schemas(&self) -> Vec<String> {
        sql(
            &self.url,
            "select nspname::text from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'",
        )
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let drop = format!("drop database {} with (force)", self.name);
        // The server waits five seconds for those it sends away, which a busy machine may not do with.
        until("everybody to leave the database", || {
            match try_sql(&self.server, &drop) {
                Err(error) if error.as_database_error().and_then(|e| e.code()).as_deref() == Some("55006") => false,
                dropped => dropped.is_ok(),
            }
        });
    }
}

/// Runs one statement; gives its first column.
pub(crate) fn sql(url: &str, sql: &str) -> Vec<String> {
    try_sql(url, sql).unwrap()
}

fn try_sql(url: &str, sql: &str) -> sqlx::Result<Vec<String>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut conn = <sqlx::PgConnection as sqlx::Connection>::connect(url).await?;
        sqlx::query_scalar(sqlx::AssertSqlSafe(sql.to_owned()))
            .fetch_all(&mut conn)
            .await
    })
}

/// Waits for something to become true, with a limit.
pub(crate) fn until(what: &str, mut check: impl FnMut() -> bool) {
    let start = Instant::now();
    while !check() {
        assert!(start.elapsed() < Duration::from_secs(30), "waited 30 s for: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The demo with its temporary files in a folder that can be looked into afterwards.
pub(crate) fn demo(temp: &Path, args: &[&str]) -> Command {
    let mut all = vec!["demo"];
    all.extend(args);
    let mut command = command(&all);
    command.env("TMPDIR", temp);
    command
}

pub(crate) fn assert_nothing_is_left(temp: &Path) {
    let left: Vec<_> = std::fs::read_dir(temp)
        .unwrap()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// How many processes of demos run whose files are under this folder, the demo itself not counted.
#[cfg(target_os = "linux")]
pub(crate) fn workers_under(folder: &Path) -> usize {
    let needle = folder.to_str().unwrap().as_bytes();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let read = |path: PathBuf| std::fs::read(path).unwrap_or_default();
    let ours = processes.filter(|process| {
        let command = read(process.path().join("cmdline"));
        let environment = read(process.path().join("environ"));
        contains(&command, b"\0demo-") && contains(&environment, needle)
    });
    ours.count()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
