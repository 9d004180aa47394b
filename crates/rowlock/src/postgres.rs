//! PostgreSQL: the short names, so that using the wrong database is a type error.

use std::{error::Error as StdError, future::Future, sync::Arc, time::Duration};

use sqlx::{Postgres, postgres::PgConnectOptions};

pub use crate::{Applied, Fail, atomic, staged};
use crate::{
    error::{Error, Result},
    root::Backend,
    store::{
        Clock, Timing,
        postgres::{Fresh, Hosts, PgStore, SCHEMA, tls},
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

impl Rowlock {
    /// A database whose options may change, such as one with a password that rotates: `options` is called for each new
    /// connection, in the schema `rowlock`. Connections that are open already stay in use. No I/O yet.
    ///
    /// ```
    /// use rowlock::postgres::Rowlock;
    /// use sqlx::postgres::PgConnectOptions;
    ///
    /// # async fn password() -> std::io::Result<String> { Ok(String::new()) }
    /// # fn open() -> rowlock::Result<Rowlock> {
    /// let rowlock = Rowlock::open_by(async || -> std::io::Result<PgConnectOptions> {
    ///     let password = password().await?; // from your secret store
    ///     Ok(PgConnectOptions::new().host("db1").username("app").database("shop").password(&password))
    /// })?;
    /// # Ok(rowlock)
    /// # }
    /// ```
    ///
    /// When `options` fails, asks for TLS in a build without it, or takes longer than 5 seconds, the operation that
    /// needs a connection fails with [`Error::Database`], and workers try again.
    ///
    /// # Errors
    /// As [`Rowlock::open_by_in`].
    pub fn open_by<F, Fut, E>(options: F) -> Result<Rowlock>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<PgConnectOptions, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        Rowlock::open_by_in(options, "rowlock")
    }

    /// [`Rowlock::open_by`] in a schema of another name.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the name is not a plain lower-case identifier.
    pub fn open_by_in<F, Fut, E>(options: F, schema: &str) -> Result<Rowlock>
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = std::result::Result<PgConnectOptions, E>> + Send + 'static,
        E: Into<Box<dyn StdError + Send + Sync>>,
    {
        let fresh = move || -> Fresh {
            let options = options();
            Box::pin(async move { tls::checked(options.await.map_err(Into::into)?).map_err(Into::into) })
        };
        Ok(Rowlock::of(opened(Hosts::by(fresh), schema, Clock::default())?))
    }
}

fn opened(hosts: Hosts, schema: &str, clock: Clock) -> Result<PgStore> {
    let timing = Timing::of_lease(Duration::from_secs(15));
    PgStore::new(Arc::new(hosts), schema, timing, 4, clock)
}

impl Backend for Postgres {
    const SCHEMA: i32 = SCHEMA;

    fn open(url: &str, schema: &str, clock: Clock) -> Result<PgStore> {
        if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
            return Err(Error::Config("not a PostgreSQL URL; use postgres://…".into()));
        }
        opened(Hosts::parse(url)?, schema, clock)
    }

    fn open_with(options: PgConnectOptions, schema: &str, clock: Clock) -> Result<PgStore> {
        opened(Hosts::of(tls::checked(options)?), schema, clock)
    }

    fn with(store: &PgStore, timing: Timing, handlers_max: usize) -> Result<PgStore> {
        store.with(timing, handlers_max)
    }
}
