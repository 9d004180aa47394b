//! `rowlock migrate`: creates or updates the tables, or prints the SQL for people who run their own.

use anyhow::Result;

use super::Place;
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the whole schema as SQL and connect to no database
    #[arg(long)]
    sql: bool,
    /// Print one JSON object: what was applied
    #[arg(long, conflicts_with = "sql")]
    json: bool,
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let admin = place.admin()?;
    if args.sql {
        return output::print(admin.migration_sql());
    }
    let applied = admin.migrate().await?;
    // Nothing was applied to a schema that is newer than this binary, and it may be too new.
    admin.check_schema().await?;
    if args.json {
        return output::print_json(&serde_json::json!({ "applied": applied }));
    }
    if applied.is_empty() {
        return output::print("schema is up to date\n");
    }
    let lines: String = applied.iter().map(|name| format!("applied {name}\n")).collect();
    output::print(&lines)
}
