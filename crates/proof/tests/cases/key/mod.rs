//! Keys at enqueue: held, in chains, and raced for.

mod chain;
pub(crate) mod held;
mod race;

use super::*;
