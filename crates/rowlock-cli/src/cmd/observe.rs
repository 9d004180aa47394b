//! Commands that only read: what is where, how it got there, and whether all is well.

pub(crate) mod audit;
pub(crate) mod cases;
pub(crate) mod chain;
pub(crate) mod doctor;
pub(crate) mod effects;
pub(crate) mod inspect;
pub(crate) mod jobs;
pub(crate) mod status;
mod tables;
pub(crate) mod verify;
pub(crate) mod workers;

use super::{
    Place, job_id, no_job,
    operate::{case, effect},
};
