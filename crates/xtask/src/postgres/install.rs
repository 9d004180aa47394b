//! Installs Debian's PostgreSQL, for a machine that has none.
//!
//! Only root may, and only apt-get does. Debian's package starts a server of its own as it is
//! installed; the tests never use it, so the package is told not to, by a settings file that is
//! there only during the install.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

const SETTINGS_DIR: &str = "/etc/postgresql-common/createcluster.d";

/// Whether this user and this machine can install Debian's packages.
pub(super) fn is_possible() -> bool {
    super::owner::is_root()
        && apt_get(&["--version"])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
}

/// Installs Debian's `postgresql`, saying so.
pub(super) fn install() -> Result<()> {
    crate::note("no PostgreSQL server found: installing Debian's package postgresql with apt-get");
    let settings = Path::new(SETTINGS_DIR).join("rowlock-xtask.conf");
    std::fs::create_dir_all(SETTINGS_DIR)
        .and_then(|()| std::fs::write(&settings, "create_main_cluster = false\n"))
        .with_context(|| format!("could not write {}", settings.display()))?;
    let result = run(&["update"])
        .and_then(|()| run(&["install", "--yes", "--no-install-recommends", "postgresql"]))
        .context("could not install PostgreSQL; install its server by hand, or pass --allow-missing");
    // Left behind it would only keep a later, wanted install from making its cluster.
    let _ = std::fs::remove_file(&settings);
    result
}

fn run(args: &[&str]) -> Result<()> {
    // apt-get's own output is not ours to print on standard output, which callers may read.
    let status = apt_get(args)
        .stdout(std::io::stderr())
        .status()
        .context("could not run apt-get")?;
    if !status.success() {
        bail!("apt-get {} ended with {status}", args.join(" "));
    }
    Ok(())
}

fn apt_get(args: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null());
    command
}
