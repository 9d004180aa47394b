//! Once: one committed effect per key, in the transaction that writes the effect.
//!
//! The first caller under a key gets a slot and stores its answer in the same commit. Every repeat gets that answer. A
//! concurrent caller waits for the first one, and gets the answer, or the slot if the first rolled back.

use std::{
    fmt,
    future::{Future, IntoFuture},
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{Pool, Transaction};

use super::Tx;
use crate::{
    error::{Error, Meaning, Result},
    job::check_payload,
    key::{Fingerprint, Hold, check_key},
    root::{Backend, InTransaction, Rowlock},
    store::ledger::{Ask, Entry, Mine, Taken},
};

/// What was found under a key.
#[must_use = "the first must do the work, a repeat must not"]
pub enum Once<DB: Backend> {
    /// No call has committed under this key: do the work in this transaction, and store the answer in the slot.
    First(OnceSlot<DB>),
    /// The work was done before; this is the stored answer.
    Seen(Answer),
}

impl<DB: Backend> fmt::Debug for Once<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Once::First(slot) => f.debug_tuple("First").field(&slot.key).finish(),
            Once::Seen(answer) => f.debug_tuple("Seen").field(answer).finish(),
        }
    }
}

/// The right to store the answer under a key, in the transaction that took the key. If dropped, the key is kept with an
/// empty answer.
pub struct OnceSlot<DB: Backend> {
    rowlock: Rowlock<DB>,
    key: String,
    mine: Mine,
    /// Distinguishes its savepoint from those of other slots in the same transaction.
    no: u64,
}

/// How many slots this process has handed out.
static SLOTS: AtomicU64 = AtomicU64::new(0);

crate::debug::debug_fields!([DB: Backend] OnceSlot<DB>, "OnceSlot", key);

impl<DB: Backend> OnceSlot<DB> {
    /// The key.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Stores the answer that every repeat will get. It commits, or not, with the transaction.
    ///
    /// # Errors
    /// [`Error::Invalid`] before any SQL when the answer is too big or holds a NUL character; [`Error::NotFound`] when
    /// the key's entry is not visible here, because the transaction that took it was rolled back or is open elsewhere;
    /// [`Error::TryAgain`] and [`Error::Database`] from the database. Store in the transaction that took the key: a
    /// later one would change an answer that repeats may have got.
    ///
    /// Cancel safety: as any query dropped half-way; roll back.
    pub async fn store<T: Serialize + ?Sized>(self, tx: &mut impl InTransaction<DB>, answer: &T) -> Result<()> {
        let invalid = |problem| Error::invalid("answer", problem);
        let json = serde_json::to_string(answer).map_err(|e| invalid(format!("cannot be written as JSON: {e}")))?;
        match check_payload(&json, self.rowlock.limits()) {
            Err(Error::Invalid { problem, .. }) => return Err(invalid(problem)),
            other => other?,
        }
        let store = self.rowlock.store();
        if DB::once_store(store, tx.connection(), &self.key, self.mine, &json).await? {
            return Ok(());
        }
        Err(Error::NotFound(format!(
            "the ledger has no entry {:?} of this transaction; store the answer in the transaction that took the key",
            self.key
        )))
    }

    /// Sets a savepoint in the transaction, so that [`OnceSlot::back_to_mark`] can undo what is written after it and
    /// still keep the key. Each slot has its own mark, and only the latest one counts. A transaction that is dropped
    /// rolls back as a whole, marked or not.
    ///
    /// # Errors
    /// [`Error::Database`]. Cancel safety: as any query dropped half-way; roll back.
    pub async fn mark(&self, tx: &mut impl InTransaction<DB>) -> Result<()> {
        DB::once_savepoint(tx.connection(), self.no, false).await
    }

    /// Undoes everything that was written since [`OnceSlot::mark`]; the key stays taken. Then store why: a refusal that
    /// every repeat gets, without the writes that led to it. On PostgreSQL this also works after a failed statement.
    ///
    /// # Errors
    /// [`Error::Database`], also without a mark in this transaction. Cancel safety: as any query dropped half-way; roll
    /// back.
    pub async fn back_to_mark(&self, tx: &mut impl InTransaction<DB>) -> Result<()> {
        DB::once_savepoint(tx.connection(), self.no, true).await
    }
}

/// A stored answer.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    json: Option<String>,
    made_at: Timestamp,
}

crate::debug::debug_fields!(
    [] Answer, "Answer",
    made_at
);

impl Answer {
    /// Whether the first caller committed without storing an answer.
    pub fn is_empty(&self) -> bool {
        self.json.is_none()
    }

    /// When the first caller took the key, by the database's clock.
    pub fn made_at(&self) -> Timestamp {
        self.made_at
    }

    /// The answer as JSON text; `None` when it is empty.
    pub fn as_json(&self) -> Option<&str> {
        self.json.as_deref()
    }

    /// The answer as it was stored; an empty one reads as `null`, so as `None` of an `Option`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it does not fit the type, with the path of the field.
    pub fn get<T: DeserializeOwned>(&self) -> Result<T> {
        let json = self.json.as_deref().unwrap_or("null");
        let read = &mut serde_json::Deserializer::from_str(json);
        serde_path_to_error::deserialize(read)
            .map_err(|e| Error::invalid("answer", format!("the stored answer does not fit the type: {e}")))
    }
}

/// A key that is being taken; set options, then `.await` it.
#[must_use = "nothing is asked until this is awaited"]
pub struct TakeOnce<'c, DB: Backend> {
    rowlock: Rowlock<DB>,
    conn: &'c mut DB::Connection,
    ask: Ask,
    error: Option<Error>,
}

crate::debug::debug_fields!([DB: Backend] TakeOnce<'_, DB>, "TakeOnce", error);

impl<'c, DB: Backend> TakeOnce<'c, DB> {
    fn new(rowlock: Rowlock<DB>, conn: &'c mut DB::Connection, key: String) -> Self {
        TakeOnce {
            rowlock,
            conn,
            error: check_key("key", &key).err(),
            ask: Ask {
                key,
                fingerprint: None,
                hold: Hold::Policy,
                wait: None,
            },
        }
    }

    /// The request under this key. A repeat with another request is refused instead of answered. Requests are compared
    /// when both sides give one, ignoring spaces and the order of fields.
    pub fn request<T: Serialize + ?Sized>(mut self, request: &T) -> Self {
        match Fingerprint::of("once", request) {
            Ok(print) => self.ask.fingerprint = Some(print),
            Err(error) => self.error = self.error.or(Some(error)),
        }
        self
    }

    /// [`TakeOnce::request`] for a request that is plain bytes, such as the body of a webhook; compared byte by byte.
    pub fn request_bytes(mut self, request: &[u8]) -> Self {
        self.ask.fingerprint = Some(Fingerprint::of_bytes("once bytes", request));
        self
    }

    /// [`TakeOnce::request`] for a request that you have hashed yourself, with SHA-256 for example: one that is too
    /// large to keep in memory, or has parts that do not count. Two requests are the same if their digests are equal.
    pub fn request_digest(mut self, digest: [u8; 32]) -> Self {
        self.ask.fingerprint = Some(Fingerprint::of_digest(digest));
        self
    }

    /// How long the key is held (as long as the workers keep keys unless set). [`Hold::WhileOpen`] is for keys of jobs
    /// and is refused here.
    pub fn hold(mut self, hold: Hold) -> Self {
        self.ask.hold = hold;
        self
    }

    /// The longest wait for the open transaction of a concurrent caller; after that the result is [`Error::TryAgain`].
    /// Unless set, the transaction's own lock time-out applies. On SQLite the connection's busy time-out always
    /// applies, and this setting is ignored.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.ask.wait = Some(timeout);
        self
    }
}

impl<'c, DB: Backend> IntoFuture for TakeOnce<'c, DB> {
    type Output = Result<Once<DB>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let (ask, rowlock) = (self.ask, self.rowlock);
            match self.error {
                Some(error) => return Err(error),
                None => check_hold(ask.hold)?,
            }
            Ok(match DB::once_take(rowlock.store(), self.conn, &ask).await? {
                Taken::First(mine) => Once::First(OnceSlot {
                    rowlock,
                    key: ask.key,
                    mine,
                    no: SLOTS.fetch_add(1, Ordering::Relaxed),
                }),
                Taken::Seen(entry) => Once::Seen(answer(&ask.key, ask.fingerprint, entry)?),
            })
        })
    }
}

fn check_hold(hold: Hold) -> Result<()> {
    match hold {
        Hold::WhileOpen => Err(Error::invalid(
            "hold",
            "while open is for job keys only; use a period, for ever, or the policy",
        )),
        Hold::For(Duration::ZERO) => Err(Error::invalid(
            "hold",
            "a period of zero holds nothing; use a longer one",
        )),
        _ => Ok(()),
    }
}

/// What a repeat gets, unless it has another request under the same key.
fn answer(key: &str, given: Option<Fingerprint>, entry: Entry) -> Result<Answer> {
    if let (Some(given), Some(stored)) = (given, &entry.fingerprint)
        && given.as_bytes() != stored.as_slice()
    {
        let held = match Fingerprint::from_bytes(stored) {
            Some(print) => format!("a ledger entry with fingerprint {print}"),
            None => "a ledger entry with an unreadable fingerprint".to_owned(),
        };
        return Err(Error::KeyConflict {
            key: key.to_owned(),
            held,
            given: format!("fingerprint {given}"),
            source: Meaning::Final,
        });
    }
    Ok(Answer {
        json: entry.answer,
        made_at: entry.made_at,
    })
}

/// A read of the ledger that is being configured; set the request, then `.await` it.
#[must_use = "nothing is read until this is awaited"]
#[derive(Debug)]
pub struct LookOnce<'c, DB: Backend>(TakeOnce<'c, DB>);

impl<DB: Backend> LookOnce<'_, DB> {
    /// As [`TakeOnce::request`].
    pub fn request<T: Serialize + ?Sized>(self, request: &T) -> Self {
        LookOnce(self.0.request(request))
    }

    /// As [`TakeOnce::request_bytes`].
    pub fn request_bytes(self, request: &[u8]) -> Self {
        LookOnce(self.0.request_bytes(request))
    }
}

impl<'c, DB: Backend> IntoFuture for LookOnce<'c, DB> {
    type Output = Result<Option<Answer>>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'c>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let TakeOnce {
                rowlock,
                conn,
                ask,
                error,
            } = self.0;
            if let Some(error) = error {
                return Err(error);
            }
            let entry = DB::once_read(rowlock.store(), conn, &ask.key).await?;
            let entry = entry.filter(|entry| !entry.over);
            entry.map(|entry| answer(&ask.key, ask.fingerprint, entry)).transpose()
        })
    }
}

impl<DB: Backend> Rowlock<DB> {
    /// Begins a transaction that is going to write, on your pool: `begin`, and on SQLite `begin immediate`. A SQLite
    /// transaction that begins with a read can fail as busy at its first write, without waiting.
    ///
    /// # Errors
    /// [`Error::TryAgain`] when SQLite's file is busy for longer than the pool's busy time-out; [`Error::Database`].
    /// Cancel-safe.
    pub async fn begin(&self, pool: &Pool<DB>) -> Result<Transaction<'static, DB>> {
        let begun = pool.begin_with(DB::BEGIN).await;
        begun.map_err(|source| Error::database("begin", source))
    }

    /// One committed effect per key, in your own transaction:
    ///
    /// ```
    /// # use rowlock::{Once, sqlite::Rowlock};
    /// # async fn count(rowlock: &Rowlock, db: &sqlx::SqlitePool, event: &str, body: &[u8]) -> Result<i64, Box<dyn std::error::Error>> {
    /// let mut tx = db.begin_with("begin immediate").await?;
    /// let total = match rowlock.once(&mut tx, format!("webhook:{event}")).request_bytes(body).await? {
    ///     Once::First(slot) => {
    ///         let add = sqlx::query_scalar("update counter set n = n + 1 returning n");
    ///         let total: i64 = add.fetch_one(&mut *tx).await?;
    ///         slot.store(&mut tx, &total).await?;
    ///         total
    ///     }
    ///     Once::Seen(answer) => answer.get()?,
    /// };
    /// tx.commit().await?;
    /// # Ok(total) }
    /// ```
    ///
    /// A concurrent caller waits for this transaction to end, then gets its answer, or the slot if it rolled back. Two
    /// keys taken in opposite order by two transactions are a deadlock, which the database ends for one of them: take
    /// several keys in sorted order.
    ///
    /// # Errors
    /// [`Error::Invalid`] before any SQL; [`Error::KeyConflict`] when the key is held by another request;
    /// [`Error::TryAgain`] when another transaction was in the way: roll back and run the whole transaction again. That
    /// happens after a deadlock or a lock time-out, under a stricter level than read committed when the first committed
    /// after this transaction's snapshot, and on SQLite when the file is busy.
    ///
    /// Cancel safety: dropped half-way, the connection is in the middle of a statement; roll back and drop it, as after
    /// any cancelled query.
    pub fn once<'c>(&self, tx: &'c mut impl InTransaction<DB>, key: impl Into<String>) -> TakeOnce<'c, DB> {
        TakeOnce::new(self.clone(), tx.connection(), key.into())
    }

    /// The answer stored under a key, if one is committed and still held. It takes nothing and never waits: `None` does
    /// not mean that you are first. A cheap read before [`Rowlock::once`], where most calls are repeats.
    ///
    /// # Errors
    /// As [`Rowlock::once`]. Cancel safety: as any read.
    pub fn seen<'c>(&self, conn: &'c mut DB::Connection, key: impl Into<String>) -> LookOnce<'c, DB> {
        LookOnce(TakeOnce::new(self.clone(), conn, key.into()))
    }
}

impl<DB: Backend, T> Tx<DB, T> {
    /// One committed effect per key, across all jobs and requests; see [`Rowlock::once`]. The key is taken with this
    /// job's commit and free again when the attempt fails.
    ///
    /// # Errors
    /// As [`Rowlock::once`]. Through a handler's `?`, a conflict makes the job a case; a serialisation failure or
    /// deadlock retries soon, a lock time-out or busy file after the backoff.
    ///
    /// Cancel safety: as any query in a handler; a handler dropped half-way is rolled back.
    pub fn once(&mut self, key: impl Into<String>) -> TakeOnce<'_, DB> {
        let rowlock = self.rowlock.clone();
        TakeOnce::new(rowlock, self.connection(), key.into())
    }
}
