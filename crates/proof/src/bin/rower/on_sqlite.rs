//! Rowers on SQLite.

use rowlock::sqlite as db;
use sqlx::{Sqlite as Database, SqliteConnection as Connection};

/// How a producer's transaction begins: as a writer, or it could not become one later.
const BEGIN: &str = "begin immediate";

/// Jobs that wait, counted no further than needed.
const BACKLOG: &str = "select count(*) from (select 1 from rowlock_ready limit 20000) r";

#[path = "produce.rs"]
mod produce;
#[path = "work.rs"]
mod work;

pub(crate) use produce::produce;
pub(crate) use work::work;
