//! What cargo compiled and what it had already, by its own messages.
//!
//! The build of `cargo run` comes first, then that of the tests. The tests must not compile a crate of others again
//! that the first build has compiled: their features and profile are the same, which is easily lost.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// What a build without the suites must not have: the variable that names a fail point.
const FAIL_POINT: &[u8] = b"ROWLOCK_FAULT";

/// The crates of others that a build made or had.
#[derive(Debug, Default)]
pub(crate) struct Compiled {
    all: BTreeSet<String>,
    anew: BTreeSet<String>,
    /// Programs by name.
    programs: Vec<(String, PathBuf)>,
}

impl Compiled {
    /// Reads what `--message-format json` printed.
    pub(crate) fn read(messages: &str) -> Compiled {
        let mut compiled = Compiled::default();
        for message in messages
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        {
            if message["reason"] != "compiler-artifact" {
                continue;
            }
            let target = &message["target"];
            if let Some(program) = message["executable"].as_str() {
                let name = target["name"].as_str().unwrap_or_default();
                compiled.programs.push((name.to_owned(), program.into()));
            }
            let id = message["package_id"].as_str().unwrap_or_default();
            if id.starts_with("path+") {
                continue;
            }
            let unit = format!("{id} {}", target["kind"]);
            if message["fresh"] == false {
                compiled.anew.insert(unit.clone());
            }
            compiled.all.insert(unit);
        }
        compiled
    }

    /// Fails and names them if crates were compiled that `before` had compiled.
    pub(crate) fn expect_none_again(&self, before: &Compiled) -> Result<()> {
        if self.all.is_empty() || before.all.is_empty() {
            bail!("cargo told of no crate that it compiled");
        }
        let again: Vec<&str> = self.anew.intersection(&before.all).map(String::as_str).collect();
        if again.is_empty() {
            return Ok(());
        }
        bail!(
            "{} crates of others were compiled again for the tests, because features or profile differ from those of \
             `cargo run`: {}",
            again.len(),
            again.join(", ")
        )
    }

    /// How many crates of others a build compiled.
    pub(crate) fn anew(&self) -> usize {
        self.anew.len()
    }

    /// Fails if the program of this name has the fail points of the suites.
    pub(crate) fn expect_no_fail_points(&self, program: &str) -> Result<()> {
        let found = self.programs.iter().find(|(name, _)| name == program);
        let (_, path) = found.with_context(|| format!("the build made no {program}"))?;
        let bytes = std::fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
        if has_fail_points(&bytes) {
            bail!(
                "{} has the fail points of the suites; a plain build must not",
                path.display()
            );
        }
        Ok(())
    }
}

fn has_fail_points(program: &[u8]) -> bool {
    program.windows(FAIL_POINT.len()).any(|bytes| bytes == FAIL_POINT)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(id: &str, fresh: bool) -> String {
        format!(
            r#"{{"reason":"compiler-artifact","package_id":"{id}","target":{{"kind":["lib"],"name":"x"}},"fresh":{fresh},"executable":null}}"#
        )
    }

    #[test]
    fn a_crate_that_is_compiled_again_is_named() {
        let before = Compiled::read(
            &[
                artifact("registry+x#tokio@1", false),
                artifact("path+file#own@1", false),
            ]
            .join("\n"),
        );
        let same = Compiled::read(
            &[
                artifact("registry+x#tokio@1", true),
                artifact("registry+x#axum@1", false),
            ]
            .join("\n"),
        );
        same.expect_none_again(&before).unwrap();
        assert_eq!(same.anew(), 1);
        let again = Compiled::read(&artifact("registry+x#tokio@1", false));
        let error = again.expect_none_again(&before).unwrap_err().to_string();
        assert!(error.contains("tokio@1") && error.starts_with("1 crates"), "{error}");
        assert!(Compiled::read("").expect_none_again(&before).is_err());
    }

    #[test]
    fn a_program_with_fail_points_is_found_out() {
        assert!(has_fail_points(b"..ROWLOCK_FAULT.."));
        assert!(!has_fail_points(b"..ROWLOCK_DATABASE.."));
    }
}
