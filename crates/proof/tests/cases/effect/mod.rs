//! External calls: the journal, doubts and compensations.

mod compensation;
mod doubt;
pub(crate) mod journal;

use super::*;
