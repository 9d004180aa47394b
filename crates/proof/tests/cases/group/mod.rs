//! Groups: the order within, and what becomes of the head.

mod head;
pub(crate) mod turns;

use super::*;
