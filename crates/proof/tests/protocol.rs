//! The functions that any language calls make the same transitions as the library: each scene is played twice, on a fresh
//! database each, and what every table holds afterwards is compared.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

#[path = "protocol/claiming.rs"]
mod claiming;
#[path = "protocol/ending.rs"]
mod ending;
#[path = "protocol/entering.rs"]
mod entering;
#[path = "protocol/meeting.rs"]
mod meeting;
#[path = "protocol/programs.rs"]
mod programs;
#[path = "protocol/recovering.rs"]
mod recovering;
#[path = "protocol/refusing.rs"]
mod refusing;
#[path = "protocol/stage.rs"]
mod stage;
