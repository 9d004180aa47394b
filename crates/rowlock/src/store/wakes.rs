//! Notifications of new work.

use tokio::{sync::mpsc, task::AbortHandle};

use crate::error::{Doing, Result};

/// Notifications as they arrive. Dropping this stops listening.
pub struct Wakes {
    heard: mpsc::UnboundedReceiver<sqlx::Result<Option<i64>>>,
    task: AbortHandle,
}

impl Wakes {
    /// The notifications that `listen` receives; `listen` runs as a task.
    pub fn new<F>(listen: impl FnOnce(mpsc::UnboundedSender<sqlx::Result<Option<i64>>>) -> F) -> Wakes
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let (tell, heard) = mpsc::unbounded_channel();
        let task = tokio::spawn(listen(tell)).abort_handle();
        Wakes { heard, task }
    }

    /// The next queue with new work; `None` for "some queue". An error means that notifications may have been missed:
    /// poll, and listen again. Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<i64>> {
        let heard = self.heard.recv().await;
        let heard = heard.unwrap_or_else(|| Err(sqlx::Error::Io(std::io::ErrorKind::ConnectionAborted.into())));
        heard.doing("listen")
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        self.task.abort();
    }
}
