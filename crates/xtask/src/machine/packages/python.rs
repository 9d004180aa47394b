//! A virtual environment with pip's packages.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};

/// Makes the environment in the folder, which has the list, and fills it.
pub(super) fn commands(folder: &Path) -> Result<Vec<Command>> {
    // Debian's python3 can lack what makes an environment.
    let mut probe = Command::new("python3");
    probe.args(["-c", "import venv, ensurepip"]);
    let probe = probe.stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !probe.is_ok_and(|status| status.success()) {
        bail!("no python3 that makes virtual environments found");
    }
    let mut make = Command::new("python3");
    make.args(["-m", "venv"]).arg(folder);
    let mut fill = Command::new(folder.join("bin/python"));
    fill.args([
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
        "--no-deps",
    ])
    .arg("--requirement")
    .arg(folder.join("requirements.txt"));
    Ok(vec![make, fill])
}
