//! S13: how long a killed worker's job waits for the next worker, defaults on both sides.
//!
//! All programs at the same time, each in its own database: they only wait, and one after the other would take half an
//! hour.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::bench::{Attempt, Bench};
use crate::programs::{Kind, Program, Role};
use crate::sample::Ended;
use crate::verb::Running;

const START: Duration = Duration::from_secs(30);

/// Kills each program's worker and waits for its second one.
pub(super) async fn run(bench: &mut Bench) {
    let mut waiting = JoinSet::new();
    let mut places = Vec::new();
    let cap = Duration::from_secs(bench.run.sizes.stuck_s);
    for program in bench.order(Kind::Postgres, 0) {
        if program.role == Role::Ceiling {
            continue;
        }
        let Some(place) = bench.fresh(Kind::Postgres, &attempt(&program)).await else {
            continue;
        };
        let url = place.url();
        places.push(place);
        waiting.spawn(async move {
            let waited = claimed_again(&program, &url, cap).await;
            (program, waited)
        });
    }
    while let Some(ended) = waiting.join_next().await {
        let Ok((program, waited)) = ended else { continue };
        let sample = |ended| attempt(&program).sample(ended);
        bench.record(match waited {
            Ok(Some(seconds)) => sample(Ended::Measured).with("seconds", seconds),
            Ok(None) => sample(Ended::Stalled)
                .with("seconds", cap.as_secs_f64())
                .note(format!("not claimed again within {} s", cap.as_secs())),
            Err(error) => {
                let text = format!("{error:#}");
                let ended = if text.contains("unsupported") {
                    Ended::Unsupported
                } else {
                    Ended::Failed
                };
                sample(ended).note(text)
            }
        });
    }
    for place in places {
        place.remove(&bench.server).await;
    }
}

fn attempt(program: &Program) -> Attempt<'_> {
    Attempt {
        case: "stuck",
        program,
        round: 0,
        jobs: 1,
        limit_s: 0,
    }
}

/// Seconds from the kill to the second start; `None` when the cap came first.
async fn claimed_again(program: &Arc<Program>, url: &str, cap: Duration) -> Result<Option<f64>> {
    let limit = (cap + START * 2).as_secs().to_string();
    let mut first = Running::start(program, url, &["stuck", "--limit-s", &limit])?;
    first.wait_for("started", START).await?;
    let killed = Instant::now();
    first.kill();
    drop(first);
    let mut second = Running::start(program, url, &["stuck", "--again", "--limit-s", &limit])?;
    match second.wait_for("started", cap).await {
        Ok(_) => Ok(Some(killed.elapsed().as_secs_f64())),
        Err(_) if killed.elapsed() >= cap => Ok(None),
        Err(error) => Err(error),
    }
}
