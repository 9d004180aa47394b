//! Finds the redis-server of this machine.
//!
//! Looks at what `ROWLOCK_TEST_REDIS_SERVER` names, then in `PATH`, then where Debian puts it. The tests start servers of their
//! own from it, on free loopback ports. It is needed by one suite only, so a machine without it runs the others and says so.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// Where the tests read the program's path from; empty when there is none.
pub(crate) const PROGRAM_VAR: &str = "ROWLOCK_TEST_REDIS_SERVER";

/// Set to `off`, the search finds nothing and installs nothing.
const SEARCH_VAR: &str = "ROWLOCK_XTASK_REDIS_SEARCH";

/// What Debian asks before it starts a server that was just installed.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The program, installed if it may be; the error says why there is none.
pub(crate) fn find_or_install(may_install: bool) -> Result<PathBuf> {
    if std::env::var_os(SEARCH_VAR).is_some_and(|value| value == "off") {
        bail!("the search is off");
    }
    if let Some(program) = std::env::var_os(PROGRAM_VAR).filter(|path| !path.is_empty()) {
        let program = PathBuf::from(program);
        if !program.is_file() {
            bail!("{PROGRAM_VAR} names {}, which is not there", program.display());
        }
        return Ok(program);
    }
    if let Some(program) = find() {
        return Ok(program);
    }
    if !may_install {
        bail!("no redis-server found");
    }
    if !crate::apt::is_possible() {
        bail!("no redis-server found, and only root can install it");
    }
    install()?;
    find().context("the package redis-server is installed, and still there is no redis-server")
}

fn find() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let debian = PathBuf::from("/usr/bin");
    let folders = std::env::split_paths(&path).chain([debian]);
    folders
        .map(|folder| folder.join("redis-server"))
        .find(|program| program.is_file())
}

/// Installs Debian's `redis-server`, saying so. The package would start a server on the usual port; a policy that is there only
/// during the install forbids it.
fn install() -> Result<()> {
    crate::note("no redis-server found: installing Debian's package redis-server with apt-get");
    let forbid = !Path::new(POLICY).exists();
    if forbid {
        std::fs::write(POLICY, "#!/bin/sh\nexit 101\n")
            .and_then(|()| std::fs::set_permissions(POLICY, Permissions::from_mode(0o755)))
            .with_context(|| format!("could not write {POLICY}"))?;
    }
    let result = crate::apt::install("redis-server").context("could not install redis-server");
    if forbid {
        // Left behind it would keep every later install from starting what it installs.
        let _ = std::fs::remove_file(POLICY);
    }
    result
}
