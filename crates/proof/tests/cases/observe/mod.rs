//! Reading: lists, views, the doctor, and waiting for an end.

pub(crate) mod doctor;
mod places;
mod views;
mod wait;

use super::*;
