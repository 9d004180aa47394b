//! `cargo xtask features`: each published crate compiles with no feature, with each feature alone and with all
//! features.
//!
//! The tests compile crates with the features that they use together, so they cannot notice a feature that compiles
//! only beside another one. The features come from `cargo metadata`: a new feature is checked without a change here.

use std::process::ExitCode;

use anyhow::{Result, bail};

use crate::keeper::Keeper;
use crate::machine::postgres::Use;
use crate::step::Step;
use crate::workspace::{self, Package};

/// One way to compile a crate.
#[derive(Debug, PartialEq, Eq)]
struct Check {
    /// For people: `rowlock with feature sqlite alone`.
    name: String,
    /// For cargo.
    args: String,
}

/// Checks everything, then fails with the name of each crate and feature that does not compile.
pub(crate) fn run() -> Result<ExitCode> {
    let packages = workspace::published()?;
    let checks: Vec<Check> = packages.iter().flat_map(checks).collect();
    let mut keeper = Keeper::start(&[], Use::Tests)?;
    let mut failed = Vec::new();
    for check in &checks {
        crate::note(&format!("{}:", check.name));
        if Step::cargo(&check.args).run_for_code(&mut keeper)? != 0 {
            failed.push(check.name.as_str());
        }
    }
    if !failed.is_empty() {
        bail!("does not compile: {}", failed.join("; "));
    }
    println!("{} crates compile in {} ways", packages.len(), checks.len());
    Ok(ExitCode::SUCCESS)
}

fn checks(package: &Package) -> Vec<Check> {
    let name = &package.name;
    let check = |how: &str, flags: &str| Check {
        name: format!("{name} with {how}"),
        args: format!("check --quiet --locked --package {name} {flags}"),
    };
    let mut checks = vec![check("no feature", "--no-default-features")];
    for feature in &package.features {
        checks.push(check(
            &format!("feature {feature} alone"),
            &format!("--no-default-features --features {feature}"),
        ));
    }
    if package.features.len() > 1 {
        checks.push(check("all features", "--all-features"));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(features: &[&str]) -> Package {
        Package {
            name: "lib".to_owned(),
            version: "1.0.0".to_owned(),
            dir: "lib".into(),
            published: true,
            library: true,
            features: features.iter().map(|&feature| feature.to_owned()).collect(),
            needs: Vec::new(),
        }
    }

    #[test]
    fn each_feature_is_checked_alone_and_all_of_them_together() {
        let names: Vec<String> = checks(&package(&["a", "b"]))
            .into_iter()
            .map(|check| check.name)
            .collect();
        let expected = [
            "lib with no feature",
            "lib with feature a alone",
            "lib with feature b alone",
            "lib with all features",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_feature_alone_goes_without_the_defaults() {
        let checks = checks(&package(&["a"]));
        assert_eq!(checks.len(), 2);
        let expected = "check --quiet --locked --package lib --no-default-features --features a";
        assert_eq!(checks[1].args, expected);
    }
}
