//! The servers that a URL names, and which of them accepts writes.
//!
//! Every new connection checks whether its server accepts writes. If not, the next host is tried, starting from the
//! last good one. A failover may lose the last commits, and then the new primary assigns the same ids and epochs a
//! second time. So each connection remembers its timeline, and a worker's id is valid for claims only on the timeline
//! that it was registered on. No old token fits a new lease.

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

/// The same for each of several hosts: a host that does not answer must not keep a worker from the others.
const HOST_LIMIT: Duration = Duration::from_secs(2);

/// Asks a server for its process, and whether it accepts writes. The query reads the default setting, because the
/// transaction that asks may be read-only.
const WRITABLE: &str =
    "select pg_backend_pid(), pg_is_in_recovery(), current_setting('default_transaction_read_only') = 'on'";

/// Which history a server continues.
const TIMELINE: &str = "(select system_identifier from pg_control_system()) || ' ' || \
                        left(pg_walfile_name(pg_current_wal_lsn()), 8)";

/// Connection options that a callback returns.
pub type Fresh =
    Pin<Box<dyn Future<Output = std::result::Result<PgConnectOptions, Box<dyn StdError + Send + Sync>>> + Send>>;

/// One server, and how to reach it.
enum Host {
    Fixed(Box<PgConnectOptions>),
    /// Called for each connection, because passwords may change.
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
    /// How long each host may take to answer.
    limit: Duration,
    /// The pooler, if connections are shared with other clients, transaction by transaction.
    pub pooler: Option<Pooler>,
    /// The last good host, or the host after a bad one.
    first: AtomicUsize,
    met: Mutex<Met>,
    /// Connections of an earlier generation are not used again.
    generation: watch::Sender<u64>,
    /// The sets that keep connections.
    sets: Mutex<Vec<Weak<Conns>>>,
    /// The timeline on which each worker was registered.
    homes: Mutex<HashMap<WorkerId, u32>>,
}

#[derive(Default)]
struct Met {
    /// By number: every server history that connections have been on.
    timelines: Vec<String>,
    current: Option<u32>,
}

/// The server of a connection.
#[derive(Clone, Copy)]
pub struct Server {
    /// The server process; behind a pooler, where a process serves many clients, the transaction.
    pub number: i32,
    pub timeline: u32,
    pub generation: u64,
    /// Whether the server says which timeline it is on.
    tells: bool,
}

impl Hosts {
    /// # Errors
    /// [`Error::Config`]. The error quotes no part of the URL: a password that contains `/` or `,` may be in any part.
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

    /// One server, by options that are requested for each connection.
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

    /// Opens a connection on the first host that accepts writes. Cancel-safe: a host whose attempt was dropped is tried
    /// last the next time.
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

    /// Refuses a server that accepts no writes; `options` are those of the connection.
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

    /// [`Hosts::check`] of the server that a pooler assigned to a transaction, which may differ from the last one. With
    /// a name, the transaction is listed under this name and its number from here on.
    pub async fn check_again(
        &self,
        pg: &mut PgConnection,
        before: Server,
        name: Option<String>,
    ) -> sqlx::Result<Server> {
        // If the role may not read the timeline, the query would abort the transaction.
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
        // The number is cut to 32 bits, so it repeats only after about four billion transactions.
        let number: Option<&str> = row.try_get(4)?;
        let number = number.and_then(|number| number.parse::<u64>().ok());
        Ok(Server {
            number: number.map_or(pid, |number| number as u32 as i32),
            timeline,
            generation,
            tells: before.tells,
        })
    }

    /// The server process, if the server accepts writes.
    fn writable(&self, row: &PgRow) -> sqlx::Result<i32> {
        let refusal = match (row.try_get(1)?, row.try_get(2)?) {
            (true, _) => Some(Refusal::Standby),
            // With only one server, a role that may only read can still use it.
            (false, true) if self.all.len() > 1 => Some(Refusal::ReadOnly),
            _ => None,
        };
        match refusal {
            Some(refusal) => Err(sqlx::Error::Configuration(refusal.into())),
            None => row.try_get(0),
        }
    }

    /// The timeline's number. If the timeline has changed, connections to the last server are not used again.
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

    /// Connections opened until now are not used again: their server accepts no more writes.
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

    /// [`Hosts::leave`], if this error says that the server is read-only.
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

    /// Resolves when connections of this generation must not be used any more.
    pub async fn left(&self, generation: u64) {
        // This cannot fail while `self` holds the sender.
        let _ = self.generation.subscribe().wait_for(|now| *now != generation).await;
    }

    /// Whether the latest connection is on another timeline.
    pub fn has_left(&self, timeline: u32) -> bool {
        lock(&self.met).current.is_some_and(|current| current != timeline)
    }

    /// Records the timeline on which a worker was registered.
    pub fn registered(&self, worker: WorkerId, timeline: u32) {
        lock(&self.homes).insert(worker, timeline);
    }

    /// Whether a worker may claim on this timeline. It may not where ids can be assigned that it has seen before.
    pub fn is_home(&self, worker: WorkerId, timeline: u32) -> bool {
        lock(&self.homes).get(&worker).is_none_or(|home| *home == timeline)
    }

    /// Whether the latest connection is on another timeline than the one a worker was registered on.
    pub fn has_moved(&self, worker: WorkerId) -> bool {
        let home = lock(&self.homes).get(&worker).copied();
        home.is_some_and(|home| self.has_left(home))
    }

    /// Forgets a worker that has ended.
    pub fn forget(&self, worker: WorkerId) {
        lock(&self.homes).remove(&worker);
    }
}

/// Why the driver cannot parse a URL. The driver's own error may quote the URL, so it is not passed on.
fn unreadable(url: &str) -> Error {
    let bad = url::bad_parameter(url, |url| PgConnectOptions::from_str(url).is_ok());
    Error::Config(match bad {
        Some((name, values)) => {
            format!("the PostgreSQL URL has an unsupported value for {name}; use {values}, or remove it")
        }
        None => "the PostgreSQL URL cannot be parsed; check its form and port".into(),
    })
}

/// Records whether a host was good, however the attempt ends.
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
            // Another attempt may have stored a newer result; keep that.
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

/// Which history the server continues. Another system, or another timeline of the same system, may lack commits that
/// this process has seen. `None` where the role may not read it.
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

/// The same error with the server's address, if its text only says that the connection failed.
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
