//! What happens to a SQLite file: somebody else holds the write lock, the disk is full, and it is looked through for
//! damage again and again.

use std::time::Duration;

use anyhow::Result;
use sqlx::{Connection, SqliteConnection};

use super::Deck;
use crate::chaos::{ground::Ground, log::now_ms};

#[derive(Clone, Copy)]
enum Card {
    Lock,
    DiskFull,
    Look,
    /// Nothing: what is measured needs a file that is free.
    Quiet,
}

/// The kinds that this series deals.
pub const KINDS: [&str; 2] = ["write lock held", "disk full"];

/// One fault after the other until it is enough.
///
/// # Errors
/// The file is damaged, or the ballast cannot be laid.
pub async fn lane(ground: &Ground, seed: u64, gap: Duration) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut deck = Deck::new(&[
        (Card::Lock, 3),
        (Card::DiskFull, usize::from(ground.volume.is_some())),
        (Card::Look, 1),
        (Card::Quiet, 1),
    ]);
    while ground.pause(gap.mul_f64(0.5 + random.f64())).await {
        let since = now_ms();
        match deck.deal(&mut random) {
            Some(Card::Lock) => hold_lock(ground, &mut random).await,
            Some(Card::DiskFull) => disk_full(ground).await?,
            Some(Card::Look) => {
                let damage = damage(&ground.url).await?;
                anyhow::ensure!(damage.is_empty(), "the file is damaged: {}", damage.join("; "));
            }
            Some(Card::Quiet) => {
                ground.pause(super::server::QUIET).await;
                continue;
            }
            None => break,
        }
        ground.disturbed(since);
    }
    Ok(())
}

/// A transaction of somebody else's that keeps every writer waiting.
async fn hold_lock(ground: &Ground, random: &mut fastrand::Rng) {
    let Ok(mut conn) = SqliteConnection::connect(&ground.url).await else {
        return;
    };
    if sqlx::raw_sql("begin immediate").execute(&mut conn).await.is_ok() {
        ground.count("write lock held", 1);
        tokio::time::sleep(Duration::from_millis(random.u64(200..2_000))).await;
        // Closed without an end, it is rolled back.
        drop(conn);
    }
}

async fn disk_full(ground: &Ground) -> Result<()> {
    let Some(volume) = &ground.volume else { return Ok(()) };
    volume.fill()?;
    ground.count("disk full", 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    volume.free()
}

/// What SQLite finds wrong with its file.
///
/// # Errors
/// It cannot be opened.
pub async fn damage(url: &str) -> Result<Vec<String>> {
    let mut conn = SqliteConnection::connect(url).await?;
    let found: Vec<String> = sqlx::query_scalar("pragma integrity_check")
        .fetch_all(&mut conn)
        .await?;
    Ok(found.into_iter().filter(|line| line != "ok").collect())
}
