//! Background jobs whose effects happen exactly once.
//!
//! A job is a row beside your data; "done" is part of your commit. The map of this crate, in the order a job travels:
//!
//! - nouns, plain data: `job`, `key`, `lease`, `case`, `effect`, `event`, `state` (which alone decides), `backoff`,
//!   `breaker`, `pause`, `retention`, `table`, `error`
//! - `store`: the storage contract, and one room per database behind it
//! - verbs: `enqueue` → `complete` → `claim` → `handle` → `settle` → `recover` → `observe` → `trigger` → `operate`
//! - `worker`: the loop that composes them; `adopt`: the same over a table of the user's own
//! - doors: [`postgres`] and [`sqlite`] give every type its short name; [`Admin`] serves either database by URL;
//!   with their features, `axum` answers repeated requests and `redis` is a first look that spares work; [`rig`] is for
//!   the tests of your handlers
//!
//! Start with the README's example, then [`Worker`], [`Rowlock::enqueue`] and the handler shapes [`atomic`] and [`staged`].

#![warn(missing_debug_implementations)]

extern crate self as rowlock;

mod admin;
#[cfg(feature = "postgres")]
mod adopt;
mod backoff;
mod breaker;
mod case;
mod claim;
mod complete;
mod debug;
mod effect;
mod enqueue;
mod error;
mod event;
mod fault;
mod group;
mod handle;
mod job;
mod key;
mod lease;
mod observe;
mod operate;
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
mod trace;
mod trigger;
mod worker;

#[cfg(feature = "axum")]
#[allow(missing_debug_implementations)]
pub mod axum;
#[cfg(feature = "__counts")]
#[doc(hidden)]
#[allow(missing_debug_implementations)]
pub mod counts;
#[cfg(feature = "otel")]
#[allow(missing_debug_implementations)]
pub mod otel;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
#[allow(missing_debug_implementations)]
pub mod redis;
#[cfg(feature = "sqlite")]
pub mod sqlite;

/// Fills in [`Job`] from attributes: `#[derive(Serialize, Deserialize, Job)] #[job(kind = "…", queue = "…", attempts = 8)]`.
pub use rowlock_macros::Job;

pub use crate::{
    admin::{Admin, NamedJob},
    backoff::Backoff,
    breaker::{Breaker, BreakerChange, BreakerState, BreakerView, Force},
    case::{CaseErrorView, CaseView},
    complete::Completed,
    effect::{EffectFilter, EffectState, EffectView, OnUnknown, Resolution, Verdict},
    enqueue::{Enqueue, EnqueueAll, EnqueueKeyed, JobOptions},
    error::{AlreadyHandled, Error, Meaning, NotDone, Result},
    event::{Counters, Event, Skipped},
    group::Group,
    handle::{
        Answer, Applied, AtomicContext, Attempt, Batch, BodyLock, Ctx, Done, Effect, EffectKey, Fail, Guard, Guards,
        Handler, LookOnce, NamedKind, Once, OnceSlot, Outcome, Prepare, RawJob, RolloutCount, Staged, StagedContext,
        TakeLock, TakeOnce, Transition, Tx, atomic, staged,
    },
    job::{Job, Limits},
    key::{Enqueued, Existing, Hold},
    lease::{Token, WorkerId},
    observe::{
        AttemptView, AuditFilter, AuditView, Awaited, Breach, CheckState, CheckView, Finding, Health, Invariant,
        JobFilter, JobView, LaneStatus, Observe, RolloutView, Standing, Status, Untaken, Verification, VerifyLimits,
        Wait, WorkerStatus,
    },
    operate::{Operate, Pruned, Reopened},
    pause::{PauseView, Target},
    retention::Retention,
    root::{Backend, InTransaction, Rowlock},
    state::{Ended, State},
    store::{Isolation, transition::RowId},
    trigger::Triggered,
    worker::Worker,
};
#[cfg(feature = "postgres")]
pub use crate::{
    adopt::{Adopted, RowAttempt, RowCtx, RowDone, RowEffect, RowHandler, RowOutcome, RowStaged, RowTx, RowWorker},
    table::{ColumnFound, Columns, Inspection, Part, TableName},
};
