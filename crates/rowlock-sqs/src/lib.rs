//! A bridge between Rowlock and Amazon SQS. A message of the queue is a hint; the row decides.
//!
//! A message is a pointer to a job, which it triggers, or a foreign message, which becomes a job under its own key. The
//! bridge holds the message and extends its visibility while the attempt that it started runs. It **always deletes**
//! the message once the row says that the attempt is over, whatever the outcome: the row does its own retries. A
//! message that cannot be read or points to no job here is kept as a case, with its body, before it is deleted. So only
//! faults of the infrastructure reach the SQS dead-letter queue.
//!
//! Messages may come twice, late, shuffled or never; deletes and sends may fail. A message that is delivered again
//! finds its row as it is. The sweep finds jobs whose message never came. The map of this crate:
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
