//! The application of the demo: a shop whose orders are three jobs in a chain. This is all the code that a user of the
//! library would write; nothing here knows that workers die.

use std::net::SocketAddr;

use rowlock::{Ctx, EffectKey, Fail, Job, Outcome, Rowlock, Staged, Tx, Worker, atomic, staged};
use serde::{Deserialize, Serialize};

use super::super::{
    backoff, bare_worker,
    desk::{self, Account, Failure},
    own::Tables,
};

/// How many different things the shop sells.
pub(crate) const ITEMS: i64 = 8;

// Every kill takes an attempt from the jobs it hits, and the demo kills often.
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
pub(crate) const SCHEMA: &str = "
    create table demo_stock (item bigint not null, at_start bigint not null, remaining bigint not null);
    create table demo_order (order_id bigint not null, item bigint not null);
    create table demo_reservation (order_id bigint not null, item bigint not null);
    create table demo_payment (order_id bigint not null, receipt bigint not null);
    create table demo_receipt (order_id bigint not null, mail bigint not null);";

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

/// Staged: the external call carries a key that is the same on every attempt. Its answer, the outcome and the next job
/// commit together.
async fn charge<DB: Tables>(cx: Staged<Shop, DB>, job: ChargePayment) -> Outcome<DB> {
    let provider = cx.state().provider;
    let receipt: i64 = cx
        .effect("charge", |key| ask(provider, "charge", job.order, key))
        .await?;
    let note = cx
        .state()
        .sql("insert into demo_payment (order_id, receipt) values ($1, $2)");
    let mut tx = cx.begin().await?;
    DB::change(&mut tx, note, vec![job.order, receipt]).await?;
    tx.done().then(SendReceipt { order: job.order }).ok()
}

async fn send_receipt<DB: Tables>(cx: Staged<Shop, DB>, job: SendReceipt) -> Outcome<DB> {
    let provider = cx.state().provider;
    let mail: i64 = cx.effect("mail", |key| ask(provider, "mail", job.order, key)).await?;
    let note = cx
        .state()
        .sql("insert into demo_receipt (order_id, mail) values ($1, $2)");
    let mut tx = cx.begin().await?;
    DB::change(&mut tx, note, vec![job.order, mail]).await?;
    tx.done().ok()
}

/// The provider honours keys, and answers late or not at all.
async fn ask(provider: SocketAddr, what: &str, order: i64, key: EffectKey) -> std::io::Result<i64> {
    let asked = desk::ask(provider, what, Account::Keyed, order, key.into()).await;
    asked.map_err(|failure| match failure {
        Failure::Refused => std::io::Error::other("the provider refused"),
        Failure::Unknown(error) => error,
    })
}

/// A worker of the shop.
pub(crate) fn worker<DB: Tables>(rowlock: &Rowlock<DB>, shop: Shop) -> Worker<Shop, DB> {
    bare_worker(rowlock, shop)
        .handle(atomic(reserve::<DB>).backoff(backoff()))
        .handle(staged(charge::<DB>).backoff(backoff()))
        .handle(staged(send_receipt::<DB>).backoff(backoff()))
}
