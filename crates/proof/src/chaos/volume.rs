//! A small file system of the run's own, to be filled up and freed again. Needs root and loop devices; without them the
//! run goes on in a plain folder and says which fault it could not have.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// A mounted file system. Dropped, it is unmounted, and its files go.
pub struct Volume {
    image: PathBuf,
    mount: PathBuf,
}

impl Volume {
    /// Makes one of so many megabytes under this folder.
    ///
    /// # Errors
    /// The machine does not let us.
    pub fn make(folder: &Path, megabytes: u64) -> Result<Volume> {
        let volume = Volume {
            image: folder.join("volume.img"),
            mount: folder.join("volume"),
        };
        // Sparse: it takes what is written to it.
        File::create(&volume.image)?.set_len(megabytes << 20)?;
        std::fs::create_dir_all(&volume.mount)?;
        run(Command::new("mkfs.ext4")
            .args(["-q", "-F", "-m", "0"])
            .arg(&volume.image))?;
        run(Command::new("mount")
            .args(["-o", "loop"])
            .arg(&volume.image)
            .arg(&volume.mount))?;
        Ok(volume)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Leaves no free space on it.
    ///
    /// # Errors
    /// The ballast cannot be laid.
    pub fn fill(&self) -> Result<()> {
        // In ever smaller pieces, since others write meanwhile.
        for (at, size) in ["256M", "16M", "1M", "64K", "4K"].iter().enumerate() {
            for no in 0.. {
                let piece = self.mount.join(format!("ballast-{at}-{no}"));
                let laid = Command::new("fallocate").args(["-l", size]).arg(&piece).output()?;
                if !laid.status.success() {
                    std::fs::remove_file(&piece).or_else(gone)?;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Gives the space back.
    ///
    /// # Errors
    /// The ballast cannot be thrown out.
    pub fn free(&self) -> Result<()> {
        for entry in std::fs::read_dir(&self.mount)? {
            let path = entry?.path();
            if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("ballast-"))
            {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // Lazily: a process that still has a file open there ends soon.
        let _ = Command::new("umount").arg("-l").arg(&self.mount).output();
        let _ = std::fs::remove_file(&self.image);
    }
}

fn gone(error: std::io::Error) -> std::io::Result<()> {
    match error.kind() {
        std::io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    }
}

fn run(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().with_context(|| format!("could not run {program}"))?;
    ensure!(
        output.status.success(),
        "{program}: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
