//! The application of the demo: a shop whose orders are three jobs in a chain. This is all the code that a user of the
//! library would write; nothing here knows that workers die.

use std::{net::SocketAddr, time::Duration};

use rowlock::{Backoff, Ctx, EffectKey, Fail, Job, Outcome, Rowlock, Staged, Tx, Worker};
use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::TcpStream,
};

use super::super::own::Tables;

/// How many different things the shop sells.
pub(crate) const ITEMS: i64 = 8;
/// How long a silent worker keeps its jobs: the shortest there is, so that the demo need not wait long for them.
pub(crate) const LEASE: Duration = Duration::from_secs(2);
/// How long the shop waits for a provider's answer.
const PATIENCE: Duration = Duration::from_secs(2);

// Every kill takes an attempt from the jobs it hits, and the demo hands out many.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "reserve-stock", queue = "demo", attempts = 50)]
pub(crate) struct ReserveStock {
    pub(crate) order: i64,
    pub(crate) item: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge-payment", queue = "demo", attempts = 50)]
pub(crate) struct ChargePayment {
    pub(crate) order: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "send-receipt", queue = "demo", attempts = 50)]
pub(crate) struct SendReceipt {
    pub(crate) order: i64,
}

/// What the handlers share.
pub(crate) struct Shop {
    pub(crate) prefix: String,
    pub(crate) provider: SocketAddr,
}

impl Shop {
    fn sql(&self, sql: &str) -> String {
        sql.replace("demo_", &self.prefix)
    }
}

/// The shop's tables. No unique index anywhere: if something happened twice, there are two rows to see.
pub(crate) fn schema(prefix: &str) -> String {
    "create table demo_stock (item bigint not null, at_start bigint not null, remaining bigint not null);
     create table demo_order (order_id bigint not null, item bigint not null);
     create table demo_reservation (order_id bigint not null, item bigint not null);
     create table demo_payment (order_id bigint not null, receipt bigint not null);
     create table demo_receipt (order_id bigint not null, mail bigint not null);"
        .replace("demo_", prefix)
}

/// Atomic: the stock, the reservation, the outcome and the next job commit together, or not at all.
async fn reserve<DB: Tables>(cx: Ctx<Shop, DB>, job: ReserveStock, mut tx: Tx<DB>) -> Outcome<DB> {
    let take = cx
        .state()
        .sql("update demo_stock set remaining = remaining - 1 where item = $1 and remaining > 0");
    if DB::change(&mut tx, take, vec![job.item]).await? == 0 {
        return Err(Fail::retire("sold out"));
    }
    let note = cx
        .state()
        .sql("insert into demo_reservation (order_id, item) values ($1, $2)");
    DB::change(&mut tx, note, vec![job.order, job.item]).await?;
    tx.done().then(ChargePayment { order: job.order }).ok()
}

/// Staged: the call outside carries a key that is the same on every attempt; its answer, the outcome and the next job
/// commit together.
async fn charge<DB: Tables>(cx: Staged<Shop, DB>, job: ChargePayment) -> Outcome<DB> {
    let provider = cx.state().provider;
    let receipt: i64 = cx
        .effect("charge", |key| ask(provider, "charge", job.order, key))
        .await?;
    let note = cx
        .state()
        .sql("insert into demo_payment (order_id, receipt) values ($1, $2)");
    let mut tx = cx.settle().await?;
    DB::change(&mut tx, note, vec![job.order, receipt]).await?;
    tx.done().then(SendReceipt { order: job.order }).ok()
}

async fn send_receipt<DB: Tables>(cx: Staged<Shop, DB>, job: SendReceipt) -> Outcome<DB> {
    let provider = cx.state().provider;
    let mail: i64 = cx.effect("mail", |key| ask(provider, "mail", job.order, key)).await?;
    let note = cx
        .state()
        .sql("insert into demo_receipt (order_id, mail) values ($1, $2)");
    let mut tx = cx.settle().await?;
    DB::change(&mut tx, note, vec![job.order, mail]).await?;
    tx.done().ok()
}

/// One request to the provider: a line there, a line back.
#[derive(Serialize, Deserialize)]
pub(crate) struct Request {
    /// The process that asks; the demo takes aim with it.
    pub(crate) pid: u32,
    pub(crate) what: String,
    pub(crate) order: i64,
    pub(crate) key: String,
}

async fn ask(provider: SocketAddr, what: &str, order: i64, key: EffectKey) -> std::io::Result<i64> {
    let request = Request {
        pid: std::process::id(),
        what: what.to_owned(),
        order,
        key: key.into(),
    };
    let line = format!("{}\n", serde_json::to_string(&request)?);
    let talk = async {
        let mut stream = TcpStream::connect(provider).await?;
        stream.write_all(line.as_bytes()).await?;
        let mut reply = String::new();
        BufReader::new(stream).read_line(&mut reply).await?;
        reply
            .trim()
            .parse()
            .map_err(|_| std::io::Error::other("the provider hung up without an answer"))
    };
    tokio::time::timeout(PATIENCE, talk).await?
}

/// A worker of the shop. Small bites, so that a kill takes little with it.
pub(crate) fn worker<DB: Tables>(rowlock: &Rowlock<DB>, shop: Shop, name: String) -> Worker<Shop, DB> {
    let backoff = Backoff {
        base: Duration::from_millis(200),
        max: Duration::from_secs(1),
    };
    Worker::new(rowlock)
        .state(shop)
        .name(name)
        .queue("demo", 4)
        .prefetch(2)
        .lease(LEASE)
        .grace(LEASE)
        .atomic(reserve::<DB>)
        .backoff(backoff)
        .staged(charge::<DB>)
        .backoff(backoff)
        .staged(send_receipt::<DB>)
        .backoff(backoff)
}
