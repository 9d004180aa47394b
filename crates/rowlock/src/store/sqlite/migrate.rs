//! Creates and updates the schema. Everything that is missing runs in one transaction, safe when many processes start
//! together.

use sqlx::{AssertSqlSafe, SqliteConnection};

use super::sql;
use crate::{
    error::Result,
    store::{
        rows::Noun,
        schema::{Migration, RELEASE, Recorded, SchemaFound, Scripts, Step},
    },
};

macro_rules! texts {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(include_str!(concat!("../../../sql/sqlite/", $folder, "/", $name, ".sql"))),*]
    };
}

/// The tables, in an order in which each can be created.
pub const BASE: &[&str] = texts!("schema":
    "migration", "job", "ready", "lease", "outcome", "case", "worker", "audit", "key", "ledger", "effect", "setting",
    "guard", "wait", "group", "breaker", "views", "verb",
);

/// The migrations after the base, from number 2: `sql/sqlite/schema/migrations`.
const MIGRATIONS: &[Migration] = &[];

/// The triggers that act as functions: they end leases, and run the operator commands of plain SQL.
pub const FUNCTIONS: &[&str] = texts!("functions": "end", "job", "pause", "case");

/// The schema number that this binary uses.
pub const SCHEMA: i32 = Scripts::number(MIGRATIONS);

pub fn scripts() -> Scripts {
    Scripts::new(BASE, MIGRATIONS, FUNCTIONS)
}

/// The whole schema, for people who run their own migrations: what `rowlock migrate --sql` prints.
pub fn migration_sql() -> String {
    let mut text = String::from("pragma journal_mode = wal;\n\nbegin immediate;\n");
    for step in scripts().steps() {
        let note = sql::MIGRATED
            .replace("?1", &step.version.to_string())
            .replace("?2", &format!("'{}'", step.name))
            .replace("?3", &step.oldest.to_string())
            .replace("?4", &format!("'{}'", step.hash))
            .replace("?5", &format!("'{RELEASE}'"));
        text += &format!("\n-- {}\n{}\n{};\n", step.label(), step.sql, note.trim_end());
    }
    text + "\ncommit;\n"
}

pub async fn found(db: &mut SqliteConnection) -> sqlx::Result<SchemaFound> {
    Ok(scripts().judge(&recorded(db).await?))
}

/// What the database has recorded. A table without hashes was created before hashes were recorded.
async fn recorded(db: &mut SqliteConnection) -> sqlx::Result<Recorded> {
    let hashed: Option<bool> = sqlx::query_scalar(sql::SCHEMA_EXISTS).fetch_optional(&mut *db).await?;
    match hashed {
        None => Ok(Recorded::default()),
        Some(false) => Ok(Recorded::without_hashes()),
        Some(true) => Recorded::of(&sqlx::query(sql::SCHEMA_VERSION).fetch_one(db).await?),
    }
}

/// Applies what is missing; returns the labels of the applied steps. The write lock is held. So when many processes
/// start together, one applies the steps and the others find them applied.
pub async fn apply(db: &mut SqliteConnection, scripts: &Scripts) -> sqlx::Result<Result<Vec<String>>> {
    let missing = match scripts.missing(scripts.judge(&recorded(db).await?)) {
        Ok(missing) => missing,
        Err(refused) => return Ok(Err(refused)),
    };
    for step in &missing {
        let script = sqlx::raw_sql(AssertSqlSafe(step.sql.clone()));
        script.execute(&mut *db).await?;
        sqlx::query(sql::MIGRATED)
            .bind(step.version)
            .bind(step.name)
            .bind(step.oldest)
            .bind(&step.hash)
            .bind(RELEASE)
            .execute(&mut *db)
            .await?;
    }
    Ok(Ok(missing.iter().map(Step::label).collect()))
}
