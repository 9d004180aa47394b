//! Ten thousand jobs that SQS triggers at its worst, and the same without SQS: what is left must be equal.
//!
//! Every pointer arrives in three copies, shuffled; every tenth send is lost, every fifth delete fails, and messages
//! come again while their handler runs, because their visibility is shorter than it and is not extended.

use std::{
    collections::BTreeMap,
    sync::atomic::Ordering::Relaxed,
    time::{Duration, Instant},
};

use anyhow::Result;
use rowlock::NamedJob;
use rowlock_sqs::{CASE_KIND, Config};
use serde_json::{Value, json};

use super::{
    Crooked, Emulator,
    bed::{Bed, Summary, payload},
    crew::{Act, Behaviour, QUEUE},
};
use proof::bed::{Server, sqlite_server};

/// How long a run may take for each job, and in any case.
const PATIENCE_EACH: Duration = Duration::from_millis(120);
const PATIENCE: Duration = Duration::from_secs(120);
const PLACES: usize = 256;
const HANDLER: Duration = Duration::from_millis(1200);

/// How much.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Jobs.
    pub jobs: usize,
}

/// One thing that was looked at.
struct Check {
    name: &'static str,
    holds: bool,
    said: String,
}

/// Longer than the visibility. Of a hundred jobs one is tried twice, and one becomes a case.
fn behaviour() -> Behaviour {
    std::sync::Arc::new(|text, attempt| {
        Box::pin(async move {
            tokio::time::sleep(HANDLER).await;
            match text.parse::<usize>().unwrap_or_default() % 100 {
                7 if attempt == 1 => Act::Retry,
                13 => Act::Retire,
                _ => Act::Done,
            }
        })
    })
}

/// So many jobs are open at most. An emulator looks through every message for each call, and moto takes the longer for
/// each message the more there are: with a thousand it answers twice a second.
fn open_max(emulator: &Emulator) -> i64 {
    match emulator.label {
        "moto" => 40,
        _ => 400,
    }
}

async fn fill(bed: &Bed, size: Size, on_trigger: Option<i64>) -> Result<()> {
    for n in 0..size.jobs {
        if let Some(open_max) = on_trigger.filter(|_| n % 10 == 0) {
            roomy(bed, open_max).await?;
        }
        let job = NamedJob::new("note", payload(&n.to_string())).queue(QUEUE).attempts(3);
        let job = if on_trigger.is_some() { job.on_trigger() } else { job };
        let _ = bed.admin.enqueue(job).await?;
    }
    Ok(())
}

/// Waits until some jobs are over.
async fn roomy(bed: &Bed, open_max: i64) -> Result<()> {
    let start = Instant::now();
    while open(bed).await? >= open_max && start.elapsed() < PATIENCE {
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn open(bed: &Bed) -> Result<i64> {
    let status = bed.admin.observe().status().await?;
    let lanes = status.lanes.iter();
    Ok(lanes
        .map(|lane| lane.due + lane.scheduled + lane.waiting + lane.leased)
        .sum())
}

/// Waits until nothing is open but cases.
async fn drained(bed: &Bed, size: Size) -> Result<bool> {
    let limit = PATIENCE + PATIENCE_EACH * u32::try_from(size.jobs).unwrap_or(u32::MAX);
    let start = Instant::now();
    while start.elapsed() < limit {
        if open(bed).await? == 0 {
            return Ok(true);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(false)
}

/// What the jobs leave without SQS.
///
/// # Errors
/// The database could not be used.
pub async fn reference(size: Size) -> Result<Summary> {
    let nowhere = Emulator {
        label: "none",
        url: "http://127.0.0.1:9".into(),
    };
    let bed = Bed::without_queue(&sqlite_server()[0], &nowhere, "sqs::reference").await?;
    fill(&bed, size, None).await?;
    let crew = bed.handle.work(PLACES, behaviour());
    let all = drained(&bed, size).await?;
    crew.stop().await?;
    anyhow::ensure!(all, "the run without SQS did not come to its end");
    let summary = bed.summary().await?;
    bed.database.remove().await?;
    Ok(summary)
}

fn config(bed: &Bed) -> Config {
    let mut config = bed.config();
    config.visibility = Duration::from_secs(1);
    // An emulator that waits does nothing else meanwhile.
    config.wait = Duration::ZERO;
    config.receivers = 2;
    config.held_max = 5000;
    config.grace = Duration::from_secs(5);
    config
}

/// Runs one emulator with one database; the object that says how it went, and whether everything holds.
///
/// # Errors
/// A server could not be used.
pub async fn run(server: &Server, emulator: &Emulator, size: Size, expected: &Summary) -> Result<(Value, bool)> {
    let bed = Bed::new(server, emulator, "sqs::workload", false).await?;
    let faults = bed.proxy.faults.clone();
    faults.copies.store(3, Relaxed);
    faults.drop_send_every.store(10, Relaxed);
    faults.fail_delete_every.store(5, Relaxed);
    faults.shuffle.store(true, Relaxed);
    faults.no_extension.store(true, Relaxed);
    let started = Instant::now();
    let config = config(&bed);
    let (grace, sweep) = (config.grace, config.sweep);
    let (bridge, crew) = (bed.bridge(config)?, bed.handle.work(PLACES, behaviour()));
    fill(&bed, size, Some(open_max(emulator))).await?;
    let all_over = drained(&bed, size).await?;
    let worked = started.elapsed();
    // What was held back comes out, late as it is.
    faults.shuffle.store(false, Relaxed);
    let empty = emptied(&bed).await;
    let count = bridge.stop().await?;
    crew.stop().await?;
    let summary = bed.summary().await?;
    let mut checks = compare(&summary, expected, size, all_over);
    checks.push(Check {
        name: "the queue is empty",
        holds: empty,
        said: format!("{} deleted", count.deleted),
    });
    checks.push(found(&bed.proxy, grace, sweep, size));
    checks.push(Check {
        name: "SQS was at its worst",
        holds: faults.dropped.load(Relaxed) as usize * 20 >= size.jobs
            && count.duplicates as usize >= size.jobs
            && faults.deletes_failed.load(Relaxed) > 0,
        said: format!("{} lost, {} duplicates", faults.dropped.load(Relaxed), count.duplicates),
    });
    let sound = bed.admin.observe().verify(&Default::default()).await?;
    checks.push(Check {
        name: "the invariants hold",
        holds: sound.holds(),
        said: format!("{} checks", sound.checks.len()),
    });
    let holds = checks.iter().all(|check| check.holds);
    let object = json!({
        "emulator": emulator.label,
        "database": bed.database.label(),
        "jobs": size.jobs,
        "seconds": worked.as_secs_f64(),
        "counts": count,
        "sends_lost": faults.dropped.load(Relaxed),
        "deletes_failed": faults.deletes_failed.load(Relaxed),
        "found_again_ms": spread(&bed.proxy),
        "checks": checks
            .iter()
            .map(|check| json!({ "name": check.name, "holds": check.holds, "said": check.said }))
            .collect::<Vec<_>>(),
    });
    bed.remove().await?;
    Ok((object, holds))
}

async fn emptied(bed: &Bed) -> bool {
    let start = Instant::now();
    while start.elapsed() < PATIENCE * 3 {
        if bed.depth(&bed.queue_url).await.is_ok_and(|depth| depth == 0) {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    false
}

fn compare(summary: &Summary, expected: &Summary, size: Size, all_over: bool) -> Vec<Check> {
    let mut differing: BTreeMap<&String, ()> = BTreeMap::new();
    for (payload, jobs) in summary.jobs.iter().chain(&expected.jobs) {
        let equal = summary.jobs.get(payload) == expected.jobs.get(payload);
        if !equal || jobs.len() != 1 {
            differing.insert(payload, ());
        }
    }
    let kept = summary
        .jobs
        .keys()
        .filter(|payload| payload.contains("message_id"))
        .count();
    let first: Vec<_> = differing.keys().take(3).collect();
    vec![
        Check {
            name: "every job came to its end",
            holds: all_over && expected.jobs.len() == size.jobs,
            said: format!("{} jobs", summary.jobs.len()),
        },
        Check {
            name: "the ledger equals that of a run without SQS",
            holds: summary.ledger == expected.ledger,
            said: format!("{} rows, {} without SQS", summary.ledger.len(), expected.ledger.len()),
        },
        Check {
            name: "every job stands and ended as without SQS",
            holds: differing.is_empty(),
            said: format!("{} differ {first:?}", differing.len()),
        },
        Check {
            name: "no message was kept as a case",
            holds: kept == 0,
            said: format!("{kept} of kind {CASE_KIND}"),
        },
    ]
}

/// A send that was lost comes again after the grace, or twice that when it was lost twice, as soon as the sweep comes
/// by: it looks at one page a pass, a second for each thousand jobs on a slow machine.
fn found(proxy: &Crooked, grace: Duration, sweep: Duration, size: Size) -> Check {
    let walk = (sweep + Duration::from_secs(1)) * u32::try_from(size.jobs / 1000 + 3).unwrap_or(u32::MAX);
    let found = proxy.faults.found();
    let late = found
        .iter()
        .filter(|(times, after)| *after > grace * 2u32.saturating_pow(times - 1) + walk);
    let (late, never) = (late.count(), proxy.faults.never_found());
    Check {
        name: "the sweep found every send that was lost, in time",
        holds: late == 0 && never == 0 && !found.is_empty(),
        said: format!("{} found, {late} late, {never} never", found.len()),
    }
}

fn spread(proxy: &Crooked) -> Value {
    let mut after: Vec<u128> = proxy
        .faults
        .found()
        .iter()
        .map(|(_, after)| after.as_millis())
        .collect();
    after.sort_unstable();
    let at = |share: usize| after.get((after.len().saturating_sub(1)) * share / 100);
    json!({ "median": at(50).map(ToString::to_string), "most": at(100).map(ToString::to_string) })
}
