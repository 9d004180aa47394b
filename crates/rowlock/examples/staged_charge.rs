//! A staged handler and its stable key: the provider charges, its first reply is lost, the retry carries the same key,
//! and the customer is charged once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use rowlock::{
    Backoff, EffectKey, Ended, Event, Job,
    sqlite::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::Notify;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge-payment", attempts = 5, time_limit = "30s")]
struct ChargePayment {
    order_id: i64,
}

/// A payment provider that honours idempotency keys, as real ones do: the same key is the same charge.
#[derive(Clone, Default)]
struct Provider(Arc<Mutex<Books>>);

#[derive(Default)]
struct Books {
    calls: Vec<String>,
    charges: HashMap<String, String>,
}

impl Provider {
    async fn charge(&self, cents: i64, key: EffectKey) -> Result<String, std::io::Error> {
        let mut books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        books.calls.push(key.to_string());
        let number = books.charges.len() + 1;
        let id = books
            .charges
            .entry(key.into())
            .or_insert_with(|| format!("ch_{number} over {cents} cents"))
            .clone();
        match books.calls.len() {
            1 => Err(std::io::Error::other("connection reset before the reply arrived")),
            _ => Ok(id),
        }
    }

    fn report(&self) -> String {
        let books = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (calls, charges) = (books.calls.len(), books.charges.len());
        let same = books.calls.windows(2).all(|pair| pair[0] == pair[1]);
        format!("calls {calls}, the same key each time: {same}, charges {charges}")
    }
}

async fn charge(mut cx: Staged<Provider>, job: ChargePayment) -> Outcome {
    let mut read = cx.prepare().await?; // read-only; nothing is held once it is committed
    let select = sqlx::query_scalar("select cents from orders where id = $1");
    let cents: i64 = select.bind(job.order_id).fetch_one(&mut *read).await?;
    read.commit().await?;

    let provider = cx.state().clone();
    let payment = cx
        .effect("charge", |key| async move { provider.charge(cents, key).await })
        .await?;

    let mut tx = cx.begin().await?; // the reply, the outcome and any next link: one commit
    let update = sqlx::query("update orders set payment = $1 where id = $2");
    update.bind(payment).bind(job.order_id).execute(&mut *tx).await?;
    tx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("charge.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let tables = "create table orders (id integer primary key, cents integer not null, payment text);
                  insert into orders values (7, 800, null)";
    sqlx::raw_sql(tables).execute(&mut db).await?;
    let id = rowlock.enqueue_now(ChargePayment { order_id: 7 }).await?.id();

    let (provider, done) = (Provider::default(), Arc::new(Notify::new()));
    let notify = done.clone();
    let soon = Backoff::new()
        .base(Duration::from_millis(20))
        .max(Duration::from_secs(1));
    let worker = Worker::new(&rowlock)
        .state(provider.clone())
        .queue("default", 4)
        .handle(staged(charge).backoff(soon));
    let worker = worker.on_event(move |event| {
        if matches!(event, Event::Settled { ended: Ended::Done, .. }) {
            notify.notify_one();
        }
    });
    worker.run_until(done.notified()).await?;

    for attempt in rowlock.observe().attempts(id).await? {
        let error = attempt.error.map_or(String::new(), |error| format!(": {error}"));
        println!("attempt {}: {}{error}", attempt.attempt, attempt.outcome.as_str());
    }
    println!("{}", provider.report());
    let payment: String = sqlx::query_scalar("select payment from orders")
        .fetch_one(&mut db)
        .await?;
    println!("order 7 is paid by {payment}");
    Ok(())
}
