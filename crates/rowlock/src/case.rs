//! A case: a retired job with its history, open for a decision.

use jiff::Timestamp;
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::id::{ErrorNo, JobId};

/// One retired job as an operator sees it.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct CaseView {
    /// The job.
    pub id: JobId,
    /// Its kind; empty when the body is missing.
    pub kind: String,
    /// Its queue; empty when the body is missing.
    pub queue: String,
    /// Why it was retired.
    pub reason: String,
    /// How many attempts it used.
    pub attempt: i32,
    /// How many it had.
    pub attempts_max: i32,
    /// When it was retired.
    pub retired_at: Timestamp,
    /// The ended attempts, oldest first, copied here so that they outlive the outcome log: a JSON array of objects with
    /// `epoch`, `attempt`, `outcome`, `worker`, `started_at`, `ended_at` and `error`. Of more than a hundred only the
    /// first and the last fifty are kept; the first one after the gap has the number of the others as `left_out`.
    pub history: serde_json::Value,
    /// The error that it shares with other cases; `None` until a worker has assigned it, which takes seconds.
    pub error_no: Option<ErrorNo>,
    /// The owner, if one was set.
    pub owner: Option<String>,
    /// What was found out about the case, if a note was set.
    pub note: Option<String>,
}

/// An error that open cases share: their reasons without what differs from job to job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct CaseErrorView {
    /// Its number.
    pub no: ErrorNo,
    /// Its text, with `#` for numbers and `…` for names.
    pub error: String,
    /// How many open cases have it.
    pub cases: i64,
    /// The newest of them.
    pub newest: JobId,
    /// When a case of it was first retired, reopened ones included.
    pub first_seen: Timestamp,
    /// When a case of it was last retired.
    pub last_seen: Timestamp,
    /// How often a case of it was retired, reopened ones included.
    pub seen: i64,
}

/// How much of a reason is read, and how much of the normalised reason counts; the rest is details.
const LOOKED_AT: usize = 4000;
const KEPT: usize = 500;
/// A word of letters and several numbers that is this long is an id.
const ID_MIN: usize = 16;
/// The longest text between quotes that is taken for a name.
const QUOTED_MAX: usize = 200;

/// The text of a reason without what differs from job to job: numbers become `#`; ids, addresses and text between
/// quotes become `…`. Words between backticks stay, because they name fields and types.
pub(crate) fn error_of(reason: &str) -> String {
    let text: String = reason.chars().take(LOOKED_AT).collect();
    let text: Vec<char> = text.split_whitespace().collect::<Vec<_>>().join(" ").chars().collect();
    let mut error = String::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let c = text[at];
        let in_a_word = at > 0 && text[at - 1].is_alphanumeric();
        if (c == '"' || c == '\'') && !in_a_word {
            let rest = &text[at + 1..text.len().min(at + 1 + QUOTED_MAX)];
            if let Some(end) = rest.iter().position(|other| *other == c) {
                error.extend([c, '…', c]);
                at += end + 2;
                continue;
            }
        }
        if !is_wordy(c) {
            error.push(c);
            at += 1;
            continue;
        }
        let end = text[at..]
            .iter()
            .position(|c| !is_wordy(*c))
            .map_or(text.len(), |n| at + n);
        let word: String = text[at..end].iter().collect();
        // A full stop or a hyphen at the end belongs to the sentence.
        let kept = word.trim_end_matches(['.', '-', '+', ',']);
        error += &without_numbers(kept);
        error += &word[kept.len()..];
        at = end;
    }
    error.chars().take(KEPT).collect()
}

fn is_wordy(c: char) -> bool {
    c.is_alphanumeric() || "_-.@+,".contains(c)
}

fn without_numbers(word: &str) -> String {
    if word
        .chars()
        .enumerate()
        .any(|(at, c)| c == '@' && at > 0 && at + 1 < word.len())
    {
        return "…".into();
    }
    let letters = word.chars().any(|c| c.is_alphabetic());
    let hex = word.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    let numbers = word
        .split(|c: char| !c.is_ascii_digit())
        .filter(|part| !part.is_empty())
        .count();
    let in_parts = word.contains('-') || letters;
    if (hex && in_parts && numbers > 0 && word.len() >= 8) || (letters && numbers > 1 && word.len() >= ID_MIN) {
        return "…".into();
    }
    let mut kept = String::with_capacity(word.len());
    for c in word.chars() {
        match c.is_ascii_digit() {
            true if kept.ends_with('#') => {}
            true => kept.push('#'),
            false => kept.push(c),
        }
    }
    // 1.5 and 1,024 are numbers like 7.
    while kept.contains("#.#") || kept.contains("#,#") {
        kept = kept.replace("#.#", "#").replace("#,#", "#");
    }
    kept
}

/// The number of an error: the first six bytes of its SHA-256, so that it fits everything that reads JSON.
pub(crate) fn error_no(error: &str) -> i64 {
    let hash = Sha256::digest(error.as_bytes());
    hash[..6].iter().fold(0, |no, byte| no << 8 | i64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_that_differ_in_numbers_and_names_alone_are_one_error() {
        for (one, other, said) in [
            (
                "order 17 not found after 1.5 s",
                "order 90210 not found after 12 s",
                "order # not found after # s",
            ),
            ("no such user \"bob\"", "no such user \"ann lee\"", "no such user \"…\""),
            (
                "charge 7f9c24e8-3b1a-4d52-9f0e-000000000001 was refused.",
                "charge 0b1c24e8-3b1a-4d52-9f0e-0000000000ff was refused.",
                "charge … was refused.",
            ),
            (
                "mail to ann@example.org bounced",
                "mail to bob.b+x@example.com bounced",
                "mail to … bounced",
            ),
            (
                "took 9999999 us for 01ARZ3NDEKTSV4RRFFQ69G5FAV",
                "took 10000000 us for 01BX5ZZKBKACTAV9WEVGEMMVRZ",
                "took # us for …",
            ),
            (
                "no charge ch_3MqLiJLkdIwHu7ix0snN0B15 and no more",
                "no charge ch_1NirD82eZvKYlo2CIvbtLWuY and no more",
                "no charge … and no more",
            ),
            (
                "can't reach 10.0.0.1:5432",
                "can't reach 192.168.10.11:6432",
                "can't reach #:#",
            ),
            (
                "disk   is full:\n1,024 of 2,048 MB",
                "disk is full: 9 of 10 MB",
                "disk is full: # of # MB",
            ),
        ] {
            assert_eq!(error_of(one), said);
            assert_eq!(error_of(one), error_of(other));
        }
    }

    #[test]
    fn other_words_are_another_error() {
        let errors = [
            "missing field `amount` at line 1",
            "missing field `order` at line 1",
            "handler panicked: index out of bounds",
            "handler panicked: overflow",
            "it's late",
            "",
        ];
        let told: std::collections::HashSet<i64> = errors.iter().map(|e| error_no(&error_of(e))).collect();
        assert_eq!(told.len(), errors.len());
        assert!(told.iter().all(|no| (0..1 << 48).contains(no)));
        assert_eq!(
            error_of("missing field `amount` at line 12"),
            "missing field `amount` at line #"
        );
        assert_eq!(
            error_of("an open \" quote, and 'one' more"),
            "an open \" quote, and '…' more"
        );
        assert_eq!(error_of("it's 5 o'clock"), "it's # o'clock");
    }

    #[test]
    fn however_long_a_reason_is_its_error_is_short() {
        let long = "x".repeat(100_000);
        assert_eq!(error_of(&long).chars().count(), KEPT);
        let trail = "at frame ".repeat(100);
        assert_eq!(
            error_of(&format!("order 9 {trail}")),
            error_of(&format!("order 10 {trail}"))
        );
        assert_eq!(error_of(&long), error_of(&format!("{long} and more")));
        assert_eq!(error_of(&"ü7".repeat(5)), "ü#".repeat(5));
    }
}
