//! PostgreSQL: the short names, so that using the wrong database is a type error.

use std::sync::Arc;

use sqlx::Postgres;

pub use crate::{Applied, Fail, atomic, staged};
use crate::{
    error::{Error, Result},
    root::Backend,
    store::{
        Clock, Timing,
        postgres::{Hosts, PgStore, SCHEMA},
    },
};

/// A handle on the jobs of a PostgreSQL database.
pub type Rowlock = crate::Rowlock<Postgres>;
/// A worker on a PostgreSQL database.
pub type Worker<A = ()> = crate::Worker<A, Postgres>;
/// A handler's transaction.
pub type Tx = crate::Tx<Postgres>;
/// An atomic handler's context.
pub type Ctx<A = ()> = crate::Ctx<A, Postgres>;
/// A staged handler's context.
pub type Staged<A = ()> = crate::Staged<A, Postgres>;
/// A handler with its settings.
pub type Handler<A = (), T = ()> = crate::Handler<A, Postgres, T>;
/// A test rig on this database.
pub type TestRig<A = ()> = crate::rig::TestRig<A, Postgres>;
/// What a handler returns.
pub type Outcome = crate::Outcome<Postgres>;

impl Backend for Postgres {
    const SCHEMA: i32 = SCHEMA;

    fn open(url: &str, schema: &str, clock: Clock) -> Result<PgStore> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(Error::Config("not a PostgreSQL URL; use postgres://…".into()));
        }
        let hosts = Arc::new(Hosts::parse(url)?);
        let timing = Timing::of_lease(std::time::Duration::from_secs(15));
        PgStore::new(hosts, schema, timing, 4, clock)
    }

    fn with(store: &PgStore, timing: Timing, handlers_max: usize) -> Result<PgStore> {
        store.with(timing, handlers_max)
    }
}
