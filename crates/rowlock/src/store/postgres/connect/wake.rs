//! Wakes over LISTEN and NOTIFY: hints, never the truth.
//!
//! NOTIFY takes one instance-wide lock at commit, so where we own the commit the hint is sent after it, at most one
//! per queue every 20 ms: the first at once, the rest gathered into a trailing one. In a caller's transaction it
//! travels with the commit, unless one for that queue was heard a moment ago: workers poll fast after a wake.

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

/// At most one hint per queue in this time.
const GATHER: Duration = Duration::from_millis(20);

/// When hints were last heard, by queue.
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

    /// Whether every one of these queues had a hint within the last moment, so that another would add nothing.
    pub fn lately(&self, mut queues: impl Iterator<Item = i64>) -> bool {
        let heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.all(|q| heard.get(&q).is_some_and(|at| at.elapsed() < GATHER))
    }
}

/// Starts the task that sends gathered hints; it ends when its store is gone.
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

/// Hints heard by a task of their own, so that waiting for one can be cancelled.
pub async fn listen(inner: &Inner) -> Result<Wakes> {
    if inner.hosts.pooler.is_some() {
        // What listens behind a pooler is not whom the server wakes: jobs are found by polling.
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
        // It would go to the same host again.
        listener.eager_reconnect(false);
        listener.listen(&inner.channel).await?;
        Ok((listener, server.generation))
    };
    let (mut listener, generation) = hosts.find(open).await.doing("listen")?;
    Ok(Wakes::new(|tell| async move {
        let hear = async {
            // `None` and errors both mean that the connection broke: end, and the worker listens anew.
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
