//! The application of the scene: one job per order, which calls the provider and notes the payment. This is all the
//! code that a user of the library would write; nothing here knows that workers die or that replies are lost.

use std::net::SocketAddr;

use rowlock::{EffectKey, Fail, Job, NotDone, OnUnknown, Outcome, Rowlock, Staged, Worker, staged};
use serde::{Deserialize, Serialize};

use super::super::{
    backoff, bare_worker,
    desk::{self, Account, Failure},
    own::Tables,
};

// Every kill takes an attempt from the jobs it hits, and the demo kills often.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge-order", queue = "demo", attempts = 50)]
pub(crate) struct ChargeOrder {
    pub(crate) order: i64,
    pub(crate) account: Account,
}

/// Every other order goes to the account that ignores keys.
pub(crate) fn account(order: i64) -> Account {
    if order % 2 == 0 {
        Account::Keyed
    } else {
        Account::Keyless
    }
}

/// What the handlers share.
pub(crate) struct Shop {
    pub(crate) prefix: String,
    pub(crate) provider: SocketAddr,
    /// Calls again in every doubt, as if all providers honoured keys.
    pub(crate) careless: bool,
}

/// The shop's tables. No unique index anywhere: if something happened twice, there are two rows to see.
pub(crate) const SCHEMA: &str = "
    create table demo_order (order_id bigint not null);
    create table demo_payment (order_id bigint not null, receipt bigint not null);";

/// Staged: the intent is stored before the call, the reply after it. If the outcome of a call is unknown, the provider
/// decides what follows: call again under the same key, or leave it to a person.
async fn charge<DB: Tables>(cx: Staged<Shop, DB>, job: ChargeOrder) -> Outcome<DB> {
    let policy = match job.account {
        Account::Keyless if !cx.state().careless => OnUnknown::Park,
        _ => OnUnknown::RetryWithKey,
    };
    let provider = cx.state().provider;
    let receipt: i64 = cx
        .effect("charge", |key| ask(provider, &job, key))
        .on_unknown(policy)
        .await?;
    let note = format!(
        "insert into {}payment (order_id, receipt) values ($1, $2)",
        cx.state().prefix
    );
    let mut tx = cx.begin().await?;
    DB::change(&mut tx, note, vec![job.order, receipt]).await?;
    tx.done().ok()
}

/// Calls the provider. Only an explicit refusal says that nothing was charged; any other failure says nothing.
async fn ask(provider: SocketAddr, job: &ChargeOrder, key: EffectKey) -> Result<i64, Fail> {
    let asked = desk::ask(provider, "charge", job.account, job.order, key.into()).await;
    asked.map_err(|failure| match failure {
        Failure::Refused => NotDone::because("the provider is busy").into(),
        Failure::Unknown(error) => error.into(),
    })
}

/// A worker of the shop.
pub(crate) fn worker<DB: Tables>(rowlock: &Rowlock<DB>, shop: Shop) -> Worker<Shop, DB> {
    bare_worker(rowlock, shop).handle(staged(charge::<DB>).backoff(backoff()))
}
