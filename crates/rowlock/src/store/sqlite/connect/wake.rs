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

use crate::store::sqlite::{SqliteStore, conns::Conn, sql};
use crate::{
    error::{Doing, Result},
    store::Wakes,
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

/// Hears hints, and looks at the file, as a task.
pub async fn listen(store: &SqliteStore) -> Result<Wakes> {
    let hints = store.hints().clone();
    let mut heard = hints.subscribe();
    let mut conn = store.inner.opening.quiet_reader().await.doing("listen")?;
    let mut seen = data_version(&mut conn).await.doing("listen")?;
    Ok(Wakes::new(|tell| async move {
        // Kept, so that stores of the file that come later send to the same channel.
        let _hints = hints;
        let mut changed_at = Instant::now();
        let mut look_at = changed_at + LOOK;
        loop {
            let hint = tokio::select! {
                biased;
                // Never closed, as a sender is kept here; too many to keep up with says "some queue".
                hint = heard.recv() => Ok(hint.ok()),
                () = tokio::time::sleep_until(look_at) => match data_version(&mut conn).await {
                    Ok(version) => {
                        let (now, changed) = (Instant::now(), version != seen);
                        if changed {
                            (seen, changed_at) = (version, now);
                        }
                        let idle = now.duration_since(changed_at) > IDLE_AFTER;
                        look_at = now + if idle { LOOK_IDLE } else { LOOK };
                        match changed {
                            true => Ok(None),
                            false => continue,
                        }
                    }
                    Err(error) => Err(error),
                },
            };
            let broken = hint.is_err();
            if tell.send(hint).is_err() || broken {
                return;
            }
        }
    }))
}

async fn data_version(conn: &mut Conn) -> sqlx::Result<i64> {
    sqlx::query_scalar(sql::DATA_VERSION).fetch_one(conn.sql()).await
}
