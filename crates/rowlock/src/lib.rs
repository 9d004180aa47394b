//! Background jobs whose effects happen exactly once.
//!
//! A job is a row beside your data; "done" is part of your commit. The map of this crate, in the order a job travels:
//!
//! - nouns, plain data: `job`, `key`, `lease`, `case`, `event`, `state` (which alone decides), `backoff`, `error`
//! - `store`: the storage contract, and one room per database behind it
//! - verbs: `enqueue` → `claim` → `handle` → `settle` → `recover` → `observe` → `operate`
//! - `worker`: the loop that composes them
//! - doors: [`postgres`] and [`sqlite`] give every type its short name; [`Admin`] serves either database by URL
//!
//! Start with the README's example, then [`Worker`], [`Rowlock::enqueue`] and the handler shapes [`Worker::atomic`] and
//! [`Worker::staged`].

extern crate self as rowlock;

mod admin;
mod backoff;
mod case;
mod claim;
mod enqueue;
mod error;
mod event;
mod fault;
mod handle;
mod job;
mod key;
mod lease;
mod observe;
mod operate;
mod recover;
pub mod rig;
mod root;
mod settle;
mod state;
mod store;
mod worker;

#[cfg(feature = "axum")]
pub mod axum;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// Fills in [`Job`] from attributes: `#[derive(Serialize, Deserialize, Job)] #[job(kind = "…", queue = "…", attempts = 8)]`.
pub use rowlock_macros::Job;

pub use crate::{
    admin::{Admin, NamedJob},
    backoff::Backoff,
    case::CaseView,
    enqueue::{Enqueue, EnqueueAll, Enqueued, JobOptions},
    error::{AlreadyHandled, Error, Result},
    event::{Counters, Event},
    handle::{
        Answer, Applied, Attempt, Ctx, Done, EffectKey, Fail, LookOnce, Once, OnceSlot, Outcome, Prepare, Staged,
        TakeOnce, Tx,
    },
    job::{Job, Limits},
    key::Hold,
    lease::{Token, WorkerId},
    observe::{AttemptView, JobFilter, JobView, LaneStatus, Observe, Status, WorkerStatus},
    operate::Operate,
    root::{Backend, InTransaction, Rowlock},
    state::{Ended, State},
    worker::Worker,
};
