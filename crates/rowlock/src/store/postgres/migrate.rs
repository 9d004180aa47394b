//! Creates and updates the schema: what is missing runs in one transaction, safe when many processes start at once.

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};

use super::{Inner, sql::in_schema};
use crate::{
    error::{Doing, Result},
    fault::mutant,
    store::schema::{Migration, RELEASE, Recorded, SchemaFound, Scripts, Step},
};

macro_rules! texts {
    ($folder:literal: $($name:literal),* $(,)?) => {
        &[$(include_str!(concat!("../../../sql/postgres/", $folder, "/", $name, ".sql"))),*]
    };
}

/// The tables, in an order in which each can be created.
const BASE: &[&str] = texts!("schema":
    "migration", "job", "ready", "lease", "outcome", "case", "worker", "audit", "key", "ledger", "effect", "setting",
    "guard", "wait", "group", "breaker", "views",
);

/// What follows the base, from number 2 on: `sql/postgres/schema/migrations`.
const MIGRATIONS: &[Migration] = &[];

/// The functions, each file after those that it needs.
const FUNCTIONS: &[&str] = texts!("functions":
    "partitions", "names", "json", "group", "settle", "operate", "pause", "case", "enqueue", "lease", "claim", "worker",
    "wait", "ledger", "people",
);

/// The schema this binary speaks.
pub const SCHEMA: i32 = Scripts::number(MIGRATIONS);

fn scripts() -> Scripts {
    Scripts::new(BASE, MIGRATIONS, FUNCTIONS)
}

/// The whole schema, for people who run their own migrations: what `rowlock migrate --sql` prints.
pub fn migration_sql(schema: &str) -> String {
    let note = include_str!("../../../sql/postgres/session/migrated.sql");
    let mut text = format!("create schema if not exists {schema};\n\nbegin;\n");
    for step in scripts().steps() {
        let note = note
            .replace("$1", &step.version.to_string())
            .replace("$2", &format!("'{}'", step.name))
            .replace("$3", &step.oldest.to_string())
            .replace("$4", &format!("'{}'", step.hash))
            .replace("$5", &format!("'{RELEASE}'"));
        let script = in_schema(schema, &format!("{}\n{}", step.sql, note.trim_end()));
        text += &format!("\n-- {}\n{script};\n", step.label());
    }
    text += &format!("\ncommit;\n\nselect {schema}.make_partitions(7, 10000000);\n");
    text
}

pub async fn found(inner: &Inner) -> Result<SchemaFound> {
    let mut lent = inner.engine.acquire().await.doing("schema check")?;
    let recorded = recorded(inner, lent.pg()).await?;
    lent.end("schema check").await?;
    Ok(scripts().judge(&recorded))
}

/// What the database says of itself. A table without hashes is from before there were any.
async fn recorded(inner: &Inner, pg: &mut PgConnection) -> Result<Recorded> {
    const DOING: &str = "schema check";
    let hashed: Option<bool> = sqlx::query_scalar(inner.sql.schema_exists.clone())
        .fetch_optional(&mut *pg)
        .await
        .doing(DOING)?;
    match hashed {
        None => return Ok(Recorded::default()),
        Some(false) => return Ok(Recorded::without_hashes()),
        Some(true) => {}
    }
    let row = sqlx::query(inner.sql.schema_version.clone())
        .fetch_one(pg)
        .await
        .doing(DOING)?;
    Ok(Recorded {
        version: row.try_get("version").doing(DOING)?,
        oldest: row.try_get("oldest").doing(DOING)?,
        base: row.try_get("base").doing(DOING)?,
        functions: row.try_get("functions").doing(DOING)?,
        release: row.try_get("release").doing(DOING)?,
    })
}

/// Applies what is missing, all of it or nothing, under a transaction-scoped lock; the labels of what it applied. `more` are
/// migrations behind this binary's own, which only tests have.
pub async fn run(inner: &Inner, more: &[Migration]) -> Result<Vec<String>> {
    let schema = &inner.sql.schema;
    let scripts = scripts().and(more);
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
    let missing = scripts.missing(scripts.judge(&recorded(inner, &mut tx).await?))?;
    for step in &missing {
        apply(inner, &mut tx, step).await?;
    }
    tx.commit().await.doing("migrate")?;
    if mutant!("older binary rewrites newer schema") {
        let text = format!("delete from {schema}.migration where version > {SCHEMA}");
        let rewritten = sqlx::raw_sql(AssertSqlSafe(text)).execute(lent.pg()).await;
        rewritten.doing("migrate")?;
    }
    super::recover::make_partitions(inner, lent.pg()).await?;
    lent.end("migrate").await?;
    Ok(missing.iter().map(Step::label).collect())
}

async fn apply(inner: &Inner, tx: &mut PgConnection, step: &Step) -> Result<()> {
    let schema = &inner.sql.schema;
    let mut script = in_schema(schema, &step.sql);
    if step.is_base() {
        script = format!("create schema if not exists {schema};\n{script}");
    }
    let run = sqlx::raw_sql(AssertSqlSafe(script));
    run.execute(&mut *tx).await.doing("migrate")?;
    let note = sqlx::query(inner.sql.migrated.clone())
        .bind(step.version)
        .bind(step.name)
        .bind(step.oldest)
        .bind(&step.hash)
        .bind(RELEASE);
    note.execute(tx).await.doing("migrate")?;
    Ok(())
}
