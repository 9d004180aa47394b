//! A till that is down: after two failures nobody calls it any more, and a probe notices when it is back.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rowlock::{
    Backoff, Breaker, Event, Fail, Job,
    breaker::BreakerState,
    sqlite::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge")]
struct Charge {
    order: i64,
}

#[derive(Default)]
struct Till {
    up: AtomicBool,
    calls: AtomicUsize,
}

async fn charge(cx: Staged<Arc<Till>>, job: Charge) -> Outcome {
    let till = cx.state();
    till.calls.fetch_add(1, Ordering::SeqCst);
    tokio::time::sleep(Duration::from_millis(300)).await;
    if !till.up.load(Ordering::SeqCst) {
        return Err(Fail::dependency("till", format!("no answer for order {}", job.order)));
    }
    cx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let rowlock = Rowlock::open(&format!("sqlite:{}", folder.path().join("till.db").display()))?;
    rowlock.migrate().await?;
    rowlock.enqueue_all_now((1..=6).map(|order| Charge { order })).await?;

    let till = Arc::new(Till::default());
    let done = Arc::new(tokio::sync::Semaphore::new(0));
    let (repair, count) = (till.clone(), done.clone());
    let worker = Worker::new(&rowlock)
        .state(till.clone())
        .queue("default", 1)
        .handle(
            staged(charge)
                .backoff(Backoff::new().base(Duration::from_secs(1)).max(Duration::from_secs(1)))
                .breaker("till", Breaker::after(2).cooldown(Duration::from_secs(1))),
        )
        .on_event(move |event| match event {
            Event::BreakerChanged { name, state, .. } => {
                println!("{name} is {state}");
                if *state == BreakerState::Open {
                    // Somebody fixes it meanwhile.
                    repair.up.store(true, Ordering::SeqCst);
                }
            }
            Event::Settled { ended, .. } if *ended == rowlock::Ended::Done => count.add_permits(1),
            _ => {}
        });
    let all = async move {
        let _all = done.acquire_many(6).await;
    };
    worker.run_until(all).await?;

    let failed = till.calls.load(Ordering::SeqCst) - 6;
    println!("6 orders charged; {failed} calls were made in vain");
    Ok(())
}
