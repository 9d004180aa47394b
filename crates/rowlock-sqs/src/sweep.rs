//! Finds jobs that no pointer has reached: sends that were lost, and rows that are due and that nobody takes.
//!
//! Every pass reads the new jobs, and one page of all waiting jobs. The next pass goes on where the page ends. So a
//! pass is bounded, however deep the backlog is. If more jobs wait than sends are remembered, each walk would send all
//! of them again. Then the walks come further and further apart, as pointers to one job do.

use std::time::{Duration, Instant};

use rowlock::{
    Admin,
    observe::{Standing, Untaken},
};
use tokio_util::sync::CancellationToken;

use crate::{
    config::Config,
    counts::add,
    error::Error,
    outside::Pause,
    relay::Courier,
    sent::{GRACES_MAX, Sent},
};

/// How many pages of new jobs one pass sends.
const PAGES_MAX: usize = 10;
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Where the passes are.
pub(crate) struct Sweep {
    courier: Courier,
    config: Config,
    /// Behind the newest untriggered job that was seen.
    newest: Untaken,
    untriggered: Walk,
    due: Walk,
}

/// From the oldest of all that waits to the newest, a page at a time.
struct Walk {
    which: Untaken,
    grace: Duration,
    begun: Instant,
    /// How often sends had been forgotten when it began.
    forgotten: u64,
    /// The next walk begins at least this long after this one began.
    apart: Duration,
}

impl Walk {
    fn new(which: Untaken, grace: Duration) -> Walk {
        Walk {
            which,
            grace,
            begun: Instant::now(),
            forgotten: 0,
            apart: Duration::ZERO,
        }
    }

    /// Whether a page is to be looked at now.
    fn goes_on(&mut self, sent: &Sent) -> bool {
        if self.which.after.is_some() {
            return true;
        }
        if self.begun.elapsed() < self.apart {
            return false;
        }
        (self.begun, self.forgotten) = (Instant::now(), sent.forgotten());
        true
    }

    /// Notes that a page was read. After the last page the next walk starts from the beginning, because earlier jobs
    /// may have been committed late, or sent long ago.
    fn step(&mut self, found: &[Standing], more: bool, sent: &Sent) {
        let last = found.last().filter(|_| more);
        self.which.after = last.and_then(|last| Some((last.due_at?, last.id)));
        if self.which.after.is_none() {
            self.apart = match sent.forgotten() > self.forgotten {
                true => (self.apart * 2).clamp(self.grace, self.grace * GRACES_MAX),
                false => Duration::ZERO,
            };
        }
    }
}

impl Sweep {
    pub(crate) fn new(courier: Courier, config: &Config) -> Sweep {
        let paged = |mut which: Untaken| {
            which.max = config.sweep_max;
            which
        };
        let untriggered = Untaken::untriggered(&config.queue, config.grace.max(config.first_after));
        Sweep {
            newest: paged(Untaken::untriggered(&config.queue, config.first_after)),
            untriggered: Walk::new(paged(untriggered), config.grace),
            due: Walk::new(paged(Untaken::due(&config.queue, config.grace)), config.grace),
            courier,
            config: config.clone(),
        }
    }

    /// Sweeps until `stop`.
    pub(crate) async fn run_until(mut self, stop: CancellationToken) {
        let mut pause = Pause::up_to(PAUSE_MAX);
        let mut wait = Duration::ZERO;
        while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
            // A silent SQS must not hold up a stop: the passes of others, or the next start, send what this one did
            // not.
            let Some(passed) = stop.run_until_cancelled(self.pass()).await else {
                return;
            };
            wait = match passed {
                Ok(true) => {
                    pause.reset();
                    self.config.sweep.mul_f64(0.9 + 0.2 * fastrand::f64())
                }
                // SQS takes nothing.
                Ok(false) => self.config.sweep.max(pause.next()),
                Err(error) => {
                    add(&self.courier.counts.database_failures, 1);
                    tracing::warn!("{}", Error::from(error).whole());
                    self.config.sweep.max(pause.next())
                }
            };
        }
    }

    /// Returns `false` if there was something to send and SQS took none of it: the next pass begins with the same.
    async fn pass(&mut self) -> rowlock::Result<bool> {
        let Sweep {
            courier,
            newest,
            untriggered,
            due,
            ..
        } = self;
        for _ in 0..PAGES_MAX {
            let (found, more) = page(&courier.admin, newest).await?;
            let behind = found.last().map(|last| last.due_at.map(|at| (at, last.id)));
            if !courier.send(found).await {
                return Ok(false);
            }
            if let Some(behind) = behind {
                newest.after = behind;
            }
            if !more {
                break;
            }
        }
        for walk in [untriggered, due] {
            if !walk.goes_on(&courier.sent) {
                continue;
            }
            let (found, more) = page(&courier.admin, &walk.which).await?;
            if !courier.send(found.clone()).await {
                return Ok(false);
            }
            walk.step(&found, more, &courier.sent);
        }
        Ok(true)
    }
}

/// A page, and whether there may be more after it.
async fn page(admin: &Admin, which: &Untaken) -> rowlock::Result<(Vec<Standing>, bool)> {
    let found = admin.observe().untaken(which).await?;
    let more = found.len() >= which.max as usize;
    Ok((found, more))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_beyond_what_is_remembered_is_walked_further_and_further_apart() {
        let grace = Duration::from_secs(3600);
        let sent = Sent::new(grace, 10);
        let mut walk = Walk::new(Untaken::due("jobs", grace), grace);
        assert!(walk.goes_on(&sent), "the first begins at once");
        for job in 0..11 {
            sent.note(job);
        }
        walk.step(&[], false, &sent);
        assert_eq!(walk.apart, grace, "it was forgotten what was sent");
        assert!(!walk.goes_on(&sent));
        for apart in [2, 4, 8, 16, 32, 64, 64] {
            walk.forgotten = 0;
            walk.step(&[], false, &sent);
            assert_eq!(walk.apart, apart * grace);
        }
        walk.forgotten = sent.forgotten();
        walk.step(&[], false, &sent);
        assert_eq!(walk.apart, Duration::ZERO, "all of it is remembered");
        assert!(walk.goes_on(&sent));
    }
}
