//! SQLite: the short names, so that using the wrong database is a type error.

use std::str::FromStr;

use sqlx::{Sqlite, sqlite::SqliteConnectOptions};

pub use crate::Applied;
use crate::{
    error::{Error, Result},
    root::Backend,
    store::{
        Clock, Timing,
        sqlite::{SCHEMA, SqliteStore},
    },
};

/// A handle on the jobs of a SQLite database.
pub type Rowlock = crate::Rowlock<Sqlite>;
/// A worker on a SQLite database.
pub type Worker<A = ()> = crate::Worker<A, Sqlite>;
/// A handler's transaction.
pub type Tx = crate::Tx<Sqlite>;
/// An atomic handler's context.
pub type Ctx<A = ()> = crate::Ctx<A, Sqlite>;
/// A staged handler's context.
pub type Staged<A = ()> = crate::Staged<A, Sqlite>;
/// A test rig on this database.
pub type TestRig<A = ()> = crate::rig::TestRig<A, Sqlite>;
/// What a handler returns.
pub type Outcome = crate::Outcome<Sqlite>;

impl Backend for Sqlite {
    const SCHEMA: i32 = SCHEMA;

    fn open(url: &str, _schema: &str, clock: Clock) -> Result<SqliteStore> {
        if !url.starts_with("sqlite:") {
            return Err(Error::Config(
                "a sqlite url starts with sqlite:, such as sqlite:jobs.db".into(),
            ));
        }
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|e| Error::Config(format!("the sqlite url {url} cannot be read: {e}")))?;
        Ok(SqliteStore::new(
            options,
            Timing::of_lease(std::time::Duration::from_secs(15)),
            clock,
        ))
    }

    fn with(store: &SqliteStore, timing: Timing, _handlers_max: usize) -> Result<SqliteStore> {
        Ok(store.with(timing))
    }
}
