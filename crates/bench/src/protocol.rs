//! What every program of the benchmark agrees on: its arguments, its lines on stdout, its payloads, its time limit.
//!
//! A program prints one JSON object per line and nothing else on stdout; whatever it cannot do it says in the same way.

use std::{
    io::Write as _,
    process::exit,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context, Result};
use serde_json::{Value, json};

/// Rows of `bench_account`, which the harness makes.
pub const ACCOUNTS: i64 = 10_000;

/// Ready jobs that `life` and `hold` keep at most.
pub const BACKLOG_MAX: u64 = 20_000;

/// The whole command line. A verb reads what concerns it.
#[derive(Clone, Debug, clap::Parser)]
pub struct Args {
    /// What to do
    pub verb: String,
    /// How many jobs
    #[arg(long, default_value_t = 1000)]
    pub jobs: u64,
    /// Bytes of JSON in a payload
    #[arg(long, default_value_t = 200)]
    pub payload: usize,
    /// noop or book
    #[arg(long, default_value = "noop")]
    pub kind: String,
    /// The book handler enqueues a follow-up job in its transaction
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub next: bool,
    /// best or defaults
    #[arg(long, default_value = "best")]
    pub mode: String,
    /// Jobs that share a commit; for the ceiling, jobs per claim and per settle
    #[arg(long)]
    pub batch: Option<usize>,
    /// Until no job of the kind is left, beside other processes
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub share: bool,
    /// The database holds more jobs than these, and that is no error
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub part: bool,
    /// How long `hold` and `idle` run
    #[arg(long, default_value_t = 60)]
    pub seconds: u64,
    /// Milliseconds from one pickup to the next
    #[arg(long, default_value_t = 50)]
    pub every_ms: u64,
    /// Without a connection that listens
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub poll_only: bool,
    /// Jobs per second beside the pickups
    #[arg(long, default_value_t = 0)]
    pub load: u64,
    /// Queues that jobs are spread over
    #[arg(long, default_value_t = 1)]
    pub queues: usize,
    /// Of these queues, how many the worker serves; all unless given
    #[arg(long)]
    pub serve: Option<usize>,
    /// Kinds that jobs are spread over
    #[arg(long, default_value_t = 1)]
    pub kinds: usize,
    /// Seconds from now until the enqueued jobs are due
    #[arg(long, default_value_t = 0)]
    pub after_s: u64,
    /// Groups that the enqueued jobs are spread over; none unless given
    #[arg(long, default_value_t = 0)]
    pub groups: u64,
    /// A second worker for the stuck job; nothing is enqueued
    #[arg(long, num_args = 0..=1, default_missing_value = "true", default_value_t = false, action = clap::ArgAction::Set)]
    pub again: bool,
    /// Seconds after which the verb is given up
    #[arg(long, default_value_t = 120)]
    pub limit_s: u64,
    /// Concurrent handlers, instead of the tuned number
    #[arg(long)]
    pub concurrency: Option<usize>,
    /// Jobs claimed ahead, instead of the tuned number
    #[arg(long)]
    pub prefetch: Option<usize>,
    /// Connections, instead of the tuned number
    #[arg(long)]
    pub connections: Option<usize>,
    /// Concurrent producers, instead of the tuned number
    #[arg(long)]
    pub producers: Option<usize>,
    /// Jobs per enqueue, instead of the tuned number
    #[arg(long)]
    pub chunk: Option<u64>,
    /// The ceiling's driver for `book`: sqlx or pipelined
    #[arg(long, default_value = "sqlx")]
    pub driver: String,
}

impl Args {
    /// Where the run's database is.
    ///
    /// # Errors
    /// The environment does not say.
    pub fn url() -> Result<String> {
        std::env::var("DATABASE_URL").context("DATABASE_URL is not set; give postgres://… or sqlite:<path>")
    }
}

/// Jobs done so far, for the line that says that a verb stalled.
pub static DONE: AtomicU64 = AtomicU64::new(0);

/// Prints one line of the protocol.
pub fn say(line: &Value) {
    let mut out = std::io::stdout().lock();
    // A reader that is gone ends the program: nobody is there to hear why.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        exit(1);
    }
}

/// Says that this program has no such benchmark.
pub fn unsupported(why: &str) {
    say(&json!({"event": "unsupported", "why": why}));
}

/// Runs a verb within its time limit; past it, says so and ends the process.
///
/// # Errors
/// Those of the verb.
pub async fn within(limit_s: u64, verb: impl Future<Output = Result<()>>) -> Result<()> {
    match tokio::time::timeout(Duration::from_secs(limit_s), verb).await {
        Ok(result) => result,
        Err(_) => {
            say(&json!({"event": "stalled", "done": DONE.load(Ordering::Relaxed)}));
            exit(0);
        }
    }
}

/// Microseconds since 1970, to compare processes of one machine.
pub fn unix_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Letters that do not compress, cut out of one pool at a different place for each number.
pub struct Fill {
    pool: String,
    bytes: usize,
}

impl Fill {
    /// What `{"number":123456,"fill":""}` takes beside the letters.
    const AROUND: usize = 27;

    /// Fills payloads up to about this many bytes.
    pub fn new(payload_bytes: usize) -> Fill {
        let bytes = payload_bytes.saturating_sub(Fill::AROUND);
        let mut random = fastrand::Rng::with_seed(7);
        let pool = (0..bytes + (1 << 20)).map(|_| random.alphanumeric()).collect();
        Fill { pool, bytes }
    }

    /// The letters for this number.
    pub fn of(&self, number: i64) -> String {
        let places = self.pool.len() - self.bytes;
        // A stride that shares no factor with the pool's length, so that neighbours differ.
        let from = (number.unsigned_abs() as usize).wrapping_mul(7919) % places;
        self.pool[from..from + self.bytes].to_owned()
    }
}
