//! The decisions of a dry run, as pure functions.

use anyhow::{Result, bail};

use crate::workspace::Package;

/// A file above this size has no place in a package.
const FILE_BYTES_MAX: u64 = 1_000_000;

/// Every package carries its description and both licences.
const REQUIRED: [&str; 3] = ["README.md", "LICENSE-MIT", "LICENSE-APACHE"];

/// What the changelog says about a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Section {
    Missing,
    /// There is a section, and it calls the version unreleased.
    Unreleased,
    Dated,
}

/// Fails if git reports changes that no commit has.
pub(super) fn clean(porcelain: &str) -> Result<()> {
    let count = porcelain.lines().count();
    match porcelain.lines().next() {
        None => Ok(()),
        Some(first) => bail!(
            "{count} uncommitted changes, the first is `{}`: commit them or pass --allow-dirty",
            first.trim()
        ),
    }
}

/// The version that all crates share.
pub(super) fn one_version(packages: &[Package]) -> Result<String> {
    let Some(first) = packages.first() else {
        bail!("no crate of this workspace is published");
    };
    match packages.iter().find(|package| package.version != first.version) {
        None => Ok(first.version.clone()),
        Some(other) => bail!(
            "{} has version {} and {} has {}: published crates share one version",
            first.name,
            first.version,
            other.name,
            other.version
        ),
    }
}

/// Looks for the version among the second-level headings.
pub(super) fn section(changelog: &str, version: &str) -> Section {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-' || c == '+';
    let mut headings = changelog.lines().filter_map(|line| line.strip_prefix("## "));
    let found = headings.find(|heading| heading.split(|c| !is_word(c)).any(|word| word == version));
    match found {
        None => Section::Missing,
        Some(heading) if heading.to_lowercase().contains("unreleased") => Section::Unreleased,
        Some(_) => Section::Dated,
    }
}

/// The publish order that RELEASING gives: the items of its list whose first word is a crate in backticks.
pub(super) fn order_in(releasing: &str) -> Vec<String> {
    let item = |line: &str| {
        let (number, rest) = line.split_once(". `")?;
        let is_numbered = number.parse::<u32>().is_ok();
        let name = rest.split('`').next()?;
        (is_numbered && !name.contains(' ')).then(|| name.to_owned())
    };
    releasing.lines().filter_map(item).collect()
}

/// Fails unless the order has every published crate once, after the crates it needs.
pub(super) fn topological(order: &[String], packages: &[Package]) -> Result<()> {
    for (at, name) in order.iter().enumerate() {
        let Some(package) = packages.iter().find(|package| package.name == *name) else {
            bail!("the publish order names {name}, which is not a published crate");
        };
        if order[..at].contains(name) {
            bail!("the publish order names {name} twice");
        }
        for need in &package.needs {
            if !packages.iter().any(|package| package.name == *need) {
                bail!("{name} needs {need}, which is not published");
            }
            if !order[..at].contains(need) {
                bail!("the publish order has {name} before {need}, which {name} needs");
            }
        }
    }
    match packages.iter().find(|package| !order.contains(&package.name)) {
        None => Ok(()),
        Some(package) => bail!("the publish order leaves out {}", package.name),
    }
}

/// What is wrong with the files of a package, by path and size.
pub(super) fn complaints(files: &[(String, u64)]) -> Vec<String> {
    let missing = REQUIRED
        .iter()
        .filter(|name| !files.iter().any(|(path, _)| path == *name));
    let missing = missing.map(|name| format!("{name} is missing"));
    let unwanted = files.iter().filter_map(|(path, bytes)| {
        let is_test = path.starts_with("tests/") || path.split('/').any(|part| part == "snapshots");
        let is_output = [".db", ".log", ".svg", ".png"]
            .iter()
            .any(|ending| path.ends_with(ending));
        match (is_test || is_output, *bytes > FILE_BYTES_MAX) {
            (true, _) => Some(format!("{path} does not belong there")),
            (false, true) => Some(format!("{path} has {bytes} bytes, more than {FILE_BYTES_MAX}")),
            (false, false) => None,
        }
    });
    missing.chain(unwanted).collect()
}

/// The profile sections of a manifest, which are also valid in a configuration file of cargo.
pub(super) fn profiles(manifest: &str) -> String {
    let mut text = String::new();
    let mut inside = false;
    for line in manifest.lines() {
        if line.starts_with('[') {
            inside = line.starts_with("[profile.");
        }
        if inside {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, needs: &[&str]) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            dir: name.into(),
            published: true,
            library: true,
            features: Vec::new(),
            needs: needs.iter().map(|&need| need.to_owned()).collect(),
        }
    }

    fn names(order: &[&str]) -> Vec<String> {
        order.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn an_uncommitted_change_is_named() {
        assert!(clean("").is_ok());
        let error = clean(" M Cargo.toml\n?? new\n").unwrap_err().to_string();
        assert_eq!(
            error,
            "2 uncommitted changes, the first is `M Cargo.toml`: commit them or pass --allow-dirty"
        );
    }

    #[test]
    fn a_crate_with_another_version_is_named() {
        let mut packages = vec![package("a", &[]), package("b", &[])];
        assert_eq!(one_version(&packages).unwrap(), "1.0.0");
        packages[1].version = "1.0.1".to_owned();
        let error = one_version(&packages).unwrap_err().to_string();
        assert!(error.starts_with("a has version 1.0.0 and b has 1.0.1"), "{error}");
    }

    #[test]
    fn a_version_has_its_section_only_if_the_whole_number_is_there() {
        assert_eq!(
            section("# Changes\n## Unreleased: 0.1.0\n", "0.1.0"),
            Section::Unreleased
        );
        assert_eq!(section("## 0.2.0 (2026-01-02)\n## 0.1.0\n", "0.2.0"), Section::Dated);
        assert_eq!(section("## 0.1.0\n### 0.2.0\n0.2.0\n", "0.2.0"), Section::Missing);
        assert_eq!(
            section("## 0.1.01\n## 10.1.0\n## 0.1.0-rc.1\n", "0.1.0"),
            Section::Missing
        );
    }

    #[test]
    fn the_order_is_read_from_the_numbered_list() {
        let page = "1. Bump the version.\n1. `a`\n2. `b`, after `a`\n3. `cargo publish` it\n- `c`\n";
        assert_eq!(order_in(page), ["a", "b"]);
    }

    #[test]
    fn a_crate_before_what_it_needs_is_refused() {
        let packages = [package("lib", &["macros"]), package("macros", &[])];
        assert!(topological(&names(&["macros", "lib"]), &packages).is_ok());
        let error = |order: &[&str]| topological(&names(order), &packages).unwrap_err().to_string();
        assert_eq!(
            error(&["lib", "macros"]),
            "the publish order has lib before macros, which lib needs"
        );
        assert_eq!(error(&["macros"]), "the publish order leaves out lib");
        assert_eq!(error(&["macros", "macros"]), "the publish order names macros twice");
        assert_eq!(
            error(&["other"]),
            "the publish order names other, which is not a published crate"
        );
        let error = topological(&names(&["a"]), &[package("a", &["tests"])]).unwrap_err();
        assert_eq!(error.to_string(), "a needs tests, which is not published");
    }

    #[test]
    fn a_package_has_its_licences_and_nothing_of_the_tests() {
        let file = |path: &str, bytes| (path.to_owned(), bytes);
        let good = ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "src/lib.rs"].map(|path| file(path, 10));
        assert_eq!(complaints(&good), [""; 0]);
        let bad = [
            file("README.md", 10),
            file("LICENSE-MIT", 10),
            file("tests/snapshots/a.txt", 10),
            file("src/table.rs", 1_000_001),
        ];
        let expected = [
            "LICENSE-APACHE is missing",
            "tests/snapshots/a.txt does not belong there",
            "src/table.rs has 1000001 bytes, more than 1000000",
        ];
        assert_eq!(complaints(&bad), expected);
    }

    #[test]
    fn only_profiles_are_taken_from_a_manifest() {
        let manifest =
            "[workspace]\nx = 1\n[profile.dev]\ndebug = 1\n[profile.dev.package.\"*\"]\nopt-level = 1\n[y]\nz = 1\n";
        let expected = "[profile.dev]\ndebug = 1\n[profile.dev.package.\"*\"]\nopt-level = 1\n";
        assert_eq!(profiles(manifest), expected);
    }
}
