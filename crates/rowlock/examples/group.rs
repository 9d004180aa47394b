//! Postings of two accounts: in order within an account, beside each other between them, and a failure holds its own
//! account only.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rowlock::{
    Backoff, Ended, Event, Fail, Job,
    sqlite::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "posting")]
struct Posting {
    account: String,
    no: u32,
}

#[derive(Default)]
struct Book {
    postings: Mutex<Vec<String>>,
    failures: AtomicUsize,
}

async fn post(cx: Staged<Arc<Book>>, job: Posting) -> Outcome {
    let book = cx.state();
    // The bank of ada is away for a moment.
    if job.account == "ada" && book.failures.fetch_add(1, Ordering::SeqCst) == 0 {
        return Err(Fail::retry("the bank is away"));
    }
    if let Ok(mut postings) = book.postings.lock() {
        postings.push(format!("{} {}", job.account, job.no));
    }
    cx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let rowlock = Rowlock::open(&format!("sqlite:{}", folder.path().join("book.db").display()))?;
    rowlock.migrate().await?;
    let accounts = ["ada", "bob"].into_iter();
    let postings = accounts.flat_map(|account| {
        (1..=3).map(move |no| Posting {
            account: account.to_owned(),
            no,
        })
    });
    let enqueue = rowlock.enqueue_all_now(postings);
    enqueue
        .group_by(|posting| format!("account:{}", posting.account))
        .await?;

    let book = Arc::new(Book::default());
    let done = Arc::new(tokio::sync::Semaphore::new(0));
    let count = done.clone();
    let worker = Worker::new(&rowlock)
        .state(book.clone())
        .queue("default", 4)
        .handle(staged(post).backoff(Backoff::new().base(Duration::from_secs(2)).max(Duration::from_secs(2))))
        .on_event(move |event| {
            if let Event::Settled { ended: Ended::Done, .. } = event {
                count.add_permits(1);
            }
        });
    let all = async move {
        let _all = done.acquire_many(6).await;
    };
    worker.run_until(all).await?;

    let postings = book
        .postings
        .lock()
        .map_err(|_| anyhow::anyhow!("a posting panicked"))?;
    println!("{}", postings.join(", "));
    Ok(())
}
