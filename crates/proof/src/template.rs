//! Databases with the schema in place, copied instead of migrated anew for each case: a copy costs a third.
//!
//! A template is made once for each test program as it was last built, by whichever test comes first; the others wait
//! for it. What a migration does is the business of the cases that migrate a bare database.

use std::{
    fs::File,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    time::SystemTime,
};

use anyhow::{Context, Result};
use rowlock::Admin;
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};

/// Held while a template is looked for and made.
const LOCK: i64 = 0x726f_776c_6f63_6b74;

/// Another build of the program has other templates.
fn number() -> Result<u64> {
    let program = std::env::current_exe()?;
    let built = std::fs::metadata(&program)?
        .modified()
        .unwrap_or(SystemTime::UNIX_EPOCH);
    let mut hasher = DefaultHasher::new();
    (program, built).hash(&mut hasher);
    Ok(hasher.finish())
}

/// The name of the template on the server of this connection; `base` is the server's URL without a database.
pub(crate) async fn on_postgres(admin: &mut PgConnection, base: &str) -> Result<String> {
    let name = format!("template_{:016x}", number()?);
    let exists = "select exists (select from pg_database where datname = $1)";
    if sqlx::query_scalar(exists).bind(&name).fetch_one(&mut *admin).await? {
        return Ok(name);
    }
    run(admin, &format!("select pg_advisory_lock({LOCK})")).await?;
    let made = async {
        if !sqlx::query_scalar::<_, bool>(exists)
            .bind(&name)
            .fetch_one(&mut *admin)
            .await?
        {
            // Under another name until it is complete: the process that made it may have been killed.
            let building = format!("{name}_building");
            run(admin, &format!("drop database if exists {building} with (force)")).await?;
            run(admin, &format!("create database {building}")).await?;
            Admin::open(&format!("{base}/{building}"), "rowlock")?.migrate().await?;
            let others =
                format!("select pg_terminate_backend(pid, 5000) from pg_stat_activity where datname = '{building}'");
            run(admin, &others).await?;
            run(admin, &format!("alter database {building} rename to {name}")).await?;
        }
        anyhow::Ok(())
    };
    let made = made.await.context("making the template of the cases' databases");
    run(admin, &format!("select pg_advisory_unlock({LOCK})")).await?;
    made.map(|()| name)
}

async fn run(pg: &mut PgConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pg).await?;
    Ok(())
}

/// Copies the template file to this path.
pub(crate) async fn on_sqlite(to: &Path) -> Result<()> {
    let template = sqlite_file().await.context("making the template of the cases' files")?;
    std::fs::copy(&template, to)?;
    Ok(())
}

async fn sqlite_file() -> Result<PathBuf> {
    let folder = std::env::temp_dir();
    let template = folder.join(format!("rowlock-template-{:016x}.db", number()?));
    if template.exists() {
        return Ok(template);
    }
    let lock = template.with_extension("lock");
    let lock = File::options().create(true).append(true).open(lock)?;
    lock.lock()?;
    if !template.exists() {
        let made = tempfile::tempdir_in(&folder)?;
        let file = made.path().join("made.db");
        let url = format!("sqlite:{}", file.display());
        Admin::open(&url, "rowlock")?.migrate().await?;
        let mut sqlite = SqliteConnection::connect(&url).await?;
        sqlx::raw_sql("pragma wal_checkpoint(truncate)")
            .execute(&mut sqlite)
            .await?;
        sqlite.close().await?;
        std::fs::rename(file, &template)?;
    }
    Ok(template)
}
