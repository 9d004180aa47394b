//! The delay before the next attempt: exponential with jitter, pure.
//!
//! The delay is stored in the row as a due time, so a restart does not shorten it.

use std::time::Duration;

/// How long to wait before attempt `n + 1` after attempt `n` failed: exponential, spread by ±25 %.
///
/// ```
/// use std::time::Duration;
///
/// use rowlock::Backoff;
///
/// let backoff = Backoff::new().base(Duration::from_secs(5)).max(Duration::from_secs(60));
/// assert_eq!(backoff.delay(2, 0.5), Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    pub(crate) base: Duration,
    pub(crate) max: Duration,
}

impl Backoff {
    /// One second after the first failure, doubling, at most an hour.
    pub(crate) const DEFAULT: Backoff = Backoff {
        base: Duration::from_secs(1),
        max: Duration::from_secs(3600),
    };

    /// One second after the first failure, doubling, at most an hour.
    pub const fn new() -> Backoff {
        Backoff::DEFAULT
    }

    /// The delay after the first failure.
    pub const fn base(mut self, base: Duration) -> Backoff {
        self.base = base;
        self
    }

    /// No delay is longer than this, jitter included.
    pub const fn max(mut self, max: Duration) -> Backoff {
        self.max = max;
        self
    }

    /// The delay after failed attempt number `attempt` (from 1), with `jitter` in 0..=1 spreading it over ±25 %.
    pub fn delay(&self, attempt: i32, jitter: f64) -> Duration {
        let doublings = attempt.clamp(1, 40) - 1;
        let exact = self.base.as_secs_f64() * 2f64.powi(doublings);
        let spread = exact.min(self.max.as_secs_f64()) * (0.75 + 0.5 * jitter.clamp(0.0, 1.0));
        Duration::from_secs_f64(spread.min(self.max.as_secs_f64()))
    }

    /// [`Backoff::delay`] with a random jitter.
    pub fn jittered(&self, attempt: i32) -> Duration {
        self.delay(attempt, fastrand::f64())
    }
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_and_stop_at_the_maximum() {
        let b = Backoff::DEFAULT;
        assert_eq!(b.delay(1, 0.5), Duration::from_secs(1));
        assert_eq!(b.delay(4, 0.5), Duration::from_secs(8));
        assert_eq!(b.delay(1000, 1.0), b.max);
        assert_eq!(b.delay(i32::MIN, 0.5), Duration::from_secs(1));
    }

    #[test]
    fn jitter_spreads_by_a_quarter_each_way() {
        let b = Backoff::DEFAULT;
        assert_eq!(b.delay(1, 0.0), Duration::from_millis(750));
        assert_eq!(b.delay(1, 1.0), Duration::from_millis(1250));
    }
}
