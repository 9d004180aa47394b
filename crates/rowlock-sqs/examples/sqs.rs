//! A job that a pointer in an SQS queue triggers: the bridge sends the pointer, receives it, and deletes it.

use std::sync::Arc;

use rowlock::{Admin, Event, Job, sqlite::*};
use rowlock_sqs::{Bridge, Config, Role};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "greet", queue = "greetings")]
struct Greet {
    name: String,
}

async fn greet(_cx: Ctx, job: Greet, tx: Tx) -> Outcome {
    println!("hello, {}", job.name);
    tx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("sqs.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;

    let client = rowlock_sqs::connect(None).await;
    let made = client.create_queue().queue_name("greetings").send().await?;
    let mut config = Config::new(made.queue_url.unwrap_or_default(), "greetings");
    config.role = Role::Both;
    let bridge = Bridge::new(Admin::open(&url, "rowlock")?, client, config)?;
    let (relay, counts) = (bridge.relay(), bridge.counts());

    let job = Greet { name: "world".into() };
    let id = rowlock.enqueue_now(job).on_trigger().await?.id(); // nobody takes it yet
    relay.hint(id); // after the commit; without this line the sweep sends the pointer a second later

    let settled = Arc::new(Notify::new());
    let notify = settled.clone();
    let worker = Worker::new(&rowlock).queue("greetings", 4).handle(atomic(greet));
    let worker = worker.on_event(move |event| {
        if let Event::Settled { .. } = event {
            notify.notify_one();
        }
    });
    let work = worker.run_until(settled.notified()); // a program gives its stop signal here
    let deleted = async {
        while counts.read().deleted == 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    let (worked, bridged) = tokio::join!(work, bridge.run_until(deleted));
    worked?;
    bridged?;

    let count = counts.read();
    println!("triggered {}, deleted {}", count.triggered, count.deleted);
    Ok(())
}
