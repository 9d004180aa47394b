//! Victims on SQLite.

use rowlock::sqlite as db;

#[path = "work.rs"]
mod work;

pub(crate) use work::run;
