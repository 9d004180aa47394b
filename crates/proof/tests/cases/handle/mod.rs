//! What a handler may do: its transaction, its shapes, batches and hooks.

pub(crate) mod batch;
mod batch_line;
mod hooks;
pub(crate) mod relay;
mod staged;
mod transaction;

use super::*;
