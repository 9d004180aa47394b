//! The places a job can be in and where each outcome moves it: only this file decides.
//!
//! SQL applies this table. Where a bulk statement must repeat it (recovery, which settles jobs whose worker is gone), a
//! proof case checks that the two agree.
//!
//! A job has no status column. It is in exactly one place, and moving it *is* the transition.

/// The place a job is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Due, or scheduled for later.
    Ready,
    /// Waits until the name that it waits for is completed.
    Waiting,
    /// A worker has it.
    Leased,
    /// Retired: out of attempts or given up on, open for a decision.
    Case,
    /// Done or cancelled: in no place, with a closing row in the outcome log.
    Finished,
}

/// How one attempt ended. Every attempt ends in exactly one of these, and leaves one row in the outcome log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ended {
    /// The handler succeeded and its writes committed with this outcome.
    Done,
    /// The attempt failed and another will follow.
    Retried,
    /// The handler asked for a later time, or another transaction was in its way; the attempt is given back.
    Deferred,
    /// Handed back unrun; the attempt is given back.
    Released,
    /// The job became a case.
    Retired,
    /// The job is over without its effect, on purpose.
    Cancelled,
    /// The worker died, froze or was cut off; the attempt stays counted.
    Lost,
}

impl Ended {
    /// Every way to end, in the order of the outcome log's check constraint.
    pub const ALL: [Ended; 7] = [
        Ended::Done,
        Ended::Retried,
        Ended::Deferred,
        Ended::Released,
        Ended::Retired,
        Ended::Cancelled,
        Ended::Lost,
    ];

    /// The word stored in the outcome log.
    pub fn as_str(self) -> &'static str {
        match self {
            Ended::Done => "done",
            Ended::Retried => "retried",
            Ended::Deferred => "deferred",
            Ended::Released => "released",
            Ended::Retired => "retired",
            Ended::Cancelled => "cancelled",
            Ended::Lost => "lost",
        }
    }

    /// Reads the word stored in the outcome log.
    pub fn parse(word: &str) -> Option<Ended> {
        Ended::ALL.into_iter().find(|e| e.as_str() == word)
    }

    /// Whether the attempt is given back, so that it does not count against `attempts_max`.
    pub fn gives_attempt_back(self) -> bool {
        matches!(self, Ended::Deferred | Ended::Released)
    }
}

impl State {
    /// Every place, in the order a job can pass through them.
    pub const ALL: [State; 5] = [
        State::Waiting,
        State::Ready,
        State::Leased,
        State::Case,
        State::Finished,
    ];

    /// The word shown by the `jobs` view, the command line and the logs.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Ready => "ready",
            State::Waiting => "waiting",
            State::Leased => "leased",
            State::Case => "case",
            State::Finished => "finished",
        }
    }

    /// Reads the word shown by the `jobs` view.
    pub fn parse(word: &str) -> Option<State> {
        State::ALL.into_iter().find(|s| s.as_str() == word)
    }
}

/// The place of a leased job after an attempt ended like this. `attempt` is the number of the attempt that ended. Only
/// a lease can be settled, so the state before is always [`State::Leased`].
pub fn after(ended: Ended, attempt: i32, attempts_max: i32) -> State {
    match ended {
        Ended::Done | Ended::Cancelled => State::Finished,
        Ended::Retried | Ended::Deferred | Ended::Released => State::Ready,
        Ended::Retired => State::Case,
        Ended::Lost if attempt < attempts_max => State::Ready,
        Ended::Lost => State::Case,
    }
}

/// Whether a group goes on when its head moved to this state; `stops` is the head's own policy for its retirement.
pub fn passes_turn(to: State, stops: bool) -> bool {
    match to {
        State::Finished => true,
        State::Case => !stops,
        State::Waiting | State::Ready | State::Leased => false,
    }
}

/// What a failed attempt becomes: another try while there are attempts left, otherwise a case.
pub fn failed(attempt: i32, attempts_max: i32) -> Ended {
    if attempt < attempts_max {
        Ended::Retried
    } else {
        Ended::Retired
    }
}

/// The place of a waiting job after its wait: ready when the name was completed (`None`: nothing ended); otherwise the
/// place of its end by limit (retired) or by expiry (cancelled). No attempt was made, so none is used up.
pub fn after_wait(ended: Option<Ended>) -> State {
    match ended {
        None => State::Ready,
        Some(ended) => after(ended, 0, 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_reads_back() {
        for ended in Ended::ALL {
            assert_eq!(Ended::parse(ended.as_str()), Some(ended));
        }
        assert_eq!(Ended::parse("acked"), None);
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
    }

    #[test]
    fn the_last_attempt_retires_and_the_one_before_retries() {
        assert_eq!(failed(2, 3), Ended::Retried);
        assert_eq!(failed(3, 3), Ended::Retired);
        assert_eq!(after(Ended::Lost, 2, 3), State::Ready);
        assert_eq!(after(Ended::Lost, 3, 3), State::Case);
    }

    #[test]
    fn only_unrun_and_deferred_attempts_are_given_back() {
        let back: Vec<_> = Ended::ALL.into_iter().filter(|e| e.gives_attempt_back()).collect();
        assert_eq!(back, [Ended::Deferred, Ended::Released]);
        assert!(back.iter().all(|e| after(*e, 1, 1) == State::Ready));
    }

    #[test]
    fn a_group_goes_on_when_its_head_is_over() {
        let passed = |stops| {
            State::ALL
                .into_iter()
                .filter(move |to| passes_turn(*to, stops))
                .collect::<Vec<_>>()
        };
        assert_eq!(passed(false), [State::Case, State::Finished]);
        assert_eq!(passed(true), [State::Finished]);
    }

    #[test]
    fn a_wait_ends_in_ready_in_a_case_or_cancelled() {
        assert_eq!(after_wait(None), State::Ready);
        assert_eq!(after_wait(Some(Ended::Retired)), State::Case);
        assert_eq!(after_wait(Some(Ended::Cancelled)), State::Finished);
    }
}
