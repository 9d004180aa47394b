//! A body lock: staged handlers that touch one customer's account outside take turns, others run beside them, and
//! nobody holds a connection meanwhile.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rowlock::{
    Fail, Job,
    observe::Awaited,
    sqlite::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "sync-account")]
struct SyncAccount {
    customer: String,
}

/// An external system that cannot bear two concurrent callers for one customer. It counts how many there were at most.
#[derive(Clone, Default)]
struct Crm(Arc<Mutex<HashMap<String, (u32, u32)>>>);

impl Crm {
    async fn sync(&self, customer: &str) {
        let count = |add: bool| {
            let mut callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let (now, most) = callers.entry(customer.to_owned()).or_default();
            *now = if add { *now + 1 } else { *now - 1 };
            *most = (*most).max(*now);
        };
        count(true);
        tokio::time::sleep(Duration::from_millis(30)).await;
        count(false);
    }

    fn most(&self, customer: &str) -> u32 {
        let callers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        callers.get(customer).map_or(0, |(_, most)| *most)
    }
}

async fn sync_account(cx: Staged<Crm>, job: SyncAccount) -> Outcome {
    // `acme` has two slots, everybody else one. A job that finds no slot in time is deferred; no attempt is used up.
    let slots = if job.customer == "acme" { 2 } else { 1 };
    let key = format!("customer:{}", job.customer);
    let lock = cx.lock(key).slots(slots).timeout(Duration::from_secs(5)).await?;
    let crm = cx.state().clone();
    cx.effect("sync", |_key| async move {
        crm.sync(&job.customer).await;
        Ok::<(), Fail>(())
    })
    .await?;
    // Not needed: the lock ends with the attempt. It lets the next one in a little earlier.
    lock.release().await?;
    cx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let rowlock = Rowlock::open(&format!("sqlite:{}", folder.path().join("locks.db").display()))?;
    rowlock.migrate().await?;
    let mut ids = Vec::new();
    for customer in ["ada", "acme"] {
        ids.extend(
            rowlock
                .enqueue_all_now((0..6).map(|_| SyncAccount {
                    customer: customer.to_owned(),
                }))
                .await?,
        );
    }

    let (crm, (stop, stopped)) = (Crm::default(), oneshot::channel::<()>());
    let worker = Worker::new(&rowlock)
        .state(crm.clone())
        .queue("default", 12)
        .connections(1);
    let worker = worker.handle(staged(sync_account));
    let running = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    let mut done = 0;
    for id in ids {
        let awaited = rowlock.wait(id).timeout(Duration::from_secs(30)).await?;
        done += u32::from(matches!(awaited, Awaited::Done(_)));
    }
    let _ = stop.send(());
    running.await??;
    println!("{done} jobs done");
    for customer in ["ada", "acme"] {
        println!("{customer}: at most {} at once", crm.most(customer));
    }
    Ok(())
}
