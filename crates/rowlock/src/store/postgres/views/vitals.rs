//! What PostgreSQL reports about its health.

use jiff::Timestamp;
use sqlx::{Row, postgres::PgRow};

use crate::store::postgres::Inner;
use crate::{
    error::Result,
    observe::Finding,
    store::{rows::Columns, vitals},
};

/// The oldest version that the tests run on.
const VERSION_MIN: i32 = 150_000;
/// A clock offset that is worth a warning; only `waited` and similar values depend on it.
const OFFSET_MS: i64 = 1000;
/// A transaction that is open for this long prevents the removal of dead rows.
const OLD_S: i64 = 300;
/// The number of dead rows that slows claims down, and the ratio to live rows from which it counts.
const DEAD_ROWS: i64 = 50_000;
const DEAD_SHARE: i64 = 2;

pub async fn findings(inner: &Inner, lease_ms: Option<i64>) -> Result<Vec<Finding>> {
    let check = inner.run("check the server", async |pg| {
        let asked = Timestamp::now();
        let row = inner.query(&inner.sql.vitals).fetch_one(pg).await?;
        // The server's clock was read at some time between the request and the answer.
        let answered = Timestamp::now();
        Ok(vec![
            connection(&row, inner.hosts.pooler.is_some())?,
            clock(&row, asked, answered)?,
            connections(&row)?,
            timeouts(&row, lease_ms)?,
            oldest(&row)?,
            dead_rows(&row, &inner.sql.schema)?,
            partitions(&row)?,
            vitals::retention(row.try_get("history_days")?),
        ])
    });
    check.await
}

fn connection(row: &PgRow, pooled: bool) -> sqlx::Result<Finding> {
    let (version, role): (String, String) = (row.try_get("version")?, row.try_get("role")?);
    let through = if pooled {
        ", through a pooler in transaction mode"
    } else {
        ""
    };
    let said = format!("PostgreSQL {version} as {role}{through}");
    if row.try_get("standby")? {
        let mend = "name the primary, or all hosts: postgres://user@host1,host2/name";
        return Ok(Finding::fail(
            "connection",
            format!("{said}: a standby, which takes no writes"),
            mend,
        ));
    }
    Ok(match row.try_get::<i32, _>("version_no")? < VERSION_MIN {
        true => Finding::warn(
            "connection",
            format!("{said}: older than any version that is tested"),
            "upgrade the server to 15 or newer",
        ),
        false => Finding::ok("connection", said),
    })
}

fn clock(row: &PgRow, asked: Timestamp, answered: Timestamp) -> sqlx::Result<Finding> {
    let theirs = row.time("now")?;
    let offset = match (theirs < asked, theirs > answered) {
        (true, _) => asked.duration_since(theirs),
        (_, true) => theirs.duration_since(answered),
        _ => jiff::SignedDuration::ZERO,
    };
    let ms = i64::try_from(offset.as_millis()).unwrap_or(i64::MAX);
    Ok(match ms >= OFFSET_MS {
        true => Finding::warn(
            "clock",
            format!("this machine and the server differ by {ms} ms; jobs go by the server's clock"),
            "chronyc tracking   on both, and let one follow the other",
        ),
        false => Finding::ok(
            "clock",
            format!("this machine and the server differ by {ms} ms at most"),
        ),
    })
}

fn connections(row: &PgRow) -> sqlx::Result<Finding> {
    let (max, used): (i32, i64) = (row.try_get("connections_max")?, row.try_get("connections")?);
    let said = format!("{used} of {max} connections are taken");
    Ok(match used * 10 >= i64::from(max) * 8 {
        true => Finding::warn(
            "connections",
            format!("{said}; a worker takes up to nine, and those for its handlers"),
            "give workers fewer with .connections(n), put a pooler in front, or raise max_connections",
        ),
        false => Finding::ok("connections", said),
    })
}

/// A server whose statement timeout is shorter than the lease makes slow work fail.
fn timeouts(row: &PgRow, lease_ms: Option<i64>) -> sqlx::Result<Finding> {
    let lease_ms = lease_ms.unwrap_or(15_000);
    let limit: i64 = row.try_get::<Option<_>, _>("statement_ms")?.unwrap_or(0);
    Ok(match limit > 0 && limit < lease_ms {
        true => Finding::warn(
            "timeouts",
            format!(
                "statement_timeout is {limit} ms for this role, shorter than a lease of {lease_ms} ms: handlers are cut off by it"
            ),
            "alter role current_user set statement_timeout = 0   in SQL, or to more than the lease",
        ),
        false => Finding::ok(
            "timeouts",
            format!("none of this role's is shorter than a lease of {lease_ms} ms; workers may have another"),
        ),
    })
}

fn oldest(row: &PgRow) -> sqlx::Result<Finding> {
    let prepared: i64 = row.try_get("prepared")?;
    if prepared > 0 {
        return Ok(Finding::warn(
            "oldest transaction",
            format!(
                "{prepared} prepared transactions are open for longer than five minutes, and keep dead rows from being removed"
            ),
            "select gid, prepared from pg_prepared_xacts   in SQL, then rollback prepared 'GID' or commit it",
        ));
    }
    let Some(seconds) = row.try_get::<Option<i64>, _>("oldest_s")? else {
        return Ok(Finding::ok(
            "oldest transaction",
            "none that keeps rows, as far as this role can see",
        ));
    };
    let who: Option<String> = row.try_get("oldest_who")?;
    let pid: i32 = row.try_get("oldest_pid")?;
    let said = format!("open for {seconds} s, by {} (pid {pid})", who.unwrap_or_default());
    Ok(match seconds >= OLD_S {
        true => Finding::warn(
            "oldest transaction",
            format!("{said}: no row that was deleted since can be removed"),
            format!("select pg_terminate_backend({pid})   in SQL, when nobody needs it"),
        ),
        false => Finding::ok("oldest transaction", said),
    })
}

fn dead_rows(row: &PgRow, schema: &str) -> sqlx::Result<Finding> {
    let count = |column| row.try_get::<Option<i64>, _>(column).map(Option::unwrap_or_default);
    let (live, dead) = (count("live_rows")?, count("dead_rows")?);
    let said = format!("{dead} dead beside {live} live in ready and lease, by the statistics");
    if !row.try_get::<bool, _>("autovacuum")? {
        let mend = "alter system set autovacuum = on   in SQL, then select pg_reload_conf()";
        return Ok(Finding::fail("dead rows", format!("{said}; autovacuum is off"), mend));
    }
    Ok(match dead >= DEAD_ROWS && dead >= live * DEAD_SHARE {
        true => Finding::warn(
            "dead rows",
            said,
            format!("vacuum (analyze) {schema}.ready, {schema}.lease   in SQL, once the oldest transaction is over"),
        ),
        false => Finding::ok("dead rows", said),
    })
}

fn partitions(row: &PgRow) -> sqlx::Result<Finding> {
    let (day, ids): (bool, bool) = (row.try_get("day_ahead")?, row.try_get("ids_ahead")?);
    if row.try_get("rest")? {
        return Ok(Finding::warn(
            "partitions",
            "rows are in a default partition: none was there for them when they came",
            "see that a worker runs; its upkeep makes partitions ahead, and retention empties the default ones",
        ));
    }
    Ok(match day && ids {
        true => Finding::ok("partitions", "made ahead for tomorrow and for the ids in use"),
        false => Finding::warn(
            "partitions",
            "none is made ahead: rows will go to the default partition",
            "see that a worker runs; its upkeep makes partitions within minutes of its start",
        ),
    })
}
