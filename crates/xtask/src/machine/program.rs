//! Finds the programs that one suite each needs: redis-server and pgbouncer.
//!
//! Looks at what the program's variable names, then in `PATH`, then where Debian puts it. The tests start their
//! servers from it, on free loopback ports. A machine without it runs the other suites and says so.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// A program.
#[derive(Debug)]
pub(crate) struct Program {
    /// Its file, and Debian's package.
    pub(crate) name: &'static str,
    /// Where the tests read its path from; empty when there is none.
    pub(crate) var: &'static str,
    /// Set to `off`, the search finds nothing and installs nothing.
    search_var: &'static str,
}

/// For the pre-filter.
pub(crate) const REDIS: Program = Program {
    name: "redis-server",
    var: "ROWLOCK_TEST_REDIS_SERVER",
    search_var: "ROWLOCK_XTASK_REDIS_SEARCH",
};

/// A pooler before PostgreSQL.
pub(crate) const PGBOUNCER: Program = Program {
    name: "pgbouncer",
    var: "ROWLOCK_TEST_PGBOUNCER",
    search_var: "ROWLOCK_XTASK_PGBOUNCER_SEARCH",
};

/// What Debian asks before it starts a server that was just installed.
const POLICY: &str = "/usr/sbin/policy-rc.d";

impl Program {
    /// The program, installed if it may be; the error says why there is none.
    pub(crate) fn find_or_install(&self, may_install: bool) -> Result<PathBuf> {
        if std::env::var_os(self.search_var).is_some_and(|value| value == "off") {
            bail!("the search is off");
        }
        if let Some(program) = std::env::var_os(self.var).filter(|path| !path.is_empty()) {
            let program = PathBuf::from(program);
            if !program.is_file() {
                bail!("{} names {}, which is not there", self.var, program.display());
            }
            return Ok(program);
        }
        if let Some(program) = self.find() {
            return Ok(program);
        }
        if !may_install {
            bail!("no {} found", self.name);
        }
        if !crate::machine::apt::is_possible() {
            bail!("no {} found, and only root can install it", self.name);
        }
        self.install()?;
        let missing = || format!("the package {0} is installed, and still there is no {0}", self.name);
        self.find().with_context(missing)
    }

    fn find(&self) -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let debian = ["/usr/bin", "/usr/sbin"].map(PathBuf::from);
        let folders = std::env::split_paths(&path).chain(debian);
        folders
            .map(|folder| folder.join(self.name))
            .find(|program| program.is_file())
    }

    /// Installs Debian's package, saying so. The package would start a server on the usual port; a policy that is there
    /// only during the install forbids it.
    fn install(&self) -> Result<()> {
        crate::note(&format!(
            "no {0} found: installing Debian's package {0} with apt-get",
            self.name
        ));
        let forbid = !Path::new(POLICY).exists();
        if forbid {
            std::fs::write(POLICY, "#!/bin/sh\nexit 101\n")
                .and_then(|()| std::fs::set_permissions(POLICY, Permissions::from_mode(0o755)))
                .with_context(|| format!("could not write {POLICY}"))?;
        }
        let result =
            crate::machine::apt::install(self.name).with_context(|| format!("could not install {}", self.name));
        if forbid {
            // Left behind it would keep every later install from starting what it installs.
            let _ = std::fs::remove_file(POLICY);
        }
        result
    }
}
