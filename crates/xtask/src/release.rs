//! `cargo xtask release --dry-run`: everything about a release that a machine can check.
//!
//! It checks the tree, versions, changelog, publish order and the files of each package, then packages all published
//! crates together and builds the packages. Cargo resolves the packages against each other, so a crate that is on no
//! registry yet is no obstacle. Publishing itself is a person's step, because nothing can take it back.

mod checks;

use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::keeper::Keeper;
use crate::machine::postgres::Use;
use crate::step::{Step, workspace_root};
use crate::workspace::{self, Package};

const CHANGELOG: &str = "CHANGELOG.md";
const RELEASING: &str = "RELEASING.md";

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    dry_run: bool,
    allow_dirty: bool,
}

impl Options {
    /// Reads the arguments after `release`.
    pub(crate) fn parse(args: &[&str]) -> Result<Options, String> {
        let mut options = Options::default();
        for arg in args {
            match *arg {
                "--dry-run" => options.dry_run = true,
                "--allow-dirty" => options.allow_dirty = true,
                unknown => return Err(format!("release does not take `{unknown}`")),
            }
        }
        Ok(options)
    }
}

/// Checks everything. The cheap checks come first; the first one that fails ends the run.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !options.dry_run {
        bail!("publishing is done by a person: follow {RELEASING}, or pass --dry-run to check everything before it");
    }
    if !options.allow_dirty {
        let changes = workspace::output(Command::new("git").args(["status", "--porcelain"]))?;
        checks::clean(&changes)?;
    }
    let packages = workspace::published()?;
    let version = checks::one_version(&packages)?;
    match checks::section(&read(CHANGELOG)?, &version) {
        checks::Section::Missing => bail!("{CHANGELOG} has no section for {version}"),
        checks::Section::Unreleased => crate::note(&format!(
            "{CHANGELOG} says that {version} is unreleased: put the date there before you tag"
        )),
        checks::Section::Dated => {}
    }
    let order = checks::order_in(&read(RELEASING)?);
    checks::topological(&order, &packages)?;
    for package in &packages {
        check_files(package)?;
    }
    package_all(&packages, options.allow_dirty)?;
    println!("{version} can be published in this order: {}", order.join(", "));
    Ok(ExitCode::SUCCESS)
}

/// Lists the files of a package, and fails if one is missing or does not belong there.
fn check_files(package: &Package) -> Result<()> {
    let list = workspace::cargo_output(&[
        "package",
        "--list",
        "--allow-dirty",
        "--locked",
        "--package",
        &package.name,
    ])?;
    let sized = |path: &str| {
        // Cargo writes some files while it packages; these have no size yet.
        let bytes = std::fs::metadata(package.dir.join(path)).map_or(0, |file| file.len());
        (path.to_owned(), bytes)
    };
    let files: Vec<(String, u64)> = list.lines().map(sized).collect();
    let complaints = checks::complaints(&files);
    if !complaints.is_empty() {
        bail!("the package of {}: {}", package.name, complaints.join("; "));
    }
    let bytes: u64 = files.iter().map(|(_, bytes)| bytes).sum();
    println!(
        "{} {}: {} files, {} KB",
        package.name,
        package.version,
        files.len(),
        bytes / 1000
    );
    Ok(())
}

/// Packages the crates together, unpacks the packages and builds them.
fn package_all(packages: &[Package], allow_dirty: bool) -> Result<()> {
    let mut keeper = Keeper::start(&[], Use::Tests)?;
    // Outside of the workspace a package has no profiles. With the workspace's own profiles, the builds share
    // third-party crates with every other command.
    let profiles = keeper.dir.join("profiles.toml");
    std::fs::write(&profiles, checks::profiles(&read("Cargo.toml")?))
        .with_context(|| format!("could not write {}", profiles.display()))?;
    let mut args = vec!["--config".to_owned(), profiles.display().to_string()];
    for package in packages {
        args.extend(["--package".to_owned(), package.name.clone()]);
    }
    if allow_dirty {
        args.push("--allow-dirty".to_owned());
    }
    Step::cargo("package --locked").args(&args).run(&mut keeper)
}

fn read(path: &str) -> Result<String> {
    let path = workspace_root().join(Path::new(path));
    std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_published_by_this_command() {
        let error = run(&Options::default()).unwrap_err().to_string();
        assert!(
            error.starts_with("publishing is done by a person: follow RELEASING.md"),
            "{error}"
        );
    }

    #[test]
    fn an_unknown_option_of_release_is_refused_by_name() {
        let options = Options::parse(&["--dry-run", "--allow-dirty"]);
        let expected = Options {
            dry_run: true,
            allow_dirty: true,
        };
        assert_eq!(options, Ok(expected));
        assert_eq!(Options::parse(&["--yes"]).unwrap_err(), "release does not take `--yes`");
    }

    #[test]
    fn the_repository_passes_the_checks_that_need_no_build() {
        let packages = workspace::published().unwrap();
        let version = checks::one_version(&packages).unwrap();
        assert_ne!(
            checks::section(&read(CHANGELOG).unwrap(), &version),
            checks::Section::Missing
        );
        checks::topological(&checks::order_in(&read(RELEASING).unwrap()), &packages).unwrap();
        for package in &packages {
            check_files(package).unwrap();
        }
    }
}
