//! The claim alone, statement by statement: today's, and the one from before breakers, groups and traces.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use jiff_sqlx::ToSqlx as _;
use protocol::{Args, say};
use serde_json::json;
use sqlx::{Connection as _, PgConnection, Row as _};

const NOW: &str = include_str!("../../../../rowlock/sql/postgres/claim/take.sql");
const BEFORE: &str = include_str!("../../../sql/claim_before.sql");

/// Jobs of one claim.
const PLACES: i32 = 100;

/// The planner settings of the engine's connections.
const PLANNER: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_hashjoin = off;
    set enable_mergejoin = off; set jit = off";

/// Claims everything that is ready, a hundred at a time, each from where the one before it ended.
pub(crate) async fn run(url: &str, args: &Args) -> Result<()> {
    let text = match args.mode.as_str() {
        "before" => BEFORE,
        _ => NOW,
    };
    let mut pg = PgConnection::connect(url).await?;
    sqlx::raw_sql(PLANNER).execute(&mut pg).await?;
    let register = "insert into rowlock.worker (id, name, lease_ms, beat, started_at)
        values (1, 'claims', 600000, clock_timestamp(), clock_timestamp())";
    sqlx::raw_sql(register).execute(&mut pg).await?;
    let lane = sqlx::query("select queue_no, kind_no, priority from rowlock.ready limit 1");
    let lane = lane.fetch_one(&mut pg).await?;
    let (queue, kind, priority): (i64, i64, i16) = (lane.try_get(0)?, lane.try_get(1)?, lane.try_get(2)?);
    let (mut claimed, mut took, mut from) = (0, Duration::ZERO, (Timestamp::UNIX_EPOCH.to_sqlx(), 0i64));
    loop {
        let ask = sqlx::query(text)
            .bind(1i64)
            .bind(vec![1i32])
            .bind(vec![PLACES])
            .bind(vec![queue])
            .bind(vec![kind])
            .bind(vec![priority])
            .bind(vec![from.0])
            .bind(vec![from.1])
            .bind(None::<jiff_sqlx::Timestamp>)
            .bind(false)
            .bind(vec![1i32]);
        let began = Instant::now();
        let rows = ask.fetch_all(&mut pg).await?;
        took += began.elapsed();
        let before = claimed;
        for row in &rows {
            if let Some(id) = row.try_get::<Option<i64>, _>("id")? {
                from = from.max((row.try_get("due_at")?, id));
                claimed += 1;
            }
        }
        if claimed == before {
            break;
        }
    }
    ensure!(claimed == args.jobs, "{claimed} of {} were claimed", args.jobs);
    say(&json!({"event": "drained", "jobs": claimed, "seconds": took.as_secs_f64()}));
    Ok(())
}
