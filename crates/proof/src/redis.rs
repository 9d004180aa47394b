//! A redis-server of a test's own, on a free loopback port, that the test kills, freezes, flushes and starts again.

use std::{
    net::TcpListener,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::Duration,
};

use redis::Client;
use rustix::process::{Pid, Signal, kill_process};

use crate::bed::until;

/// Stopped by force when it is dropped.
pub struct RedisServer {
    program: PathBuf,
    port: u16,
    child: Option<Child>,
    // It keeps nothing, but wants a folder to be in.
    folder: tempfile::TempDir,
}

/// The program named by `ROWLOCK_TEST_REDIS_SERVER`, or the one in `PATH`. `None` only when the run was told that there is
/// none.
///
/// # Panics
/// When the variable is not set and no program is found: a suite that silently runs nothing would look green.
pub fn program() -> Option<PathBuf> {
    if let Some(told) = std::env::var_os("ROWLOCK_TEST_REDIS_SERVER") {
        return Some(PathBuf::from(told)).filter(|path| !path.as_os_str().is_empty());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|folder| folder.join("redis-server"))
        .find(|program| program.is_file());
    assert!(
        found.is_some(),
        "no redis-server in PATH; run `cargo xtask test`, which gets it"
    );
    found
}

impl RedisServer {
    /// Starts one and waits until it answers; `None` as [`program`] says.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Option<RedisServer> {
        let program = program()?;
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound listener").port();
        drop(listener);
        let mut server = RedisServer {
            program,
            port,
            child: None,
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        server.again().await;
        Some(server)
    }

    /// Starts it on the same port, with nothing remembered.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn again(&mut self) {
        let child = Command::new(&self.program)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(self.port.to_string())
            .arg("--dir")
            .arg(self.folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn();
        self.child = Some(child.expect("redis-server starts"));
        until("redis-server to answer", Duration::from_secs(20), || async {
            self.tell(&["PING"]).await.map(drop)
        })
        .await;
    }

    /// What a client connects to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Sends a command on a connection of its own; `None` when it is refused or nobody answers.
    pub async fn tell(&self, words: &[&str]) -> Option<redis::Value> {
        let client = Client::open(self.url()).ok()?;
        let mut conn = client.get_multiplexed_async_connection().await.ok()?;
        let mut command = redis::cmd(words.first()?);
        words[1..].iter().for_each(|word| {
            command.arg(*word);
        });
        command.query_async(&mut conn).await.ok()
    }

    /// SIGKILL: nothing is written down, and everybody is cut off.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Stops it in its tracks, connections open.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it go on, and do what it was asked for meanwhile.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.child.as_ref().and_then(|child| Pid::from_raw(child.id() as i32));
        kill_process(pid.expect("it runs"), signal).expect("it can be told");
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}
