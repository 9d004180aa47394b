//! Which suite runs when: the quick ones in `cargo xtask test`, the others in `cargo xtask test --long`.
//!
//! A suite is a module of a crate's one test program, or a whole crate. The quick crates share every feature of every
//! dependency with `cargo run`, so that nothing of others is compiled twice. A crate that needs more (AWS,
//! OpenTelemetry, Redis, other drivers, a model checker) is a long one.

/// The crates whose tests are built by the quick command.
pub(crate) const QUICK_CRATES: [&str; 8] = [
    "rowlock",
    "rowlock-macros",
    "rowlock-axum",
    "rowlock-cli",
    "rowlock-demo",
    "proof",
    "pictures",
    "xtask",
];

/// The crates that only the long command builds, and what their suites are called.
pub(crate) const LONG_CRATES: [(&str, &str); 10] = [
    ("rowlock-sqs", "SQS"),
    ("proof-sqs", "SQS emulators"),
    ("rowlock-drivers", "other drivers"),
    ("rowlock-otel", "the OpenTelemetry crate"),
    ("proof-telemetry", "telemetry"),
    ("rowlock-redis", "the Redis crate"),
    ("proof-redis", "Redis"),
    ("model", "model"),
    ("bench", "bench programs"),
    ("counts", "counts"),
];

/// A module of a quick crate's test program, or tests of it, that take long, or need what the quick command does not
/// install.
#[derive(Debug)]
pub(crate) struct Module {
    pub(crate) package: &'static str,
    /// As its tests' names begin.
    pub(crate) path: &'static str,
    /// What the closing lines call it.
    pub(crate) name: &'static str,
}

impl Module {
    /// What nextest takes to run its tests.
    fn filter(&self) -> String {
        format!("(package(={}) & test(/^{}/))", self.package, self.path)
    }
}

const fn module(package: &'static str, path: &'static str, name: &'static str) -> Module {
    Module { package, path, name }
}

/// Left to the long command.
pub(crate) const LONG_MODULES: [Module; 9] = [
    module("proof", "charges::", "charges"),
    module("proof", "crash::jobs_", "kills at random"),
    module("proof", "failover::", "failover"),
    module("proof", "fleet::", "fleets"),
    module("proof", "freeze::jobs_", "freezes at random"),
    module("proof", "outage::", "outages"),
    module("proof", "pooled::", "PgBouncer"),
    module("proof", "protocol::programs::", "other languages"),
    module("proof", "proxy::storm::", "network storms"),
];

/// The suites of `proof` that show something on each PostgreSQL: the long command runs them on those that the quick one
/// left out.
pub(crate) const POSTGRES_MODULES: &str =
    "adopt|charges|crash|docs|examples|freeze|grants|plans|postgres|protocol|proxy|races|schema";

/// The cases that run again through PgBouncer.
pub(crate) const POOLED_CASES: &str = "postgres::cases";

/// What else only the long command does.
pub(crate) const LONG_STEPS: [&str; 5] = [
    "other PostgreSQL versions",
    "two minutes of chaos",
    "two mutants",
    "public API",
    "instruction counts",
];

/// `--package` for each.
pub(crate) fn packages<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let words: Vec<String> = names.into_iter().map(|name| format!("--package {name}")).collect();
    words.join(" ")
}

/// The quick crates, as cargo takes them.
pub(crate) fn quick_packages() -> String {
    packages(QUICK_CRATES)
}

/// The long crates, as cargo takes them.
pub(crate) fn long_packages() -> String {
    packages(LONG_CRATES.map(|(name, _)| name))
}

/// Of the chosen crates those that are a library, which alone can have doc tests.
pub(crate) fn libraries(packages: &str) -> String {
    let programs = ["rowlock-cli", "xtask", "counts", "bench"];
    let names = packages.split_whitespace().filter(|word| !word.starts_with("--"));
    self::packages(names.filter(|name| !programs.contains(name)))
}

/// What nextest takes to run the long modules.
pub(crate) fn long_filter() -> String {
    let each: Vec<String> = LONG_MODULES.iter().map(Module::filter).collect();
    each.join(" | ")
}

/// What the quick command leaves out, by name.
pub(crate) fn left_out() -> Vec<&'static str> {
    let modules = LONG_MODULES.iter().map(|module| module.name);
    let crates = LONG_CRATES.iter().map(|(_, name)| *name);
    modules.chain(crates).chain(LONG_STEPS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn crates() -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }

    #[test]
    fn every_crate_is_tested_by_exactly_one_of_the_two_commands() {
        let mut listed: Vec<&str> = QUICK_CRATES
            .into_iter()
            .chain(LONG_CRATES.map(|(name, _)| name))
            .collect();
        listed.sort_unstable();
        let folders = std::fs::read_dir(crates()).unwrap().map(|entry| entry.unwrap());
        let mut there: Vec<String> = folders
            .filter(|entry| entry.path().join("Cargo.toml").is_file())
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .collect();
        there.sort_unstable();
        assert_eq!(listed, there);
    }

    #[test]
    fn every_module_that_is_named_is_there() {
        let paths = LONG_MODULES.iter().map(|m| (m.package, m.path.to_owned()));
        let others = POSTGRES_MODULES.split('|').map(|path| ("proof", path.to_owned()));
        for (package, path) in paths.chain(others) {
            let module = path.rsplit_once("::").map_or(path.as_str(), |(module, _)| module);
            let file = format!("{package}/tests/{}.rs", module.replace("::", "/"));
            assert!(crates().join(&file).is_file(), "no {file}");
        }
        assert!(crates().join("proof/tests/cases/mod.rs").is_file());
    }

    #[test]
    fn the_filter_names_the_beginning_of_each_long_test() {
        assert!(long_filter().starts_with("(package(=proof) & test(/^charges::/)) | ("));
    }
}
