//! How long data is kept, and the rule that keeps a key until its operation is over: pure.

use std::time::Duration;

use crate::{
    backoff::Backoff,
    error::{Error, Result},
};

const HOUR: Duration = Duration::from_secs(3600);
/// The audit is kept at least this long, so that others can read it before it is removed.
const AUDIT_MIN: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long the workers keep what is over. Upkeep removes it in small batches.
///
/// A worker refuses to start when keys would be removed while their operation may still be tried:
/// `keys >= retry horizon + cases`, and the same with history. The retry horizon is the longest time that one of its
/// kinds may be tried for.
///
/// ```
/// use std::time::Duration;
///
/// use rowlock::Retention;
///
/// let month = Duration::from_secs(30 * 24 * 3600);
/// let retention = Retention::new().history(month).keys_for_ever();
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub(crate) history: Duration,
    pub(crate) cases: Option<Duration>,
    pub(crate) keys: Option<Duration>,
    pub(crate) audit: Option<Duration>,
}

impl Retention {
    /// History for 14 days, cases for 90, keys for 180, the audit for 730.
    pub const fn new() -> Retention {
        Retention {
            history: days(14),
            cases: Some(days(90)),
            keys: Some(days(180)),
            audit: Some(days(730)),
        }
    }

    /// How long the bodies, attempts and results of finished jobs are kept: at least an hour.
    pub const fn history(mut self, time: Duration) -> Retention {
        self.history = time;
        self
    }

    /// How long undecided cases are kept: at least an hour. A case with an effect in doubt is kept whatever its age.
    pub const fn cases(mut self, time: Duration) -> Retention {
        self.cases = Some(time);
        self
    }

    /// Keeps cases until they are decided. Keys must then be kept for ever too.
    pub const fn cases_for_ever(mut self) -> Retention {
        self.cases = None;
        self
    }

    /// How long keys held by policy ([`Hold::Policy`](crate::Hold::Policy)), of jobs and of the ledger, and completed
    /// names are kept. A name that any job waits or waited for is kept as long as that job's body.
    pub const fn keys(mut self, time: Duration) -> Retention {
        self.keys = Some(time);
        self
    }

    /// Keeps keys and completed names for ever.
    pub const fn keys_for_ever(mut self) -> Retention {
        self.keys = None;
        self
    }

    /// How long the audit of operator commands is kept: at least 30 days. Rows about a job are kept as long as the
    /// job's body, whatever their age.
    pub const fn audit(mut self, time: Duration) -> Retention {
        self.audit = Some(time);
        self
    }

    /// Keeps the audit for ever.
    pub const fn audit_for_ever(mut self) -> Retention {
        self.audit = None;
        self
    }
}

impl Default for Retention {
    fn default() -> Self {
        Retention::new()
    }
}

const fn days(days: u64) -> Duration {
    Duration::from_secs(days * 24 * 3600)
}

/// The longest time that jobs of one kind may be tried for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Horizon<'a> {
    kind: &'a str,
    attempts: i32,
    length: Duration,
}

impl<'a> Horizon<'a> {
    /// Every attempt runs into its time limit, and every delay is as long as it can be.
    pub(crate) fn of(kind: &'a str, attempts_max: i32, backoff: Backoff, time_limit: Duration) -> Horizon<'a> {
        let attempts = attempts_max.clamp(1, 10_000);
        let mut length = time_limit.saturating_mul(attempts.unsigned_abs());
        for attempt in 1..attempts {
            length = length.saturating_add(backoff.delay(attempt, 1.0));
        }
        Horizon { kind, attempts, length }
    }
}

impl Retention {
    /// Refuses a retention that would lose a history immediately, or a key before its operation is over.
    pub(crate) fn check<'a>(&self, horizons: impl Iterator<Item = Horizon<'a>>) -> Result<()> {
        if self.history < HOUR {
            return Err(Error::Config(
                "retention: history must be kept for at least an hour".into(),
            ));
        }
        if self.cases.is_some_and(|cases| cases < HOUR) {
            return Err(Error::Config(
                "retention: cases must be kept for at least an hour".into(),
            ));
        }
        if self.audit.is_some_and(|audit| audit < AUDIT_MIN) {
            return Err(Error::Config(
                "retention: the audit must be kept for at least 30 days".into(),
            ));
        }
        let Some(keys) = self.keys else { return Ok(()) };
        let Some(cases) = self.cases else {
            return Err(Error::Config(format!(
                "retention: cases are kept for ever, but keys only for {}, and a case can be reopened at any time; \
                 keep keys for ever too, or limit how long cases are kept",
                spelled(keys)
            )));
        };
        let Some(longest) = horizons.max_by_key(|h| h.length) else {
            return Ok(());
        };
        let needed = longest.length.saturating_add(cases);
        if keys < needed {
            return Err(Error::Config(format!(
                "retention: keys are kept for {}, but a job of kind {} can take {} ({} attempts) and its case is kept \
                 for {}; keep keys for at least {}, or for ever",
                spelled(keys),
                longest.kind,
                spelled(longest.length),
                longest.attempts,
                spelled(cases),
                spelled(needed),
            )));
        }
        let needed = longest.length.saturating_add(self.history);
        if keys < needed {
            return Err(Error::Config(format!(
                "retention: keys are kept for {}, but history for {}, and a finished job can be re-run while it has \
                 history; keep keys for at least {}, or for ever",
                spelled(keys),
                spelled(self.history),
                spelled(needed),
            )));
        }
        Ok(())
    }
}

/// `92 d 3 h`; parts of a second count as one, so that "at least" is enough.
pub(crate) fn spelled(time: Duration) -> String {
    let mut seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    let mut parts = Vec::new();
    for (unit, length) in [("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)] {
        let count = seconds / length;
        seconds %= length;
        if count > 0 {
            parts.push(format!("{count} {unit}"));
        }
    }
    match parts.is_empty() {
        true => "0 s".to_owned(),
        false => parts.join(" "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: Duration = days(1);

    const STEADY: Backoff = Backoff { base: HOUR, max: HOUR };

    /// Ten attempts of an hour each, and nine delays of an hour: 19 hours.
    fn charge() -> Horizon<'static> {
        Horizon::of("charge", 10, STEADY, HOUR)
    }

    fn said(retention: Retention) -> String {
        let horizons = [Horizon::of("mail", 2, STEADY, HOUR), charge()];
        match retention.check(horizons.into_iter()) {
            Ok(()) => String::new(),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn the_horizon_is_every_attempt_and_every_delay_at_its_longest() {
        assert_eq!(charge().length, 19 * HOUR);
        assert_eq!(Horizon::of("x", 1, STEADY, HOUR).length, HOUR, "one attempt, no delay");
        let doubling = Backoff {
            base: Duration::from_secs(1),
            max: HOUR,
        };
        let length = Horizon::of("x", 4, doubling, Duration::ZERO).length;
        assert_eq!(length, Duration::from_secs_f64(1.25 * (1.0 + 2.0 + 4.0)));
        assert!(Horizon::of("x", i32::MAX, STEADY, Duration::MAX).length == Duration::MAX);
    }

    #[test]
    fn keys_outlive_the_longest_horizon_and_the_case_after_it() {
        let keep = |hours: u32| Retention {
            keys: Some(90 * DAY + hours * HOUR),
            ..Retention::default()
        };
        assert_eq!(said(keep(19)), "");
        assert_eq!(
            said(keep(18)),
            "retention: keys are kept for 90 d 18 h, but a job of kind charge can take 19 h (10 attempts) and its \
             case is kept for 90 d; keep keys for at least 90 d 19 h, or for ever"
        );
    }

    #[test]
    fn keys_for_a_time_need_cases_for_a_time() {
        let keep = Retention {
            cases: None,
            ..Retention::default()
        };
        assert!(said(keep).starts_with("retention: cases are kept for ever, but keys only for 180 d"));
        assert_eq!(said(Retention { keys: None, ..keep }), "");
    }

    #[test]
    fn history_and_cases_are_kept_for_an_hour_at_least() {
        let minute = Duration::from_secs(60);
        let keep = Retention::default();
        assert!(
            said(Retention {
                history: minute,
                ..keep
            })
            .starts_with("retention: history must")
        );
        let cases = Some(minute);
        assert!(said(Retention { cases, ..keep }).starts_with("retention: cases must"));
        assert_eq!(said(Retention { history: HOUR, ..keep }), "");
        let audit = Some(29 * DAY);
        assert!(said(Retention { audit, ..keep }).starts_with("retention: the audit must"));
        let audit = Some(30 * DAY);
        assert_eq!(said(Retention { audit, ..keep }), "");
    }

    #[test]
    fn the_default_fits_a_default_kind() {
        let kind = Horizon::of("x", 10, Backoff::DEFAULT, Duration::from_secs(600));
        assert!(Retention::default().check([kind].into_iter()).is_ok());
        assert!(Retention::default().check(std::iter::empty()).is_ok());
    }

    #[test]
    fn a_time_is_spelled_rounded_up() {
        assert_eq!(spelled(Duration::from_millis(90_061_001)), "1 d 1 h 1 min 2 s");
        assert_eq!(spelled(Duration::ZERO), "0 s");
    }
}
