//! The conformance cases on every PostgreSQL that the run was given.

#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

/// What the cases call the database under test.
mod db {
    pub(crate) use proof::bed::postgres_servers as servers;

    pub(crate) use crate::on_postgres::*;
}

mod cases;
#[path = "cases/on_postgres.rs"]
mod on_postgres;

#[path = "cases/keys_stall.rs"]
mod keys_stall;
#[path = "cases/only_postgres.rs"]
mod only_postgres;
#[path = "cases/only_postgres_doctor.rs"]
mod only_postgres_doctor;
#[path = "cases/only_postgres_relay.rs"]
mod only_postgres_relay;
#[path = "cases/only_postgres_verbs.rs"]
mod only_postgres_verbs;
#[path = "cases/only_postgres_verify.rs"]
mod only_postgres_verify;
