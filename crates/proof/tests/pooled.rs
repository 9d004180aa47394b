//! The conformance cases on every PostgreSQL of the run, through PgBouncer in transaction mode.

#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

/// What the cases call the database under test.
mod db {
    pub(crate) use proof::pooler::pooled_servers as servers;

    pub(crate) use crate::on_postgres::*;
}

mod cases;
#[path = "cases/on_postgres.rs"]
mod on_postgres;

#[path = "pooled/shared.rs"]
mod shared;
