//! Checks before a write: guards, transitions, rollouts and the body lock.

mod body_lock;
mod incidents;
pub(crate) mod observed;
mod rollout;
mod transition;

use super::*;
