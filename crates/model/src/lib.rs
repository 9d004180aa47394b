//! A model of the claim protocol, searched state by state.
//!
//! The suites under `crates/proof` run the library itself and meet the interleavings that happen. The model meets every
//! interleaving within bounds: claims, handlers' transactions, commits whose reply is lost, heartbeats, recovery,
//! processes that die or freeze, and an operator, each step between any two steps of the others. [`rule`] says what
//! must hold, and judges only the tables. [`Bug`] breaks the protocol in one place at a time, and for each bug the
//! search must find the rule that it breaks. If no mistake could break a rule, the search might not check the rule at
//! all.
//!
//! The model does not repeat where an outcome leads: [`outcome`] is the library's own file. The rest follows the
//! statements, one step per commit:
//!
//! | step | in the library |
//! |---|---|
//! | [`Claim`](step::Step::Claim), [`Take`](step::Step::Take) | `claim/take.sql`: the worker's row is held, then the job taken; a worker may be declared dead between |
//! | [`Settle`](step::Step::Settle), [`Send`](step::Step::Send) | `settle/one.sql` in the handler's transaction, then its commit |
//! | [`PassOn`](step::Step::PassOn) | both in one string: nothing is locked while it is on its way |
//! | [`Land`](step::Step::Land), [`Abort`](step::Step::Abort), [`Hear`](step::Step::Hear), [`Cut`](step::Step::Cut) | a commit is carried out or not, and its reply arrives or not: four outcomes |
//! | [`Look`](step::Step::Look) | the connection is ended where that is needed, `settle/resolve_lock.sql`, then `settle/resolve_outcome.sql` |
//! | [`Fail`](step::Step::Fail), [`TimeLimit`](step::Step::TimeLimit), [`SettleFailed`](step::Step::SettleFailed) | `settle/attempts.sql` |
//! | [`Beat`](step::Step::Beat) | `worker/beat.sql`, `worker/register.sql` |
//! | [`Sweep`](step::Step::Sweep) | `worker/leases.sql`, then `settle/attempts.sql` |
//! | [`MarkDead`](step::Step::MarkDead), [`Expire`](step::Step::Expire), [`Forget`](step::Step::Forget) | `worker/mark_dead.sql`, `worker/expire.sql`, `worker/lock_dead.sql` with `worker/forget_dead.sql` |
//! | [`Reopen`](step::Step::Reopen) | `case/reopen.sql` |
//!
//! **Time** is not a number here. A frozen or slow process takes no step, and any process may do that at any time, for
//! as long as it likes. A [`Pause`](step::Step::Pause) also makes its last heartbeat too old. No process is stopped
//! because it took too long, and a body goes on past its time limit. So the rules rest on tokens and locks, never on
//! the cut-off that a worker sets itself.
//!
//! **Liveness.** Stateright's `eventually` overlooks paths that end in a circle or meet another path. So liveness is
//! split into two things that it can check. No state follows itself (a test walks the whole graph), so every path ends.
//! And wherever only faults and the operator could still move something, every job is terminal. Together they say that
//! every job ends once faults stop, whatever happened before.
//!
//! **Bounds.** [`Bounds::usual`] is what the tests search: one job and the link that follows it, two processes, two
//! concurrent attempts, two attempts before a case, and one crash, one pause, two lost replies and one reopen at any
//! time. Only the attempts bound body failures, time limits and aborted commits. [`Bounds::large`] has two
//! jobs for three processes, and two of each fault. Processes are alike and worker ids mean nothing, so worlds that
//! differ in their numbers alone are folded into one; a test searches without that and comes to the same states.
//!
//! **To run it**: `cargo run --release -p model`, with `-- --large` for the large bounds (some ten million states each)
//! and `-- --paths` to see how each mistake comes to light. `cargo test -p model` is part of every run of the tests.
//!
//! **Not in the model**: keys, groups, waits, effects and staged handlers, guards, several jobs in one commit, jobs
//! that are deferred or cancelled, and a failover that loses commits. Batches of the engine's own settlements are one
//! step, since they are sent again until they are answered. It is PostgreSQL's protocol: on SQLite there is one writer,
//! so that fewer things can happen at the same time, and a frozen handler holds up the others until it goes on or is
//! ended. States are compared by a hash of 64 bits, as stateright does it.

#![forbid(unsafe_code)]

mod attempt;
mod bounds;
mod bug;
mod fold;
mod protocol;
pub mod rule;
mod search;
pub mod step;
mod tables;
pub mod world;

#[path = "../../rowlock/src/state.rs"]
pub mod outcome;

pub use crate::{
    bounds::Bounds,
    bug::Bug,
    protocol::{Protocol, REACHED},
    rule::Rule,
    search::{Found, search, shortest},
};
