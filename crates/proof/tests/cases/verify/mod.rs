//! The audit of the invariants.

mod load;
mod log;
pub(crate) mod rules;

use super::*;
