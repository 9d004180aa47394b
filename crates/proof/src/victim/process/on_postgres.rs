//! Victims on PostgreSQL.

use rowlock::postgres as db;

#[path = "work.rs"]
mod work;

pub(crate) use work::run;
