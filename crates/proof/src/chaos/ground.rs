//! Where a run takes place: the database with what is before and below it, and what its faults share.

use std::{
    fs::File,
    io::Write,
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};

use super::{
    fleet::{Fleet, Halt},
    history::Faults,
    log::now_ms,
    volume::Volume,
};
use crate::{cluster::Cluster, pooler::Pooler, proxy::Proxy};

/// Errors of recovery's own keep it from judging for about as long; what is measured after a fault waits for that.
const AFTERMATH_MS: i64 = 2_500;

/// Settings of the server under test: enough connections for all, few enough to be used up.
const SETTINGS: [&str; 7] = [
    // When a move of a breaker could be seen.
    "track_commit_timestamp=on",
    "max_connections=160",
    "log_min_messages=fatal",
    "log_min_error_statement=panic",
    "max_wal_size=512MB",
    "shared_buffers=256MB",
    "autovacuum_naptime=10s",
];

/// How many connections the pooler lends: fewer than those who go through it would like to have.
const POOLED: usize = 10;

/// The database under test.
pub enum Site {
    /// A server of the run's own.
    Postgres {
        /// The server.
        cluster: Box<tokio::sync::Mutex<Cluster>>,
        /// The networks before it.
        proxies: Vec<Proxy>,
        /// What lends its connections to some, where the machine has one. The first network is behind it.
        pooler: Option<tokio::sync::Mutex<Pooler>>,
    },
    /// A file.
    Sqlite,
}

/// What the series of faults share.
pub struct Ground {
    /// The database.
    pub site: Site,
    /// How to reach it past every proxy.
    pub url: String,
    /// The small file system that it lies on, where there could be one.
    pub volume: Option<Volume>,
    /// The processes.
    pub fleet: tokio::sync::Mutex<Fleet>,
    /// Set when it is enough.
    pub halt: Halt,
    /// The workers' lease.
    pub lease: Duration,
    record: Mutex<Faults>,
    log: File,
}

/// A database before anybody works on it.
pub struct Bare {
    /// See [`Ground`].
    pub site: Site,
    /// See [`Ground`].
    pub url: String,
    /// See [`Ground`].
    pub volume: Option<Volume>,
    /// What could not be had, and why.
    pub missing: Vec<String>,
}

impl Bare {
    /// A server with two proxies before it, on a small file system if the machine allows one.
    ///
    /// # Errors
    /// No server was found, or it does not start.
    pub async fn postgres(folder: &Path, megabytes: u64, seed: u64) -> Result<Bare> {
        let mut missing = Vec::new();
        let volume = volume(folder, megabytes, &mut missing);
        let parent = volume.as_ref().map_or(folder, Volume::path);
        let cluster = Cluster::start_in(parent, &SETTINGS).await?;
        let url = cluster.server().url;
        let mut proxies = Vec::new();
        for no in 0..2 {
            proxies.push(Proxy::before(&url, seed.wrapping_add(no)).await?);
        }
        let cluster = Box::new(tokio::sync::Mutex::new(cluster));
        let pooler = Pooler::before(&proxies[0].url(&url)?, POOLED).await?;
        if pooler.is_none() {
            missing.push("kill the pooler (no pgbouncer)".into());
        }
        let pooler = pooler.map(tokio::sync::Mutex::new);
        Ok(Bare {
            site: Site::Postgres {
                cluster,
                proxies,
                pooler,
            },
            url,
            volume,
            missing,
        })
    }

    /// How to reach it through its pooler, if there is one.
    ///
    /// # Errors
    /// Somebody else has the pooler.
    pub fn pooled_url(&self) -> Result<Option<String>> {
        match &self.site {
            Site::Postgres {
                pooler: Some(pooler), ..
            } => Ok(Some(pooler.try_lock()?.url(&self.url)?)),
            _ => Ok(None),
        }
    }

    /// A file, on a small file system if the machine allows one.
    ///
    /// # Errors
    /// None for now.
    pub fn sqlite(folder: &Path, megabytes: u64) -> Result<Bare> {
        let mut missing = Vec::new();
        let volume = volume(folder, megabytes, &mut missing);
        let parent = volume.as_ref().map_or(folder, Volume::path);
        let url = format!("sqlite:{}", parent.join("proof.db").display());
        let site = Site::Sqlite;
        Ok(Bare {
            site,
            url,
            volume,
            missing,
        })
    }
}

fn volume(folder: &Path, megabytes: u64, missing: &mut Vec<String>) -> Option<Volume> {
    match Volume::make(folder, megabytes) {
        Ok(volume) => Some(volume),
        Err(error) => {
            missing.push(format!("disk full ({error:#})"));
            None
        }
    }
}

impl Ground {
    /// Puts it together. Faults are written down in this folder as they come.
    ///
    /// # Errors
    /// The log cannot be made.
    pub fn new(bare: Bare, fleet: Fleet, lease: Duration, wanted: Vec<String>, folder: &Path) -> Result<Ground> {
        Ok(Ground {
            site: bare.site,
            url: bare.url,
            volume: bare.volume,
            fleet: tokio::sync::Mutex::new(fleet),
            halt: Halt::default(),
            lease,
            record: Mutex::new(Faults {
                wanted,
                missing: bare.missing,
                ..Faults::default()
            }),
            log: File::create(folder.join("faults.log"))?,
        })
    }

    /// The server, if it is one.
    ///
    /// # Errors
    /// It is a file.
    pub async fn cluster(&self) -> Result<tokio::sync::MutexGuard<'_, Cluster>> {
        match &self.site {
            Site::Postgres { cluster, .. } => Ok(cluster.lock().await),
            Site::Sqlite => Err(anyhow::anyhow!("there is no server")),
        }
    }

    /// The networks before it.
    pub fn proxies(&self) -> &[Proxy] {
        match &self.site {
            Site::Postgres { proxies, .. } => proxies,
            Site::Sqlite => &[],
        }
    }

    /// What lends its connections, if there is such a thing.
    pub async fn pooler(&self) -> Option<tokio::sync::MutexGuard<'_, Pooler>> {
        match &self.site {
            Site::Postgres {
                pooler: Some(pooler), ..
            } => Some(pooler.lock().await),
            _ => None,
        }
    }

    /// What has been done so far.
    pub fn record(&self) -> MutexGuard<'_, Faults> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a fault.
    pub fn count(&self, kind: &str, times: usize) {
        self.count_on(kind, times, "");
    }

    /// Counts a fault, and writes down whom it met.
    pub fn count_on(&self, kind: &str, times: usize, whom: &str) {
        if times > 0 {
            // Without it a failed run is harder to look into; the run itself does not need it.
            let _ = writeln!(&self.log, "{} {kind} {whom}", now_ms());
            *self.record().counts.entry(kind.to_owned()).or_default() += times;
        }
    }

    /// Whether one of these is wanted and has not come yet.
    pub fn lacks(&self, kinds: &[&str]) -> bool {
        let record = self.record();
        let mut open = record.wanted.iter().filter(|kind| !record.counts.contains_key(*kind));
        open.any(|kind| kinds.contains(&kind.as_str()))
    }

    /// The database was disturbed from then to now; nothing is measured until that is over.
    pub fn disturbed(&self, since: i64) {
        self.record().outages.push((since, now_ms() + AFTERMATH_MS));
    }

    /// Waits, less if it is enough. `false` when it is.
    pub async fn pause(&self, time: Duration) -> bool {
        let until = tokio::time::Instant::now() + time;
        while tokio::time::Instant::now() < until {
            if self.halt.is_on() {
                return false;
            }
            tokio::time::sleep(Duration::from_millis(20).min(time)).await;
        }
        !self.halt.is_on()
    }

    /// Takes the record out at the end.
    ///
    /// # Errors
    /// The proxies' log does not fit.
    pub async fn faults(&self) -> Result<Faults> {
        let fleet = self.fleet.lock().await;
        let mut faults = std::mem::take(&mut *self.record());
        faults.unexplained.clone_from(&fleet.unexplained);
        for proxy in self.proxies() {
            // What lasts is counted when it begins.
            for (kind, times) in proxy.counts().into_iter().filter(|(kind, _)| kind.is_of_a_commit()) {
                let name = super::faults::wire::name(kind);
                *faults.counts.entry(name.to_owned()).or_default() += times;
            }
            let cuts = proxy.commit_cuts(None);
            faults.cut_committed += cuts.committed;
            faults.cut_not_committed += cuts.not_committed;
            faults.cut_unknown += cuts.unknown;
        }
        faults.counts.retain(|_, times| *times > 0);
        Some(faults).context("a record")
    }
}
