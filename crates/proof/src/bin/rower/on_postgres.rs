//! Rowers on PostgreSQL.

use rowlock::postgres as db;
use sqlx::{PgConnection as Connection, Postgres as Database};

/// How a producer's transaction begins.
const BEGIN: &str = "begin";

/// Jobs that wait, counted no further than needed.
const BACKLOG: &str = "select count(*) from (select 1 from rowlock.ready limit 20000) r";

#[path = "produce.rs"]
mod produce;
#[path = "work.rs"]
mod work;

pub(crate) use produce::produce;
pub(crate) use work::work;
