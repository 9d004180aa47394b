//! Who runs a server.
//!
//! PostgreSQL refuses to run as root. Root starts it as `postgres`, or as `nobody` where there is
//! no such user; anyone else starts it as themselves.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Who runs the server: `None` is the user of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owner(Option<(u32, u32)>);

impl Owner {
    pub(super) fn find() -> Result<Owner> {
        if !crate::machine::apt::is_root() {
            return Ok(Owner(None));
        }
        for user in ["postgres", "nobody"] {
            if let (Some(uid), Some(gid)) = (id(&["-u", user]), id(&["-g", user])) {
                return Ok(Owner(Some((uid, gid))));
            }
        }
        bail!(
            "PostgreSQL does not run as root, and there is no user postgres or nobody; add one, or \
             do not be root"
        );
    }

    pub(super) fn give(self, path: &Path) -> Result<()> {
        let Owner(Some((uid, gid))) = self else {
            return Ok(());
        };
        chown(path, Some(uid), Some(gid)).with_context(|| format!("could not give {} away", path.display()))
    }

    /// A command run as the owner. Setting the user id as root also drops the supplementary groups.
    pub(super) fn command(self, program: &Path, dir: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(dir).stdin(Stdio::null()).env("LC_ALL", "C");
        if let Owner(Some((uid, gid))) = self {
            command.uid(uid).gid(gid);
        }
        // Settings of the user's own servers must not reach this one.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("PG") {
                command.env_remove(name);
            }
        }
        command
    }
}

fn id(args: &[&str]) -> Option<u32> {
    let output = Command::new("id").args(args).stderr(Stdio::null()).output().ok()?;
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
