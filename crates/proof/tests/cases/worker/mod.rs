//! The loop: normal operation, beside other workers, and when a worker is lost.

mod engine;
mod recover;
mod run;

use super::*;
