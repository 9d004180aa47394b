//! What some tests need beside databases: packages of other languages, and emulators of SQS.
//!
//! What cannot be had is said in one line, and its variable is not set: the tests that need it fail and say what is
//! missing, so that a suite cannot go missing unseen. If the run allows things to be missing, the variable is
//! set and empty, as with the programs of `program.rs`: those tests pass without running, and the last line says so.

use anyhow::{Context, Result};

use crate::keeper::Keeper;
use crate::machine::emulator;
use crate::machine::packages::{NODE, PYTHON, Packages};

/// The variables for the tests, and what is missing, each with the reason.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Extras {
    pub(crate) set: Vec<(&'static str, String)>,
    pub(crate) missing: Vec<Missing>,
}

/// One thing that could not be had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) name: &'static str,
    pub(crate) var: &'static str,
}

impl Extras {
    /// Finds, installs if it may, and starts what there is, and says what there is not.
    pub(crate) fn get(keeper: &mut Keeper, may_install: bool) -> Extras {
        let mut extras = Extras::default();
        let packages = |packages: &Packages, keeper: &mut Keeper| {
            let found = packages.find_or_install(keeper, may_install);
            found.map(|path| path.to_string_lossy().into_owned())
        };
        let python = packages(&PYTHON, keeper);
        for emulator in &emulator::ALL {
            let url = match (std::env::var(emulator.var), &python) {
                (Ok(named), _) if !named.is_empty() => Ok(named),
                (_, Ok(python)) => keeper.serve(emulator.name, python),
                (_, Err(_)) => Err(anyhow::anyhow!("there are no Python packages")),
            };
            extras.note(emulator.name, emulator.var, url.context("could not start it"));
        }
        extras.note(PYTHON.name, PYTHON.var, python);
        extras.note(NODE.name, NODE.var, packages(&NODE, keeper));
        extras
    }

    fn note(&mut self, name: &'static str, var: &'static str, value: Result<String>) {
        match value {
            Ok(value) => self.set.push((var, value)),
            Err(error) => {
                crate::note(&format!("no {name} for the tests ({var}): {error:#}"));
                self.missing.push(Missing { name, var });
            }
        }
    }

    /// The variables of a run that allows things to be missing; what is missing is added to `skipped`.
    pub(crate) fn or_empty(mut self, skipped: &mut Vec<String>) -> Vec<(&'static str, String)> {
        for missing in self.missing {
            skipped.push(format!("{0} (no {0})", missing.name));
            self.set.push((missing.var, String::new()));
        }
        self.set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extras() -> Extras {
        Extras {
            set: vec![("A", "http://127.0.0.1:1".to_owned())],
            missing: vec![Missing { name: "moto", var: "B" }],
        }
    }

    #[test]
    fn what_is_missing_is_not_set_unless_the_run_was_told_so() {
        assert!(extras().set.iter().all(|(var, _)| *var != "B"));
        let mut skipped = Vec::new();
        let set = extras().or_empty(&mut skipped);
        assert_eq!(set[1], ("B", String::new()));
        assert_eq!(skipped, ["moto (no moto)"]);
    }
}
