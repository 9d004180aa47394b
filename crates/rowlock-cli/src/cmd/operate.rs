//! Commands of operators: what people do to jobs, cases, queues and breakers.

pub(crate) mod breaker;
pub(crate) mod bulk;
pub(crate) mod case;
pub(crate) mod complete;
pub(crate) mod delay;
pub(crate) mod effect;
pub(crate) mod pause;
pub(crate) mod prune;
pub(crate) mod reopen;
pub(crate) mod rollout;

use super::{Actor, Place, duration, job_id, observe::jobs};
