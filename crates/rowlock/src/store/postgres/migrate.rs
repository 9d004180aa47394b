//! Migrations: numbered, embedded, in a version table of our own, safe when many processes start at once.

use sqlx::{AssertSqlSafe, Connection, Row};

use super::{Inner, sql::in_schema};
use crate::{
    error::{Doing, Result},
    fault::mutant,
    store::SchemaFound,
};

macro_rules! migration {
    ($number:literal, $name:literal, $oldest:literal, $file:literal) => {
        (
            $number,
            $name,
            $oldest,
            include_str!(concat!("../../../sql/postgres/", $file)),
        )
    };
}

/// Number, name, and the oldest schema number a binary may speak once it ran.
const MIGRATIONS: [(i32, &str, i32, &str); 14] = [
    migration!(1, "foundation", 1, "migrations/0001_foundation.sql"),
    migration!(2, "job_keys", 1, "migrations/0002_job_keys.sql"),
    migration!(3, "ledger", 1, "migrations/0003_ledger.sql"),
    migration!(4, "effects", 1, "migrations/0004_effects.sql"),
    migration!(5, "settings", 1, "migrations/0005_settings.sql"),
    migration!(6, "guard_versions", 1, "migrations/0006_guard_versions.sql"),
    migration!(7, "body_locks", 1, "migrations/0007_body_locks.sql"),
    migration!(8, "waiting", 8, "migrations/0008_waiting.sql"),
    migration!(9, "breakers", 8, "migrations/0009_breakers.sql"),
    migration!(10, "groups", 10, "migrations/0010_groups.sql"),
    migration!(11, "operators", 10, "migrations/0011_operators.sql"),
    migration!(12, "cases", 10, "migrations/0012_cases.sql"),
    migration!(13, "views", 10, "migrations/0013_views.sql"),
    migration!(14, "protocol", 10, "migrations/0014_protocol.sql"),
];

/// The schema this binary speaks.
pub const SCHEMA: i32 = MIGRATIONS.len() as i32;

/// Every migration, for people who run their own: what `rowlock migrate --sql` prints.
pub fn migration_sql(schema: &str) -> String {
    let mut text = format!("create schema if not exists {schema};\n");
    for (version, name, oldest, sql) in MIGRATIONS {
        text += &format!("\nbegin;\n-- {version:04} {name}\n{}\n", in_schema(schema, sql));
        text += &format!(
            "insert into {schema}.migration (version, name, oldest) values ({version}, '{name}', {oldest});\ncommit;\n"
        );
    }
    text += &format!("\nselect {schema}.make_partitions(7, 10000000);\n");
    text
}

pub async fn found(inner: &Inner) -> Result<SchemaFound> {
    let mut lent = inner.engine.acquire().await.doing("schema check")?;
    let found = found_on(inner, lent.pg()).await?;
    lent.end("schema check").await?;
    Ok(found)
}

async fn found_on(inner: &Inner, pg: &mut sqlx::PgConnection) -> Result<SchemaFound> {
    let exists: bool = sqlx::query_scalar(inner.sql.schema_exists.clone())
        .fetch_one(&mut *pg)
        .await
        .doing("schema check")?;
    if !exists {
        return Ok(SchemaFound::Missing);
    }
    let row = sqlx::query(inner.sql.schema_version.clone())
        .fetch_one(pg)
        .await
        .doing("schema check")?;
    let version: Option<i32> = row.try_get("version").doing("schema check")?;
    let oldest: Option<i32> = row.try_get("oldest").doing("schema check")?;
    Ok(match (version, oldest) {
        (Some(version), Some(oldest)) => SchemaFound::At { version, oldest },
        _ => SchemaFound::Missing,
    })
}

/// Applies what is missing, each in a transaction of its own, under a transaction-scoped lock. On a schema that is
/// newer than this binary it changes nothing.
pub async fn run(inner: &Inner) -> Result<Vec<String>> {
    let schema = &inner.sql.schema;
    let mut applied = Vec::new();
    for (version, name, oldest, sql) in MIGRATIONS {
        let mut lent = inner.engine.acquire().await.doing("migrate")?;
        let mut tx = lent.pg().begin().await.doing("migrate")?;
        // Another process may hold the lock through a whole migration, longer than the engine's lock timeout.
        sqlx::raw_sql("set local lock_timeout = '60s'")
            .execute(&mut *tx)
            .await
            .doing("migrate")?;
        sqlx::query("select pg_advisory_xact_lock(hashtextextended('rowlock migrate ' || $1, 0))")
            .bind(&**schema)
            .execute(&mut *tx)
            .await
            .doing("migrate")?;
        let at = match found_on(inner, &mut tx).await? {
            SchemaFound::Missing => 0,
            SchemaFound::At { version, .. } => version,
        };
        if at < version {
            let create = format!("create schema if not exists {schema}");
            sqlx::raw_sql(AssertSqlSafe(create))
                .execute(&mut *tx)
                .await
                .doing("migrate")?;
            sqlx::raw_sql(AssertSqlSafe(in_schema(schema, sql)))
                .execute(&mut *tx)
                .await
                .doing("migrate")?;
            sqlx::query(inner.sql.migrated.clone())
                .bind(version)
                .bind(name)
                .bind(oldest)
                .execute(&mut *tx)
                .await
                .doing("migrate")?;
            applied.push(format!("{version:04} {name}"));
        }
        tx.commit().await.doing("migrate")?;
        lent.end("migrate").await?;
    }
    let mut lent = inner.engine.acquire().await.doing("migrate")?;
    if mutant!("older binary rewrites newer schema") {
        let text = format!("delete from {schema}.migration where version > {SCHEMA}");
        let rewritten = sqlx::raw_sql(AssertSqlSafe(text)).execute(lent.pg()).await;
        rewritten.doing("migrate")?;
    }
    super::recover::make_partitions(inner, lent.pg()).await?;
    lent.end("migrate").await?;
    Ok(applied)
}
