//! The chaos run: real workers and producers on a real database, everything that can go wrong going wrong under them,
//! and a checker over what really happened.

pub mod business;
pub mod check;
pub mod faults;
pub mod fleet;
pub mod gather;
pub mod ground;
pub mod history;
pub mod jobs;
pub mod log;
pub mod mutants;
pub mod orders;
pub mod report;
mod rest;
pub mod run;
pub mod volume;
