//! The conformance cases on every PostgreSQL that the run was given; through a PgBouncer before each where the run says
//! so.

/// What the cases call the database under test.
pub(crate) mod db {
    pub(crate) use super::on_postgres::*;

    /// The servers, or the servers behind a pooler.
    pub(crate) fn servers() -> Vec<proof::bed::Server> {
        match std::env::var_os("ROWLOCK_TEST_POOLED") {
            Some(_) => proof::pooler::pooled_servers(),
            None => proof::bed::postgres_servers(),
        }
    }
}

#[path = "cases/mod.rs"]
pub(crate) mod cases;
#[path = "cases/only_postgres/names.rs"]
mod on_postgres;
#[path = "cases/only_postgres/mod.rs"]
mod only_postgres;

use self::cases::{Bed, cases};
