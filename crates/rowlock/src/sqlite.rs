//! SQLite: the short names, so that using the wrong database is a type error.

use std::str::FromStr;

use sqlx::{Sqlite, sqlite::SqliteConnectOptions};

pub use crate::{Applied, Fail, atomic, staged};
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
/// A handler with its settings.
pub type Handler<A = (), T = ()> = crate::Handler<A, Sqlite, T>;
/// A test rig on this database.
pub type TestRig<A = ()> = crate::rig::TestRig<A, Sqlite>;
/// What a handler returns.
pub type Outcome = crate::Outcome<Sqlite>;

const IN_MEMORY: &str = "in-memory SQLite is not supported; use a file, such as sqlite:app.db";

fn opened(options: SqliteConnectOptions, clock: Clock) -> SqliteStore {
    SqliteStore::new(options, Timing::of_lease(std::time::Duration::from_secs(15)), clock)
}

impl Backend for Sqlite {
    const SCHEMA: i32 = SCHEMA;

    fn open(url: &str, _schema: &str, clock: Clock) -> Result<SqliteStore> {
        if !url.starts_with("sqlite:") {
            return Err(Error::Config(
                "not a SQLite URL; use sqlite:PATH, such as sqlite:jobs.db".into(),
            ));
        }
        if is_in_memory(url) {
            return Err(Error::Config(IN_MEMORY.into()));
        }
        let options = SqliteConnectOptions::from_str(url)
            .map_err(|e| Error::Config(format!("the SQLite URL {url} cannot be parsed: {e}")))?;
        Ok(opened(options, clock))
    }

    fn open_with(options: SqliteConnectOptions, _schema: &str, clock: Clock) -> Result<SqliteStore> {
        // The driver gives a database in memory a unique name.
        let name = options.get_filename().to_string_lossy();
        match name == ":memory:" || name.starts_with("file:sqlx-in-memory-") {
            true => Err(Error::Config(IN_MEMORY.into())),
            false => Ok(opened(options.clone(), clock)),
        }
    }

    fn with(store: &SqliteStore, timing: Timing, _handlers_max: usize) -> Result<SqliteStore> {
        Ok(store.with(timing))
    }
}

/// Whether the driver would open a database in memory. Such a database has no WAL, and no other process can use it.
fn is_in_memory(url: &str) -> bool {
    let rest = url.trim_start_matches("sqlite://").trim_start_matches("sqlite:");
    let (file, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    file == ":memory:" || parameters.split('&').any(|parameter| parameter == "mode=memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_of_a_database_in_memory_is_refused() {
        let problem = |url: &str| Rowlock::open(url).err().map(|error| error.to_string());
        for url in [
            "sqlite::memory:",
            "sqlite://:memory:",
            "sqlite::memory:?cache=shared",
            "sqlite:jobs.db?mode=memory",
            "sqlite:jobs.db?cache=shared&mode=memory",
        ] {
            let expected = "in-memory SQLite is not supported; use a file, such as sqlite:app.db";
            assert_eq!(problem(url).as_deref(), Some(expected), "{url}");
        }
        for url in [
            "sqlite:jobs.db",
            "sqlite://memory.db?mode=rwc",
            "sqlite:/tmp/:memory:/jobs.db",
        ] {
            assert_eq!(problem(url), None, "{url}");
        }
    }
}
