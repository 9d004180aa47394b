//! A payment provider as a separate process. It loses calls and replies, and its log is the only evidence.
//!
//! A line is on its disk before any answer leaves. Nothing that a worker says about itself is believed by the suites:
//! what was charged is what is in this log.

use std::{
    collections::HashMap,
    io::{BufRead, BufReader},
    net::SocketAddr,
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rowlock::{Fail, NotDone};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// How long a caller waits for a reply.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a till is to be; its only argument, as JSON. Troubles are in percent of the calls.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Rules {
    /// Where it writes what it did.
    pub log: PathBuf,
    /// Decides when there is trouble.
    pub seed: u64,
    /// The same key again is the same charge; otherwise every call charges.
    pub honours_keys: bool,
    /// Charges, and cuts the connection before the reply.
    pub drops: u32,
    /// Cuts the connection before it charges.
    pub misses: u32,
    /// Says that it does not charge now.
    pub refuses: u32,
}

/// A till at work. Dropped, it is killed.
pub struct Till {
    /// Where callers connect.
    pub address: SocketAddr,
    log: PathBuf,
    child: Child,
    // Closed, it ends by itself.
    _stdin: ChildStdin,
}

impl Till {
    /// Starts the program `exe`.
    ///
    /// # Errors
    /// It could not be started, or found no port.
    pub fn start(exe: &str, rules: &Rules) -> Result<Till> {
        let mut child = Command::new(exe)
            .arg(serde_json::to_string(rules)?)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("could not start {exe}"))?;
        let stdin = child.stdin.take().context("a till has a stdin")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a till has a stdout")?).read_line(&mut line)?;
        Ok(Till {
            address: line.trim().parse().context("a till says where it listens")?,
            log: rules.log.clone(),
            child,
            _stdin: stdin,
        })
    }

    /// Ends it, and reads its log.
    ///
    /// # Errors
    /// A line does not read.
    pub fn close(mut self) -> Result<Log> {
        self.child.kill()?;
        self.child.wait()?;
        Log::read(&std::fs::read_to_string(&self.log)?)
    }
}

impl Drop for Till {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What happened at a till.
#[derive(Debug, Default)]
pub struct Log {
    /// The receipt of every charge of an order.
    pub receipts: HashMap<i64, Vec<i64>>,
    /// Orders whose reply was cut off at least once.
    pub dropped: Vec<i64>,
    /// Calls that found their key known.
    pub repeats: usize,
}

impl Log {
    fn read(text: &str) -> Result<Log> {
        let mut log = Log::default();
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["charged", order, receipt, _key] => {
                    let receipts = log.receipts.entry(order.parse()?).or_default();
                    receipts.push(receipt.parse()?);
                }
                ["dropped", order, ..] => log.dropped.push(order.parse()?),
                ["repeated", ..] => log.repeats += 1,
                _ => bail!("a till's log reads {line:?}"),
            }
        }
        Ok(log)
    }

    /// The receipts of this order.
    pub fn of(&self, order: i64) -> &[i64] {
        self.receipts.get(&order).map(Vec::as_slice).unwrap_or_default()
    }
}

/// The caller's side: asks for a charge and returns its receipt.
///
/// # Errors
/// [`NotDone`] when the till refused; anything else says nothing about what happened.
pub async fn charge(till: SocketAddr, key: &str, order: i64) -> Result<i64, Fail> {
    let talk = async {
        let mut stream = TcpStream::connect(till).await?;
        stream.write_all(format!("{key} {order}\n").as_bytes()).await?;
        let mut reply = String::new();
        tokio::io::BufReader::new(stream).read_line(&mut reply).await?;
        Ok::<_, std::io::Error>(reply)
    };
    let reply = tokio::time::timeout(PATIENCE, talk)
        .await
        .map_err(|_| Fail::retry("the till takes too long"))??;
    match reply.trim() {
        "refused" => Err(NotDone::because("the till refused").into()),
        receipt => receipt.parse().map_err(|_| Fail::retry("the till cut the connection")),
    }
}
