//! Counts of this process: handlers report here, the verbs read.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use serde_json::json;

static HANDLED: AtomicU64 = AtomicU64::new(0);
static STARTS: OnceLock<Vec<OnceLock<Instant>>> = OnceLock::new();

/// A handler reports the job of this number: for a no-op when it runs, for a business job after its commit.
pub fn handled(number: i64) {
    if let Some(starts) = STARTS.get()
        && let Some(start) = usize::try_from(number).ok().and_then(|place| starts.get(place))
    {
        // A second run of the same job does not move its first start.
        let _ = start.set(Instant::now());
    }
    HANDLED.fetch_add(1, Relaxed);
}

/// The handler of the one stuck job.
pub async fn stuck_forever() {
    crate::emit(json!({"event": "started", "pid": std::process::id()}));
    tokio::time::sleep(Duration::from_secs(3600)).await;
}

pub(crate) fn total() -> u64 {
    HANDLED.load(Relaxed)
}

pub(crate) async fn reached(total_wanted: u64) {
    while total() < total_wanted {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// From now on the first start of each of these jobs is remembered.
pub(crate) fn remember_starts(jobs: usize) -> &'static [OnceLock<Instant>] {
    STARTS.get_or_init(|| (0..jobs).map(|_| OnceLock::new()).collect())
}

/// Ends the process with `stalled` when the verb has not ended by then.
pub(crate) fn limit(seconds: u64) {
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(seconds));
        crate::emit(json!({"event": "stalled", "done": total()}));
        std::process::exit(0);
    });
}
