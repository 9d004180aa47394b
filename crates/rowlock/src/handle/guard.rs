//! Guards: act on what was read only if it has not changed, decided in the transaction of the write.
//!
//! Read, then evaluate for as long as it takes without any lock or connection. Then, in a short transaction: lock, read
//! again, compare, write. The lock and the second read are two statements, because a statement's snapshot is older than
//! the locks it waits for. The transaction must be read committed, because at a stricter level every snapshot is older.
//! Every function here requires a transaction by type: outside one, the lock would be released as soon as it was taken.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
};

use super::{Prepare, Tx};
use crate::{
    error::{Doing, Error, Meaning, Result},
    key::check_key,
    root::{Backend, InTransaction, Rowlock},
    store::guard::{GuardAsk, lock_number},
};

/// Something that may change between a read and a write, and how to read it.
///
/// ```
/// use rowlock::Guard;
/// use sqlx::{Sqlite, SqliteConnection};
///
/// struct OpenIncidents { entity: i64 }
///
/// impl Guard<Sqlite> for OpenIncidents {
///     type Seen = Vec<i64>;
///
///     fn key(&self) -> String {
///         format!("incidents:{}", self.entity)
///     }
///
///     async fn look(&self, conn: &mut SqliteConnection) -> sqlx::Result<Vec<i64>> {
///         sqlx::query_scalar("select id from incident where entity = $1 and state = 'open' order by id")
///             .bind(self.entity)
///             .fetch_all(conn)
///             .await
///     }
/// }
/// ```
pub trait Guard<DB: Backend>: Send + Sync {
    /// What a read returns; two equal values mean *unchanged*. It must hold everything that the decision depends on, in
    /// a fixed order.
    type Seen: PartialEq + Send + Sync;

    /// The name of what is protected: 1 to 250 bytes. Writers under the same key wait for each other.
    fn key(&self) -> String;

    /// Reads what is protected, with one statement or more; it must not write.
    fn look(&self, conn: &mut DB::Connection) -> impl Future<Output = sqlx::Result<Self::Seen>> + Send;
}

/// One guard and what was read, without their types.
trait Check<DB: Backend>: Send + Sync {
    fn same<'c>(
        &'c self,
        conn: &'c mut DB::Connection,
    ) -> Pin<Box<dyn Future<Output = sqlx::Result<bool>> + Send + 'c>>;
}

struct Pair<'a, G, S> {
    guard: &'a G,
    seen: &'a S,
}

impl<DB: Backend, G: Guard<DB>> Check<DB> for Pair<'_, G, G::Seen> {
    fn same<'c>(
        &'c self,
        conn: &'c mut DB::Connection,
    ) -> Pin<Box<dyn Future<Output = sqlx::Result<bool>> + Send + 'c>> {
        Box::pin(async move { Ok(self.guard.look(conn).await? == *self.seen) })
    }
}

/// Several guards to be checked together, with one order of locks for everyone; `.await` it.
#[must_use = "nothing is checked until this is awaited"]
pub struct Guards<'a, DB: Backend> {
    store: DB::Store,
    conn: &'a mut DB::Connection,
    checks: Vec<(String, Box<dyn Check<DB> + 'a>)>,
    versions: Vec<(String, i64)>,
}

crate::debug::debug_fields!([DB: Backend] Guards<'_, DB>, "Guards", versions);

impl<'a, DB: Backend> Guards<'a, DB> {
    fn new(rowlock: &Rowlock<DB>, conn: &'a mut DB::Connection) -> Self {
        Guards {
            store: rowlock.store().clone(),
            conn,
            checks: Vec::new(),
            versions: Vec::new(),
        }
    }

    /// Also requires that what this guard protects is as it was read.
    pub fn add<G: Guard<DB>>(mut self, guard: &'a G, seen: &'a G::Seen) -> Self {
        self.checks.push((guard.key(), Box::new(Pair { guard, seen })));
        self
    }

    /// Also requires that this counter has the value that was read; the counter is raised if everything else is
    /// unchanged too.
    pub fn version(mut self, key: impl Into<String>, seen: i64) -> Self {
        self.versions.push((key.into(), seen));
        self
    }

    async fn unchanged(mut self) -> Result<()> {
        let keys = || {
            self.checks
                .iter()
                .map(|(key, _)| key)
                .chain(self.versions.iter().map(|(key, _)| key))
        };
        for key in keys() {
            check_key("guard", key)?;
        }
        // Counters alone need no re-read, and are locked one after the other as they are raised.
        if !self.checks.is_empty() {
            let keys: Vec<&str> = keys().map(String::as_str).collect();
            DB::guard(&self.store, self.conn, GuardAsk::Lock(&keys)).await?;
        }
        for (key, check) in &self.checks {
            let same = check.same(self.conn).await.doing("guard").map_err(Error::answered)?;
            if !same {
                return Err(Error::Changed {
                    key: key.clone(),
                    source: Meaning::LookAgain,
                });
            }
        }
        self.versions
            .sort_by_cached_key(|(key, seen)| (lock_number(key), key.clone(), *seen));
        self.versions.dedup();
        for (key, seen) in &self.versions {
            raise_if::<DB>(&self.store, self.conn, key, *seen).await?;
        }
        Ok(())
    }
}

impl<'a, DB: Backend> IntoFuture for Guards<'a, DB> {
    type Output = Result<()>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<()>> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.unchanged())
    }
}

async fn raise_if<DB: Backend>(store: &DB::Store, conn: &mut DB::Connection, key: &str, seen: i64) -> Result<i64> {
    let ask = GuardAsk::Raise { key, seen: Some(seen) };
    let raised = DB::guard(store, conn, ask).await?;
    // A counter that was removed meanwhile begins at 1 again.
    match raised.filter(|now| Some(*now) == seen.checked_add(1)) {
        Some(now) => Ok(now),
        None => Err(Error::Changed {
            key: key.to_owned(),
            source: Meaning::LookAgain,
        }),
    }
}

impl<DB: Backend> Rowlock<DB> {
    /// Goes on only if what the guard protects is still as it was read. It then stays unchanged until the transaction
    /// ends, if every writer asks the same guard first.
    ///
    /// # Errors
    /// [`Error::Changed`]: roll back, and read again. [`Error::Isolation`] in a repeatable read or serializable
    /// transaction, which stays usable. [`Error::TryAgain`] when another transaction is in the way; [`Error::Invalid`]
    /// for a bad key, before any SQL; [`Error::Database`].
    ///
    /// Cancel safety: dropped half-way, the caller's connection is in the middle of a statement; roll back and drop it.
    pub async fn unchanged<G: Guard<DB>>(
        &self,
        tx: &mut impl InTransaction<DB>,
        guard: &G,
        seen: &G::Seen,
    ) -> Result<()> {
        self.guards(tx).add(guard, seen).await
    }

    /// Checks several guards together: `rowlock.guards(&mut tx).add(&a, &seen_a).add(&b, &seen_b).await?`. All locks
    /// are taken before the first read, in an order that is the same for everyone, so that two callers never wait for
    /// each other.
    ///
    /// # Errors
    /// As [`Rowlock::unchanged`]. Cancel safety: the same.
    pub fn guards<'a>(&self, tx: &'a mut impl InTransaction<DB>) -> Guards<'a, DB> {
        Guards::new(self, tx.connection())
    }

    /// How often what this key protects has been changed, by [`Rowlock::unchanged_version`] and
    /// [`Rowlock::raise_version`]; 0 when never.
    ///
    /// Read the counter before what it protects, or both in one snapshot such as
    /// [`Staged::prepare`](crate::Staged::prepare). A counter that is read later counts a change in between as seen.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad key, before any SQL; [`Error::TryAgain`]; [`Error::Database`]. Cancel safety: as
    /// [`Rowlock::unchanged`].
    pub async fn version(&self, conn: &mut DB::Connection, key: &str) -> Result<i64> {
        check_key("guard", key)?;
        Ok(DB::guard(self.store(), conn, GuardAsk::Read(key)).await?.unwrap_or(0))
    }

    /// Goes on only if this counter still has the value that was read, and raises it. This also notices a change that
    /// was undone in between, such as opened and closed again; comparing the current values cannot. Returns the new
    /// value. Works at every isolation level.
    ///
    /// # Errors
    /// As [`Rowlock::unchanged`], except [`Error::Isolation`]. Cancel safety: the same.
    pub async fn unchanged_version(&self, tx: &mut impl InTransaction<DB>, key: &str, seen: i64) -> Result<i64> {
        check_key("guard", key)?;
        raise_if::<DB>(self.store(), tx.connection(), key, seen).await
    }

    /// Raises a counter unconditionally: for every other writer of what the key protects. It waits for any transaction
    /// that holds a guard of this key. Returns the new value.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad key, before any SQL; [`Error::TryAgain`]; [`Error::Database`]. Cancel safety: as
    /// [`Rowlock::unchanged`].
    pub async fn raise_version(&self, tx: &mut impl InTransaction<DB>, key: &str) -> Result<i64> {
        check_key("guard", key)?;
        let ask = GuardAsk::Raise { key, seen: None };
        let raised = DB::guard(self.store(), tx.connection(), ask).await?;
        raised.ok_or_else(|| Error::Changed {
            key: key.to_owned(),
            source: Meaning::LookAgain,
        })
    }
}

impl<DB: Backend, T> Tx<DB, T> {
    /// Goes on only if what the guard protects is still as it was read: see [`Rowlock::unchanged`]. Through the
    /// handler's `?`, *changed* settles the job as done, without an error, and is counted. If the job made an external
    /// call, it becomes a case instead. Use `map_err` to choose otherwise.
    ///
    /// # Errors
    /// As [`Rowlock::unchanged`]. Cancel safety: the engine does not use the connection again.
    pub async fn unchanged<G: Guard<DB>>(&mut self, guard: &G, seen: &G::Seen) -> Result<()> {
        self.guards().add(guard, seen).await
    }

    /// Checks several guards together: see [`Rowlock::guards`].
    ///
    /// # Errors
    /// As [`Rowlock::unchanged`]. Cancel safety: the engine does not use the connection again.
    pub fn guards(&mut self) -> Guards<'_, DB> {
        let rowlock = self.rowlock.clone();
        Guards::new(&rowlock, self)
    }

    /// The value of a counter, to be read before what it protects: see [`Rowlock::version`].
    ///
    /// # Errors
    /// As [`Rowlock::version`]. Cancel safety: the engine does not use the connection again.
    pub async fn version(&mut self, key: &str) -> Result<i64> {
        let rowlock = self.rowlock.clone();
        rowlock.version(self, key).await
    }

    /// Goes on only if this counter still has the value that was read, and raises it: see
    /// [`Rowlock::unchanged_version`].
    ///
    /// # Errors
    /// As [`Rowlock::unchanged_version`]. Cancel safety: the engine does not use the connection again.
    pub async fn unchanged_version(&mut self, key: &str, seen: i64) -> Result<i64> {
        let rowlock = self.rowlock.clone();
        rowlock.unchanged_version(self, key, seen).await
    }

    /// Raises a counter unconditionally: see [`Rowlock::raise_version`].
    ///
    /// # Errors
    /// As [`Rowlock::raise_version`]. Cancel safety: the engine does not use the connection again.
    pub async fn raise_version(&mut self, key: &str) -> Result<i64> {
        let rowlock = self.rowlock.clone();
        rowlock.raise_version(self, key).await
    }
}

impl<DB: Backend> Prepare<'_, DB> {
    /// The value of a counter, to be compared after the evaluation: see [`Rowlock::version`]. This transaction reads
    /// one snapshot, so you can read the counter before or after what it protects.
    ///
    /// # Errors
    /// As [`Rowlock::version`]. Cancel-safe: a connection dropped half-way is closed.
    pub async fn version(&mut self, key: &str) -> Result<i64> {
        let rowlock = self.rowlock.clone();
        rowlock.version(self, key).await
    }
}
