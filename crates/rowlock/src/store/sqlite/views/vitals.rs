//! What is known about the health of a SQLite file.

use std::path::Path;

use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};

use crate::store::sqlite::sql;
use crate::{observe::Finding, store::vitals};

/// A write-ahead log of this size is not being emptied, because a reader has been open for very long.
const WAL_MAX: u64 = 512 << 20;

pub async fn findings(db: &mut SqliteConnection) -> sqlx::Result<Vec<Finding>> {
    let row = sqlx::query(sql::VITALS).fetch_one(&mut *db).await?;
    let file: String = sqlx::query_scalar("select file from pragma_database_list where name = 'main'")
        .fetch_one(&mut *db)
        .await?;
    Ok(vec![
        connection(&row, &file)?,
        journal(&row, &file)?,
        vitals::retention(row.try_get("history_days")?),
    ])
}

fn connection(row: &SqliteRow, file: &str) -> sqlx::Result<Finding> {
    let version: String = row.try_get("version")?;
    let (bytes, free): (i64, i64) = (row.try_get("bytes")?, row.try_get("free_bytes")?);
    let mut said = format!("SQLite {version}, {file}, {}", size(bytes.unsigned_abs()));
    if free > 0 {
        said += &format!(", {} of it free", size(free.unsigned_abs()));
    }
    Ok(Finding::ok("connection", said))
}

/// A size for operators, rounded down.
fn size(bytes: u64) -> String {
    match bytes >> 20 {
        0 => format!("{} KiB", bytes >> 10),
        mib => format!("{mib} MiB"),
    }
}

fn journal(row: &SqliteRow, file: &str) -> sqlx::Result<Finding> {
    let mode: String = row.try_get("journal")?;
    if mode != "wal" {
        let said = format!("the file is in journal mode {mode}: readers and the writer keep each other waiting");
        return Ok(Finding::fail(
            "journal",
            said,
            "pragma journal_mode = wal   in SQL; start a worker, which sets it",
        ));
    }
    let wal = Path::new(file).with_file_name(
        Path::new(file)
            .file_name()
            .map(|name| format!("{}-wal", name.to_string_lossy()))
            .unwrap_or_default(),
    );
    let bytes = match std::fs::metadata(&wal) {
        Ok(found) => found.len(),
        // No process has the file open for writing.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => 0,
        Err(error) => {
            let said = format!("{} cannot be looked at: {error}", wal.display());
            return Ok(Finding::warn(
                "journal",
                said,
                "give whoever runs this the right to read it",
            ));
        }
    };
    Ok(match bytes >= WAL_MAX {
        true => Finding::warn(
            "journal",
            format!(
                "the log of changes has grown to {}: a reader that does not end keeps it from being emptied",
                size(bytes)
            ),
            "end the programs that read for long, then pragma wal_checkpoint(truncate)   in SQL",
        ),
        false => Finding::ok("journal", format!("write-ahead, {}", size(bytes))),
    })
}
