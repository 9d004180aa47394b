//! Every test of the real binary, linked once.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod adopt;
mod breaker;
#[cfg(not(feature = "sqs"))]
mod bridge;
mod cases;
mod commands;
mod common;
mod config;
mod demo;
mod effects;
mod errors;
mod json;
mod scenes;
mod snapshots;
mod verbs;
mod verify;
mod work;
mod work_docs;
mod work_http;
mod work_lost;
#[cfg(target_os = "linux")]
mod work_stop;
