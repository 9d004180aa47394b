//! How we know that effects happen once: the test beds, and the processes that the suites kill.
//!
//! A bed is a fresh database for one case: a new file for SQLite, a new database on each PostgreSQL server that the run
//! was given. Cases run unchanged on every bed; each run of a case is noted, so that the last line of the test run can
//! say how many ran where.

#![allow(
    clippy::duplicate_mod,
    reason = "a victim's handlers are one source, compiled once per database"
)]

pub mod base;
pub mod bed;
pub mod chaos;
pub mod child;
pub mod cluster;
pub mod pooler;
pub mod provider;
pub mod proxy;
pub mod scene;
mod template;
pub mod till;
pub mod victim;
