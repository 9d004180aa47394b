//! Record an outcome, only if the lease still holds; the next link in the same commit.
//!
//! Here an attempt's end becomes a [`Settlement`]: the decision, from `state.rs`, and the data that goes with it. The
//! store applies it.

use std::time::Duration;

use crate::{
    backoff::Backoff,
    group::Member,
    handle::{Fail, How},
    job::Draft,
    lease::{Claimed, Token},
    state::{self, Ended},
    store::Settlement,
};

/// The delay after the first serialisation failure or deadlock: short, and spread so that the two transactions do not
/// meet again.
const SOON: Duration = Duration::from_millis(20);

/// How often that delay may double.
const DOUBLINGS_MAX: i32 = 7;

/// How many attempts of a job are given back before a serialisation failure or a probe's failure counts as an attempt.
const GIVEN_BACK_MAX: i64 = 100;

/// The longest delay: every database must be able to store the due time.
const DELAY_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// What a settlement needs to know of the attempt it ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ending {
    pub(crate) token: Token,
    pub(crate) attempt: i32,
    pub(crate) attempts_max: i32,
    pub(crate) backoff: Backoff,
    /// It was claimed to probe a breaker.
    pub(crate) probe: bool,
    pub(crate) member: Option<Member>,
    /// It is a row of a user's table, which has no column for attempts that were given back.
    pub(crate) of_row: bool,
}

impl Ending {
    pub(crate) fn of(claimed: &Claimed, backoff: Backoff) -> Ending {
        Ending {
            token: claimed.token,
            attempt: claimed.attempt,
            attempts_max: claimed.attempts_max,
            backoff,
            probe: false,
            member: claimed.body.as_ref().and_then(|body| body.member),
            of_row: false,
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
            // A failed probe costs its job no attempt.
            How::Retry | How::RetryAfter(_)
                if self.probe && fail.dependency.is_some() && self.given_back() < GIVEN_BACK_MAX =>
            {
                let delay = match fail.how {
                    How::RetryAfter(delay) => delay,
                    _ => self.backoff.jittered(self.attempt),
                };
                self.settlement(Ended::Deferred, delay, text)
            }
            // A lost lease is reported earlier; its settlement would be refused.
            How::Retry | How::LeaseLost => self.settlement(again, self.backoff.jittered(self.attempt), text),
            How::RetryAfter(delay) => self.settlement(again, delay, text),
            How::RetrySoon => self.in_the_way(text, fastrand::f64()),
            How::Retire => self.settlement(Ended::Retired, Duration::ZERO, text),
            How::Defer(delay) => self.settlement(Ended::Deferred, delay, text.filter(|text| !text.is_empty())),
            How::Cancel => self.settlement(Ended::Cancelled, Duration::ZERO, text),
            How::Already | How::Changed => self.settlement(Ended::Done, Duration::ZERO, None),
        }
    }

    /// Another transaction was in the way, which is not this job's failure. The attempt is given back, so that many
    /// jobs that want one row do not use up their attempts. The delay may double each time, which spreads the jobs. A
    /// job that meets this too often is treated like any other failure, and so is every row.
    fn in_the_way(&self, text: Option<String>, jitter: f64) -> Settlement {
        let again = state::failed(self.attempt, self.attempts_max);
        if self.of_row {
            return self.settlement(again, SOON.mul_f64(1.0 + jitter), text);
        }
        let given_back = self.given_back();
        let doublings = i32::try_from(given_back).unwrap_or(i32::MAX).min(DOUBLINGS_MAX);
        let delay = SOON.mul_f64(0.5 + jitter * 2f64.powi(doublings));
        match given_back < GIVEN_BACK_MAX {
            true => self.settlement(Ended::Deferred, delay, text),
            false => self.settlement(again, delay, text),
        }
    }

    /// Whether no attempt follows if this one fails.
    pub(crate) fn is_last(&self) -> bool {
        state::failed(self.attempt, self.attempts_max) == Ended::Retired
    }

    /// Whether there may have been an attempt before this one. A row does not count attempts that were given back.
    pub(crate) fn is_repeated(&self) -> bool {
        self.of_row || self.token.epoch > 1
    }

    /// How many attempts of the job were given back so far.
    fn given_back(&self) -> i64 {
        match self.of_row {
            true => 0,
            false => self.token.epoch.saturating_sub(self.attempt.into()).max(0),
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
        let to = state::after(ended, self.attempt, self.attempts_max);
        Settlement {
            token: self.token,
            ended,
            to,
            delay: delay.min(DELAY_MAX),
            error,
            result: None,
            next: Vec::new(),
            turn: self
                .member
                .and_then(|member| state::passes_turn(to, member.stops).then_some(member.no)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::WorkerId;

    fn ending(attempt: i32, backoff: Backoff) -> Ending {
        let token = Token {
            id: 1,
            epoch: 1,
            worker: WorkerId(1),
        };
        Ending {
            token,
            attempt,
            attempts_max: 10,
            backoff,
            probe: false,
            member: None,
            of_row: false,
        }
    }

    #[test]
    fn a_conflict_of_a_row_counts_because_nothing_else_could_stop_it() {
        let row = Ending {
            of_row: true,
            ..ending(10, Backoff::DEFAULT)
        };
        let soon = Duration::from_millis(30);
        let last = row.in_the_way(Some("40001".into()), 0.5);
        assert_eq!((last.ended, last.delay), (Ended::Retired, soon));
        let first = Ending { attempt: 1, ..row }.in_the_way(None, 0.5);
        assert_eq!((first.ended, first.delay), (Ended::Retried, soon));
    }

    #[test]
    fn the_turn_passes_on_with_the_end_of_the_head_and_not_with_a_retry() {
        let of = |attempts_max, stops| Ending {
            attempts_max,
            member: Some(Member { no: 7, stops }),
            ..ending(1, Backoff::DEFAULT)
        };
        assert_eq!(of(2, false).done(None, Vec::new()).turn, Some(7));
        assert_eq!(of(2, true).done(None, Vec::new()).turn, Some(7));
        assert_eq!(of(2, false).cancelled("expired").turn, Some(7));
        assert_eq!(of(2, false).failed(Fail::retry("no")).turn, None);
        assert_eq!(of(2, false).released("paused").turn, None);
        assert_eq!(of(1, false).failed(Fail::retry("no")).turn, Some(7));
        assert_eq!(of(1, true).failed(Fail::retry("no")).turn, None);
    }

    #[test]
    fn a_conflict_gives_the_attempt_back_later_each_time_until_there_are_too_many() {
        let met = |epoch, jitter| {
            let mut ending = ending(1, Backoff::DEFAULT);
            ending.token.epoch = epoch;
            let settlement = ending.in_the_way(Some("40001".into()), jitter);
            assert_eq!(settlement.error.as_deref(), Some("40001"));
            (settlement.ended, settlement.delay)
        };
        assert_eq!(met(1, 0.0), (Ended::Deferred, Duration::from_millis(10)));
        assert_eq!(met(1, 1.0), (Ended::Deferred, Duration::from_millis(30)));
        assert_eq!(met(6, 1.0), (Ended::Deferred, Duration::from_millis(650)));
        let longest = Duration::from_millis(2570);
        assert_eq!(met(100, 1.0), (Ended::Deferred, longest));
        assert_eq!(met(101, 1.0), (Ended::Retried, longest));
        assert_eq!(met(i64::MAX, 1.0), (Ended::Retried, longest));
    }

    #[test]
    fn a_probe_that_fails_with_its_dependency_gets_its_attempt_back() {
        let probe = Ending {
            probe: true,
            ..ending(1, Backoff::DEFAULT)
        };
        let later = Duration::from_secs(7);
        let down = |fail: Fail| Fail::dependency("till", fail);
        assert_eq!(probe.failed(down(Fail::retry("down"))).ended, Ended::Deferred);
        let settlement = probe.failed(down(Fail::retry_after(later, "down")));
        assert_eq!((settlement.ended, settlement.delay), (Ended::Deferred, later));
        // A failure without the dependency's fault counts, and so does any failure of a job that is not a probe.
        assert_eq!(probe.failed(Fail::retry("bad data")).ended, Ended::Retried);
        assert_eq!(probe.failed(down(Fail::retire("over"))).ended, Ended::Retired);
        let other = ending(1, Backoff::DEFAULT);
        assert_eq!(other.failed(down(Fail::retry("down"))).ended, Ended::Retried);
    }
}
