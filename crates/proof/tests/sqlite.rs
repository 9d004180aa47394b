//! The conformance cases on SQLite.

/// What the cases call the database under test.
pub(crate) mod db {
    pub(crate) use proof::bed::sqlite_server as servers;
    pub(crate) use rowlock::sqlite::{Ctx, Handler, Outcome, Rowlock, Staged, TestRig, Tx, Worker};
    pub(crate) type Conn = sqlx::SqliteConnection;
    pub(crate) type Backend = sqlx::Sqlite;
    /// How the engine's tables begin here.
    pub(crate) const TABLES: &str = "rowlock_";

    /// A rig, and how its tables begin.
    pub(crate) async fn rig(_url: &str) -> (TestRig, String) {
        (TestRig::sqlite().await.unwrap(), TABLES.to_owned())
    }
}

#[path = "cases/mod.rs"]
mod cases;

#[path = "cases/only_sqlite.rs"]
mod only_sqlite;

use self::cases::{Bed, cases};
