//! A bridge between Rowlock and Amazon SQS. The queue outside is a hint; the row is the truth.
//!
//! A message is a pointer to a job, which it triggers now, or a foreign message, which becomes a job under its own key.
//! It is held, with its visibility extended, while the attempt runs that it started, and **always deleted** once the
//! row says that the attempt is over, whatever came of it: retries are the row's own. What cannot be read or points to
//! no job here is kept as a case, with its body, before it is deleted. So the SQS dead-letter queue sees faults of the
//! infrastructure only.
//!
//! Messages may come twice, late, shuffled or never; deletes and sends may fail. What is delivered again finds a row
//! that says so; what was never delivered is found by the sweep. The map of this crate:
//!
//! - [`Config`]: every setting, with its limits
//! - [`Bridge`]: runs the parts until it is stopped
//! - `body`: what a message is; `consume`: long poll, trigger or enqueue; `hold`: extend, look, delete
//! - `keep`: messages that become cases; `drain`: those of a dead-letter queue
//! - [`Relay`]: pointers sent after a commit; `sweep`: what was lost or has not been taken is sent again
//! - `outside`: the calls of SQS, ten messages at a time

#![warn(missing_debug_implementations)]
#![forbid(unsafe_code)]

mod body;
mod bridge;
mod config;
mod consume;
mod counts;
mod drain;
mod error;
mod hold;
mod keep;
mod outside;
mod relay;
mod sent;
mod sweep;

pub use crate::{
    bridge::Bridge,
    config::{Config, Role},
    counts::{Count, Counts},
    error::{Error, Result},
    keep::{CASE_KIND, CASE_QUEUE},
    outside::connect,
    relay::Relay,
};
