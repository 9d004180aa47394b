//! The world outside the database: a payment and mail provider that knows nothing of jobs. It honours idempotency keys,
//! as real ones do: the first call with a key acts, every later one gets the same answer.
//!
//! It is a bad day for it: some answers are slow, some are lost after the deed. And when the demo has taken aim, it
//! sees to it that the caller dies between the deed and the answer, the moment at which other queues charge twice.
//! Its log is a file of its own, and the final count is made from that.

use std::{
    collections::HashMap,
    fs::File,
    io::Write,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{mpsc, oneshot},
};

use super::shop::Request;

/// The caller to kill now; answer when it is dead.
pub(crate) struct Strike {
    pub(crate) pid: u32,
    pub(crate) dead: oneshot::Sender<()>,
}

/// The provider at work; dropped, it hangs up.
pub(crate) struct Provider {
    pub(crate) address: SocketAddr,
    desk: Arc<Desk>,
    log: PathBuf,
    task: tokio::task::JoinHandle<()>,
}

struct Desk {
    books: Mutex<Books>,
    aim: AtomicBool,
    strikes: mpsc::Sender<Strike>,
}

struct Books {
    answers: HashMap<String, i64>,
    log: File,
    rng: fastrand::Rng,
}

impl Provider {
    pub(crate) async fn start(folder: &Path, seed: u64) -> Result<(Provider, mpsc::Receiver<Strike>)> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("the provider found no free port")?;
        let address = listener.local_addr()?;
        let log = folder.join("provider.log");
        let (strikes, received) = mpsc::channel(16);
        let desk = Arc::new(Desk {
            books: Mutex::new(Books {
                answers: HashMap::new(),
                log: File::create(&log).with_context(|| format!("could not write {}", log.display()))?,
                rng: fastrand::Rng::with_seed(seed),
            }),
            aim: AtomicBool::new(false),
            strikes,
        });
        let task = tokio::spawn(serve(listener, desk.clone()));
        let provider = Provider {
            address,
            desk,
            log,
            task,
        };
        Ok((provider, received))
    }

    /// The next caller whose deed is done dies before it hears of it.
    pub(crate) fn aim(&self, on: bool) {
        self.desk.aim.store(on, Ordering::Relaxed);
    }

    /// What really happened, from the log.
    pub(crate) fn tally(&self) -> Result<Tally> {
        let text = std::fs::read_to_string(&self.log).context("the provider's log cannot be read")?;
        let mut tally = Tally::default();
        for line in text.lines() {
            let mut words = line.split(' ');
            let (Some(what), Some(order), Some(deed)) = (words.next(), words.next(), words.next()) else {
                anyhow::bail!("the provider's log has a broken line: {line}");
            };
            let order: i64 = order.parse()?;
            let done = if what == "charge" {
                &mut tally.charges
            } else {
                &mut tally.mails
            };
            match deed {
                "did" => *done.entry(order).or_default() += 1,
                _ => tally.repeats += 1,
            }
        }
        Ok(tally)
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Deeds per order, and calls that found theirs done.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) charges: HashMap<i64, i64>,
    pub(crate) mails: HashMap<i64, i64>,
    pub(crate) repeats: i64,
}

async fn serve(listener: TcpListener, desk: Arc<Desk>) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let desk = desk.clone();
            // A caller that dies half-way is its own problem.
            tokio::spawn(async move { desk.serve(stream).await.ok() });
        }
    }
}

/// How this call goes after the deed.
enum Mood {
    Answer,
    Slow(Duration),
    HangUp,
}

impl Desk {
    async fn serve(&self, mut stream: TcpStream) -> Result<()> {
        let mut line = String::new();
        BufReader::new(&mut stream).read_line(&mut line).await?;
        let request: Request = serde_json::from_str(&line)?;
        let thinking = self.books().rng.u64(2..15);
        tokio::time::sleep(Duration::from_millis(thinking)).await;
        let (answer, first, mood) = self.act(&request)?;
        if first && self.aim.swap(false, Ordering::Relaxed) {
            let (dead, is_dead) = oneshot::channel();
            self.strikes.send(Strike { pid: request.pid, dead }).await?;
            is_dead.await?;
            return Ok(());
        }
        match mood {
            Mood::HangUp => return Ok(()),
            Mood::Slow(delay) => tokio::time::sleep(delay).await,
            Mood::Answer => {}
        }
        stream.write_all(format!("{answer}\n").as_bytes()).await?;
        Ok(())
    }

    /// The deed, unless its key has been seen: then only the answer of the first time.
    fn act(&self, request: &Request) -> Result<(i64, bool, Mood)> {
        let mut books = self.books();
        let known = books.answers.get(&request.key).copied();
        let deed = if known.is_some() { "repeat" } else { "did" };
        writeln!(books.log, "{} {} {deed} {}", request.what, request.order, request.key)?;
        let answer = known.unwrap_or(1000 + books.answers.len() as i64);
        books.answers.insert(request.key.clone(), answer);
        let mood = match books.rng.u32(..100) {
            0..3 => Mood::HangUp,
            3..6 => Mood::Slow(Duration::from_millis(books.rng.u64(150..500))),
            _ => Mood::Answer,
        };
        Ok((answer, known.is_none(), mood))
    }

    fn books(&self) -> std::sync::MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
