//! How a handler reports that it did not succeed, and what any error turns into.

use std::{error::Error as StdError, time::Duration};

use crate::{
    error::{Handled, Meaning, Undone, code_of, sqlstate},
    event::Skipped,
    fault::mutant,
};

/// The longest error text that is stored.
const TEXT_MAX: usize = 8 * 1024;

/// Why an attempt did not succeed, and what should follow. Nothing that the handler wrote is kept.
///
/// Any error converts into a retry through `?`. The conversion looks through the error's sources for what the engine
/// knows: [`AlreadyHandled`](crate::AlreadyHandled) settles as done, a serialisation failure or deadlock retries soon.
#[derive(Debug)]
pub struct Fail {
    pub(crate) how: How,
    pub(crate) text: String,
    /// An external call failed with this, and its effect did not happen.
    pub(crate) not_done: bool,
    /// The dependency to blame, instead of the job.
    pub(crate) dependency: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// Another attempt, after the kind's backoff.
    Retry,
    /// Another attempt, after this delay.
    RetryAfter(Duration),
    /// Another attempt almost immediately: the database asked for it.
    RetrySoon,
    Retire,
    Defer(Duration),
    Cancel,
    Already,
    /// What a guard protects changed meanwhile: done without its effect, without an error. Like `Already`, it is a case
    /// if an external call was made.
    Changed,
    /// The token no longer holds: nothing of this attempt is recorded.
    LeaseLost,
}

impl Fail {
    /// Try again after the kind's backoff.
    pub fn retry(reason: impl Into<String>) -> Fail {
        Fail::new(How::Retry, reason)
    }

    /// Try again after this delay.
    pub fn retry_after(delay: Duration, reason: impl Into<String>) -> Fail {
        Fail::new(How::RetryAfter(delay), reason)
    }

    /// Gives up on the job now: it becomes a case, however many attempts are left.
    pub fn retire(reason: impl Into<String>) -> Fail {
        Fail::new(How::Retire, reason)
    }

    /// Not yet: run again after this delay. The attempt is given back.
    pub fn defer(delay: Duration) -> Fail {
        Fail::new(How::Defer(delay), "")
    }

    /// Adds a reason where none is set yet: `Fail::defer(delay).because("the provider asks for a minute")`. The job's
    /// history shows it.
    pub fn because(mut self, reason: impl Into<String>) -> Fail {
        self.text = clean(reason.into());
        self
    }

    /// The work is no longer wanted; the job is over without its effect.
    pub fn cancel(reason: impl Into<String>) -> Fail {
        Fail::new(How::Cancel, reason)
    }

    /// The effect of the external call that fails with this did not happen and will not, like
    /// [`NotDone`](crate::NotDone) in an error's chain: `Fail::retire("card declined").not_done()`.
    pub fn not_done(mut self) -> Fail {
        self.not_done = true;
        self
    }

    /// This dependency is to blame, not the job's data. The failure counts for the dependency's
    /// [`Breaker`](crate::Breaker) if this worker has a kind bound to it; otherwise it is treated like any other
    /// failure. `Fail::dependency("till", error)`: the second argument may be any error, a text, or another `Fail` that
    /// says what follows.
    pub fn dependency(name: impl Into<String>, error: impl Into<Fail>) -> Fail {
        Fail {
            dependency: Some(name.into()),
            ..error.into()
        }
    }

    pub(crate) fn lease_lost() -> Fail {
        Fail::new(How::LeaseLost, "lease lost")
    }

    pub(crate) fn new(how: How, reason: impl Into<String>) -> Fail {
        Fail {
            how,
            text: clean(reason.into()),
            not_done: false,
            dependency: None,
        }
    }
}

impl Fail {
    /// Why this is not a failure, but work that need not be done.
    pub(crate) fn skipped(&self) -> Option<Skipped> {
        match self.how {
            How::Already => Some(Skipped::AlreadyHandled),
            How::Changed => Some(Skipped::Changed),
            _ => None,
        }
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Fail {
    fn from(error: E) -> Fail {
        let error: Box<dyn StdError + Send + Sync> = error.into();
        let mut texts: Vec<String> = Vec::new();
        let mut how = How::Retry;
        let mut not_done = false;
        let mut next: Option<&(dyn StdError + 'static)> = Some(&*error);
        while let Some(link) = next {
            let mut text = link.to_string();
            // Many errors print their source themselves; print it once.
            if !texts.last().is_some_and(|last| last.contains(&text)) {
                if let Some(code) = link.downcast_ref::<sqlx::Error>().and_then(sqlstate) {
                    text.push_str(&format!(" (code {code})"));
                }
                texts.push(text);
            }
            if how == How::Retry {
                how = known(link);
            }
            if wrote_in_prepare(link) {
                texts.push("prepare is read-only; write after `begin`".into());
            }
            not_done |= link.is::<Undone>();
            next = link.source();
        }
        Fail {
            not_done,
            ..Fail::new(how, texts.join(": "))
        }
    }
}

fn known(error: &(dyn StdError + 'static)) -> How {
    if error.is::<Handled>() {
        return How::Already;
    }
    match error.downcast_ref::<Meaning>() {
        Some(Meaning::LookAgain) => return How::Changed,
        // A person must decide.
        Some(Meaning::Final) => return How::Retire,
        None => {}
    }
    match code_of(error).as_deref() {
        Some("40001" | "40P01") => How::RetrySoon,
        _ => How::Retry,
    }
}

fn wrote_in_prepare(error: &(dyn StdError + 'static)) -> bool {
    matches!(code_of(error).as_deref(), Some("25006" | "8"))
}

/// Error text that every database can store: no NUL, bounded, cut at a character.
pub(crate) fn clean(text: String) -> String {
    let mut text = if text.contains('\0') && !mutant!("NUL kept in errors") {
        text.replace('\0', "\u{2400}")
    } else {
        text
    };
    if text.len() > TEXT_MAX {
        let mut end = TEXT_MAX;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str(" … (cut)");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::AlreadyHandled;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] AlreadyHandled);

    #[test]
    fn a_known_answer_is_found_behind_any_wrapping() {
        assert_eq!(Fail::from(AlreadyHandled).how, How::Already);
        assert_eq!(Fail::from(Outer(AlreadyHandled)).how, How::Already);
        assert_eq!(Fail::from(anyhow::Error::from(AlreadyHandled)).how, How::Already);
        assert_eq!(Fail::from("plain text").how, How::Retry);
        let changed = || crate::Error::Changed {
            key: "k".into(),
            source: Meaning::LookAgain,
        };
        assert_eq!(Fail::from(changed()).how, How::Changed);
        assert_eq!(Fail::from(anyhow::Error::from(changed())).how, How::Changed);
        assert_eq!(
            Fail::from(anyhow::Error::from(changed()).context("why")).how,
            How::Changed
        );
        let conflict = crate::Error::KeyConflict {
            key: "k".into(),
            held: "job 1".into(),
            given: "f".into(),
            source: Meaning::Final,
        };
        assert_eq!(Fail::from(anyhow::Error::from(conflict)).how, How::Retire);
    }

    #[test]
    fn the_text_names_every_source_once() {
        assert_eq!(
            Fail::from(Outer(AlreadyHandled)).text,
            "outer: already handled: no row matched"
        );
    }

    #[test]
    fn stored_text_is_bounded_and_free_of_nul() {
        assert_eq!(clean("a\0b".into()), "a\u{2400}b");
        let long = clean("é".repeat(TEXT_MAX));
        assert!(long.len() < TEXT_MAX + 20 && long.ends_with("(cut)"));
    }
}
