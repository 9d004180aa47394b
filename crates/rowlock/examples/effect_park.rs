//! A parked effect: the bank ignores keys and its answer is lost, so the job becomes a case instead of paying twice. A
//! person looks at the bank's books, says what happened, and the job goes on from there.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use rowlock::{
    Event, Job,
    effect::Resolution,
    sqlite::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "pay-out", attempts = 5)]
struct PayOut {
    invoice: i64,
    cents: i64,
}

/// A bank that pays whenever it is asked, and whose first answer does not arrive.
#[derive(Clone, Default)]
struct Bank(Arc<AtomicUsize>);

impl Bank {
    async fn pay(&self, cents: i64) -> Result<String, std::io::Error> {
        let number = self.0.fetch_add(1, Ordering::Relaxed) + 1;
        match number {
            1 => Err(std::io::Error::other("connection reset before the answer arrived")),
            _ => Ok(format!("transfer {number} over {cents} cents")),
        }
    }
}

async fn pay_out(cx: Staged<Bank>, job: PayOut) -> Outcome {
    let bank = cx.state();
    let transfer: String = cx
        .effect("transfer", |_key| bank.pay(job.cents))
        .request(&(job.invoice, job.cents))
        .park() // the bank ignores keys: never call it again while the outcome is unknown
        .await?;
    cx.done().result(&transfer).ok()
}

/// Works until the job's attempt has ended.
async fn work(rowlock: &Rowlock, bank: &Bank) -> anyhow::Result<()> {
    let ended = Arc::new(Notify::new());
    let notify = ended.clone();
    let worker = Worker::new(rowlock)
        .state(bank.clone())
        .queue("default", 4)
        .handle(staged(pay_out))
        .on_event(move |event| {
            if let Event::Settled { .. } = event {
                notify.notify_one();
            }
        });
    worker.run_until(ended.notified()).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let rowlock = Rowlock::open(&format!("sqlite:{}", folder.path().join("pay.db").display()))?;
    rowlock.migrate().await?;
    let bank = Bank::default();
    let job = PayOut { invoice: 7, cents: 800 };
    let id = rowlock.enqueue_now(job).await?.id();

    work(&rowlock, &bank).await?;
    let doubtful = rowlock::effect::EffectFilter::new().doubtful();
    for effect in rowlock.observe().effects(&doubtful).await? {
        let (state, policy) = (effect.state.as_str(), &effect.policy);
        println!("effect {} {:?}: {state}, policy {policy}", effect.no, effect.name);
        println!("  heard: {}", effect.error.unwrap_or_default());
        // Here a person looks at the bank's books and finds the transfer; `rowlock effect resolve` does the same.
        let found = Resolution::Happened("transfer 1 over 800 cents".into());
        let job = rowlock.operate().resolve_effect(effect.no, found, "ada").await?;
        rowlock.operate().reopen(job, "ada").await?;
        println!("  resolved by ada: it happened; job {job} reopened");
    }

    work(&rowlock, &bank).await?;
    let job = rowlock
        .observe()
        .job(id)
        .await?
        .ok_or_else(|| anyhow::anyhow!("the job is gone"))?;
    println!(
        "job {id}: {}, result {}",
        job.state.as_str(),
        job.result.unwrap_or_default()
    );
    println!("the bank was asked {} time", bank.0.load(Ordering::Relaxed));
    Ok(())
}
