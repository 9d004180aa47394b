//! Wakes: hints, never the truth.
//!
//! Within the process a hint is sent after the commit, through a channel that every store of the same file shares.
//! What other processes commit, or a caller in a transaction of its own, nobody tells us: a reader looks at the
//! file's change counter, fifty times a second while things happen and twenty times while they do not. A look reads
//! one number in shared memory.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, LazyLock, Mutex, PoisonError, Weak},
    time::Duration,
};

use tokio::{sync::broadcast, time::Instant};

use super::{conns::Conn, sql};
use crate::{
    error::Doing,
    store::{Fut, Wakes},
};

/// Between two looks while the file changes now and then, and while it does not.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_IDLE: Duration = Duration::from_millis(50);

/// Without a change for this long, looks become rarer.
const IDLE_AFTER: Duration = Duration::from_secs(3);

/// Hints kept for a listener that is slow to hear them; past that it is told "some queue".
const HINTS_MAX: usize = 256;

/// One file's hints, by queue number.
pub type Hints = broadcast::Sender<i64>;

static FILES: LazyLock<Mutex<HashMap<PathBuf, Weak<Hints>>>> = LazyLock::new(Mutex::default);

/// The channel that all stores of this file share.
pub fn hints(file: PathBuf) -> Arc<Hints> {
    let mut files = FILES.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(shared) = files.get(&file).and_then(Weak::upgrade) {
        return shared;
    }
    files.retain(|_, shared| shared.strong_count() > 0);
    let shared = Arc::new(broadcast::channel(HINTS_MAX).0);
    files.insert(file, Arc::downgrade(&shared));
    shared
}

pub struct Listening {
    heard: broadcast::Receiver<i64>,
    /// Kept, so that stores of the file that come later send to the same channel.
    _hints: Arc<Hints>,
    conn: Conn,
    seen: i64,
    changed_at: Instant,
    look_at: Instant,
}

impl Listening {
    pub async fn start(hints: Arc<Hints>, mut conn: Conn) -> sqlx::Result<Listening> {
        let heard = hints.subscribe();
        let seen = data_version(&mut conn).await?;
        let now = Instant::now();
        Ok(Listening {
            heard,
            _hints: hints,
            conn,
            seen,
            changed_at: now,
            look_at: now + LOOK,
        })
    }

    /// Whether anybody committed since the last look.
    async fn look(&mut self) -> sqlx::Result<bool> {
        let version = data_version(&mut self.conn).await?;
        let now = Instant::now();
        let changed = version != self.seen;
        if changed {
            self.seen = version;
            self.changed_at = now;
        }
        let idle = now.duration_since(self.changed_at) > IDLE_AFTER;
        self.look_at = now + if idle { LOOK_IDLE } else { LOOK };
        Ok(changed)
    }
}

async fn data_version(conn: &mut Conn) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql::DATA_VERSION).fetch_one(conn.sql()).await
}

impl Wakes for Listening {
    // Cancel-safe: a change is noted only once its look has ended, and a look given up half-way is made again.
    fn next(&mut self) -> Fut<'_, Option<i64>> {
        Box::pin(async {
            loop {
                tokio::select! {
                    biased;
                    // Never closed, as a sender is kept here; too many to keep up with says "some queue".
                    hint = self.heard.recv() => return Ok(hint.ok()),
                    () = tokio::time::sleep_until(self.look_at) => {}
                }
                if self.look().await.doing("listen")? {
                    return Ok(None);
                }
            }
        })
    }
}
