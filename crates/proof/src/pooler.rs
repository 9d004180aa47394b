//! A PgBouncer of a test's own, in transaction mode before a PostgreSQL server.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result};
use rustix::process::{Signal, geteuid};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};

use crate::{
    bed::{Server, postgres_servers},
    child::{self, Served, free_port, program_or_told},
};

const PROGRAM_VAR: &str = "ROWLOCK_TEST_PGBOUNCER";
const NAME: &str = "pgbouncer";

/// Whom the program becomes where it may not stay root.
const NOBODY: &str = "nobody";

/// Stopped by force when it is dropped.
pub struct Pooler {
    program: PathBuf,
    port: u16,
    served: Served,
    folder: tempfile::TempDir,
}

/// The program, for a suite; see [`program_or_told`].
pub fn program() -> Option<PathBuf> {
    program_or_told(PROGRAM_VAR, NAME)
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
    /// Starts one before the server of this URL, and waits until it answers. It keeps up to `servers` connections for
    /// each database; `None` when there is no such program.
    ///
    /// # Errors
    /// It does not start.
    pub async fn before(url: &str, servers: usize) -> Result<Option<Pooler>> {
        let Some(program) = child::program(PROGRAM_VAR, NAME) else {
            return Ok(None);
        };
        let mut pooler = Pooler {
            program,
            port: free_port()?,
            served: Served::default(),
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
        self.served.signal(Signal::HUP)
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
        command
            .arg("-q")
            .arg(self.folder.path().join("pgbouncer.ini"))
            .stderr(std::fs::File::create(self.folder.path().join("log"))?);
        self.served.start(&mut command).context("pgbouncer does not start")
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
        self.served.kill();
    }

    /// Stops it in its tracks, connections open.
    ///
    /// # Errors
    /// It does not run.
    pub fn freeze(&self) -> Result<()> {
        self.served.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// It does not run.
    pub fn thaw(&self) -> Result<()> {
        self.served.signal(Signal::CONT)
    }
}
