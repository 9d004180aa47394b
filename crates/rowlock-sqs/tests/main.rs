//! The bridge on two emulators and every database of the run.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod away;
mod bridge;
mod common;
mod contract;
mod example;
mod letting_go;
