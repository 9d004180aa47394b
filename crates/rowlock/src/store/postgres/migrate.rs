//! Creates and updates the schema. Everything that is missing runs in one transaction, safe when many processes start
//! together.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{Inner, sql::in_schema};
use crate::{
    error::Result,
    fault::mutant,
    store::{
        rows::Noun,
        schema::{Migration, RELEASE, Recorded, SchemaFound, Scripts, Step},
    },
};

/// How long a migration may take.
const LIMIT: Duration = Duration::from_secs(600);

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

/// The migrations after the base, from number 2: `sql/postgres/schema/migrations`.
const MIGRATIONS: &[Migration] = &[];

/// The functions, each file after the files that it needs.
const FUNCTIONS: &[&str] = texts!("functions":
    "partitions", "names", "json", "group", "settle", "operate", "pause", "case", "enqueue", "lease", "claim", "worker",
    "wait", "ledger", "people",
);

/// The schema number that this binary uses.
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
    let recorded = inner.run("schema check", async |pg| Ok(recorded(inner, pg).await?));
    Ok(scripts().judge(&recorded.await?))
}

/// What the database has recorded. A table without hashes was created before hashes were recorded.
async fn recorded(inner: &Inner, pg: &mut PgConnection) -> sqlx::Result<Recorded> {
    let exists = inner.query_scalar(&inner.sql.schema_exists);
    match exists.fetch_optional(&mut *pg).await? {
        None => Ok(Recorded::default()),
        Some(false) => Ok(Recorded::without_hashes()),
        Some(true) => Recorded::of(&inner.query(&inner.sql.schema_version).fetch_one(pg).await?),
    }
}

/// Applies what is missing, all of it or nothing, under a transaction-scoped lock. Returns the labels of the applied
/// steps. `more` are migrations after this binary's own; only tests have any.
pub async fn run(inner: &Inner, more: &[Migration]) -> Result<Vec<String>> {
    let schema = &inner.sql.schema;
    let scripts = scripts().and(more);
    let migrate = inner.run_within(LIMIT, "migrate", async |pg| {
        let mut tx = pg.begin().await?;
        // Another process may hold the lock during a whole migration, longer than the engine's lock timeout.
        sqlx::raw_sql("set local lock_timeout = '60s'")
            .execute(&mut *tx)
            .await?;
        sqlx::query("select pg_advisory_xact_lock(hashtextextended('rowlock migrate ' || $1, 0))")
            .bind(&**schema)
            .execute(&mut *tx)
            .await?;
        let missing = scripts.missing(scripts.judge(&recorded(inner, &mut tx).await?))?;
        for step in &missing {
            apply(inner, &mut tx, step).await?;
        }
        tx.commit().await?;
        if mutant!("older binary rewrites newer schema") {
            let text = format!("delete from {schema}.migration where version > {SCHEMA}");
            sqlx::raw_sql(AssertSqlSafe(text)).execute(&mut *pg).await?;
        }
        super::recover::make_partitions(inner, pg).await?;
        Ok(missing.iter().map(Step::label).collect())
    });
    migrate.await
}

async fn apply(inner: &Inner, tx: &mut PgConnection, step: &Step) -> sqlx::Result<()> {
    let schema = &inner.sql.schema;
    let mut script = in_schema(schema, &step.sql);
    if step.is_base() {
        script = format!("create schema if not exists {schema};\n{script}");
    }
    sqlx::raw_sql(AssertSqlSafe(script)).execute(&mut *tx).await?;
    let note = inner.query(&inner.sql.migrated).bind(step.version).bind(step.name);
    let note = note.bind(step.oldest).bind(&step.hash).bind(RELEASE);
    note.execute(tx).await.map(drop)
}
