//! Claiming: in which order, for which worker, and what is left alone.

mod isolation;
mod order;
pub(crate) mod pause;

use super::*;
