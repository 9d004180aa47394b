//! Drains a dead-letter queue into cases: a person decides about messages that the infrastructure could not deliver.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rowlock::{Admin, observe::JobFilter};
use tokio_util::sync::CancellationToken;

use crate::{
    body::{self, Body},
    config::Config,
    counts::{Counts, add},
    error::{Error, Result, is_final},
    keep,
    outside::{Incoming, Outside, Pause},
};

const PAUSE_MAX: Duration = Duration::from_secs(5);
const REASON: &str = "from the dead-letter queue: it was received too often without being deleted";

pub(crate) struct Drain {
    pub(crate) admin: Admin,
    pub(crate) outside: Outside,
    pub(crate) config: Arc<Config>,
    pub(crate) counts: Arc<Counts>,
}

impl Drain {
    /// Drains until `stop`.
    pub(crate) async fn run_until(self, stop: CancellationToken) {
        let mut pause = Pause::up_to(PAUSE_MAX);
        loop {
            let asked = Instant::now();
            let poll = self.outside.receive(self.config.visibility, self.config.wait);
            let drained = match stop.run_until_cancelled(poll).await {
                None => return,
                Some(Ok(received)) if received.is_empty() && asked.elapsed() < self.config.look => {
                    // After a poll that does not wait, pause before the next one.
                    stop.run_until_cancelled(tokio::time::sleep(self.config.look)).await;
                    Ok(())
                }
                Some(Ok(received)) => self.keep(received).await,
                Some(Err(error)) => Err(error),
            };
            match drained {
                Ok(()) => pause.reset(),
                Err(error) => {
                    tracing::warn!("{}", error.whole());
                    let slept = stop.run_until_cancelled(tokio::time::sleep(pause.next())).await;
                    if slept.is_none() {
                        return;
                    }
                }
            }
        }
    }

    /// Keeps each whose job is not here, then deletes those that were kept, and reports the last that was not. What is
    /// cut off in between comes again, and makes no second case.
    async fn keep(&self, received: Vec<Incoming>) -> Result<()> {
        let (mut receipts, mut known, mut refused) = (Vec::new(), 0, None);
        for message in &received {
            let kept = match self.is_known(message).await {
                Ok(true) => {
                    add(&self.counts.duplicates, 1);
                    known += 1;
                    Ok(())
                }
                Ok(false) => keep::keep(&self.admin, &self.outside.url, message, REASON)
                    .await
                    .map(drop),
                Err(error) => Err(error),
            };
            match kept {
                Ok(()) => receipts.push(message.receipt.clone()),
                Err(error) => {
                    let goes_on = is_final(&error);
                    refused = Some(Error::from(error));
                    // If the database is away, do not ask it for each message.
                    if !goes_on {
                        break;
                    }
                }
            }
        }
        if !receipts.is_empty() {
            let failed = self.outside.delete(&receipts).await?;
            add(&self.counts.delete_failures, failed.len());
            add(
                &self.counts.drained,
                receipts.len().saturating_sub(failed.len() + known),
            );
        }
        refused.map_or(Ok(()), Err)
    }

    /// Whether the message has had its effect: its job was triggered, or it became a job. Such a message gets here too,
    /// after several clean restarts in a row, or when deletes fail.
    async fn is_known(&self, message: &Incoming) -> rowlock::Result<bool> {
        let observe = self.admin.observe();
        match body::read(message, &self.config) {
            Body::Pointer(pointer) => {
                let found = observe.standing(&[pointer.job]).await?;
                Ok(found.iter().any(|s| s.uid == pointer.uid && !s.untriggered()))
            }
            Body::Foreign(job) => {
                let filter = JobFilter::new().key(&job.key).limit(1);
                let found = observe.jobs(&filter).await?;
                Ok(found
                    .iter()
                    .any(|held| held.kind == job.kind && held.queue == job.queue))
            }
            Body::Malformed(_) => Ok(false),
        }
    }
}
