//! Finds jobs that no pointer has reached: sends that were lost, and rows that are due and that nobody takes.
//!
//! Every pass looks at what is new, and at one page of all that waits; where the page ends, the next pass goes on. So a pass
//! is bounded however deep the backlog is.

use std::time::Duration;

use rowlock::{Admin, Standing, Untaken};
use tokio_util::sync::CancellationToken;

use crate::{config::Config, counts::add, error::Error, outside::Pause, relay::Courier};

/// How many pages of new jobs one pass sends.
const PAGES_MAX: usize = 10;
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// Where the passes are.
pub(crate) struct Sweep {
    courier: Courier,
    config: Config,
    /// Behind the newest untriggered job that was seen.
    newest: Untaken,
    untriggered: Untaken,
    due: Untaken,
}

impl Sweep {
    pub(crate) fn new(courier: Courier, config: &Config) -> Sweep {
        let paged = |mut which: Untaken| {
            which.max = config.sweep_max;
            which
        };
        Sweep {
            newest: paged(Untaken::untriggered(&config.queue, config.first_after)),
            untriggered: paged(Untaken::untriggered(
                &config.queue,
                config.grace.max(config.first_after),
            )),
            due: paged(Untaken::due(&config.queue, config.grace)),
            courier,
            config: config.clone(),
        }
    }

    /// Sweeps until told to stop.
    pub(crate) async fn run_until(mut self, stop: CancellationToken) {
        let mut pause = Pause::up_to(PAUSE_MAX);
        let mut wait = Duration::ZERO;
        while stop.run_until_cancelled(tokio::time::sleep(wait)).await.is_some() {
            // A silent SQS must not hold up a stop: the passes of others, or the next start, send what this one did not.
            let Some(passed) = stop.run_until_cancelled(self.pass()).await else {
                return;
            };
            wait = match passed {
                Ok(()) => {
                    pause.reset();
                    self.config.sweep.mul_f64(0.9 + 0.2 * fastrand::f64())
                }
                Err(error) => {
                    add(&self.courier.counts.database_failures, 1);
                    tracing::warn!("{}", Error::from(error).whole());
                    self.config.sweep.max(pause.next())
                }
            };
        }
    }

    async fn pass(&mut self) -> rowlock::Result<()> {
        let Sweep {
            courier,
            newest,
            untriggered,
            due,
            ..
        } = self;
        for _ in 0..PAGES_MAX {
            let (found, more) = page(&courier.admin, newest).await?;
            if let Some(last) = found.last() {
                newest.after = last.due_at.map(|at| (at, last.id));
            }
            courier.send(found).await;
            if !more {
                break;
            }
        }
        for which in [untriggered, due] {
            let (found, more) = page(&courier.admin, which).await?;
            // From the beginning again: what was behind may have been committed late, or sent long ago.
            which.after = found
                .last()
                .filter(|_| more)
                .and_then(|last| Some((last.due_at?, last.id)));
            courier.send(found).await;
        }
        Ok(())
    }
}

/// A page, and whether there may be more behind it.
async fn page(admin: &Admin, which: &Untaken) -> rowlock::Result<(Vec<Standing>, bool)> {
    let found = admin.observe().untaken(which).await?;
    let more = found.len() >= which.max as usize;
    Ok((found, more))
}
