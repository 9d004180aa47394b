//! `cargo xtask api`: the public API of each published library as text, compared with what was accepted.
//!
//! rustdoc describes a crate as JSON; [`surface`] makes one line of each public item, in `crates/<crate>/api.txt`. A
//! change of the API is then a change of that file, in the commit that makes it. rustdoc's JSON is unstable: with a
//! toolchain that writes none, or another version of it, the comparison is skipped, and the command says so.

mod surface;
mod types;

use std::fmt::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::keeper::Keeper;
use crate::machine::postgres::Use;
use crate::step::{Step, workspace_root};
use crate::workspace::{self, Package};

/// The version of rustdoc's JSON that is understood here.
const FORMAT: u64 = 57;

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    accept: bool,
}

impl Options {
    /// Reads the arguments after `api`; the error names the one it does not know.
    pub(crate) fn parse(args: &[&str]) -> Result<Options, String> {
        match args {
            [] => Ok(Options { accept: false }),
            ["--accept"] => Ok(Options { accept: true }),
            [unknown, ..] => Err(format!("api does not take `{unknown}`")),
        }
    }
}

/// The command itself.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let mut keeper = Keeper::start(&[], Use::Tests)?;
    match check(&mut keeper, options.accept)? {
        None => Ok(ExitCode::SUCCESS),
        Some(why) => bail!("the public API cannot be read here: {why}"),
    }
}

/// The comparison, as a step of another run. Gives why it was skipped, if it was.
pub(crate) fn guard(keeper: &mut Keeper) -> Result<Option<String>> {
    check(keeper, false)
}

fn check(keeper: &mut Keeper, accept: bool) -> Result<Option<String>> {
    let wrapper = wrapper()?;
    let mut changed = Vec::new();
    let libraries = workspace::published()?.into_iter().filter(|package| package.library);
    for package in libraries {
        let json = match describe(&package, &wrapper, keeper)? {
            Ok(json) => json,
            Err(why) => return Ok(Some(why)),
        };
        let path = package.dir.join("api.txt");
        let now = surface::lines(&json).join("\n") + "\n";
        let before = match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.with_context(|| format!("could not read {}", path.display()))?,
        };
        if now == before {
            continue;
        }
        changed.push(package.name.clone());
        match accept {
            true => std::fs::write(&path, now).with_context(|| format!("could not write {}", path.display()))?,
            false => print!("{}", difference(&package.name, &before, &now)),
        }
    }
    match (changed.is_empty(), accept) {
        (true, _) => crate::note("the public API is as accepted"),
        (false, true) => crate::note(&format!("accepted the public API of {}", changed.join(", "))),
        (false, false) => bail!(
            "the public API of {} changed; if that is meant, run `cargo xtask api --accept` and commit api.txt with a \
             line in CHANGELOG.md",
            changed.join(", ")
        ),
    }
    Ok(None)
}

/// rustdoc's description of a library, or why there is none.
fn describe(package: &Package, wrapper: &Path, keeper: &mut Keeper) -> Result<Result<Value, String>> {
    let features: Vec<&str> = package.features.iter().map(String::as_str).collect();
    let features: Vec<&str> = features.into_iter().filter(|name| !name.starts_with("__")).collect();
    let args = format!(
        "rustdoc --quiet --locked --lib --package {} --no-default-features --features={} -- -Z unstable-options \
         --output-format json --cap-lints allow",
        package.name,
        features.join(",")
    );
    let step = Step::cargo(&args).env("RUSTDOC", &wrapper.to_string_lossy());
    if step.run_for_code(keeper)? != 0 {
        return Ok(Err("this toolchain's rustdoc writes no JSON".into()));
    }
    let path = target().join(format!("doc/{}.json", package.name.replace('-', "_")));
    let text = std::fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
    let json: Value = serde_json::from_str(&text).with_context(|| format!("{} is no JSON", path.display()))?;
    Ok(match json["format_version"].as_u64() {
        Some(FORMAT) => Ok(json),
        other => Err(format!(
            "rustdoc writes version {} of its JSON, not {FORMAT}",
            other.unwrap_or_default()
        )),
    })
}

/// A rustdoc that may use unstable options. The variable is set for rustdoc alone. If cargo had it, cargo would compile
/// every dependency once more.
fn wrapper() -> Result<PathBuf> {
    let folder = target().join("api");
    let path = folder.join("rustdoc");
    let script = "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n";
    if std::fs::read_to_string(&path).is_ok_and(|text| text == script) {
        return Ok(path);
    }
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&path, script))
        .and_then(|()| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)));
    written.with_context(|| format!("could not write {}", path.display()))?;
    Ok(path)
}

fn target() -> PathBuf {
    let set = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    workspace_root().join(set.unwrap_or_else(|| "target".into()))
}

/// Lines that are gone and lines that are new, in the order of the file.
fn difference(name: &str, before: &str, now: &str) -> String {
    let mut text = format!("{name}/api.txt (- accepted, + now):\n");
    let lines = |of: &str| of.lines().map(str::to_owned).collect::<Vec<_>>();
    let (before, now) = (lines(before), lines(now));
    let gone = before.iter().filter(|line| !now.contains(line)).map(|line| ('-', line));
    let new = now.iter().filter(|line| !before.contains(line)).map(|line| ('+', line));
    for (sign, line) in gone.chain(new) {
        let _ = writeln!(text, "{sign} {line}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_accept_may_be_asked_for() {
        assert_eq!(Options::parse(&["--accept"]), Ok(Options { accept: true }));
        assert_eq!(Options::parse(&["--all"]).unwrap_err(), "api does not take `--all`");
    }

    #[test]
    fn a_difference_shows_what_is_gone_and_what_is_new() {
        let told = difference("lib", "a\nb\n", "a\nc\n");
        assert_eq!(told, "lib/api.txt (- accepted, + now):\n- b\n+ c\n");
    }
}
