//! Migrations: numbered, embedded, in a version table of our own, safe when many processes start at once.

use sqlx::{Row, SqliteConnection};

use super::sql;
use crate::store::SchemaFound;

/// Number, name, the oldest schema number a binary may speak once it ran, and the script.
pub type Migration = (i32, &'static str, i32, &'static str);

macro_rules! migration {
    ($number:literal, $name:literal, $oldest:literal, $file:literal) => {
        (
            $number,
            $name,
            $oldest,
            include_str!(concat!("../../../sql/sqlite/", $file)),
        )
    };
}

pub const MIGRATIONS: [Migration; 14] = [
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
pub fn migration_sql() -> String {
    let mut text = String::from("pragma journal_mode = wal;\n");
    for (version, name, oldest, script) in MIGRATIONS {
        let note = sql::MIGRATED
            .replace("?1", &version.to_string())
            .replace("?2", &format!("'{name}'"))
            .replace("?3", &oldest.to_string());
        text += &format!("\nbegin immediate;\n{script}\n{};\ncommit;\n", note.trim_end());
    }
    text
}

pub async fn found(db: &mut SqliteConnection) -> sqlx::Result<SchemaFound> {
    let exists: bool = sqlx::query_scalar(sql::SCHEMA_EXISTS).fetch_one(&mut *db).await?;
    if !exists {
        return Ok(SchemaFound::Missing);
    }
    let row = sqlx::query(sql::SCHEMA_VERSION).fetch_one(db).await?;
    Ok(match (row.try_get("version")?, row.try_get("oldest")?) {
        (Some(version), Some(oldest)) => SchemaFound::At { version, oldest },
        _ => SchemaFound::Missing,
    })
}

/// Applies one migration, unless the schema is there or past it already; its name if it ran. The write lock is held,
/// so of many processes that start at once one applies it and the others find it done.
pub async fn apply(db: &mut SqliteConnection, migration: &Migration) -> sqlx::Result<Option<String>> {
    let (version, name, oldest, script) = *migration;
    let at = match found(db).await? {
        SchemaFound::Missing => 0,
        SchemaFound::At { version, .. } => version,
    };
    if at >= version {
        return Ok(None);
    }
    sqlx::raw_sql(script).execute(&mut *db).await?;
    sqlx::query(sql::MIGRATED)
        .bind(version)
        .bind(name)
        .bind(oldest)
        .execute(&mut *db)
        .await?;
    Ok(Some(format!("{version:04} {name}")))
}
