//! Every suite of this crate, in one program: linking is paid once.
//!
//! `cargo xtask test` runs the quick ones, `cargo xtask test --long` the others; its table of suites says which is
//! which.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]
#![allow(
    clippy::duplicate_mod,
    reason = "the cases are one source, compiled once per database"
)]

mod adopt;
mod charges;
mod crash;
mod docs;
mod examples;
mod failover;
mod fleet;
mod freeze;
mod grants;
mod opening;
mod outage;
mod plans;
mod pooled;
mod postgres;
mod protocol;
mod proxy;
mod races;
mod schema;
mod sqlite;
mod steps;
mod tidy;
mod user_crate;
