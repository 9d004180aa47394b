//! What only a pooler can do wrong. The conformance cases through PgBouncer are those of `postgres`, run with
//! `ROWLOCK_TEST_POOLED` set.

/// What the cases call the database under test.
pub(crate) mod db {
    pub(crate) use proof::pooler::pooled_servers as servers;

    pub(crate) use crate::postgres::db::{Ctx, Rowlock, Staged, Tx, Worker};
}

mod shared;

use crate::postgres::cases::{self, Bed, cases};
