//! Record an outcome, only if the lease still holds; the next link in the same commit.
//!
//! This is where an attempt's end becomes a [`Settlement`]: the decision, from `state.rs`, and the data that goes with
//! it. The store applies it.

use std::time::Duration;

use crate::{
    backoff::Backoff,
    handle::{Fail, How},
    job::Draft,
    lease::{Claimed, Token},
    state::{self, Ended},
    store::Settlement,
};

/// The delay after a serialisation failure or deadlock: short, and spread so that the two do not meet again.
const SOON: Duration = Duration::from_millis(20);

/// No delay is longer: a due time must stay a time that every database can store.
const DELAY_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// What a settlement needs to know of the attempt it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) token: Token,
    pub(crate) attempt: i32,
    pub(crate) attempts_max: i32,
    pub(crate) backoff: Backoff,
}

impl Ending {
    pub(crate) fn of(claimed: &Claimed, backoff: Backoff) -> Ending {
        Ending {
            token: claimed.token,
            attempt: claimed.attempt,
            attempts_max: claimed.attempts_max,
            backoff,
        }
    }

    pub(crate) fn done(&self, result: Option<String>, next: Vec<Draft>) -> Settlement {
        Settlement {
            result,
            next,
            ..self.settlement(Ended::Done, Duration::ZERO, None)
        }
    }

    /// What a handler's `Fail` becomes.
    pub(crate) fn failed(&self, fail: Fail) -> Settlement {
        let text = Some(fail.text);
        let again = state::failed(self.attempt, self.attempts_max);
        match fail.how {
            // A lost lease is told before it comes to this; its settlement would be refused.
            How::Retry | How::LeaseLost => self.settlement(again, self.backoff.jittered(self.attempt), text),
            How::RetryAfter(delay) => self.settlement(again, delay, text),
            How::RetrySoon => self.settlement(again, SOON.mul_f64(0.5 + fastrand::f64()), text),
            How::Retire => self.settlement(Ended::Retired, Duration::ZERO, text),
            How::Defer(delay) => self.settlement(Ended::Deferred, delay, None),
            How::Cancel => self.settlement(Ended::Cancelled, Duration::ZERO, text),
            How::Already | How::Changed => self.settlement(Ended::Done, Duration::ZERO, None),
        }
    }

    /// Handed back unrun.
    pub(crate) fn released(&self, why: &str) -> Settlement {
        self.released_for(Duration::ZERO, why)
    }

    /// Handed back unrun, and not to be tried again before this delay.
    pub(crate) fn released_for(&self, delay: Duration, why: &str) -> Settlement {
        self.settlement(Ended::Released, delay, Some(crate::handle::clean(why.to_owned())))
    }

    pub(crate) fn retired(&self, why: String) -> Settlement {
        self.settlement(Ended::Retired, Duration::ZERO, Some(crate::handle::clean(why)))
    }

    pub(crate) fn cancelled(&self, why: &str) -> Settlement {
        self.settlement(Ended::Cancelled, Duration::ZERO, Some(why.to_owned()))
    }

    fn settlement(&self, ended: Ended, delay: Duration, error: Option<String>) -> Settlement {
        Settlement {
            token: self.token,
            ended,
            to: state::after(ended, self.attempt, self.attempts_max),
            delay: delay.min(DELAY_MAX),
            error,
            result: None,
            next: Vec::new(),
        }
    }
}
