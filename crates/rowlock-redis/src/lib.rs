//! A Redis pre-filter: asks Redis, which may forget, whether a key was seen before.
//!
//! `SET key NX EX` answers in one round trip and without a transaction. It is a fast first look and no proof: nothing
//! ties the look to the work, and Redis may lose what it stored. So there are two windows, whatever the settings:
//!
//! - **A job can be lost.** A process that dies between a first look and the end of its work leaves the key behind.
//!   Until its time is over, every repeat gets [`Look::Repeat`].
//! - **A double can get through.** A key that Redis forgot (restart, failover, flush, eviction, its time over while the
//!   work still ran) gives a second caller [`Look::First`]. So does [`Look::Unknown`] when the caller goes on without
//!   an answer.
//!
//! Before [`Rowlock::once`](rowlock::Rowlock::once) neither window opens, because the ledger decides and the look only
//! says what to try first. On a repeat, read the stored answer. If there is none, the first caller is still running or
//! has died: take the key.
//!
//! ```no_run
//! # use rowlock::{Once, postgres::Rowlock};
//! # use rowlock_redis::{Filter, Look};
//! # async fn deliver(filter: &Filter, rowlock: &Rowlock, db: &sqlx::PgPool, event: &str) -> Result<i64, Box<dyn std::error::Error>> {
//! let key = format!("webhook:{event}");
//! if let Look::Repeat = filter.first(&key).await
//!     && let Some(answer) = rowlock.seen(&mut *db.acquire().await?, &key).await?
//! {
//!     return Ok(answer.get()?);
//! }
//! let mut tx = db.begin().await?;
//! let total = match rowlock.once(&mut tx, &key).await? {
//!     Once::First(slot) => {
//!         let total: i64 = sqlx::query_scalar("update counter set n = n + 1 returning n").fetch_one(&mut *tx).await?;
//!         slot.store(&mut tx, &total).await?;
//!         total
//!     }
//!     Once::Seen(answer) => answer.get()?,
//! };
//! tx.commit().await?;
//! # Ok(total) }
//! ```
//!
//! For work with no database at all, use it where a lost or doubled run is tolerable, such as a metric or a warm cache:
//!
//! ```no_run
//! # use rowlock_redis::{Filter, Look};
//! # async fn warm_the_cache() -> Result<(), std::io::Error> { Ok(()) }
//! # async fn run(filter: &Filter) -> Result<(), std::io::Error> {
//! match filter.first("warm:page:7").await {
//!     Look::First(mark) => if let Err(error) = warm_the_cache().await {
//!         filter.forget(mark).await;      // the next one need not wait for the key's time
//!         return Err(error);
//!     },
//!     Look::Repeat => {}
//!     Look::Unknown => warm_the_cache().await?,   // or not: the choice between a double and a loss is yours
//! }
//! # Ok(()) }
//! ```

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value, aio::MultiplexedConnection, cmd};
use rowlock::{Error, Result};
use uuid::Uuid;

/// How long a look may take unless set.
const TIMEOUT: Duration = Duration::from_millis(100);

/// How long Redis is not asked after it did not answer. So looks cost next to nothing while it is away.
const PAUSE: Duration = Duration::from_millis(250);

const TTL_MAX: Duration = Duration::from_secs(366 * 24 * 3600);

/// Removes a key only while it is the one that this look set.
const FORGET: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";

/// The result of a look.
#[derive(Debug, PartialEq, Eq)]
#[must_use = "a look that nobody reads has still set the key"]
pub enum Look {
    /// Nobody came with this key, as far as Redis remembers. The key is now set; the mark can take it back.
    First(Mark),
    /// Somebody came with this key within the time. Their work need not be done.
    Repeat,
    /// Redis did not answer in time, or refused. The key may or may not be set now.
    Unknown,
}

/// Proof of a first look.
#[derive(Debug, PartialEq, Eq)]
pub struct Mark {
    key: String,
    value: String,
}

/// The filter. Cheap to clone; the clones share one connection.
#[derive(Clone)]
pub struct Filter {
    link: Arc<Mutex<Link>>,
    /// Held while connecting, so that many looks make one connection.
    connecting: Arc<tokio::sync::Mutex<()>>,
    client: Client,
    prefix: String,
    ttl_s: u64,
    timeout: Duration,
}

#[derive(Default)]
struct Link {
    conn: Option<MultiplexedConnection>,
    /// Redis is not asked before this time.
    away_until: Option<Instant>,
    /// How often the connection was lost.
    round: u64,
}

impl fmt::Debug for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filter")
            .field("prefix", &self.prefix)
            .finish_non_exhaustive()
    }
}

impl Filter {
    /// Names the server by its URL (`redis://host:port/db`) and how long a key is remembered, in whole seconds. Tries
    /// to connect. A server that is away is not an error, because every look has to handle that anyway.
    ///
    /// # Errors
    /// [`Error::Config`] when the URL cannot be read; [`Error::Invalid`] when the time is not 1 s to 366 days.
    ///
    /// Cancel-safe.
    pub async fn connect(url: &str, ttl: Duration) -> Result<Filter> {
        if ttl < Duration::from_secs(1) || ttl > TTL_MAX {
            let problem = format!("{ttl:?} is out of range (1 s to 366 days)");
            return Err(Error::invalid("ttl", problem));
        }
        // The driver's message may quote the url with its password, so it is not passed on.
        let client = Client::open(url).map_err(|_| {
            Error::Config("the Redis URL cannot be parsed; use a URL such as redis://host:6379/0".into())
        })?;
        let filter = Filter {
            link: Arc::default(),
            connecting: Arc::default(),
            client,
            prefix: "rowlock:".into(),
            ttl_s: ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0),
            timeout: TIMEOUT,
        };
        filter.ask(&cmd("PING")).await;
        Ok(filter)
    }

    /// What every key begins with in Redis; `rowlock:` unless set.
    pub fn prefix(mut self, prefix: impl Into<String>) -> Filter {
        self.prefix = prefix.into();
        self
    }

    /// The longest a look may take; 100 ms unless set.
    pub fn timeout(mut self, timeout: Duration) -> Filter {
        self.timeout = timeout;
        self
    }

    /// Whether somebody came with this key before. The [crate](self) says what the answer proves.
    ///
    /// Never an error: a Redis that is away, full or slow is [`Look::Unknown`], within the timeout. Cancel safety:
    /// if it is dropped half-way, the key may be set, as after `Unknown`.
    pub async fn first(&self, key: &str) -> Look {
        let mark = Mark {
            key: format!("{}{key}", self.prefix),
            value: Uuid::now_v7().simple().to_string(),
        };
        let mut set = cmd("SET");
        set.arg(&mark.key).arg(&mark.value).arg("NX").arg("EX").arg(self.ttl_s);
        match self.ask(&set).await {
            Some(Value::Okay) => Look::First(mark),
            Some(Value::Nil) => Look::Repeat,
            _ => Look::Unknown,
        }
    }

    /// Takes a first look back after failed work, so that the next caller is first again. Returns `false` if the key no
    /// longer belongs to this look, or if Redis did not answer. Then the key stays until its time is over.
    ///
    /// Cancel safety: if it is dropped half-way, the key may or may not be there.
    pub async fn forget(&self, mark: Mark) -> bool {
        let mut forget = cmd("EVAL");
        forget.arg(FORGET).arg(1).arg(&mark.key).arg(&mark.value);
        matches!(self.ask(&forget).await, Some(Value::Int(1)))
    }

    /// `None`: no answer, for whatever reason.
    async fn ask(&self, command: &Cmd) -> Option<Value> {
        let round = self.link().round;
        let said = tokio::time::timeout(self.timeout, async {
            let mut conn = self.connection().await?;
            command.query_async::<Value>(&mut conn).await
        });
        match said.await {
            Ok(Ok(value)) => return Some(value),
            // The server refused, such as with "out of memory": the connection is still good.
            Ok(Err(error)) if error.code().is_some() => {
                tracing::warn!("Redis refused a command, continuing without Redis: {error}");
            }
            Ok(Err(error)) => self.lost(round, &error),
            Err(_) => self.lost(round, &"no answer in time"),
        }
        None
    }

    async fn connection(&self) -> std::result::Result<MultiplexedConnection, RedisError> {
        if let Some(conn) = self.connected()? {
            return Ok(conn);
        }
        let _one_at_a_time = self.connecting.lock().await;
        if let Some(conn) = self.connected()? {
            return Ok(conn);
        }
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(self.timeout))
            .set_response_timeout(Some(self.timeout));
        let conn = self.client.get_multiplexed_async_connection_with_config(&config);
        let conn = conn.await?;
        self.link().conn = Some(conn.clone());
        Ok(conn)
    }

    /// The connection, if there is one; an error while Redis is not to be asked.
    fn connected(&self) -> std::result::Result<Option<MultiplexedConnection>, RedisError> {
        let link = self.link();
        match link.away_until {
            Some(until) if Instant::now() < until => Err(std::io::Error::from(std::io::ErrorKind::NotConnected).into()),
            _ => Ok(link.conn.clone()),
        }
    }

    /// Drops the connection and does not ask Redis for a moment. A late failure of an earlier connection changes
    /// nothing.
    fn lost(&self, round: u64, why: &dyn fmt::Display) {
        let mut link = self.link();
        let now = Instant::now();
        if link.round != round || link.away_until.is_some_and(|until| now < until) {
            return;
        }
        tracing::warn!("Redis does not answer, continuing without Redis: {why}");
        *link = Link {
            conn: None,
            away_until: Some(now + PAUSE),
            round: round + 1,
        };
    }

    fn link(&self) -> MutexGuard<'_, Link> {
        self.link.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
