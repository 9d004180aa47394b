//! What only PostgreSQL has.

mod doctor;
mod keys_stall;
mod relay;
mod server;
mod verbs;
mod verify;

use super::*;
