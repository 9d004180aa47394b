//! The conformance cases on every PostgreSQL that the run was given.

#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

/// What the cases call the database under test.
mod db {
    pub(crate) use proof::bed::postgres_servers as servers;
    pub(crate) use rowlock::postgres::{Ctx, Outcome, Rowlock, Staged, Tx, Worker};
    pub(crate) type Conn = sqlx::PgConnection;
    pub(crate) type Backend = sqlx::Postgres;
    /// How the engine's tables begin here.
    pub(crate) const TABLES: &str = "rowlock.";
}

mod cases;

#[path = "cases/only_postgres.rs"]
mod only_postgres;
