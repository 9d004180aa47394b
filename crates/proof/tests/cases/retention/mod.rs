//! What is removed when it is over, and what is kept.

pub(crate) mod policy;
mod prune;
mod waits;

use super::*;
