//! What cargo knows about the crates of this workspace, as far as `features` and `release` need it.
//!
//! `cargo metadata` is the only source: it has the features that optional dependencies bring along, and the values that
//! crates inherit from the workspace. A reader of manifests would have to repeat both.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// A crate of this workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    /// The folder of its manifest.
    pub(crate) dir: PathBuf,
    /// `false` if the manifest says `publish = false`.
    pub(crate) published: bool,
    /// Whether others can depend on it; a program cannot be depended on.
    pub(crate) library: bool,
    /// In the order of the alphabet.
    pub(crate) features: Vec<String>,
    /// Crates of this workspace that a registry must have before it takes this one.
    pub(crate) needs: Vec<String>,
}

/// Every crate of the workspace that is published.
pub(crate) fn published() -> Result<Vec<Package>> {
    let text = cargo_output(&["metadata", "--no-deps", "--locked", "--format-version", "1"])?;
    let packages = parse(&text)?;
    Ok(packages.into_iter().filter(|package| package.published).collect())
}

/// Reads the output of `cargo metadata --no-deps`.
fn parse(text: &str) -> Result<Vec<Package>> {
    let metadata: Value = serde_json::from_str(text).context("cargo metadata printed no JSON")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata lists no packages")?;
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    packages.iter().map(|package| read(package, &names)).collect()
}

fn read(package: &Value, members: &[&str]) -> Result<Package> {
    let text = |key: &str| package[key].as_str().with_context(|| format!("a package has no {key}"));
    let manifest = PathBuf::from(text("manifest_path")?);
    let features = package["features"].as_object().context("a package has no features")?;
    let dependencies = package["dependencies"]
        .as_array()
        .context("a package has no dependencies")?;
    let mut needs: Vec<String> = Vec::new();
    for dependency in dependencies {
        let name = dependency["name"].as_str().unwrap_or_default();
        // Cargo leaves out a development dependency that has a path and no version when it packages a crate.
        let is_left_out = dependency["kind"] == "dev" && dependency["req"] == "*";
        if members.contains(&name) && !is_left_out && !needs.iter().any(|known| known == name) {
            needs.push(name.to_owned());
        }
    }
    Ok(Package {
        name: text("name")?.to_owned(),
        version: text("version")?.to_owned(),
        dir: manifest.parent().context("a manifest lies in no folder")?.to_owned(),
        // `null` allows every registry, an empty list none.
        published: package["publish"]
            .as_array()
            .is_none_or(|registries| !registries.is_empty()),
        library: package["targets"].as_array().into_iter().flatten().any(is_library),
        features: features.keys().cloned().collect(),
        needs,
    })
}

fn is_library(target: &Value) -> bool {
    let kinds = target["kind"].as_array().into_iter().flatten();
    kinds
        .filter_map(Value::as_str)
        .any(|kind| kind == "lib" || kind == "proc-macro")
}

/// Runs cargo at the root of the workspace and returns its standard output.
pub(crate) fn cargo_output(args: &[&str]) -> Result<String> {
    output(Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())).args(args))
}

/// Runs a command at the root of the workspace and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let name = format!("{:?}", command.get_program());
    let command = command.current_dir(crate::step::workspace_root()).stdin(Stdio::null());
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("could not run {name}"))?;
    if !output.status.success() {
        bail!("{name} failed with {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("{name} printed no UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{"packages": [
        {"name": "lib", "version": "1.0.0", "publish": null, "manifest_path": "/x/lib/Cargo.toml",
         "features": {"b": [], "a": ["b"]}, "targets": [{"kind": ["lib"]}, {"kind": ["test"]}],
         "dependencies": [{"name": "serde", "kind": null, "req": "^1"},
                          {"name": "macros", "kind": null, "req": "^1.0.0"},
                          {"name": "tests", "kind": "dev", "req": "*"}, {"name": "macros", "kind": "dev", "req": "*"}]},
        {"name": "macros", "version": "1.0.0", "publish": null, "manifest_path": "/x/macros/Cargo.toml",
         "features": {}, "dependencies": []},
        {"name": "tests", "version": "1.0.0", "publish": [], "manifest_path": "/x/tests/Cargo.toml",
         "features": {}, "dependencies": [{"name": "lib", "kind": null, "req": "^1.0.0"}]}]}"#;

    #[test]
    fn a_crate_needs_its_relatives_but_not_those_that_packaging_leaves_out() {
        let packages = parse(METADATA).unwrap();
        assert_eq!(packages[0].needs, ["macros"]);
        assert_eq!(packages[0].features, ["a", "b"]);
        assert_eq!(packages[0].dir, PathBuf::from("/x/lib"));
        assert_eq!(packages[2].needs, ["lib"]);
        assert_eq!([packages[0].library, packages[2].library], [true, false]);
    }

    #[test]
    fn a_crate_is_published_unless_its_manifest_says_no() {
        let published: Vec<bool> = parse(METADATA)
            .unwrap()
            .iter()
            .map(|package| package.published)
            .collect();
        assert_eq!(published, [true, true, false]);
    }

    #[test]
    fn output_that_is_not_metadata_is_refused() {
        assert!(parse("no").is_err());
        assert_eq!(parse("{}").unwrap_err().to_string(), "cargo metadata lists no packages");
    }
}
