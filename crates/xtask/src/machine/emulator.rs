//! The two emulators of SQS that the tests talk to: moto and ministack.
//!
//! They disagree where SQS itself leaves a choice (whether a stale receipt deletes, for one), so a test that passes on
//! both depends on neither. Each listens on a free port of 127.0.0.1 and serves only SQS if it can be set so. They get
//! no way out: what they would fetch through a proxy ends at a port that nobody listens on. Like PostgreSQL they are
//! children of the keeper, which ends them with the run.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(50);
const ANSWER_LIMIT: Duration = Duration::from_secs(5);
/// A free port can be taken by another program before the emulator binds it; then the next is tried.
const PORTS_MAX: usize = 3;

/// One emulator.
#[derive(Debug)]
pub(crate) struct Emulator {
    pub(crate) name: &'static str,
    /// Where the tests read its address from.
    pub(crate) var: &'static str,
    /// Runs it with an interpreter on a port.
    command: fn(&Path, u16) -> Command,
}

/// Both, in the order they are started.
pub(crate) const ALL: [Emulator; 2] = [
    Emulator {
        name: "moto",
        var: "ROWLOCK_TEST_SQS_MOTO",
        command: |python, port| {
            let mut command = Command::new(python);
            command.args(["-m", "moto.server", "-H", "127.0.0.1", "-p", &port.to_string()]);
            command
        },
    },
    Emulator {
        name: "ministack",
        var: "ROWLOCK_TEST_SQS_MINISTACK",
        command: |python, port| {
            let mut command = Command::new(python);
            command
                .args(["-m", "ministack"])
                .envs([
                    ("SERVICES", "sqs"),
                    ("BIND_HOST", "127.0.0.1"),
                    // Queues are named by this.
                    ("MINISTACK_HOST", "127.0.0.1"),
                    ("GATEWAY_PORT", port.to_string().as_str()),
                    ("SFTP_ENABLED", "0"),
                    ("IOT_MTLS_ENABLED", "0"),
                    ("DOCKER_HOST", "unix:///nonexistent"),
                ])
                .env_remove("USE_SSL")
                .env_remove("PERSIST_STATE");
            command
        },
    },
];

/// The emulator of this name.
pub(crate) fn named(name: &str) -> Option<&'static Emulator> {
    ALL.iter().find(|emulator| emulator.name == name)
}

/// A running emulator; dropped, it is stopped. Its folder goes with that of the run.
#[derive(Debug)]
pub(crate) struct Running {
    name: &'static str,
    port: u16,
    dir: PathBuf,
    child: Child,
}

impl Emulator {
    /// Starts it with its own folder under `parent`, and waits until it answers.
    pub(crate) fn start(&'static self, python: &Path, parent: &Path) -> Result<Running> {
        let dir = parent.join(self.name);
        std::fs::create_dir_all(&dir).with_context(|| format!("could not make {}", dir.display()))?;
        for _ in 1..PORTS_MAX {
            match self.start_on_a_free_port(python, &dir) {
                Err(error) if log_of(&dir).contains("in use") => {
                    crate::note(&format!("{}: {error:#}; trying another port", self.name));
                }
                outcome => return outcome,
            }
        }
        self.start_on_a_free_port(python, &dir)
    }

    fn start_on_a_free_port(&self, python: &Path, dir: &Path) -> Result<Running> {
        let port = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .context("no free port")?
            .port();
        let log = File::create(dir.join(crate::machine::postgres::LOG)).context("could not make its log")?;
        let mut command = (self.command)(python, port);
        command
            .current_dir(dir)
            .env("TMPDIR", dir)
            .stdin(Stdio::null())
            .stdout(log.try_clone().context("could not share its log")?)
            .stderr(log)
            .process_group(0);
        for proxy in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"] {
            command.env(proxy, "http://127.0.0.1:9");
        }
        let child = command
            .spawn()
            .with_context(|| format!("could not run {}", python.display()))?;
        let mut running = Running {
            name: self.name,
            port,
            dir: dir.to_path_buf(),
            child,
        };
        running.wait_until_ready()?;
        Ok(running)
    }
}

impl Running {
    /// Where clients connect.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let started = Instant::now();
        while started.elapsed() < START_LIMIT {
            if let Some(status) = self.child.try_wait()? {
                let log = log_of(&self.dir);
                bail!(
                    "it ended with {status} while starting: {}",
                    crate::step::last_line(&log)
                );
            }
            if list_queues(self.port).is_ok_and(|answer| is_ready(&answer)) {
                return Ok(());
            }
            std::thread::sleep(POLL);
        }
        let log = log_of(&self.dir);
        let last = crate::step::last_line(&log);
        bail!("it did not answer within {} s: {last}", START_LIMIT.as_secs());
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        crate::keeper::signal("TERM", &group);
        let started = Instant::now();
        while started.elapsed() < STOP_LIMIT {
            if let Ok(Some(_)) = self.child.try_wait() {
                return;
            }
            std::thread::sleep(POLL);
        }
        crate::note(&format!(
            "{} did not stop in {} s; killing it",
            self.name,
            STOP_LIMIT.as_secs()
        ));
        crate::keeper::signal("KILL", &group);
        let _ = self.child.wait();
    }
}

/// Asks for the queues, as a client would; a server that only listens is not ready yet.
fn list_queues(port: u16) -> std::io::Result<String> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut stream = TcpStream::connect_timeout(&address, ANSWER_LIMIT)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT))?;
    // The credential names the part of AWS; nobody checks the signature.
    let credential = "Credential=test/20000101/us-east-1/sqs/aws4_request";
    write!(
        stream,
        "POST / HTTP/1.0\r\nHost: 127.0.0.1\r\nX-Amz-Target: AmazonSQS.ListQueues\r\n\
         Content-Type: application/x-amz-json-1.0\r\nContent-Length: 2\r\n\
         Authorization: AWS4-HMAC-SHA256 {credential}, SignedHeaders=host, Signature=none\r\n\r\n{{}}"
    )?;
    let mut answer = String::new();
    stream.take(64 * 1024).read_to_string(&mut answer)?;
    Ok(answer)
}

/// Whether the first line of an HTTP answer says that all is well.
fn is_ready(answer: &str) -> bool {
    let mut words = answer.lines().next().unwrap_or_default().split(' ');
    words.next().is_some_and(|version| version.starts_with("HTTP/")) && words.next() == Some("200")
}

fn log_of(dir: &Path) -> String {
    let text = std::fs::read(dir.join(crate::machine::postgres::LOG)).unwrap_or_default();
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulator_is_ready_only_when_it_answers_well() {
        assert!(is_ready("HTTP/1.1 200 OK\r\n\r\n{}"));
        assert!(!is_ready("HTTP/1.1 500 Internal Server Error\r\n\r\n"));
        assert!(!is_ready("200"));
        assert!(!is_ready(""));
    }

    #[test]
    fn the_keeper_finds_an_emulator_by_the_name_it_is_told() {
        for emulator in &ALL {
            assert_eq!(named(emulator.name).map(|found| found.var), Some(emulator.var));
        }
        assert!(named("aws").is_none());
    }
}
