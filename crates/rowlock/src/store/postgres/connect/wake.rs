//! Notifications over LISTEN and NOTIFY. They are hints: a notification may be lost.
//!
//! NOTIFY takes one instance-wide lock at commit. So where the engine owns the commit, the notification is sent after
//! it, at most one per queue every 20 ms: the first immediately, the rest combined into a trailing one. In a caller's
//! transaction the notification is sent with the commit, unless one for that queue was received a moment ago: workers
//! poll fast after a notification.

use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use sqlx::{
    Acquire,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::store::postgres::Inner;
use crate::{
    error::{Doing, Result},
    store::Wakes,
};

/// At most one notification per queue in this time.
const GATHER: Duration = Duration::from_millis(20);

/// When notifications were last received, by queue.
#[derive(Default)]
pub struct Heard(Mutex<HashMap<i64, Instant>>);

impl Heard {
    fn note(&self, queue_no: i64) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if heard.len() > 1000 {
            heard.clear();
        }
        heard.insert(queue_no, Instant::now());
    }

    /// Whether every one of these queues had a notification within the last moment, so that another would add nothing.
    pub fn lately(&self, mut queues: impl Iterator<Item = i64>) -> bool {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.all(|q| heard.get(&q).is_some_and(|at| at.elapsed() < GATHER))
    }
}

/// Starts the task that sends combined notifications; it ends when its store is dropped.
pub fn sender(inner: &Arc<Inner>) -> UnboundedSender<i64> {
    let (tx, rx) = mpsc::unbounded_channel();
    let weak = Arc::downgrade(inner);
    tokio::spawn(send_gathered(weak, rx));
    tx
}

async fn send_gathered(inner: std::sync::Weak<Inner>, mut rx: UnboundedReceiver<i64>) {
    let mut queues = BTreeSet::new();
    while let Some(first) = rx.recv().await {
        queues.insert(first);
        while !queues.is_empty() {
            while let Ok(more) = rx.try_recv() {
                queues.insert(more);
            }
            let Some(inner) = inner.upgrade() else { return };
            let batch: Vec<i64> = std::mem::take(&mut queues).into_iter().collect();
            if let Err(error) = notify(&inner, &batch).await {
                tracing::debug!(
                    "could not send a notification, workers find the jobs by polling: {}",
                    error.cause()
                );
            }
            drop(inner);
            tokio::time::sleep(GATHER).await;
            while let Ok(more) = rx.try_recv() {
                queues.insert(more);
            }
        }
    }
}

async fn notify(inner: &Arc<Inner>, queues: &[i64]) -> Result<()> {
    let sent = inner.query(&inner.sql.notify).bind(&inner.channel).bind(queues);
    let send = inner.run_within(inner.timing.lock, "notify", async |pg| {
        Ok(sent.execute(pg).await.map(drop)?)
    });
    send.await
}

/// Notifications that a separate task receives, so that waiting for one can be cancelled.
pub async fn listen(inner: &Inner) -> Result<Wakes> {
    if inner.hosts.pooler.is_some() {
        // Behind a pooler, the server would notify another client. Workers find jobs by polling.
        return Ok(Wakes::new(|tell| async move {
            let _kept = tell;
            std::future::pending().await
        }));
    }
    let (hosts, heard) = (inner.hosts.clone(), inner.heard.clone());
    let open = |options| async {
        let options = PgConnectOptions::application_name(options, "rowlock listen");
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_lazy_with(options.clone());
        let mut listener = PgListener::connect_with(&pool).await?;
        let server = hosts.check((&mut listener).acquire().await?, &options).await?;
        listener.ignore_pool_close_event(true);
        // The listener would reconnect to the same host.
        listener.eager_reconnect(false);
        listener.listen(&inner.channel).await?;
        Ok((listener, server.generation))
    };
    let (mut listener, generation) = hosts.find(open).await.doing("listen")?;
    Ok(Wakes::new(|tell| async move {
        let hear = async {
            // `None` and errors both mean that the connection broke. The task ends, and the worker listens again.
            while let Ok(Some(note)) = listener.try_recv().await {
                let Ok(queue_no) = note.payload().parse() else { continue };
                heard.note(queue_no);
                if tell.send(Ok(Some(queue_no))).is_err() {
                    break;
                }
            }
        };
        tokio::select! {
            () = hear => {}
            () = hosts.left(generation) => {}
        }
    }))
}
