//! What happens to a PostgreSQL server: restarted, killed, its backends ended and cancelled, its connections used up,
//! its disk full, and an old snapshot that nobody gives up.

use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};

use super::Deck;
use crate::chaos::{ground::Ground, log::now_ms};

/// How long a connection of the injector's own may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a server is left alone now and then.
pub(super) const QUIET: Duration = Duration::from_secs(8);

/// The library's own backends, in any order.
const BACKENDS: &str = "select pid from pg_stat_activity \
                        where backend_type = 'client backend' and pid <> pg_backend_pid() order by random() limit 1";

#[derive(Clone, Copy)]
enum Card {
    Restart,
    KillServer,
    KillBackend,
    Terminate,
    Cancel,
    Slots,
    DiskFull,
    KillPooler,
    FreezePooler,
    /// Nothing: what is measured needs a server that is well.
    Quiet,
}

/// The kinds that this series deals.
pub const KINDS: [&str; 10] = [
    "restart",
    "kill the server",
    "kill a backend",
    "terminate a backend",
    "cancel a statement",
    "no connection free",
    "disk full",
    "old snapshot",
    KILL_POOLER,
    FREEZE_POOLER,
];

/// What only a run with a pooler has.
pub const KILL_POOLER: &str = "kill the pooler";
/// See [`KILL_POOLER`].
pub const FREEZE_POOLER: &str = "freeze the pooler";

/// One fault after the other until it is enough.
///
/// # Errors
/// The server does not come back.
pub async fn lane(ground: &Ground, seed: u64, gap: Duration) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let pooled = usize::from(ground.pooler().await.is_some());
    let mut deck = Deck::new(&[
        (Card::Restart, 1),
        (Card::KillServer, 1),
        (Card::KillBackend, 1),
        (Card::Terminate, 4),
        (Card::Cancel, 4),
        (Card::Slots, 1),
        (Card::DiskFull, usize::from(ground.volume.is_some())),
        (Card::KillPooler, pooled),
        (Card::FreezePooler, pooled),
        (Card::Quiet, 2),
    ]);
    let mut pinned = None;
    while ground.pause(gap.mul_f64(0.5 + random.f64())).await {
        pin(ground, &mut pinned).await;
        let since = now_ms();
        match deck.deal(&mut random) {
            Some(Card::Restart) => restart(ground).await?,
            Some(Card::KillServer) => kill_server(ground).await?,
            Some(Card::KillBackend) => kill_backend(ground).await?,
            Some(Card::Terminate) => end(ground, &mut random, true).await,
            Some(Card::Cancel) => end(ground, &mut random, false).await,
            Some(Card::Slots) => slots(ground).await,
            Some(Card::DiskFull) => disk_full(ground).await?,
            Some(Card::KillPooler) => kill_pooler(ground).await?,
            Some(Card::FreezePooler) => freeze_pooler(ground, random.f64()).await?,
            Some(Card::Quiet) => {
                ground.pause(QUIET).await;
                continue;
            }
            None => break,
        }
        ground.disturbed(since);
    }
    Ok(())
}

async fn connect(ground: &Ground) -> Option<PgConnection> {
    let connecting = PgConnection::connect(&ground.url);
    tokio::time::timeout(PATIENCE, connecting).await.ok()?.ok()
}

/// A transaction that is held open for as long as the server lets it: nothing that dies meanwhile can be cleaned away.
async fn pin(ground: &Ground, pinned: &mut Option<PgConnection>) {
    let held = match pinned {
        Some(conn) => sqlx::raw_sql("select 1").execute(conn).await.is_ok(),
        None => false,
    };
    if !held && let Some(mut conn) = connect(ground).await {
        let begin = "begin isolation level repeatable read; select count(*) from account";
        if sqlx::raw_sql(begin).execute(&mut conn).await.is_ok() {
            *pinned = Some(conn);
            ground.count("old snapshot", 1);
        }
    }
}

async fn restart(ground: &Ground) -> Result<()> {
    let mut cluster = ground.cluster().await?;
    ground.count("restart", 1);
    cluster.crash()?;
    cluster.revive().await?;
    ground.record().restarts.push(now_ms());
    Ok(())
}

async fn kill_server(ground: &Ground) -> Result<()> {
    let mut cluster = ground.cluster().await?;
    let pid = cluster.pid().and_then(Pid::from_raw).context("the server has no pid")?;
    kill_process(pid, Signal::KILL)?;
    ground.count("kill the server", 1);
    cluster.revive().await?;
    ground.record().restarts.push(now_ms());
    Ok(())
}

/// The server ends every other backend too, and recovers by itself.
async fn kill_backend(ground: &Ground) -> Result<()> {
    let Some(mut conn) = connect(ground).await else {
        return Ok(());
    };
    let Ok(Some(pid)) = sqlx::query_scalar::<_, i32>(BACKENDS).fetch_optional(&mut conn).await else {
        return Ok(());
    };
    if let Some(pid) = Pid::from_raw(pid)
        && kill_process(pid, Signal::KILL).is_ok()
    {
        ground.count("kill a backend", 1);
        // It goes down first, with this connection too.
        let down = async { while sqlx::raw_sql("select 1").execute(&mut conn).await.is_ok() {} };
        tokio::time::timeout(PATIENCE, down)
            .await
            .context("the server outlived a killed backend")?;
        ground.cluster().await?.revive().await?;
        ground.record().restarts.push(now_ms());
    }
    Ok(())
}

/// Ends backends, or cancels what they do, for two seconds, at two to twenty in a second.
async fn end(ground: &Ground, random: &mut fastrand::Rng, terminate: bool) {
    let Some(mut conn) = connect(ground).await else { return };
    let (verb, kind) = match terminate {
        true => ("pg_terminate_backend", "terminate a backend"),
        false => ("pg_cancel_backend", "cancel a statement"),
    };
    let statement = format!("select {verb}(pid) from ({BACKENDS}) b");
    let rate = random.u32(2..=20);
    for _ in 0..rate * 2 {
        let hit = sqlx::query_scalar::<_, bool>(sqlx::AssertSqlSafe(statement.clone()));
        match hit.fetch_optional(&mut conn).await {
            Ok(hit) => ground.count(kind, usize::from(hit == Some(true))),
            Err(_) => return,
        }
        tokio::time::sleep(Duration::from_secs(1) / rate).await;
    }
}

/// Takes every connection that there is, and keeps them for a while.
async fn slots(ground: &Ground) {
    let mut taken = Vec::new();
    while let Some(conn) = connect(ground).await {
        taken.push(conn);
        if taken.len() > 500 {
            return;
        }
    }
    ground.count("no connection free", 1);
    tokio::time::sleep(Duration::from_millis(1_500)).await;
}

/// The disk is full, also for the write-ahead log; then there is space again.
async fn disk_full(ground: &Ground) -> Result<()> {
    let Some(volume) = &ground.volume else { return Ok(()) };
    volume.fill()?;
    ground.count("disk full", 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    volume.free()?;
    ground.cluster().await?.revive().await
}

/// Every connection through it is cut off, on both sides.
async fn kill_pooler(ground: &Ground) -> Result<()> {
    let Some(mut pooler) = ground.pooler().await else {
        return Ok(());
    };
    pooler.kill();
    ground.count(KILL_POOLER, 1);
    tokio::time::sleep(Duration::from_millis(300)).await;
    pooler.start()
}

/// For up to twice the lease.
async fn freeze_pooler(ground: &Ground, share: f64) -> Result<()> {
    let Some(pooler) = ground.pooler().await else {
        return Ok(());
    };
    pooler.freeze()?;
    ground.count(FREEZE_POOLER, 1);
    tokio::time::sleep(ground.lease.mul_f64(2.0 * share)).await;
    pooler.thaw()
}
