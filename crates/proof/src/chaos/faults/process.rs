//! What happens to worker processes: killed anywhere and at every named point, frozen past their lease, stopped.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::Deck;
use crate::chaos::{
    fleet,
    ground::{Ground, Site},
    log::now_ms,
};

/// Every named point that a rower passes.
pub const POINTS: [&str; 15] = [
    "after-claim",
    "before-handler",
    "before-effect",
    "after-intent",
    "before-reply",
    "after-reply",
    "before-settle",
    "before-commit",
    "after-commit",
    "before-failure",
    "before-batch",
    "after-batch",
    "in-batch",
    "before-commit",
    "after-commit",
];

/// How long a process may take to get to its point. Some are passed seldom.
const POINT_LIMIT: Duration = Duration::from_secs(6);

/// From here on a worker has the time to finish what it has begun.
const LONG_GRACE: Duration = Duration::from_secs(2);

#[derive(Clone, Copy)]
enum Card {
    Kill,
    KillAtPoint,
    KillProducer,
    StopShort,
    StopLong,
}

/// The kinds that this series deals.
pub const KINDS: [&str; 6] = [
    "kill",
    "kill at a point",
    "kill a producer",
    "freeze",
    "stop, short grace",
    "stop, long grace",
];

/// One fault after the other until it is enough.
///
/// # Errors
/// A process could not be started or ended.
pub async fn lane(ground: &Ground, seed: u64, gap: Duration) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut deck = Deck::new(&[
        (Card::Kill, 4),
        (Card::KillAtPoint, 4),
        (Card::KillProducer, 1),
        (Card::StopShort, 1),
        (Card::StopLong, 1),
    ]);
    let mut points = Deck::new(&POINTS.map(|point| (point, 1)));
    while ground.pause(gap.mul_f64(0.5 + random.f64())).await {
        match deck.deal(&mut random) {
            Some(Card::Kill) => kill(ground, &mut random).await?,
            Some(Card::KillAtPoint) => kill_at_point(ground, &mut random, &mut points).await?,
            Some(Card::KillProducer) => kill_producer(ground, &mut random).await?,
            Some(Card::StopShort) => stop(ground, &mut random, false).await?,
            Some(Card::StopLong) => stop(ground, &mut random, true).await?,
            None => break,
        }
    }
    Ok(())
}

/// Freezes one worker after the other for longer than its lease, at most so many times as long.
///
/// # Errors
/// The system refused.
pub async fn freezes(ground: &Ground, seed: u64, gap: Duration, longest: f64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    while ground.pause(gap.mul_f64(0.5 + random.f64())).await {
        freeze(ground, &mut random, longest).await?;
    }
    Ok(())
}

async fn kill(ground: &Ground, random: &mut fastrand::Rng) -> Result<()> {
    let mut fleet = ground.fleet.lock().await;
    if let Some(at) = fleet.any_worker(random) {
        let when = fleet.rower(at).kill()?;
        let name = fleet.rower(at).name.clone();
        ground.count_on("kill", 1, &name);
        ground.record().deaths.push((name, when));
    }
    Ok(())
}

async fn kill_producer(ground: &Ground, random: &mut fastrand::Rng) -> Result<()> {
    let mut fleet = ground.fleet.lock().await;
    if let Some(at) = fleet.any_producer(random) {
        fleet.rower(at).kill()?;
        ground.count("kill a producer", 1);
    }
    Ok(())
}

/// Starts one more worker that stops at a point, and kills it there.
async fn kill_at_point(ground: &Ground, random: &mut fastrand::Rng, points: &mut Deck<&'static str>) -> Result<()> {
    let Some(point) = points.deal(random) else {
        return Ok(());
    };
    let at = ground.fleet.lock().await.start_at(0, point)?;
    fleet::up(&ground.fleet, at).await?;
    let started = Instant::now();
    let stands = format!("at {point}");
    let there = loop {
        let mut fleet = ground.fleet.lock().await;
        let rower = fleet.rower(at);
        if rower.says(&stands) || rower.is_gone() || started.elapsed() > POINT_LIMIT {
            break rower.says(&stands);
        }
        drop(fleet);
        tokio::time::sleep(Duration::from_millis(10)).await;
    };
    let mut fleet = ground.fleet.lock().await;
    if !fleet.rower(at).is_gone() {
        let when = fleet.rower(at).kill()?;
        let name = fleet.rower(at).name.clone();
        let kind = if there { "kill at a point" } else { "kill" };
        ground.count_on(kind, 1, &format!("{name} {point}"));
        ground.record().deaths.push((name, when));
    }
    Ok(())
}

/// Is frozen for longer than its lease, then goes on as if nothing had happened.
async fn freeze(ground: &Ground, random: &mut fastrand::Rng, longest: f64) -> Result<()> {
    let (at, since) = {
        let mut fleet = ground.fleet.lock().await;
        let Some(at) = fleet.any_worker(random) else {
            return Ok(());
        };
        let since = fleet.rower(at).freeze()?;
        ground.count_on("freeze", 1, &fleet.rower(at).name);
        (at, since)
    };
    // Never less than it takes: a freeze that is cut short would show nothing.
    tokio::time::sleep(ground.lease.mul_f64(1.1 + (longest - 1.1) * random.f64())).await;
    let mut fleet = ground.fleet.lock().await;
    if !fleet.rower(at).is_gone() {
        fleet.rower(at).thaw(since)?;
    }
    if matches!(ground.site, Site::Sqlite) {
        // It may have stood there with the write lock, which nobody can take from it.
        ground.disturbed(since);
    }
    Ok(())
}

async fn stop(ground: &Ground, random: &mut fastrand::Rng, long: bool) -> Result<()> {
    let (at, grace, direct) = {
        let mut fleet = ground.fleet.lock().await;
        let Some(at) = fleet.any_with_grace(random, |grace| (grace >= LONG_GRACE) == long) else {
            return Ok(());
        };
        fleet.rower(at).terminate()?;
        let (grace, url) = fleet.manners(at);
        (at, grace, url == ground.url)
    };
    let (since, started) = (now_ms(), Instant::now());
    ground.count(if long { "stop, long grace" } else { "stop, short grace" }, 1);
    let limit = grace + Duration::from_secs(30);
    while started.elapsed() < limit && !ground.fleet.lock().await.rower(at).is_gone() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = now_ms() - since;
    let mut record = ground.record();
    let disturbed = record.outages.iter().any(|(_, to)| *to >= since);
    // Behind a network that holds everything back nobody can hand anything back.
    if direct && !disturbed {
        record.hand_backs_ms.push((took - grace.as_millis() as i64).max(0));
    }
    Ok(())
}
