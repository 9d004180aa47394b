//! The flow is one way: nouns, then the store, then the verbs in their order, then what composes them.

use super::{assert_none, read, tree};

const SRC: &str = "crates/rowlock/src/";

const NOUNS: [&str; 17] = [
    "backoff",
    "breaker",
    "case",
    "debug",
    "effect",
    "error",
    "event",
    "fault",
    "group",
    "job",
    "key",
    "lease",
    "pause",
    "retention",
    "state",
    "table",
    "trace",
];
/// A verb may use earlier ones.
const VERBS: [&str; 9] = [
    "enqueue", "complete", "claim", "handle", "settle", "recover", "observe", "trigger", "operate",
];
/// They may use anything below them, and only they put verbs together.
const COMPOSERS: [&str; 6] = ["root", "worker", "adopt", "rig", "admin", "lib"];
/// Short names for one database each, and the verbs laid open to be counted.
const DOORS: [&str; 3] = ["counts", "postgres", "sqlite"];
/// The reading verb's plain data, which the store returns.
const VIEWS: [&str; 17] = [
    "AttemptView",
    "AuditFilter",
    "AuditView",
    "Breach",
    "CheckView",
    "Finding",
    "Invariant",
    "JobFilter",
    "JobView",
    "LaneStatus",
    "RolloutView",
    "Seen",
    "Standing",
    "Status",
    "Untaken",
    "VerifyLimits",
    "WorkerStatus",
];

/// Every path that a text takes from the crate's root: `crate::a::{b, c::d}` gives `a::b` and `a::c::d`.
fn crate_paths(text: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, _) in text.match_indices("crate::") {
        let before = text[..at].chars().next_back();
        if before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '$') {
            continue;
        }
        tree_of(&text[at + "crate::".len()..], &mut Vec::new(), &mut paths);
    }
    paths
}

/// Reads one use tree from the start of `text`; returns what follows it.
fn tree_of<'a>(text: &'a str, prefix: &mut Vec<String>, into: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        loop {
            rest = rest.trim_start().trim_start_matches(',').trim_start();
            if rest.is_empty() || rest.starts_with('}') {
                return rest.get(1..).unwrap_or_default();
            }
            rest = tree_of(rest, &mut prefix.clone(), into);
            // `as name`, or anything else that a use tree does not go on with.
            let end = rest.find([',', '}']).unwrap_or(rest.len());
            rest = &rest[end..];
        }
    }
    let end = text
        .find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len());
    if end == 0 {
        into.push(prefix.clone());
        return text;
    }
    prefix.push(text[..end].to_owned());
    match text[end..].strip_prefix("::") {
        Some(more) => tree_of(more, prefix, into),
        None => {
            into.push(prefix.clone());
            &text[end..]
        }
    }
}

/// The product's part of a file: no comments, no unit tests.
fn code(text: &str) -> String {
    let product = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
    let lines = product.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.map(|line| format!("{line}\n")).collect()
}

/// Which module a name at the crate's root comes from, by `lib.rs`'s own re-exports.
fn home_of<'a>(name: &'a str, exports: &'a [Vec<String>]) -> Option<&'a str> {
    let export = exports
        .iter()
        .find(|path| path.len() > 1 && path.last().is_some_and(|last| last == name));
    export.map(|path| path[0].as_str())
}

/// Whether code of `module` may use this path.
fn allowed(module: &str, path: &[String], exports: &[Vec<String>]) -> bool {
    let first = path.first().map(String::as_str).unwrap_or_default();
    let named = first.chars().next().is_some_and(char::is_uppercase);
    let used = if named {
        home_of(first, exports).unwrap_or(first)
    } else {
        first
    };
    let noun = NOUNS.contains(&used);
    let verb = |name: &str| VERBS.iter().position(|verb| *verb == name);
    match module {
        _ if used == module || COMPOSERS.contains(&module) || DOORS.contains(&module) => true,
        _ if NOUNS.contains(&module) => noun,
        // Above the verbs, below the modules that run the loop.
        "attempt" => noun || verb(used).is_some() || used == "store" || used == "root",
        "store" => noun || (used == "observe" && path.last().is_some_and(|name| VIEWS.contains(&name.as_str()))),
        _ => match (verb(module), verb(used)) {
            // The handle is where a verb is called from, so its type is every verb's to name.
            (Some(_), None) => noun || used == "store" || used == "root",
            (Some(mine), Some(theirs)) => theirs < mine,
            (None, _) => false,
        },
    }
}

#[test]
fn every_module_has_its_place_and_uses_only_what_is_below_it() {
    let exports = crate_paths(&code(&read(&format!("{SRC}lib.rs"))));
    assert!(exports.len() > 30, "lib.rs exports {exports:?}");
    let mut found = Vec::new();
    for (path, text) in tree(&[".rs"]) {
        let Some(inner) = path.strip_prefix(SRC) else { continue };
        if inner.contains("/tests") {
            continue;
        }
        let module = inner.split(['/', '.']).next().unwrap_or_default();
        let placed = [&NOUNS[..], &VERBS, &COMPOSERS, &DOORS, &["store", "attempt"]].concat();
        if !placed.contains(&module) {
            found.push(format!("{path}: a new module; give it a place in {}", file!()));
        }
        // In a file at the top, `super` is the root too.
        let text = code(&text);
        let text = if inner.contains('/') {
            text
        } else {
            text.replace("super::", "crate::")
        };
        let breaches = crate_paths(&text)
            .into_iter()
            .filter(|used| !allowed(module, used, &exports));
        found.extend(breaches.map(|used| format!("{path}: {module} uses {}", used.join("::"))));
    }
    found.sort();
    found.dedup();
    assert_none(found, "nouns ← store ← verbs ← worker ← doors");
}

#[test]
fn the_flow_check_sees_a_breach() {
    let exports = crate_paths("pub use crate::{error::{Error, Result}, handle::Applied};");
    let breaches = |module: &str, text: &str| -> Vec<String> {
        let used = crate_paths(&code(text))
            .into_iter()
            .filter(|used| !allowed(module, used, &exports));
        used.map(|used| used.join("::")).collect()
    };
    assert_eq!(
        breaches("claim", "use crate::{job::kind_no, settle::Ending};"),
        ["settle::Ending"]
    );
    assert_eq!(breaches("claim", "fn f() -> crate::Applied {}"), ["Applied"]);
    assert_eq!(
        breaches(
            "job",
            "use crate::{\n    error::{Error as E, Result},\n    store::{Store, Room},\n};"
        ),
        ["store::Store", "store::Room"]
    );
    assert_eq!(
        breaches("store", "use crate::observe::{JobView, Observe};"),
        ["observe::Observe"]
    );
    assert_eq!(breaches("store", "use crate::worker;"), ["worker"]);
    assert_eq!(
        breaches("attempt", "use crate::{settle::Ending, worker::cut_off};"),
        ["worker::cut_off"]
    );
    assert_eq!(
        breaches("settle", "use crate::worker::hand::InHand;"),
        ["worker::hand::InHand"]
    );

    assert_eq!(
        breaches(
            "settle",
            "use crate::{handle::clean, store::Settlement}; // crate::worker"
        ),
        [""; 0]
    );
    assert_eq!(
        breaches(
            "enqueue",
            "$crate::worker::x; my_crate::worker; crate::Error::invalid(1)"
        ),
        [""; 0]
    );
    assert_eq!(breaches("worker", "use crate::operate::Operate;"), [""; 0]);
}
