//! A fake outside system, such as a payment provider: it honours keys and remembers every call.
//!
//! It lives in the test's process, so it outlives the victims that call it. The same key is the same effect however
//! often it is called; a job whose calls carry two keys has caused two effects.

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use rowlock::JobId;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The provider's side: a server with its own log.
pub struct Provider {
    address: SocketAddr,
    log: Log,
    serving: JoinHandle<()>,
}

type Log = Arc<Mutex<Vec<(String, i64)>>>;

impl Provider {
    /// Listens on a free port.
    ///
    /// # Errors
    /// There is none.
    pub async fn start() -> Result<Provider> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("no free port for the provider")?;
        let (address, log) = (listener.local_addr()?, Log::default());
        let kept = log.clone();
        let serving = tokio::spawn(async move {
            while let Ok((caller, _)) = listener.accept().await {
                tokio::spawn(answer(caller, kept.clone()));
            }
        });
        Ok(Provider { address, log, serving })
    }

    /// Where callers connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How often this job has called.
    pub fn calls(&self, job: impl Into<i64>) -> usize {
        let job = job.into();
        self.log().iter().filter(|(_, of)| *of == job).count()
    }

    /// How many effects this job has had: one per key.
    pub fn effects(&self, job: impl Into<i64>) -> usize {
        let job = job.into();
        let log = self.log();
        let keys: HashSet<&str> = log
            .iter()
            .filter(|(_, of)| *of == job)
            .map(|(key, _)| key.as_str())
            .collect();
        keys.len()
    }

    /// How many effects all jobs together have had.
    pub fn effects_of_all(&self) -> usize {
        self.log().iter().collect::<HashSet<_>>().len()
    }

    fn log(&self) -> std::sync::MutexGuard<'_, Vec<(String, i64)>> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// One call: a line `key job` in, a line with the receipt out. Logged before the answer, as a charge is made before
/// it is confirmed.
async fn answer(caller: TcpStream, log: Log) -> Result<()> {
    let mut caller = BufReader::new(caller);
    let mut line = String::new();
    caller.read_line(&mut line).await?;
    let (key, job) = line.trim().split_once(' ').context("a call is a key and a job")?;
    log.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push((key.to_owned(), job.parse()?));
    caller
        .get_mut()
        .write_all(format!("receipt for {key}\n").as_bytes())
        .await?;
    Ok(())
}

/// The caller's side: asks the provider for an effect under this key and returns its receipt.
///
/// # Errors
/// The provider could not be reached.
pub async fn call(provider: SocketAddr, key: &str, job: JobId) -> Result<String> {
    let mut stream = TcpStream::connect(provider)
        .await
        .context("could not reach the provider")?;
    stream.write_all(format!("{key} {job}\n").as_bytes()).await?;
    let mut receipt = String::new();
    stream.read_to_string(&mut receipt).await?;
    Ok(receipt.trim().to_owned())
}
