//! `cargo xtask claims --against COMMIT`: which tests of an older commit are gone.
//!
//! The name of a test is what it claims. Files and modules move, so the names are compared without their modules, read
//! from the source of both trees; nothing is built. A name that is listed more rarely than before is missing, unless
//! `--renamed OLD=NEW` gives its new name.

use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, ExitCode};

use anyhow::{Result, bail};

use crate::workspace::output;

/// What the caller asked for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    against: String,
    renamed: Vec<(String, String)>,
}

impl Options {
    /// Reads the arguments after `claims`; the error names the one it does not know.
    pub(crate) fn parse(args: &[&str]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut args = args.iter();
        while let Some(&arg) = args.next() {
            let value = args
                .next()
                .ok_or_else(|| format!("claims: {arg} needs a value, as in `claims --against COMMIT`"))?;
            match (arg, value.split_once('=')) {
                ("--against", _) => options.against = (*value).to_owned(),
                ("--renamed", Some((old, new))) => options.renamed.push((old.to_owned(), new.to_owned())),
                ("--renamed", None) => return Err(format!("claims: --renamed takes OLD=NEW, got `{value}`")),
                _ => return Err(format!("claims does not take `{arg}`")),
            }
        }
        if options.against.is_empty() {
            return Err("claims needs --against COMMIT".to_owned());
        }
        Ok(options)
    }
}

/// How often each name is listed.
type Names = BTreeMap<String, usize>;

/// Compares, prints what is gone, and exits with 3 if anything is.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let before = names(&texts(&options.against)?);
    let now = names(&tree()?);
    if before.is_empty() {
        bail!("{} has no test", options.against);
    }
    let missing = missing(&before, &now, &options.renamed);
    for name in &missing {
        println!("missing: {name}");
    }
    let added = now.keys().filter(|name| !before.contains_key(*name)).count();
    let count = |names: &Names| names.values().sum::<usize>();
    println!(
        "{} tests in {}, {} now: {} missing, {} renamed, {added} new names",
        count(&before),
        options.against,
        count(&now),
        missing.len(),
        options.renamed.len(),
    );
    Ok(ExitCode::from(if missing.is_empty() { 0 } else { 3 }))
}

/// The names that are listed more rarely than before.
fn missing(before: &Names, now: &Names, renamed: &[(String, String)]) -> Vec<String> {
    let there = |name: &str| now.get(name).copied().unwrap_or(0);
    let fewer = before.iter().filter(|(name, count)| {
        let renamed = renamed.iter().find(|(old, _)| old == *name);
        there(name) + renamed.map_or(0, |(_, new)| there(new)) < **count
    });
    fewer.map(|(name, _)| name.clone()).collect()
}

/// The Rust files of a commit.
fn texts(commit: &str) -> Result<Vec<String>> {
    let files = output(Command::new("git").args(["ls-tree", "-r", "--name-only", commit, "crates"]))?;
    let files = files.lines().filter(|file| file.ends_with(".rs"));
    files
        .map(|file| output(Command::new("git").args(["show", &format!("{commit}:{file}")])))
        .collect()
}

/// The Rust files as they are now, committed or not.
fn tree() -> Result<Vec<String>> {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "crates"];
    let files = output(Command::new("git").args(list))?;
    let files = files.lines().filter(|file| file.ends_with(".rs"));
    let root = crate::step::workspace_root();
    // A file that was removed and not committed is still listed.
    let texts = files.filter_map(|file| match std::fs::read_to_string(root.join(file)) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        text => Some(text.map_err(anyhow::Error::from)),
    });
    texts.collect()
}

/// Every test of these files.
fn names(texts: &[String]) -> Names {
    let macros: BTreeSet<&str> = texts.iter().flat_map(|text| test_macros(text)).collect();
    let mut names = Names::new();
    for text in texts {
        let listed = macros.iter().flat_map(|name| listed(text, name));
        for name in attributed(text).into_iter().chain(listed) {
            *names.entry(name.to_owned()).or_default() += 1;
        }
    }
    names
}

fn is_attribute(line: &str) -> bool {
    ["#[test]", "#[tokio::test"]
        .iter()
        .any(|start| line.trim_start().starts_with(start))
}

/// Functions below an attribute that makes them a test.
fn attributed(text: &str) -> Vec<&str> {
    let lines: Vec<&str> = text.lines().collect();
    let tests = lines.iter().enumerate().filter(|(_, line)| is_attribute(line));
    tests
        .filter_map(|(at, _)| lines[at + 1..].iter().find_map(|line| line.split_once("fn ")))
        .map(|(_, rest)| word(rest))
        .filter(|name| !name.is_empty())
        .collect()
}

/// Macros of this file that make tests of the names they are given.
fn test_macros(text: &str) -> Vec<&str> {
    let defined = text.match_indices("macro_rules! ").filter_map(|(at, start)| {
        let rest = &text[at + start.len()..];
        let body = bracketed(rest)?;
        body.lines().any(is_attribute).then(|| word(rest))
    });
    defined.collect()
}

/// The names that are given to a macro: a test's name has at least three words.
fn listed<'a>(text: &'a str, name: &str) -> Vec<&'a str> {
    let call = format!("{name}!");
    let mut found = Vec::new();
    for (at, _) in text.match_indices(&call) {
        let is_longer = text[..at].ends_with(|letter: char| letter.is_alphanumeric() || letter == '_');
        let rest = &text[at + call.len()..];
        let is_call = rest.trim_start().starts_with(['(', '{', '[']);
        if is_longer || !is_call {
            continue;
        }
        let outside = bracketed(rest).unwrap_or_default().split('"').step_by(2);
        let words = outside.flat_map(|part| part.split(|letter: char| !(letter.is_alphanumeric() || letter == '_')));
        found.extend(words.filter(|word| word.matches('_').count() >= 2));
    }
    found
}

/// The leading identifier.
fn word(text: &str) -> &str {
    let end = text.find(|letter: char| !(letter.is_alphanumeric() || letter == '_'));
    &text[..end.unwrap_or(text.len())]
}

/// What is between the first bracket and the one that closes it; brackets in strings do not count.
fn bracketed(text: &str) -> Option<&str> {
    let start = text.find(['(', '{', '['])?;
    let (mut depth, mut quoted, mut escaped) = (0, false, false);
    for (at, letter) in text[start..].char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' | '{' | '[' if !quoted => depth += 1,
            ')' | '}' | ']' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(&text[start + 1..start + at]);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        macro_rules! cases { ($($name:ident),*) => { $(
            #[tokio::test]
            async fn $name() {}
        )* }; }
        macro_rules! text { () => { "no_test_of_mine" }; }

        #[test]
        fn plain() {}

        #[tokio::test(flavor = "multi_thread")]
        async fn a_job_runs_once() {}

        mod tests { super::cases!(bare: a_claim_is_refused, "a_string_is_none", an_end_is_final); }
        text!(this_is_no_test);
    "#;

    fn of(texts: &[&str]) -> Names {
        names(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_found_below_attributes_and_in_macros_that_make_tests() {
        let names = of(&[FILE]);
        let found: Vec<&str> = names.keys().map(String::as_str).collect();
        assert_eq!(
            found,
            ["a_claim_is_refused", "a_job_runs_once", "an_end_is_final", "plain"]
        );
    }

    #[test]
    fn a_name_that_is_gone_or_listed_more_rarely_is_missing() {
        let twice = of(&[FILE, FILE]);
        assert_eq!(missing(&twice, &twice, &[]), Vec::<String>::new());
        assert_eq!(missing(&twice, &of(&[FILE]), &[]).len(), 4);
        let other = FILE.replace("plain", "simple");
        assert_eq!(missing(&of(&[FILE]), &of(&[&other]), &[]), ["plain"]);
        let renamed = [("plain".to_owned(), "simple".to_owned())];
        assert_eq!(missing(&of(&[FILE]), &of(&[&other]), &renamed), Vec::<String>::new());
    }

    #[test]
    fn bad_arguments_are_refused_by_name() {
        let error = |args: &[&str]| Options::parse(args).unwrap_err();
        assert_eq!(error(&[]), "claims needs --against COMMIT");
        assert_eq!(
            error(&["--against"]),
            "claims: --against needs a value, as in `claims --against COMMIT`"
        );
        assert_eq!(error(&["--renamed", "x"]), "claims: --renamed takes OLD=NEW, got `x`");
        assert_eq!(error(&["--since", "x"]), "claims does not take `--since`");
    }
}
