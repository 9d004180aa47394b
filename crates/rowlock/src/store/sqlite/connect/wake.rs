//! Notifications. They are hints: a notification may be lost.
//!
//! Within the process, a notification is sent after the commit, through a channel that every store of the same file
//! shares. Commits of other processes, and of callers in their own transactions, send none. So a reader polls the
//! file's change counter, fifty times a second while the file changes and twenty times a second while it does not. A
//! poll reads one number in shared memory.

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

/// The time between two polls while the file changes from time to time, and while it does not.
const LOOK: Duration = Duration::from_millis(20);
const LOOK_IDLE: Duration = Duration::from_millis(50);

/// After this time without a change, polls become rarer.
const IDLE_AFTER: Duration = Duration::from_secs(3);

/// How many notifications are kept for a slow listener; after that, the listener gets "some queue".
const HINTS_MAX: usize = 256;

/// The notifications of one file, by queue number.
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

/// Listens for notifications and polls the file, as a task.
pub async fn listen(store: &SqliteStore) -> Result<Wakes> {
    let hints = store.hints().clone();
    let mut heard = hints.subscribe();
    let mut conn = store.inner.opening.quiet_reader().await.doing("listen")?;
    let mut seen = data_version(&mut conn).await.doing("listen")?;
    Ok(Wakes::new(|tell| async move {
        // Kept, so that later stores of the file send to the same channel.
        let _hints = hints;
        let mut changed_at = Instant::now();
        let mut look_at = changed_at + LOOK;
        loop {
            let hint = tokio::select! {
                biased;
                // The channel never closes, because a sender is kept here; a listener that falls behind gets "some
                // queue".
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
