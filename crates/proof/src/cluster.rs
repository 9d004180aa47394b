//! A PostgreSQL server of the test's own, to be stopped and started under its workers.
//!
//! The shared servers of a run must stay up for the other suites. This one listens on a free port of 127.0.0.1, keeps
//! fsync on, and ends with the test, however that ends: a shell between the two waits for its stdin to close.

mod pair;

use std::{
    fs::{File, Permissions},
    net::TcpListener,
    os::unix::{
        fs::{DirBuilderExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use sqlx::{Connection, PgConnection};

pub use self::pair::{Pair, Replication};
use crate::bed::Server;

const START_LIMIT: Duration = Duration::from_secs(60);

/// Unless its user says otherwise.
const SETTINGS: [&str; 1] = ["max_connections=100"];

/// Runs its arguments until stdin closes, then ends them with SIGQUIT: an immediate shutdown, as in a crash.
const KEEPER: &str = r#""$0" "$@" & pid=$!; read -r _; kill -QUIT "$pid"; wait "$pid""#;

/// A server, running or stopped. Dropped, it stops, and its files go.
pub struct Cluster {
    bin_dir: PathBuf,
    major: u32,
    owner: Option<(u32, u32)>,
    port: u16,
    /// Keeps the port from others until the first start: making the files takes a while.
    reserved: Option<TcpListener>,
    keeper: Option<Child>,
    settings: Vec<String>,
    folder: tempfile::TempDir,
}

impl Cluster {
    /// Makes a cluster and starts it.
    ///
    /// # Errors
    /// No server was found, or it does not start.
    pub async fn start() -> Result<Cluster> {
        Cluster::start_in(&std::env::temp_dir(), &SETTINGS).await
    }

    /// The same in a new folder under this one, with these settings.
    ///
    /// # Errors
    /// As [`Cluster::start`].
    pub async fn start_in(parent: &Path, settings: &[&str]) -> Result<Cluster> {
        let mut cluster = Cluster::new_in(parent, settings)?;
        cluster.initdb()?;
        cluster.resume().await?;
        Ok(cluster)
    }

    /// A place for one, with nothing in it.
    fn new() -> Result<Cluster> {
        Cluster::new_in(&std::env::temp_dir(), &SETTINGS)
    }

    fn new_in(parent: &Path, settings: &[&str]) -> Result<Cluster> {
        let (bin_dir, major) = find()?;
        // PostgreSQL does not run as root, and who it runs as must reach its folder.
        let folder = tempfile::Builder::new()
            .permissions(Permissions::from_mode(0o755))
            .tempdir_in(parent)?;
        let reserved = TcpListener::bind(("127.0.0.1", 0))?;
        Ok(Cluster {
            bin_dir,
            major,
            owner: owner()?,
            port: reserved.local_addr()?.port(),
            reserved: Some(reserved),
            keeper: None,
            settings: settings.iter().map(|setting| (*setting).to_owned()).collect(),
            folder,
        })
    }

    /// How beds name it.
    pub fn server(&self) -> Server {
        Server {
            label: format!("pg{}", self.major),
            url: format!("postgres://keeper@127.0.0.1:{}/postgres", self.port),
            pooled: false,
        }
    }

    /// Stops it immediately, with open connections and transactions.
    ///
    /// # Errors
    /// It was not running.
    pub fn crash(&mut self) -> Result<()> {
        let mut keeper = self.keeper.take().context("the server is not running")?;
        drop(keeper.stdin.take());
        keeper.wait()?;
        Ok(())
    }

    /// Starts it, on the same port as before, and returns when it accepts connections.
    ///
    /// # Errors
    /// It does not start.
    pub async fn resume(&mut self) -> Result<()> {
        self.launch()?;
        if self.accepts(START_LIMIT).await {
            return Ok(());
        }
        bail!(
            "postgres did not start:\n{}",
            std::fs::read_to_string(self.log()).unwrap_or_default()
        );
    }

    /// Starts it whatever state it is in, as often as it takes: after a kill, what is left of the old server may be in
    /// the way for a moment, and after a full disk it may have given up by itself.
    ///
    /// # Errors
    /// It does not start.
    pub async fn revive(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < START_LIMIT {
            if self.accepts(Duration::from_millis(100)).await {
                return Ok(());
            }
            if !self.is_alive() {
                if self.keeper.is_some() {
                    self.crash()?;
                }
                self.launch()?;
            }
            self.accepts(Duration::from_secs(1)).await;
        }
        bail!(
            "postgres did not come back:\n{}",
            std::fs::read_to_string(self.log()).unwrap_or_default()
        );
    }

    /// Writes all that is in its database to a file.
    ///
    /// # Errors
    /// It cannot.
    pub fn dump(&self, to: &Path) -> Result<()> {
        let mut command = self.command(&self.bin_dir.join("pg_dump"));
        let output = command
            .args(["--dbname", &self.server().url])
            .stdout(File::create(to)?)
            .output()?;
        ensure!(
            output.status.success(),
            "pg_dump: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// The process id of the server, if it is there.
    pub fn pid(&self) -> Option<i32> {
        let text = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        text.lines().next()?.trim().parse().ok()
    }

    fn is_alive(&self) -> bool {
        self.pid()
            .is_some_and(|pid| Path::new(&format!("/proc/{pid}/exe")).read_link().is_ok())
    }

    /// Whether it accepts a connection within this time.
    async fn accepts(&self, limit: Duration) -> bool {
        let started = Instant::now();
        loop {
            let connecting = PgConnection::connect(&self.server().url);
            if let Ok(Ok(conn)) = tokio::time::timeout(Duration::from_secs(5), connecting).await {
                // It is there, whatever becomes of the goodbye.
                let _ = conn.close().await;
                return true;
            }
            if started.elapsed() >= limit {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    fn launch(&mut self) -> Result<()> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut command = self.command(Path::new("/bin/sh"));
        command
            .args(["-c", KEEPER])
            .arg(self.bin_dir.join("postgres"))
            .arg("-D")
            .arg(self.data());
        for setting in ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=on"] {
            command.args(["-c", setting]);
        }
        for setting in &self.settings {
            command.args(["-c", setting]);
        }
        command.args(["-c", &format!("port={}", self.port)]);
        command.stdin(Stdio::piped()).stdout(log.try_clone()?).stderr(log);
        drop(self.reserved.take());
        self.keeper = Some(command.spawn().context("could not start postgres")?);
        Ok(())
    }

    fn make_data(&self) -> Result<()> {
        std::fs::DirBuilder::new().mode(0o700).create(self.data())?;
        if let Some((uid, gid)) = self.owner {
            chown(self.data(), Some(uid), Some(gid))?;
        }
        Ok(())
    }

    fn initdb(&self) -> Result<()> {
        self.make_data()?;
        let mut command = self.command(&self.bin_dir.join("initdb"));
        command.arg("-D").arg(self.data());
        command.args([
            "--username=keeper",
            "--auth=trust",
            "--encoding=UTF8",
            "--no-locale",
            "--no-sync",
        ]);
        let output = command.output().context("could not run initdb")?;
        ensure!(
            output.status.success(),
            "initdb: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.folder.path()).env("LC_ALL", "C");
        if let Some((uid, gid)) = self.owner {
            command.uid(uid).gid(gid);
        }
        // Settings of the user's own servers must not reach this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        // Not running is as good as stopped.
        let _ = self.crash();
    }
}

/// The newest server of `PG_BIN_DIRS`, else of `PATH`, else of Debian's folder, as `cargo xtask` looks for them.
fn find() -> Result<(PathBuf, u32)> {
    let split = |name| {
        std::env::var_os(name)
            .map(|list| std::env::split_paths(&list).collect())
            .unwrap_or_default()
    };
    let debian = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let places: [Vec<PathBuf>; 3] = [
        split("PG_BIN_DIRS"),
        split("PATH"),
        debian.map(|e| e.path().join("bin")).collect(),
    ];
    let newest = |dirs: Vec<PathBuf>| dirs.iter().filter_map(|dir| probe(dir)).max_by_key(|(_, major)| *major);
    places
        .into_iter()
        .find_map(newest)
        .context("no PostgreSQL server found; name its folder in PG_BIN_DIRS")
}

/// The real folder and the version of the server in this folder, which may hold no more than a link to it.
fn probe(dir: &Path) -> Option<(PathBuf, u32)> {
    let postgres = dir.join("postgres").canonicalize().ok()?;
    let output = Command::new(&postgres).arg("--version").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split_once("(PostgreSQL)")?.1.trim_start();
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    let bin_dir = postgres.parent()?;
    bin_dir
        .join("initdb")
        .exists()
        .then_some((bin_dir.to_owned(), digits.parse().ok()?))
}

/// Whom root runs a server as; `None` for anybody else, who runs it as themselves.
fn owner() -> Result<Option<(u32, u32)>> {
    let id = |args: &[&str]| -> Option<u32> {
        let output = Command::new("id").args(args).stderr(Stdio::null()).output().ok()?;
        String::from_utf8(output.stdout).ok()?.trim().parse().ok()
    };
    if id(&["-u"]) != Some(0) {
        return Ok(None);
    }
    let user = ["postgres", "nobody"]
        .into_iter()
        .find_map(|user| Some((id(&["-u", user])?, id(&["-g", user])?)));
    user.map(Some)
        .context("root cannot run PostgreSQL, and there is no user postgres or nobody")
}
