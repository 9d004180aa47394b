//! Finds the PostgreSQL servers of this machine.
//!
//! Looks in `PG_BIN_DIRS`, then in `PATH`, then in Debian's folder, and keeps one server for each
//! major version: the first found wins, so that the folders named by hand do. Programs are followed
//! through symbolic links to their real folder, because `postgres` finds its own libraries and
//! `initdb` its server beside itself.
//!
//! A folder named by hand must hold a working server, or the search fails; elsewhere a broken one
//! is passed over.

mod cluster;
mod install;
mod owner;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

pub(crate) use cluster::{Cluster, LOG};

const DEBIAN_DIR: &str = "/usr/lib/postgresql";

/// Set to `off`, the search finds nothing and installs nothing: it shows what a machine without
/// PostgreSQL would do.
const SEARCH_VAR: &str = "ROWLOCK_XTASK_PG_SEARCH";

/// One server that can be started: its major version and the real folder of its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Server {
    pub(crate) major: u32,
    pub(crate) bin_dir: PathBuf,
}

impl Server {
    /// The name the tests know it by, for example `pg15`.
    pub(crate) fn label(&self) -> String {
        format!("pg{}", self.major)
    }

    fn program(&self, name: &str) -> PathBuf {
        self.bin_dir.join(name)
    }
}

/// What a server is started for, which decides its settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Tests,
    /// One server at a time, sized for throughput and as durable as a user's: nothing here is turned off.
    Bench,
}

impl Use {
    fn settings(self) -> &'static [&'static str] {
        match self {
            Use::Tests => &["max_connections=500", "shared_buffers=128MB", "fsync=on"],
            Use::Bench => &[
                "max_connections=300",
                "shared_buffers=1GB",
                "max_wal_size=16GB",
                "checkpoint_timeout=30min",
                "fsync=on",
                "synchronous_commit=on",
                "autovacuum=on",
                // The benchmark counts the statements of one database in the log.
                "log_line_prefix=%m [%p] db=%d ",
            ],
        }
    }
}

/// Every PostgreSQL found, lowest version first; installs Debian's when there is none and it may.
pub(crate) fn find_or_install() -> Result<Vec<Server>> {
    let found = find()?;
    if !found.is_empty() || searching_is_off() || !crate::machine::apt::is_possible() {
        return Ok(found);
    }
    install::install()?;
    find()
}

/// Every PostgreSQL found, lowest version first.
pub(crate) fn find() -> Result<Vec<Server>> {
    if searching_is_off() {
        return Ok(Vec::new());
    }
    let mut found = BTreeMap::new();
    for dir in split_dirs(std::env::var_os("PG_BIN_DIRS").as_deref()) {
        let server = probe(&dir).with_context(|| {
            format!(
                "PG_BIN_DIRS names {}, which holds no usable PostgreSQL; correct it or take it out",
                dir.display()
            )
        })?;
        let major = server.major;
        if let Some(kept) = keep_first(&mut found, server) {
            let (dir, kept) = (dir.display(), kept.bin_dir.display());
            crate::note(&format!(
                "PG_BIN_DIRS: leaving out {dir}, PostgreSQL {major} of {kept} runs"
            ));
        }
    }
    let path_dirs = split_dirs(std::env::var_os("PATH").as_deref());
    for dir in path_dirs.into_iter().chain(debian_dirs(Path::new(DEBIAN_DIR))) {
        if !dir.join("postgres").exists() {
            continue;
        }
        match probe(&dir) {
            Ok(server) => {
                keep_first(&mut found, server);
            }
            Err(error) => crate::note(&format!("passing over PostgreSQL in {}: {error:#}", dir.display())),
        }
    }
    Ok(found.into_values().collect())
}

fn searching_is_off() -> bool {
    std::env::var_os(SEARCH_VAR).is_some_and(|value| value == "off")
}

/// Keeps the server unless its version is there already; then returns the one kept.
fn keep_first(found: &mut BTreeMap<u32, Server>, server: Server) -> Option<&Server> {
    match found.entry(server.major) {
        Entry::Vacant(place) => {
            place.insert(server);
            None
        }
        Entry::Occupied(place) => Some(place.into_mut()),
    }
}

fn split_dirs(list: Option<&OsStr>) -> Vec<PathBuf> {
    let dirs = list
        .map(|list| std::env::split_paths(list).collect::<Vec<_>>())
        .unwrap_or_default();
    dirs.into_iter().filter(|dir| !dir.as_os_str().is_empty()).collect()
}

/// Debian's `<version>/bin` folders.
fn debian_dirs(root: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(root) else {
        return Vec::new();
    };
    let mut dirs: Vec<PathBuf> = entries.flatten().map(|entry| entry.path().join("bin")).collect();
    dirs.sort();
    dirs
}

/// Looks at the server in a folder, which may hold no more than symbolic links to it.
fn probe(dir: &Path) -> Result<Server> {
    let postgres = dir.join("postgres");
    let postgres = postgres
        .canonicalize()
        .with_context(|| format!("{} is not there", postgres.display()))?;
    let bin_dir = postgres.parent().context("the program has no folder")?.to_path_buf();
    if !bin_dir.join("initdb").exists() {
        bail!("{} has no initdb", bin_dir.display());
    }
    let output = Command::new(&postgres)
        .arg("--version")
        .output()
        .context("postgres --version did not run")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let major = parse_major(&text)
        .with_context(|| format!("postgres --version said `{}`, which has no version", text.trim()))?;
    Ok(Server { major, bin_dir })
}

/// The major version in `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)`, also of `18beta1`
/// and `19devel`.
fn parse_major(text: &str) -> Option<u32> {
    let version = text.split_once("(PostgreSQL)")?.1.trim_start();
    let digits: String = version.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_major_version_is_read_from_every_kind_of_release() {
        assert_eq!(
            parse_major("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"),
            Some(15)
        );
        assert_eq!(parse_major("postgres (PostgreSQL) 18beta1"), Some(18));
        assert_eq!(parse_major("postgres (PostgreSQL) 19devel"), Some(19));
        assert_eq!(parse_major("postgres (PostgreSQL) "), None);
        assert_eq!(parse_major("bash: no such program"), None);
    }

    #[test]
    fn empty_entries_of_a_folder_list_are_not_folders() {
        let dirs = split_dirs(Some(OsStr::new(":/a/bin::/b/bin:")));
        assert_eq!(dirs, [PathBuf::from("/a/bin"), PathBuf::from("/b/bin")]);
        assert!(split_dirs(None).is_empty());
        assert!(split_dirs(Some(OsStr::new(""))).is_empty());
    }

    #[test]
    fn the_first_folder_of_a_major_version_wins() {
        let server = |major, dir: &str| Server {
            major,
            bin_dir: dir.into(),
        };
        let mut found = BTreeMap::new();
        for server in [server(16, "/hand"), server(15, "/path"), server(16, "/debian")] {
            keep_first(&mut found, server);
        }
        assert_eq!(
            found.into_values().collect::<Vec<_>>(),
            [server(15, "/path"), server(16, "/hand")]
        );
    }

    #[test]
    fn a_folder_without_a_server_is_refused_by_name() {
        let error = probe(Path::new("/nowhere")).unwrap_err();
        assert_eq!(error.to_string(), "/nowhere/postgres is not there");
    }
}
