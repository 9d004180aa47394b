//! The handle: one database, its limits, and the way to every operation.

use std::sync::Arc;

use sqlx::Connection;

#[cfg(feature = "__faults")]
use crate::store::schema::Migration;
use crate::{
    error::{Error, Result},
    handle::rollout::Gates,
    job::Limits,
    observe::Observe,
    operate::Operate,
    store::{
        self, Clock, InTx, Inspect, Timing,
        schema::{Functions, SchemaFound},
    },
};

/// A database that Rowlock runs on: [`sqlx::Postgres`] or [`sqlx::Sqlite`]. Sealed.
pub trait Backend: InTx {
    /// Whether `url` names this kind of database, and the store for it; no I/O.
    #[doc(hidden)]
    fn open(url: &str, schema: &str, clock: Clock) -> Result<Self::Store>;
    /// The store for a database that the driver's options name; no I/O.
    #[doc(hidden)]
    fn open_with(options: Options<Self>, schema: &str, clock: Clock) -> Result<Self::Store>;
    /// The same database with another lease and number of connections for handlers.
    #[doc(hidden)]
    fn with(store: &Self::Store, timing: Timing, handlers_max: usize) -> Result<Self::Store>;
    /// The schema number that this binary uses.
    #[doc(hidden)]
    const SCHEMA: i32;
}

/// The driver's connection options: `PgConnectOptions` or `SqliteConnectOptions`.
pub type Options<DB> = <<DB as sqlx::Database>::Connection as Connection>::Options;

/// Proof that there is a transaction: [`sqlx::Transaction`], a handler's [`Tx`](crate::Tx), or your assertion,
/// [`BegunByHand`]. Sealed.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say that it is in a transaction",
    label = "give the transaction itself",
    note = "give `&mut tx` instead of `&mut *tx`; to commit by itself, use `enqueue_now` or `complete_now`; for a \
            transaction that you began as SQL, use `BegunByHand::new(&mut connection)`"
)]
pub trait InTransaction<DB: Backend>: sealed::Sealed<DB> + Send {
    /// The connection it runs on.
    #[doc(hidden)]
    fn connection(&mut self) -> &mut DB::Connection;
}

/// No other type may claim to be a transaction.
pub(crate) mod sealed {
    pub trait Sealed<DB> {}
}

impl<DB: Backend> sealed::Sealed<DB> for sqlx::Transaction<'_, DB> {}

impl<DB: Backend> InTransaction<DB> for sqlx::Transaction<'_, DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        self
    }
}

impl<DB: Backend, T: InTransaction<DB>> sealed::Sealed<DB> for &mut T {}

impl<DB: Backend, T: InTransaction<DB>> InTransaction<DB> for &mut T {
    fn connection(&mut self) -> &mut DB::Connection {
        (**self).connection()
    }
}

/// A connection on which you began the transaction yourself, by `begin` as SQL. Rowlock cannot check for that
/// transaction: if there is none, each operation commits by itself.
///
/// ```
/// use rowlock::BegunByHand;
///
/// # async fn f(rowlock: &rowlock::sqlite::Rowlock, mut conn: sqlx::SqliteConnection) -> rowlock::Result<()> {
/// let mut tx = BegunByHand::new(&mut conn);
/// rowlock.complete(&mut tx, "approval:42", &"granted").await?;
/// # Ok(()) }
/// ```
pub struct BegunByHand<'c, DB: Backend>(&'c mut DB::Connection);

crate::debug::debug_fields!([DB: Backend] BegunByHand<'_, DB>, "BegunByHand");

impl<'c, DB: Backend> BegunByHand<'c, DB> {
    /// Asserts that a transaction is open on this connection.
    pub fn new(conn: &'c mut DB::Connection) -> Self {
        BegunByHand(conn)
    }
}

impl<DB: Backend> sealed::Sealed<DB> for BegunByHand<'_, DB> {}

impl<DB: Backend> InTransaction<DB> for BegunByHand<'_, DB> {
    fn connection(&mut self) -> &mut DB::Connection {
        self.0
    }
}

/// A handle on one database's jobs. Cheap to clone; holds no connection until it needs one.
pub struct Rowlock<DB: Backend> {
    store: DB::Store,
    limits: Limits,
    gates: Arc<Gates>,
}

crate::debug::debug_fields!([DB: Backend] Rowlock<DB>, "Rowlock", limits);

impl<DB: Backend> Clone for Rowlock<DB> {
    fn clone(&self) -> Self {
        Rowlock {
            store: self.store.clone(),
            limits: self.limits,
            gates: self.gates.clone(),
        }
    }
}

impl<DB: Backend> Rowlock<DB> {
    /// Names the database by its URL (`postgres://…`, `sqlite:jobs.db`), in the schema `rowlock`. No I/O yet.
    ///
    /// A PostgreSQL URL may name several hosts, in libpq's syntax: `postgres://app@db1:5432,db2:5432/shop`. Every
    /// connection of the handle and of its workers then goes to the host that takes writes. A host is skipped if it is
    /// unreachable, a standby, read-only, or does not answer within two seconds. If all are skipped, the operation
    /// fails with [`Error::Database`], whose source names each host and why, and workers try again until one takes
    /// writes.
    ///
    /// # Errors
    /// [`Error::Config`] when the URL cannot be parsed or names another kind of database; with several hosts also when
    /// one of them has no name or a wrong port, when there are more than 16, when a parameter (`host`, `port`) names
    /// others, or when `target_session_attrs` is neither `read-write` nor `primary`; or when `sslmode` needs TLS and
    /// neither the feature `tls` nor a TLS feature of sqlx is on. The error never quotes the URL.
    pub fn open(url: &str) -> Result<Rowlock<DB>> {
        Rowlock::open_in(url, "rowlock")
    }

    /// The same in a schema of another name (PostgreSQL; SQLite has none and ignores it).
    ///
    /// # Errors
    /// As [`Rowlock::open`], and [`Error::Invalid`] when the name is not a plain lower-case identifier.
    pub fn open_in(url: &str, schema: &str) -> Result<Rowlock<DB>> {
        Rowlock::with_clock(url, schema, Clock::default())
    }

    /// [`Rowlock::open`] with the driver's own options, for settings that a URL cannot express. For a database that you
    /// have a pool for: `Rowlock::open_with((*pool.connect_options()).clone())`. Rowlock opens its own connections.
    ///
    /// # Errors
    /// [`Error::Config`] for a SQLite database in memory, or for TLS in a build without it.
    pub fn open_with(options: Options<DB>) -> Result<Rowlock<DB>> {
        Rowlock::open_with_in(options, "rowlock")
    }

    /// The same in a schema of another name (PostgreSQL; SQLite has none and ignores it).
    ///
    /// # Errors
    /// As [`Rowlock::open_with`], and [`Error::Invalid`] when the name is not a plain lower-case identifier.
    pub fn open_with_in(options: Options<DB>, schema: &str) -> Result<Rowlock<DB>> {
        Ok(Rowlock::of(DB::open_with(options, schema, Clock::default())?))
    }

    pub(crate) fn of(store: DB::Store) -> Rowlock<DB> {
        Rowlock {
            store,
            limits: Limits::new(),
            gates: Arc::default(),
        }
    }

    pub(crate) fn with_clock(url: &str, schema: &str, clock: Clock) -> Result<Rowlock<DB>> {
        Ok(Rowlock::of(DB::open(url, schema, clock)?))
    }

    /// [`Rowlock::open`], and checks the schema.
    ///
    /// # Errors
    /// As [`Rowlock::open`] and [`Rowlock::check_schema`]. Cancel-safe.
    pub async fn connect(url: &str) -> Result<Rowlock<DB>> {
        let rowlock = Rowlock::open(url)?;
        rowlock.check_schema().await?;
        Ok(rowlock)
    }

    /// Other limits on what is accepted at enqueue.
    pub fn with_limits(mut self, limits: Limits) -> Rowlock<DB> {
        self.limits = limits;
        self
    }

    /// The limits on what is accepted at enqueue.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Creates the schema, or applies what is missing: migrations, and functions whose text has changed. Safe when many
    /// processes start at the same time, and while workers run. Returns the names of what was applied. It changes
    /// nothing in a schema that is newer than this binary, nor in functions of a newer release.
    ///
    /// # Errors
    /// [`Error::SchemaUnknown`] when the schema was made by an unreleased version, or [`Error::Database`]. Then nothing
    /// was applied. Cancel-safe: all of it is one transaction.
    pub async fn migrate(&self) -> Result<Vec<String>> {
        store::Operate::migrate(&self.store, &[]).await
    }

    /// [`Rowlock::migrate`] with made-up migrations after this binary's own: name, oldest binary that still works, and
    /// script.
    #[cfg(feature = "__faults")]
    #[doc(hidden)]
    pub async fn migrate_with(&self, more: &[(&'static str, i32, &'static str)]) -> Result<Vec<String>> {
        let migration = |&(name, oldest, sql)| Migration { name, oldest, sql };
        let more: Vec<Migration> = more.iter().map(migration).collect();
        store::Operate::migrate(&self.store, &more).await
    }

    /// Refuses with one sentence when this binary and the database's schema do not fit; warns when the schema is newer
    /// but still allows this binary.
    ///
    /// # Errors
    /// [`Error::SchemaBehind`], [`Error::SchemaAhead`], [`Error::FunctionsBehind`], [`Error::SchemaUnknown`], or
    /// [`Error::Database`]. Cancel-safe.
    pub async fn check_schema(&self) -> Result<()> {
        check(self.store.schema().await?, DB::SCHEMA)
    }

    /// The commands that read.
    pub fn observe(&self) -> Observe {
        Observe {
            store: Arc::new(self.store.clone()),
        }
    }

    /// The operator commands.
    pub fn operate(&self) -> Operate {
        Operate {
            store: Arc::new(self.store.clone()),
        }
    }

    pub(crate) fn store(&self) -> &DB::Store {
        &self.store
    }

    pub(crate) fn gates(&self) -> &Arc<Gates> {
        &self.gates
    }

    pub(crate) fn for_worker(&self, timing: Timing, handlers_max: usize) -> Result<Rowlock<DB>> {
        Ok(Rowlock {
            store: DB::with(&self.store, timing, handlers_max)?,
            limits: self.limits,
            gates: self.gates.clone(),
        })
    }
}

/// The rule for one binary and one schema.
pub(crate) fn check(found: SchemaFound, speaks: i32) -> Result<()> {
    match found {
        SchemaFound::Missing => Err(Error::SchemaBehind {
            found: "the database has no rowlock schema".into(),
            needed: speaks,
        }),
        SchemaFound::At { version, .. } if version < speaks => Err(Error::SchemaBehind {
            found: format!("the database has schema {version}"),
            needed: speaks,
        }),
        SchemaFound::Unknown => Err(Error::SchemaUnknown),
        SchemaFound::At { version, oldest, .. } if speaks < oldest => Err(Error::SchemaAhead {
            found: version,
            oldest,
            speaks,
        }),
        SchemaFound::At {
            functions: Functions::Older,
            ..
        } => Err(Error::FunctionsBehind),
        SchemaFound::At { version, .. } => {
            if version > speaks {
                tracing::warn!(
                    "the database has schema {version}, newer than this binary's ({speaks}) but compatible; deploy \
                     the newer binary soon"
                );
            }
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_refuses_a_schema_it_does_not_fit() {
        let with = |version, oldest, functions| SchemaFound::At {
            version,
            oldest,
            functions,
        };
        let at = |version, oldest| check(with(version, oldest, Functions::Same), 2).map_err(|e| e.to_string());
        assert!(at(2, 1).is_ok());
        assert!(at(3, 2).is_ok(), "newer, but allows us");
        assert_eq!(
            at(1, 1).unwrap_err(),
            "the database has schema 1, but this binary needs schema 2; run `rowlock migrate`"
        );
        assert_eq!(
            at(4, 3).unwrap_err(),
            "the database has schema 4, which needs binaries of schema 3 or newer, but this one is of schema 2; \
             deploy a newer binary"
        );
        assert!(check(SchemaFound::Missing, 2).is_err());
        assert!(
            check(with(2, 1, Functions::Newer), 2).is_ok(),
            "a newer release keeps them"
        );
        assert_eq!(
            check(with(2, 1, Functions::Older), 2).unwrap_err().to_string(),
            "the functions in the database are not those of this binary; run `rowlock migrate`"
        );
        assert_eq!(
            check(SchemaFound::Unknown, 2).unwrap_err().to_string(),
            "the database has a Rowlock schema of an unreleased version, from which nothing leads to this binary's; use \
             another database, or remove that schema with all its jobs, then run `rowlock migrate`"
        );
    }
}
