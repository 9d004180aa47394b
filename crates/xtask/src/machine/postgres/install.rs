//! Installs Debian's PostgreSQL, for a machine that has none.
//!
//! Debian's package starts a server when it is installed. The tests never use that server, so a settings file, which is
//! there only during the install, keeps the package from starting it.

use std::path::Path;

use anyhow::{Context, Result};

const SETTINGS_DIR: &str = "/etc/postgresql-common/createcluster.d";

/// Installs Debian's `postgresql`, saying so.
pub(super) fn install() -> Result<()> {
    crate::note("no PostgreSQL server found: installing Debian's package postgresql with apt-get");
    let settings = Path::new(SETTINGS_DIR).join("rowlock-xtask.conf");
    std::fs::create_dir_all(SETTINGS_DIR)
        .and_then(|()| std::fs::write(&settings, "create_main_cluster = false\n"))
        .with_context(|| format!("could not write {}", settings.display()))?;
    let result = crate::machine::apt::install("postgresql")
        .context("could not install PostgreSQL; install its server by hand, or pass --allow-missing");
    // Left behind it would only keep a later, wanted install from making its cluster.
    let _ = std::fs::remove_file(&settings);
    result
}
