//! The servers that a URL names, and which of them to write on.
//!
//! Every new connection is asked whether its server takes writes; if not, the next host is tried, from the last good one
//! on. A failover may have lost the last commits, and the server that took over then gives out the same ids and epochs a
//! second time. So connections remember on whose timeline they are, and a worker's id is good for claims on the timeline
//! that it was registered on, and on no other: no old token fits a new lease.

use std::{
    collections::HashMap,
    error::Error as StdError,
    io::{Error as IoError, ErrorKind},
    pin::Pin,
    str::FromStr,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, ConnectOptions, PgConnection, Row,
    postgres::{PgConnectOptions, PgRow},
};
use tokio::sync::watch;

use crate::store::postgres::{
    conns::{Conns, timed_out},
    pooler::Pooler,
    tls,
    url::{self, Url},
};
use crate::{
    error::{Error, Result, sqlstate},
    lease::WorkerId,
};

/// How long a connection attempt may take.
pub const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The same for each of several hosts: one that does not answer must not keep a worker from those that do.
const HOST_LIMIT: Duration = Duration::from_secs(2);

/// Asks a server who it is, and whether it takes writes. By its default: the transaction that asks may be one that reads.
const WRITABLE: &str =
    "select pg_backend_pid(), pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'";

/// Whose history a server continues.
const TIMELINE: &str = "(select system_identifier from pg_control_system()) || ' ' || \
                        left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// Options on their way from a callback.
pub type Fresh =
    Pin<Box<dyn Future<Output = std::result::Result<PgConnectOptions, Box<dyn StdError + Send + Sync>>> + Send>>;

/// One server, and how to reach it.
enum Host {
    Fixed(Box<PgConnectOptions>),
    /// Asked for each connection, because passwords may change.
    Fresh(Box<dyn Fn() -> Fresh + Send + Sync>),
}

impl Host {
    async fn options(&self) -> sqlx::Result<PgConnectOptions> {
        match self {
            Host::Fixed(options) => Ok((**options).clone()),
            Host::Fresh(ask) => match ask().await {
                Ok(options) => Ok(options.disable_statement_logging()),
                Err(error) => {
                    let problem = format!("the callback of open_by gave no connect options: {error}");
                    Err(sqlx::Error::Io(IoError::other(problem)))
                }
            },
        }
    }

    fn name(&self) -> String {
        match self {
            Host::Fixed(options) => name(options),
            Host::Fresh(_) => "options of a callback".to_owned(),
        }
    }
}

/// The hosts of one URL. Shared by all connections of a handle and of its workers.
pub struct Hosts {
    all: Vec<Host>,
    /// How long each may take to answer.
    limit: Duration,
    /// Where connections are shared with others, transaction by transaction.
    pub pooler: Option<Pooler>,
    /// The last good one, or the one after a bad one.
    first: AtomicUsize,
    met: Mutex<Met>,
    /// Connections of an earlier number are not used again.
    generation: watch::Sender<u64>,
    /// What keeps connections.
    sets: Mutex<Vec<Weak<Conns>>>,
    /// On which timeline each worker was registered.
    homes: Mutex<HashMap<WorkerId, u32>>,
}

#[derive(Default)]
struct Met {
    /// By number: every history of a server that connections have been on.
    timelines: Vec<String>,
    current: Option<u32>,
}

/// What a connection is to.
#[derive(Clone, Copy)]
pub struct Server {
    /// The process at the other end; behind a pooler, where that serves many, the transaction.
    pub number: i32,
    pub timeline: u32,
    pub generation: u64,
    /// Whether it says on which timeline it is.
    tells: bool,
}

impl Hosts {
    /// # Errors
    /// [`Error::Config`]. It quotes nothing: a password with a `/` or `,` of its own may stand anywhere.
    pub fn parse(url: &str) -> Result<Hosts> {
        let options = |url: String| {
            let options = PgConnectOptions::from_str(&url).map_err(|_| unreadable(&url))?;
            tls::checked(options)
        };
        let url = Url::parse(url)?;
        let all: Vec<PgConnectOptions> = url.each.into_iter().map(options).collect::<Result<_>>()?;
        let pooler = url.pooled.then(Pooler::new);
        let quiet = all.into_iter().map(ConnectOptions::disable_statement_logging);
        let all: Vec<PgConnectOptions> = match pooler {
            Some(_) => quiet.map(Pooler::fit).collect(),
            None => quiet.collect(),
        };
        let all = all.into_iter().map(|options| Host::Fixed(Box::new(options))).collect();
        Ok(Hosts::new(all, pooler))
    }

    /// One server, by the driver's own options.
    pub fn of(options: PgConnectOptions) -> Hosts {
        let quiet = Box::new(options.disable_statement_logging());
        Hosts::new(vec![Host::Fixed(quiet)], None)
    }

    /// One server, by options that are asked for with each connection.
    pub fn by(ask: impl Fn() -> Fresh + Send + Sync + 'static) -> Hosts {
        Hosts::new(vec![Host::Fresh(Box::new(ask))], None)
    }

    fn new(all: Vec<Host>, pooler: Option<Pooler>) -> Hosts {
        Hosts {
            limit: if all.len() > 1 { HOST_LIMIT } else { CONNECT_LIMIT },
            all,
            pooler,
            first: AtomicUsize::new(0),
            met: Mutex::default(),
            generation: watch::Sender::new(0),
            sets: Mutex::default(),
            homes: Mutex::default(),
        }
    }

    /// Opens something on the first host that takes writes. Cancel-safe, and a host at which it was dropped is the last
    /// to be tried the next time.
    pub async fn find<T, F>(&self, open: impl Fn(PgConnectOptions) -> F) -> sqlx::Result<T>
    where
        F: Future<Output = sqlx::Result<T>>,
    {
        let count = self.all.len();
        let first = self.first.load(Ordering::Relaxed);
        let mut refusals = Vec::new();
        for at in (first..first + count).map(|at| at % count) {
            let mut trying = Trying {
                hosts: self,
                at,
                good: false,
            };
            let host = &self.all[at];
            let opened = async { open(host.options().await?).await };
            let opened = tokio::time::timeout(self.limit, opened).await;
            match opened.unwrap_or_else(|_| Err(timed_out("connecting"))) {
                Ok(opened) => {
                    trying.good = true;
                    return Ok(opened);
                }
                Err(error) if count == 1 => return Err(named(error, host)),
                Err(error) => refusals.push(format!("{}: {}", host.name(), reason(&error))),
            }
        }
        let problem = format!("no host accepts writes ({})", refusals.join(", "));
        Err(sqlx::Error::Io(IoError::new(ErrorKind::NotConnected, problem)))
    }

    /// Refuses a server that takes no writes; `options` are those it was reached with.
    pub async fn check(&self, pg: &mut PgConnection, options: &PgConnectOptions) -> sqlx::Result<Server> {
        let row = sqlx::raw_sql(WRITABLE).fetch_one(&mut *pg).await?;
        let number = self.writable(&row)?;
        let told = timeline(pg).await?;
        let tells = told.is_some();
        let (timeline, generation) = self.meet(told.unwrap_or_else(|| name(options)));
        Ok(Server {
            number,
            timeline,
            generation,
            tells,
        })
    }

    /// [`Hosts::check`] of the server that a pooler gave a transaction: it may be another one than for the last. With a
    /// name, the transaction is known by that and its number from here on.
    pub async fn check_again(
        &self,
        pg: &mut PgConnection,
        before: Server,
        name: Option<String>,
    ) -> sqlx::Result<Server> {
        // Where it does not tell everybody, asking would end the transaction.
        let timeline = if before.tells { TIMELINE } else { "null" };
        let number = name.map(|name| {
            format!(
                "pg_current_xact_id()::text, set_config('application_name', '{name}' || pg_current_xact_id()::text, true)"
            )
        });
        let asked = format!("{WRITABLE}, {timeline}, {}", number.as_deref().unwrap_or("null"));
        let row = sqlx::raw_sql(AssertSqlSafe(asked)).fetch_one(pg).await?;
        let pid = self.writable(&row)?;
        let (timeline, generation) = match row.try_get(3)? {
            Some(told) => self.meet(told),
            None => (before.timeline, self.generation()),
        };
        // Numbers come back after four thousand million others.
        let number: Option<&str> = row.try_get(4)?;
        let number = number.and_then(|number| number.parse::<u64>().ok());
        Ok(Server {
            number: number.map_or(pid, |number| number as u32 as i32),
            timeline,
            generation,
            tells: before.tells,
        })
    }

    /// The process at the other end, if it takes writes.
    fn writable(&self, row: &PgRow) -> sqlx::Result<i32> {
        let refusal = match (row.try_get(1)?, row.try_get(2)?) {
            (true, _) => Some(Refusal::Standby),
            // A role that may only read can look at the one server there is.
            (false, true) if self.all.len() > 1 => Some(Refusal::ReadOnly),
            _ => None,
        };
        match refusal {
            Some(refusal) => Err(sqlx::Error::Configuration(refusal.into())),
            None => row.try_get(0),
        }
    }

    /// The timeline's number. Where it is another than before, connections to the server before are not used again.
    fn meet(&self, timeline: String) -> (u32, u64) {
        let mut met = lock(&self.met);
        let known = met.timelines.iter().position(|known| *known == timeline);
        let number = known.unwrap_or_else(|| {
            met.timelines.push(timeline);
            met.timelines.len() - 1
        }) as u32;
        if met.current.replace(number).is_some_and(|before| before != number) {
            self.leave();
        }
        (number, self.generation())
    }

    /// Connections made until now are not used again: their server takes no more writes.
    fn leave(&self) {
        self.generation.send_modify(|generation| *generation += 1);
        for set in lock(&self.sets).iter().filter_map(Weak::upgrade) {
            set.forget_idle();
        }
    }

    /// Idle connections of this set are closed when their server is left.
    pub fn serve(&self, set: &Arc<Conns>) {
        let mut sets = lock(&self.sets);
        sets.retain(|set| set.strong_count() > 0);
        sets.push(Arc::downgrade(set));
    }

    /// [`Hosts::leave`], if this says so.
    pub fn heed(&self, error: &Error) {
        if let Error::Database { source, .. } = error
            && sqlstate(source).as_deref() == Some("25006")
        {
            self.leave();
        }
    }

    pub fn generation(&self) -> u64 {
        *self.generation.borrow()
    }

    /// Resolves when connections of this generation are not to be used any more.
    pub async fn left(&self, generation: u64) {
        // It cannot fail while this is here to send.
        let _ = self.generation.subscribe().wait_for(|now| *now != generation).await;
    }

    /// Whether the latest connection is on another timeline.
    pub fn has_left(&self, timeline: u32) -> bool {
        lock(&self.met).current.is_some_and(|current| current != timeline)
    }

    /// A worker was registered there.
    pub fn registered(&self, worker: WorkerId, timeline: u32) {
        lock(&self.homes).insert(worker, timeline);
    }

    /// Whether a worker may claim there: not where ids may be given out that it has met before.
    pub fn is_home(&self, worker: WorkerId, timeline: u32) -> bool {
        lock(&self.homes).get(&worker).is_none_or(|home| *home == timeline)
    }

    /// Whether the latest connection is on another timeline than the one a worker was registered on.
    pub fn has_moved(&self, worker: WorkerId) -> bool {
        let home = lock(&self.homes).get(&worker).copied();
        home.is_some_and(|home| self.has_left(home))
    }

    /// A worker is over.
    pub fn forget(&self, worker: WorkerId) {
        lock(&self.homes).remove(&worker);
    }
}

/// Why the driver cannot parse a URL. The driver's own message may quote the URL, so it is not passed on.
fn unreadable(url: &str) -> Error {
    let bad = url::bad_parameter(url, |url| PgConnectOptions::from_str(url).is_ok());
    Error::Config(match bad {
        Some((name, values)) => {
            format!("the PostgreSQL URL has an unsupported value for {name}; use {values}, or remove it")
        }
        None => "the PostgreSQL URL cannot be parsed; check its form and port".into(),
    })
}

/// Remembers what came of a host, however the attempt ends.
struct Trying<'a> {
    hosts: &'a Hosts,
    at: usize,
    good: bool,
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        let (first, next) = (&self.hosts.first, (self.at + 1) % self.hosts.all.len());
        if self.good {
            first.store(self.at, Ordering::Relaxed);
        } else {
            // Unless another attempt knows better.
            let _ = first.compare_exchange(self.at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("this server is a standby; connect to the primary")]
    Standby,
    #[error("this server is read-only; connect to the primary")]
    ReadOnly,
}

/// Whose history the server continues: another system, or another timeline of the same one, may lack commits that this
/// process has seen. `None` where the server does not tell everybody.
async fn timeline(pg: &mut PgConnection) -> sqlx::Result<Option<String>> {
    let asked = format!("select {TIMELINE}");
    match sqlx::raw_sql(AssertSqlSafe(asked)).fetch_one(pg).await {
        Err(sqlx::Error::Database(_)) => Ok(None),
        row => row?.try_get(0),
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn name(options: &PgConnectOptions) -> String {
    match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => format!("{}:{}", options.get_host(), options.get_port()),
    }
}

/// The same error with the server's address in its text, where the text says only that nobody answered.
fn named(error: sqlx::Error, host: &Host) -> sqlx::Error {
    match error {
        sqlx::Error::Io(said) => {
            let text = format!("{said} ({})", host.name());
            sqlx::Error::Io(IoError::new(said.kind(), text))
        }
        other => other,
    }
}

fn reason(error: &sqlx::Error) -> String {
    match error {
        sqlx::Error::Configuration(said) => match said.downcast_ref() {
            Some(Refusal::Standby) => "standby".into(),
            Some(Refusal::ReadOnly) => "read-only".into(),
            None => said.to_string(),
        },
        sqlx::Error::Io(said) => said.to_string(),
        sqlx::Error::Database(said) => said.message().to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests;
