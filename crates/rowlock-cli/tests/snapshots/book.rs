//! What every command said, and what it is to say: one file for each command, with command line, stdout, stderr and
//! exit code of every run. `ROWLOCK_SNAPSHOTS=write` writes them anew; read the difference before you commit it.

use std::{collections::BTreeMap, fs, path::PathBuf, process::Command};

use super::normal::normal;
use crate::common::{self, Said};

/// What these say differs between the databases, because it is about the database.
const OF_ONE_DATABASE: [&str; 6] = ["adopt", "audit", "migrate", "doctor", "verify", "demo"];

/// The bridge has its page with the feature `sqs`, and another without.
const BRIDGE: &str = if cfg!(feature = "sqs") { "bridge-sqs" } else { "bridge" };

pub(crate) struct Book {
    label: &'static str,
    url: String,
    known: Vec<(String, String)>,
    pages: BTreeMap<String, String>,
}

impl Book {
    pub(crate) fn new(label: &'static str, url: &str, known: Vec<(String, String)>) -> Book {
        Book {
            label,
            url: url.to_owned(),
            known,
            pages: BTreeMap::new(),
        }
    }

    /// Runs a command, on the database of the environment, and keeps what it said on the page of its name.
    pub(crate) fn run(&mut self, args: &[&str]) -> Said {
        let page = match args[0] {
            "--help" => "help",
            "nonsense" | "retry" | "version" => "usage",
            "bridge" => BRIDGE,
            command => command,
        };
        let command = self.command(args);
        self.keep(page, &args.join(" "), common::said(command))
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = common::command(args);
        command.env("ROWLOCK_DATABASE", &self.url);
        command
    }

    pub(crate) fn keep(&mut self, page: &str, line: &str, said: Said) -> Said {
        let name = match OF_ONE_DATABASE.contains(&page) {
            true => format!("{page}.{}.txt", self.label),
            false => format!("{page}.txt"),
        };
        let known: Vec<(&str, &str)> = self.known.iter().map(|(from, to)| (&**from, &**to)).collect();
        let page = self.pages.entry(name).or_default();
        if !page.is_empty() {
            page.push('\n');
        }
        page.push_str(&normal(&format!("$ rowlock {line}"), &known));
        page.push_str(&normal(&said.out, &known));
        if !said.err.is_empty() {
            page.push_str(&format!("[stderr]\n{}", normal(&said.err, &known)));
        }
        let code = said.code.map_or("a signal".into(), |code| code.to_string());
        page.push_str(&format!("[exit {code}]\n"));
        said
    }

    /// Compares every page with its file, or writes it.
    pub(crate) fn close(self) {
        let write = std::env::var_os("ROWLOCK_SNAPSHOTS").is_some_and(|word| word == "write");
        let mut wrong = String::new();
        for (name, page) in &self.pages {
            let path = folder().join(name);
            if write {
                fs::write(&path, page).unwrap();
            }
            match fs::read_to_string(&path) {
                Ok(kept) if kept == *page => {}
                Ok(kept) => wrong += &format!("\n{name}, on {}:\n{}", self.label, difference(&kept, page)),
                Err(_) => wrong += &format!("\n{name} is missing\n"),
            }
        }
        for name in files() {
            let other = OF_ONE_DATABASE.iter().any(|page| {
                let mut parts = name.split('.');
                parts.next() == Some(page) && parts.next() != Some(self.label)
            });
            let other = other || name.starts_with("bridge");
            if !other && !self.pages.contains_key(&name) {
                wrong += &format!("\n{name} is of no command\n");
            }
        }
        assert!(
            wrong.is_empty(),
            "commands do not say what they said (- before, + now); if it is better, write it with ROWLOCK_SNAPSHOTS=write\n{wrong}"
        );
    }
}

pub(crate) fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots")
}

/// The names of all pages that are kept.
pub(crate) fn files() -> Vec<String> {
    let entries = fs::read_dir(folder()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.ends_with(".txt")).collect()
}

/// The lines that differ, with two before and after each.
fn difference(before: &str, now: &str) -> String {
    let (before, now): (Vec<&str>, Vec<&str>) = (before.lines().collect(), now.lines().collect());
    // How many lines the rests from here on have in common.
    let mut common = vec![vec![0; now.len() + 1]; before.len() + 1];
    for i in (0..before.len()).rev() {
        for j in (0..now.len()).rev() {
            common[i][j] = match before[i] == now[j] {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j, mut all) = (0, 0, Vec::new());
    while i < before.len() || j < now.len() {
        if i < before.len() && j < now.len() && before[i] == now[j] {
            all.push((' ', before[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == now.len() || i < before.len() && common[i + 1][j] >= common[i][j + 1] {
            all.push(('-', before[i]));
            i += 1;
        } else {
            all.push(('+', now[j]));
            j += 1;
        }
    }
    let near = |n: usize| {
        all[n.saturating_sub(2)..(n + 3).min(all.len())]
            .iter()
            .any(|(mark, _)| *mark != ' ')
    };
    let shown = all.iter().enumerate().filter(|(n, _)| near(*n));
    shown.map(|(_, (mark, line))| format!("{mark} {line}\n")).collect()
}

#[test]
fn a_difference_shows_the_lines_that_changed() {
    let before = "a\nb\nc\nd\ne\nf\n";
    assert_eq!(difference(before, before), "");
    assert_eq!(difference(before, "a\nb\nc\nd\nx\nf\n"), "  c\n  d\n- e\n+ x\n  f\n");
}
