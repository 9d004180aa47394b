//! A folder with npm's packages.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// Fills the folder, which has the list and its lock file. No package's script runs.
pub(super) fn commands(folder: &Path) -> Result<Vec<Command>> {
    for program in ["node", "npm"] {
        let probe = Command::new(program)
            .arg("--version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if !probe.is_ok_and(|status| status.success()) {
            bail!("no {program} found");
        }
    }
    let mut fill = Command::new("npm");
    fill.args(["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix"])
        .arg(folder);
    Ok(vec![fill])
}
