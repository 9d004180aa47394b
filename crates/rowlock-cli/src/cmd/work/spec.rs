//! What `--exec`, `--http` and `--queue` say: `KIND=PROGRAM`, `KIND=URL`, `NAME=SLOTS`.
//!
//! A kind may be followed by `@N`: the newest version of its payload that the program or server reads. No name of a
//! kind holds an `@` or a `=`, so the first of each ends it, and nothing is left to guess.

use std::{
    env,
    ffi::OsString,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::output::Advice;

/// Every version is a separate claim, so their number is limited.
const VERSIONS_MAX: i32 = 100;

/// Which jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) kind: String,
    /// The newest version, and all before it.
    pub(crate) version: i32,
}

/// A program with its arguments, by the words of `--exec`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Exec {
    pub(crate) served: Served,
    pub(crate) program: String,
    pub(crate) args: Vec<String>,
}

/// An address, by the words of `--http`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Http {
    pub(crate) served: Served,
    pub(crate) url: String,
}

/// A queue and how many of its jobs run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slots {
    pub(crate) queue: String,
    pub(crate) slots: usize,
}

/// The slots of a queue that names none.
pub(crate) const SLOTS: usize = 4;

const GIVE_EXEC: &str = "use KIND=PROGRAM, such as resize=./resize.sh";
const GIVE_HTTP: &str = "use KIND=URL, such as resize=http://127.0.0.1:8080/resize";

/// The text after `=` is the path of the program, blanks included; with arguments it is a JSON array of strings.
pub(crate) fn exec(text: &str) -> Result<Exec, String> {
    let (served, program) = served(text, GIVE_EXEC)?;
    if !program.starts_with('[') {
        let program = program.to_owned();
        return Ok(Exec {
            served,
            program,
            args: Vec::new(),
        });
    }
    let words: Vec<String> = serde_json::from_str(program)
        .map_err(|error| format!("not a JSON array of strings, such as [\"./resize.sh\",\"--small\"]: {error}"))?;
    let mut words = words.into_iter();
    match words.next().filter(|program| !program.is_empty()) {
        Some(program) => Ok(Exec {
            served,
            program,
            args: words.collect(),
        }),
        None => Err("the array names no program".into()),
    }
}

pub(crate) fn http(text: &str) -> Result<Http, String> {
    let (served, url) = served(text, GIVE_HTTP)?;
    let url = url.to_owned();
    Ok(Http { served, url })
}

/// `NAME` or `NAME=SLOTS`.
pub(crate) fn slots(text: &str) -> Result<Slots, String> {
    let (queue, slots) = match text.split_once('=') {
        Some((queue, slots)) => {
            let slots = slots.parse().ok().filter(|slots| (1..=10_000).contains(slots));
            (queue, slots.ok_or("use NAME or NAME=SLOTS with 1 to 10000 slots")?)
        }
        None => (text, SLOTS),
    };
    let queue = queue.to_owned();
    Ok(Slots { queue, slots })
}

fn served<'a>(text: &'a str, give: &str) -> Result<(Served, &'a str), String> {
    let (kind, target) = text.split_once('=').ok_or(give)?;
    let (kind, version) = match kind.split_once('@') {
        Some((kind, version)) => {
            let version = version.parse().ok().filter(|n| (1..=VERSIONS_MAX).contains(n));
            let problem = || format!("the version after @ is not 1 to {VERSIONS_MAX}");
            (kind, version.ok_or_else(problem)?)
        }
        None => (kind, 1),
    };
    if kind.is_empty() || target.is_empty() {
        return Err(give.into());
    }
    let kind = kind.to_owned();
    Ok((Served { kind, version }, target))
}

/// The file of a program: as it is named if there is a `/` in the name, else by `PATH`, as a shell would look.
pub(crate) fn program_file(program: &str) -> Result<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = candidates(program, folders)
        .into_iter()
        .find(|path| path.is_file() && (program.contains('/') || is_executable(path)));
    let Some(path) = found else {
        let next = match program.contains('/') {
            true => "check the path; arguments go into a JSON array: --exec 'KIND=[\"./program\",\"--option\"]'",
            false => "add its directory, such as ./program, or make sure that it is in PATH",
        };
        return Err(Advice::usage(format!("program {program} not found"), next));
    };
    if !is_executable(&path) {
        let next = format!("chmod +x {program}");
        return Err(Advice::usage(format!("{program} is not executable"), next));
    }
    // The worker keeps using this file, even if its working directory changes.
    let absolute = std::path::absolute(&path);
    absolute.map_err(|error| Advice::because(error, format!("{program} has no absolute path"), "add its directory"))
}

fn candidates(program: &str, folders: OsString) -> Vec<PathBuf> {
    if program.contains('/') {
        return vec![program.into()];
    }
    env::split_paths(&folders).map(|folder| folder.join(program)).collect()
}

fn is_executable(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: &str, version: i32) -> Served {
        let kind = kind.to_owned();
        Served { kind, version }
    }

    #[test]
    fn a_path_is_one_word_and_an_array_has_the_arguments() {
        let plain = exec("resize=./my program --small").unwrap();
        assert_eq!((plain.program.as_str(), plain.args.len()), ("./my program --small", 0));
        let array = exec(r#"resize=["./my program","--name=a b",""]"#).unwrap();
        assert_eq!(array.program, "./my program");
        assert_eq!(array.args, ["--name=a b", ""]);
        assert_eq!(exec("a=b=c").unwrap().program, "b=c");
    }

    #[test]
    fn a_kind_may_name_the_newest_version_it_reads() {
        assert_eq!(exec("resize=./a").unwrap().served, of("resize", 1));
        assert_eq!(exec("resize@3=./a").unwrap().served, of("resize", 3));
        assert_eq!(http("resize@2=http://h/a@b").unwrap().served, of("resize", 2));
        for bad in ["resize@=./a", "resize@0=./a", "resize@101=./a", "resize@x=./a"] {
            assert!(exec(bad).unwrap_err().contains("after @"), "{bad}");
        }
    }

    #[test]
    fn what_is_no_pair_is_told_how_it_looks() {
        for bad in ["", "resize", "=./a", "resize=", "@2=./a"] {
            assert_eq!(exec(bad).unwrap_err(), GIVE_EXEC, "{bad}");
            assert_eq!(http(bad).unwrap_err(), GIVE_HTTP, "{bad}");
        }
        for bad in ["a=[", "a=[1]", "a=[]x"] {
            assert!(exec(bad).unwrap_err().starts_with("not a JSON array"), "{bad}");
        }
        assert_eq!(exec("a=[]").unwrap_err(), "the array names no program");
        assert_eq!(exec("a=[\"\"]").unwrap_err(), "the array names no program");
    }

    #[test]
    fn a_queue_has_four_slots_unless_it_says() {
        let pair = |text| slots(text).map(|s| (s.queue, s.slots));
        assert_eq!(pair("mail"), Ok(("mail".to_owned(), 4)));
        assert_eq!(pair("mail=9"), Ok(("mail".to_owned(), 9)));
        for bad in ["mail=", "mail=0", "mail=-1", "mail=10001", "mail=x"] {
            assert!(slots(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_name_without_a_folder_is_looked_for_in_path_alone() {
        assert_eq!(
            candidates("sh", "/a:/b".into()),
            [Path::new("/a/sh"), Path::new("/b/sh")]
        );
        assert_eq!(candidates("./sh", "/a".into()), [Path::new("./sh")]);
        assert!(program_file("sh").unwrap().is_absolute());
    }
}
