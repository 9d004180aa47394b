//! A PgBouncer of a test's own, in transaction mode before a PostgreSQL server.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use crate::bed::{Server, postgres_servers};

const PROGRAM_VAR: &str = "ROWLOCK_TEST_PGBOUNCER";

/// Whom the program becomes where it may not stay root.
const NOBODY: &str = "nobody";

/// Stopped by force when it is dropped.
pub struct Pooler {
    program: PathBuf,
    port: u16,
    child: Option<Child>,
    folder: tempfile::TempDir,
}

/// The program named by `ROWLOCK_TEST_PGBOUNCER`, or the one in `PATH` or Debian's folder. `None` only when the run was
/// told that there is none.
///
/// # Panics
/// When the variable is not set and no program is found: a suite that silently runs nothing would look green.
pub fn program() -> Option<PathBuf> {
    let found = find();
    assert!(
        found.is_some() || std::env::var_os(PROGRAM_VAR).is_some(),
        "no pgbouncer in PATH; run `cargo xtask test`, which gets it"
    );
    found
}

fn find() -> Option<PathBuf> {
    if let Some(told) = std::env::var_os(PROGRAM_VAR) {
        return Some(PathBuf::from(told)).filter(|path| !path.as_os_str().is_empty());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders
        .map(|folder| folder.join("pgbouncer"))
        .find(|program| program.is_file())
}

/// The PostgreSQL servers of this run, each to be reached through a pooler; none as [`program`] says.
pub fn pooled_servers() -> Vec<Server> {
    if program().is_none() {
        return Vec::new();
    }
    let pooled = |server: Server| Server {
        label: format!("{} pooled", server.label),
        pooled: true,
        ..server
    };
    postgres_servers().into_iter().map(pooled).collect()
}

impl Pooler {
    /// Starts one before the server of this URL, and waits until it answers. It keeps up to `servers` connections for each
    /// database; `None` when there is no such program.
    ///
    /// # Errors
    /// It does not start.
    pub async fn before(url: &str, servers: usize) -> Result<Option<Pooler>> {
        let Some(program) = find() else { return Ok(None) };
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        drop(listener);
        let mut pooler = Pooler {
            program,
            port,
            child: None,
            folder: tempfile::tempdir()?,
        };
        pooler.configure(url, servers)?;
        pooler.again(url).await?;
        Ok(Some(pooler))
    }

    fn configure(&self, url: &str, servers: usize) -> Result<()> {
        let (port, to) = (self.port, url.parse::<PgConnectOptions>()?);
        let settings = format!(
            "[databases]\n* = host={} port={} user={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n\
             pool_mode = transaction\ndefault_pool_size = {servers}\nmax_client_conn = 500\n\
             server_login_retry = 0.2\nserver_connect_timeout = 2\nserver_check_delay = 0\nlog_connections = 0\nlog_disconnections = 0\n",
            to.get_host(),
            to.get_port(),
            to.get_username(),
        );
        Ok(std::fs::write(self.folder.path().join("pgbouncer.ini"), settings)?)
    }

    /// Sends every transaction from now on to the server of this URL, with clients staying where they are.
    ///
    /// # Errors
    /// It does not run.
    pub fn point_at(&self, url: &str, servers: usize) -> Result<()> {
        self.configure(url, servers)?;
        self.signal(Signal::HUP)
    }

    /// Starts it on the same port.
    ///
    /// # Errors
    /// It does not start.
    pub fn start(&mut self) -> Result<()> {
        let mut command = Command::new(&self.program);
        if geteuid().is_root() {
            command.args(["-u", NOBODY]);
            // Somebody else must be able to read it.
            let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(self.folder.path(), open)?;
        }
        let child = command
            .arg("-q")
            .arg(self.folder.path().join("pgbouncer.ini"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(self.folder.path().join("log"))?)
            .spawn();
        self.child = Some(child.context("pgbouncer does not start")?);
        Ok(())
    }

    /// Starts it on the same port, and waits until it answers for this URL.
    ///
    /// # Errors
    /// It does not start.
    pub async fn again(&mut self, url: &str) -> Result<()> {
        self.start()?;
        for _ in 0..200 {
            if self.connect(url).await.is_ok() {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
        let log = std::fs::read_to_string(self.folder.path().join("log"))?;
        anyhow::bail!("pgbouncer does not answer: {log}")
    }

    /// The same URL, through it, as the library takes it.
    ///
    /// # Errors
    /// It is none of PostgreSQL's.
    pub fn url(&self, url: &str) -> Result<String> {
        let to: PgConnectOptions = url.parse()?;
        let (user, database) = (to.get_username(), to.get_database().unwrap_or("postgres"));
        Ok(format!(
            "postgres://{user}@127.0.0.1:{}/{database}?pgbouncer=true",
            self.port
        ))
    }

    /// A connection of somebody's own to the database of this URL, through it.
    ///
    /// # Errors
    /// It is refused.
    pub async fn connect(&self, url: &str) -> Result<PgConnection> {
        let to: PgConnectOptions = url.parse()?;
        let through = to.host("127.0.0.1").port(self.port).extra_float_digits(None);
        Ok(PgConnection::connect_with(&through).await?)
    }

    /// SIGKILL: everybody is cut off, on both sides.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it in its tracks, connections open.
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It does not run.
    pub fn thaw(&self) -> Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(child.id() as i32));
        Ok(kill_process(pid.context("it does not run")?, signal)?)
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.kill();
    }
}
