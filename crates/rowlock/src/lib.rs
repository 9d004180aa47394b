//! Background jobs whose effects happen exactly once.
//!
//! A job is a row beside your data; "done" is part of your commit. Start with the README's example, then [`Worker`],
//! [`Rowlock::enqueue`] and the two kinds of handler, [`atomic`] and [`staged`].
//!
//! | you want to | look at |
//! |---|---|
//! | use one database with short type names | [`postgres`], [`sqlite`] |
//! | put jobs in, with options and keys | [`Rowlock::enqueue`], [`enqueue`], [`key`] |
//! | write handlers | [`atomic`], [`staged`], [`handle`], [`effect`] |
//! | run them | [`Worker`], [`Handler`], [`Backoff`], [`breaker`], [`Retention`] |
//! | test them | [`rig`] |
//! | see what happens | [`event`], [`observe`] |
//! | act as an operator | [`operate`], [`Admin`] |
//! | run jobs from an existing table | `adopt`, on PostgreSQL |
//!
//! The modules of this crate, in the order a job travels:
//!
//! - nouns, plain data: `job`, `id`, [`key`], `lease`, `case`, [`effect`], [`event`], `state` (which alone decides),
//!   `backoff`, [`breaker`], `pause`, `retention`, `table`, [`error`]
//! - `store`: the storage contract, and one backend per database behind it
//! - verbs: [`enqueue`] → `complete` → `claim` → [`handle`] → `settle` → `recover` → [`observe`] → `trigger` →
//!   [`operate`]
//! - `attempt`: the path of an attempt, shared by leased jobs and claimed rows of a user's table
//! - `worker`: the loop that composes them; `adopt`: the same loop over a user's table
//!
//! Features with a heavy dependency are separate crates: `rowlock-axum` answers repeated requests, `rowlock-otel`
//! measures, `rowlock-redis` is a first check that saves work.

#![warn(missing_debug_implementations)]

extern crate self as rowlock;

mod admin;
#[cfg(feature = "postgres")]
pub mod adopt;
mod attempt;
mod backoff;
pub mod breaker;
mod case;
mod claim;
mod complete;
mod debug;
pub mod effect;
pub mod enqueue;
pub mod error;
pub mod event;
mod fault;
mod group;
pub mod handle;
mod id;
mod job;
pub mod key;
mod lease;
pub mod observe;
pub mod operate;
mod pause;
mod recover;
mod retention;
pub mod rig;
mod root;
mod settle;
mod state;
#[allow(
    missing_debug_implementations,
    reason = "private; some of it is public for the traits of `Backend` alone"
)]
mod store;
#[cfg(feature = "postgres")]
mod table;
pub mod trace;
mod trigger;
mod worker;

#[cfg(feature = "__counts")]
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod counts;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// Fills in [`Job`] from attributes:
/// `#[derive(Serialize, Deserialize, Job)] #[job(kind = "…", queue = "…", attempts = 8)]`.
pub use rowlock_macros::Job;

pub use crate::{
    admin::{Admin, NamedJob},
    backoff::Backoff,
    breaker::Breaker,
    complete::Completed,
    effect::{OnUnknown, Verdict},
    enqueue::JobOptions,
    error::{AlreadyHandled, Error, NotDone, Result},
    event::{Counters, Event},
    group::Group,
    handle::{
        Applied, Attempt, Batch, Ctx, Done, EffectKey, Fail, Guard, Handler, NamedKind, Once, Outcome, RawJob, Staged,
        Tx, atomic, staged,
    },
    id::JobId,
    job::{Job, Limits},
    key::{Enqueued, Hold},
    retention::Retention,
    root::{Backend, BegunByHand, InTransaction, Rowlock},
    state::{Ended, State},
    store::Isolation,
    trigger::Triggered,
    worker::Worker,
};
