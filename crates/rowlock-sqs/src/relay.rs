//! Pointers sent after a commit. A hint may be dropped: what was not sent is found by the sweep.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use rowlock::{Admin, observe::Standing};
use tokio::{
    sync::mpsc::{Receiver, Sender},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::{
    counts::{Counts, add},
    error::Error,
    outside::{BATCH, Outside, Pause},
    sent::{self, Sent},
};

/// How many hints wait for the relay before more are dropped.
pub(crate) const HINTS_MAX: usize = 10_000;
/// How many jobs are looked up in one statement.
const LOOK_MAX: usize = 1000;
/// How many calls of SQS run at the same time.
const CALLS_MAX: usize = 8;
/// How often a send is tried before it is left to the sweep.
const SENDS_MAX: u32 = 4;
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Names jobs to a bridge that should send their pointer now. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Relay {
    pub(crate) hints: Sender<i64>,
}

impl Relay {
    /// Sends a pointer to this job soon. Call it after the commit that enqueued the job: an uncommitted job is not
    /// found. It never waits. It returns `false` if too many hints wait, or the bridge has stopped; then the sweep
    /// finds the job.
    pub fn hint(&self, job: i64) -> bool {
        self.hints.try_send(job).is_ok()
    }
}

/// A task that sends.
#[derive(Clone)]
pub(crate) struct Courier {
    pub(crate) admin: Admin,
    pub(crate) outside: Outside,
    pub(crate) sent: Arc<Sent>,
    pub(crate) counts: Arc<Counts>,
}

impl Courier {
    /// Sends a pointer to each hinted job, until `stop`.
    pub(crate) async fn relay_until(self, mut hints: Receiver<i64>, stop: CancellationToken) {
        let mut ids = Vec::new();
        loop {
            ids.clear();
            let next = hints.recv_many(&mut ids, LOOK_MAX);
            match stop.run_until_cancelled(next).await {
                None | Some(0) => return,
                Some(_) => {}
            }
            // A silent SQS must not hold up a stop; what was not sent is found by a later sweep.
            if stop.run_until_cancelled(self.pass_on(&ids)).await.is_none() {
                return;
            }
        }
    }

    async fn pass_on(&self, ids: &[i64]) {
        match self.admin.observe().standing(ids).await {
            // A job that a worker has taken meanwhile needs no pointer.
            Ok(found) => {
                let wanted = found.into_iter().filter(|s| s.untriggered() || s.due).collect();
                self.send(wanted).await;
            }
            Err(error) => {
                add(&self.counts.database_failures, 1);
                tracing::warn!("{}; the sweep finds these jobs later", Error::from(error).whole());
            }
        }
    }

    /// Sends a pointer to each job that is due for one. Returns `false` if none was sent.
    pub(crate) async fn send(&self, jobs: Vec<Standing>) -> bool {
        let timely = |job: Standing| self.sent.is_time(job.id).map(|times| (job, times));
        let jobs: Vec<(Standing, u32)> = jobs.into_iter().filter_map(timely).collect();
        let (mut calls, mut out) = (JoinSet::new(), 0);
        for batch in jobs.chunks(BATCH) {
            while calls.len() >= CALLS_MAX {
                out += calls.join_next().await.and_then(|sent| sent.ok()).unwrap_or(0);
            }
            let (sender, batch) = (self.clone(), batch.to_vec());
            calls.spawn(async move { sender.send_batch(batch).await });
        }
        while let Some(sent) = calls.join_next().await {
            out += sent.unwrap_or(0);
        }
        out > 0 || jobs.is_empty()
    }

    /// Sends ten at most. A failed send is tried again a few times, and then left to the sweep.
    async fn send_batch(&self, mut batch: Vec<(Standing, u32)>) -> usize {
        let (mut pause, mut out) = (Pause::up_to(PAUSE_MAX), 0);
        for tried in 1..=SENDS_MAX {
            let messages: Vec<_> = batch.iter().map(|(job, times)| sent::pointer(job, *times)).collect();
            let failed = self.outside.send(&messages).await.unwrap_or_else(|error| {
                tracing::warn!("{}", error.whole());
                (0..messages.len()).collect()
            });
            add(&self.counts.send_failures, failed.len());
            let mut again = Vec::new();
            for (no, (job, times)) in batch.into_iter().enumerate() {
                if failed.contains(&no) {
                    again.push((job, times));
                    continue;
                }
                self.sent.note(job.id);
                add(self.counted(times), 1);
                out += 1;
            }
            batch = again;
            if batch.is_empty() || tried == SENDS_MAX {
                break;
            }
            tokio::time::sleep(pause.next()).await;
        }
        out
    }

    fn counted(&self, times: u32) -> &AtomicU64 {
        match times {
            0 => &self.counts.sent,
            _ => &self.counts.resent,
        }
    }
}
