//! What the run is doing, on standard error, with the time it may still take.

use std::time::{Duration, Instant};

/// The benchmarks' share of the time: measured where there is a measurement, guessed where not.
#[derive(Debug)]
pub(crate) struct Progress {
    started: Instant,
    lane: String,
    lane_started: Instant,
    steps: usize,
    step: usize,
    guess_s: f64,
    /// Guesses for the benchmarks after this one.
    later_s: f64,
}

impl Progress {
    pub(crate) fn new(whole_s: f64) -> Progress {
        let now = Instant::now();
        Progress {
            started: now,
            lane: String::new(),
            lane_started: now,
            steps: 0,
            step: 0,
            guess_s: 0.0,
            later_s: whole_s,
        }
    }

    /// Begins a group of benchmarks; `guess_s` was its part of the whole.
    pub(crate) fn begin(&mut self, lane: &str, steps: usize, guess_s: f64) {
        self.lane = lane.to_owned();
        self.lane_started = Instant::now();
        self.steps = steps;
        self.step = 0;
        self.guess_s = guess_s;
        self.later_s = (self.later_s - guess_s).max(0.0);
        eprintln!("\n== {lane}: {steps} steps, {} left in all", about(self.left()));
    }

    /// Says what was just measured.
    pub(crate) fn step(&mut self, round: usize, program: &str, figure: &str) {
        self.step += 1;
        eprintln!(
            "[{} {}/{}] round {} {program}: {figure} ({} left)",
            self.lane,
            self.step,
            self.steps.max(self.step),
            round + 1,
            about(self.left())
        );
    }

    /// Says something that is not a step.
    pub(crate) fn note(&self, text: &str) {
        eprintln!("[{}] {text}", self.lane);
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    fn left(&self) -> f64 {
        self.later_s
            + left_in_lane(
                self.lane_started.elapsed().as_secs_f64(),
                self.step,
                self.steps,
                self.guess_s,
            )
    }
}

/// Steps cost what they have cost so far; before the first there is only the guess.
fn left_in_lane(elapsed_s: f64, step: usize, steps: usize, guess_s: f64) -> f64 {
    if step == 0 {
        return guess_s;
    }
    elapsed_s / step as f64 * steps.saturating_sub(step) as f64
}

fn about(seconds: f64) -> String {
    match seconds.round() as u64 {
        short @ 0..90 => format!("{short} s"),
        long => format!("{} min", (long + 30) / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_was_measured() {
        assert_eq!(left_in_lane(0.0, 0, 10, 60.0), 60.0);
        assert_eq!(left_in_lane(20.0, 5, 10, 60.0), 20.0);
        assert_eq!(left_in_lane(20.0, 12, 10, 60.0), 0.0);
        assert_eq!(about(89.4), "89 s");
        assert_eq!(about(150.0), "3 min");
    }
}
