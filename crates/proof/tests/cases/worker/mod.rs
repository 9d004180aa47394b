//! The loop: in good order, beside others, and when a worker is lost.

mod engine;
mod recover;
mod run;

use super::*;
