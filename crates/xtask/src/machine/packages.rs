//! Packages from PyPI and npm that some tests need, installed once and kept under the target folder.
//!
//! What is installed is named by files of the repository, and kept in a folder named after their text: another list is
//! another folder, so that nobody's packages change while a run uses them. A folder counts only when its last file is
//! written. The indexes are those of pip's and npm's own settings.
//!
//! Two concurrent runs: the second waits for the first one's lock. The installing program holds the lock as well, as
//! its standard input: should the run be killed, the next one does not start while a left-over still writes.

mod node;
mod python;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::keeper::Keeper;
use crate::step::{Step, workspace_root};

/// Set to `off`, nothing is found or installed: it shows what a machine without a network would do.
const SEARCH_VAR: &str = "ROWLOCK_XTASK_PACKAGES_SEARCH";

/// Written last into a folder whose packages are complete.
const COMPLETE: &str = "complete";

/// The packages of one language.
#[derive(Debug)]
pub(crate) struct Packages {
    /// What to call them.
    pub(crate) name: &'static str,
    /// Where the tests read from what they need.
    pub(crate) var: &'static str,
    /// The files that name them, in the repository; the first folder holds them all.
    folder: &'static str,
    files: &'static [&'static str],
    /// What the variable holds, below the folder of the packages; empty for the folder itself.
    inside: &'static str,
    /// The commands that install into a folder which has the files.
    commands: fn(&Path) -> Result<Vec<Command>>,
    /// What Debian calls the programs that do it, for a machine without them.
    debian: &'static [&'static str],
}

/// For programs in Python, and the emulators of SQS.
pub(crate) const PYTHON: Packages = Packages {
    name: "Python packages",
    var: "ROWLOCK_TEST_PYTHON",
    folder: "crates/proof/programs/python",
    files: &["requirements.txt"],
    inside: "bin/python",
    commands: python::commands,
    debian: &["python3-venv"],
};

/// For programs in JavaScript.
pub(crate) const NODE: Packages = Packages {
    name: "Node packages",
    var: "ROWLOCK_TEST_NODE",
    folder: "crates/proof/programs/node",
    files: &["package.json", "package-lock.json"],
    inside: "",
    commands: node::commands,
    debian: &["nodejs", "npm"],
};

impl Packages {
    /// What the variable is to hold; installs what is missing if it may. The error says why there is none.
    pub(crate) fn find_or_install(&self, keeper: &mut Keeper, may_install: bool) -> Result<PathBuf> {
        if std::env::var_os(SEARCH_VAR).is_some_and(|value| value == "off") {
            bail!("the search is off");
        }
        if let Some(named) = std::env::var_os(self.var).filter(|path| !path.is_empty()) {
            let named = PathBuf::from(named);
            if !named.exists() {
                bail!("{} names {}, which is not there", self.var, named.display());
            }
            return Ok(named);
        }
        let kept = kept_folder()?;
        let texts = self.texts(&workspace_root())?;
        let folder = kept.join(folder_name(self.folder, &texts));
        if folder.join(COMPLETE).is_file() {
            return Ok(self.value(&folder));
        }
        if !may_install {
            bail!("they are not installed yet");
        }
        let lock = lock(&kept.join("lock"))?;
        // Another run may have installed them while this one waited.
        if !folder.join(COMPLETE).is_file() {
            self.install(keeper, &folder, &texts, &lock)?;
        }
        Ok(self.value(&folder))
    }

    /// What the variable holds, for packages in this folder.
    fn value(&self, folder: &Path) -> PathBuf {
        match self.inside {
            "" => folder.to_path_buf(),
            inside => folder.join(inside),
        }
    }

    fn install(&self, keeper: &mut Keeper, folder: &Path, texts: &[String], lock: &File) -> Result<()> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).with_context(|| format!("could not remove {}", folder.display()))?;
        }
        let wrote = std::fs::create_dir_all(folder).and_then(|()| {
            let mut pairs = self.files.iter().zip(texts);
            pairs.try_for_each(|(file, text)| std::fs::write(folder.join(file), text))
        });
        wrote.with_context(|| format!("could not write to {}", folder.display()))?;
        for command in self.commands(folder)? {
            let name = format!("{} ({})", spelled(&command), self.name);
            Step::of(&name, command)
                .holding(lock)?
                .run_quietly(keeper, &folder.join("install.log"))?;
        }
        let complete = folder.join(COMPLETE);
        std::fs::write(&complete, "").with_context(|| format!("could not write {}", complete.display()))
    }

    /// The commands; where their programs are missing, Debian's packages are installed first if that is possible.
    fn commands(&self, folder: &Path) -> Result<Vec<Command>> {
        let missing = match (self.commands)(folder) {
            Ok(commands) => return Ok(commands),
            Err(error) => error,
        };
        if !crate::machine::apt::is_possible() {
            return Err(missing.context(format!("only root can install Debian's {}", self.debian.join(" and "))));
        }
        crate::note(&format!(
            "{missing:#}: installing Debian's {} with apt-get",
            self.debian.join(" and ")
        ));
        for package in self.debian {
            crate::machine::apt::install(package)?;
        }
        (self.commands)(folder)
    }

    fn texts(&self, root: &Path) -> Result<Vec<String>> {
        let read = |file: &&str| {
            let path = root.join(self.folder).join(file);
            std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
        };
        self.files.iter().map(read).collect()
    }
}

/// The folder under cargo's target folder; this program lies two levels below that one.
fn kept_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("could not find this program's own file")?;
    let target = program
        .ancestors()
        .nth(2)
        .context("this program is in no target folder")?;
    let kept = target.join("test-packages");
    std::fs::create_dir_all(&kept).with_context(|| format!("could not make {}", kept.display()))?;
    Ok(kept)
}

/// Waits for the holder of the lock. The lock ends with the last process that has the file open, however that ends.
fn lock(path: &Path) -> Result<File> {
    let file = File::options().create(true).append(true).read(true).open(path);
    let file = file.with_context(|| format!("could not open {}", path.display()))?;
    file.lock()
        .with_context(|| format!("could not lock {}", path.display()))?;
    Ok(file)
}

/// The last part of the path and a number made of the texts (FNV-1a): another text, another folder.
fn folder_name(path: &str, texts: &[String]) -> String {
    let bytes = texts.iter().flat_map(|text| text.bytes().chain([0]));
    let number = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |number, byte| {
        (number ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let last = path.rsplit('/').next().unwrap_or(path);
    format!("{last}-{number:016x}")
}

/// A command as one would type it, without the folders.
fn spelled(command: &Command) -> String {
    let short = |word: &std::ffi::OsStr| {
        Path::new(word)
            .file_name()
            .unwrap_or(word)
            .to_string_lossy()
            .into_owned()
    };
    let words: Vec<String> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(short)
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_list_of_packages_has_another_folder() {
        let name =
            |texts: &[&str]| folder_name("a/b/python", &texts.iter().map(|t| (*t).to_owned()).collect::<Vec<_>>());
        assert!(name(&["x==1"]).starts_with("python-"));
        assert_eq!(name(&["x==1"]), name(&["x==1"]));
        assert_ne!(name(&["x==1"]), name(&["x==2"]));
        assert_ne!(name(&["ab", "c"]), name(&["a", "bc"]));
    }

    #[test]
    fn the_repository_names_every_package_by_version_and_none_by_address() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap();
        for packages in [&PYTHON, &NODE] {
            for text in packages.texts(root).unwrap() {
                assert!(!text.contains("://"), "{} names an address", packages.name);
            }
        }
        let [text] = &PYTHON.texts(root).unwrap()[..] else {
            panic!("one file")
        };
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        for line in lines {
            assert!(line.contains("=="), "`{line}` has no version");
        }
    }

    #[test]
    fn a_second_run_waits_for_the_lock_of_the_first() {
        let path = std::env::temp_dir().join(format!("rowlock-xtask-lock-{}", std::process::id()));
        let held = lock(&path).unwrap();
        let other = File::open(&path).unwrap();
        assert!(other.try_lock().is_err());
        let also_held = held.try_clone().unwrap();
        drop(held);
        assert!(other.try_lock().is_err(), "the installing program holds it as well");
        drop(also_held);
        other.try_lock().unwrap();
        std::fs::remove_file(&path).unwrap();
    }
}
