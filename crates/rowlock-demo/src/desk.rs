//! The external system, as a separate process: a payment and mail provider that knows nothing of jobs.
//!
//! It keeps two accounts. The keyed one honours idempotency keys, as good providers do: the first call with a key acts,
//! every later one gets the same answer. The other ignores them, as many do: every call acts.
//!
//! The provider is unreliable: some answers are slow, some are lost after the action, some calls are cut off before it,
//! and some are refused with a reason. When the demo aims at a caller, the provider keeps the answer back until the
//! caller is dead, the moment at which other queues charge twice. Its log is a separate file, on the disk before any
//! answer leaves. The final count is made from that log.
//!
//! It reads `aim` and `rest` from its stdin, and `dead` or `spared` after it has written `strike PID` to its stdout.

use std::{
    collections::HashMap,
    fs::File,
    io::{BufRead, Write},
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::{Mutex as AsyncMutex, mpsc},
};

/// How long a caller waits for an answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The settings of the provider process. Moods in percent of the calls.
#[derive(clap::Args)]
pub struct Args {
    #[arg(long)]
    log: PathBuf,
    #[arg(long)]
    seed: u64,
    /// Acts, and hangs up before the answer
    #[arg(long)]
    drops: u32,
    /// Hangs up before it acts
    #[arg(long)]
    misses: u32,
    /// Says that it will not act now
    #[arg(long)]
    refuses: u32,
    /// Acts, and takes its time to answer
    #[arg(long)]
    slow: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Account {
    /// Honours keys.
    Keyed,
    /// Ignores them.
    Keyless,
}

/// One request: a line there, a line back.
#[derive(Serialize, Deserialize)]
pub(crate) struct Request {
    /// The id of the calling process; the demo uses it to kill the caller.
    pub(crate) pid: u32,
    pub(crate) account: Account,
    pub(crate) what: String,
    pub(crate) order: i64,
    pub(crate) key: String,
}

/// How a call can fail.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The provider said that it did not act.
    Refused,
    /// It is unknown whether the call had its effect.
    Unknown(std::io::Error),
}

/// The caller's side: asks for an action, and returns its receipt.
pub(crate) async fn ask(
    provider: SocketAddr,
    what: &str,
    account: Account,
    order: i64,
    key: String,
) -> Result<i64, Failure> {
    let request = Request {
        pid: std::process::id(),
        account,
        what: what.to_owned(),
        order,
        key,
    };
    let talk = async {
        let mut stream = TcpStream::connect(provider).await?;
        let line = format!("{}\n", serde_json::to_string(&request)?);
        stream.write_all(line.as_bytes()).await?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).await?;
        Ok(reply)
    };
    let reply = tokio::time::timeout(PATIENCE, talk).await;
    let reply = reply
        .map_err(std::io::Error::from)
        .flatten()
        .map_err(Failure::Unknown)?;
    match reply.trim() {
        "refused" => Err(Failure::Refused),
        receipt => receipt
            .parse()
            .map_err(|_| Failure::Unknown(std::io::Error::other("the provider hung up without an answer"))),
    }
}

/// How the provider handles a call.
enum Mood {
    Answer,
    Slow(Duration),
    Drop,
    Miss,
    Refuse,
}

struct Desk {
    books: Mutex<Books>,
    aim: AtomicBool,
    /// Whether the caller that the demo aimed at was killed.
    verdicts: AsyncMutex<mpsc::UnboundedReceiver<bool>>,
    args: Args,
}

struct Books {
    answers: HashMap<String, i64>,
    receipts: i64,
    log: File,
    rng: fastrand::Rng,
}

/// The hidden command `demo-provider`: the payment and mail provider of a scene, until its stdin ends.
///
/// # Errors
/// When it finds no free port, or cannot write its log. Cancel safety: as a provider that is killed.
pub async fn provide(args: Args) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", 0))
        .await
        .context("the provider found no free port")?;
    let log = File::create(&args.log).with_context(|| format!("could not write {}", args.log.display()))?;
    let (verdicts, received) = mpsc::unbounded_channel();
    let desk = Arc::new(Desk {
        books: Mutex::new(Books {
            answers: HashMap::new(),
            receipts: 1000,
            log,
            rng: fastrand::Rng::with_seed(args.seed),
        }),
        aim: AtomicBool::new(false),
        verdicts: AsyncMutex::new(received),
        args,
    });
    let told = desk.clone();
    std::thread::spawn(move || obey(&told, &verdicts));
    say(&format!("listening {}", listener.local_addr()?))?;
    loop {
        let (stream, _) = listener.accept().await?;
        let desk = desk.clone();
        // A caller that dies half-way is not an error of the provider.
        tokio::spawn(async move { desk.serve(stream).await.ok() });
    }
}

/// Reads what the demo wants; ends the process when the demo lets go of it, or dies.
fn obey(desk: &Desk, verdicts: &mpsc::UnboundedSender<bool>) {
    for line in std::io::stdin().lock().lines().map_while(|line| line.ok()) {
        match line.as_str() {
            "aim" => desk.aim.store(true, Ordering::Relaxed),
            "rest" => desk.aim.store(false, Ordering::Relaxed),
            // An error means that this process is ending.
            verdict => drop(verdicts.send(verdict == "dead")),
        }
    }
    std::process::exit(0);
}

fn say(line: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}

impl Desk {
    async fn serve(&self, mut stream: TcpStream) -> Result<()> {
        let mut line = String::new();
        BufReader::new(&mut stream).read_line(&mut line).await?;
        let request: Request = serde_json::from_str(&line)?;
        let (thinking, mood) = self.mood();
        tokio::time::sleep(thinking).await;
        match mood {
            Mood::Miss => return Ok(()),
            Mood::Refuse => return Ok(stream.write_all(b"refused\n").await?),
            _ => {}
        }
        // The disk takes its time; the other callers need not wait for it.
        let (receipt, first) = tokio::task::block_in_place(|| self.act(&request))?;
        if first && self.aim.swap(false, Ordering::Relaxed) && self.strike(request.pid).await? {
            return Ok(());
        }
        match mood {
            Mood::Drop => return tokio::task::block_in_place(|| self.note(&request, "dropped")),
            Mood::Slow(delay) => tokio::time::sleep(delay).await,
            _ => {}
        }
        Ok(stream.write_all(format!("{receipt}\n").as_bytes()).await?)
    }

    fn mood(&self) -> (Duration, Mood) {
        let Args {
            drops,
            misses,
            refuses,
            slow,
            ..
        } = self.args;
        let rng = &mut self.books().rng;
        let thinking = Duration::from_millis(rng.u64(2..15));
        let roll = rng.u32(..100);
        let mood = match roll {
            _ if roll < drops => Mood::Drop,
            _ if roll < drops + slow => Mood::Slow(Duration::from_millis(rng.u64(150..500))),
            _ if roll < drops + slow + misses => Mood::Miss,
            _ if roll < drops + slow + misses + refuses => Mood::Refuse,
            _ => Mood::Answer,
        };
        (thinking, mood)
    }

    /// Acts, unless the account honours keys and has seen this one. Then it only returns the answer of the first time.
    fn act(&self, request: &Request) -> Result<(i64, bool)> {
        let mut books = self.books();
        if request.account == Account::Keyed
            && let Some(receipt) = books.answers.get(&request.key).copied()
        {
            write(&mut books.log, request, "repeat")?;
            return Ok((receipt, false));
        }
        books.receipts += 1;
        let receipt = books.receipts;
        write(&mut books.log, request, "did")?;
        books.answers.insert(request.key.clone(), receipt);
        Ok((receipt, true))
    }

    fn note(&self, request: &Request, what: &str) -> Result<()> {
        write(&mut self.books().log, request, what)
    }

    /// Has the caller killed after the action. Returns whether it was killed.
    async fn strike(&self, pid: u32) -> Result<bool> {
        // Taken first: the next answer on stdin is about this caller.
        let mut verdicts = self.verdicts.lock().await;
        say(&format!("strike {pid}"))?;
        Ok(verdicts.recv().await.unwrap_or(false))
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes one line, and returns when it is on the disk.
fn write(log: &mut File, request: &Request, deed: &str) -> Result<()> {
    let Request { what, order, key, .. } = request;
    log.write_all(format!("{what} {order} {deed} {key}\n").as_bytes())?;
    Ok(log.sync_data()?)
}
