//! Installs Debian's packages, for a machine that lacks what the tests need.
//!
//! Only root may, and only apt-get does.

use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Whether this user and this machine can install Debian's packages.
pub(crate) fn is_possible() -> bool {
    is_root()
        && apt_get(&["--version"])
            .stdout(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
}

/// Installs one package without what it only recommends.
pub(crate) fn install(package: &str) -> Result<()> {
    run(&["update"]).and_then(|()| run(&["install", "--yes", "--no-install-recommends", package]))
}

/// Whether this process runs as root.
pub(crate) fn is_root() -> bool {
    let id = Command::new("id").arg("-u").stderr(Stdio::null()).output();
    id.is_ok_and(|output| output.stdout.trim_ascii() == b"0")
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
