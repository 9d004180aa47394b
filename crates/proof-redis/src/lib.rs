//! A redis-server of a test's own, on a free loopback port, that the test kills, freezes, flushes and starts again.

use std::{path::PathBuf, process::Command, time::Duration};

use redis::Client;
use rustix::process::Signal;

use proof::{
    bed::until,
    child::{Served, free_port, program_or_told},
};

/// Stopped by force when it is dropped.
pub struct RedisServer {
    program: PathBuf,
    port: u16,
    served: Served,
    // It keeps nothing, but wants a folder to be in.
    folder: tempfile::TempDir,
}

impl RedisServer {
    /// Starts one and waits until it answers; `None` when the environment says that there is none.
    ///
    /// # Panics
    /// When it does not start.
    pub async fn start() -> Option<RedisServer> {
        let mut server = RedisServer {
            program: program_or_told("ROWLOCK_TEST_REDIS_SERVER", "redis-server")?,
            port: free_port().expect("a free port"),
            served: Served::default(),
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
        let mut command = Command::new(&self.program);
        command
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(self.port.to_string())
            .arg("--dir")
            .arg(self.folder.path());
        self.served.start(&mut command).expect("redis-server starts");
        until("redis-server to answer", Duration::from_secs(20), || async {
            self.tell(&["PING"]).await.map(drop)
        })
        .await;
    }

    /// What a client connects to.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// Sends a command on a separate connection; `None` when it is refused or nobody answers.
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
        self.served.kill();
    }

    /// Stops it in its tracks, connections open.
    ///
    /// # Panics
    /// When it does not run.
    pub fn freeze(&self) {
        self.served.signal(Signal::STOP).expect("it can be told");
    }

    /// Lets it go on, and do what it was asked for meanwhile.
    ///
    /// # Panics
    /// When it does not run.
    pub fn thaw(&self) {
        self.served.signal(Signal::CONT).expect("it can be told");
    }
}
