//! Inspects a table of the user's, by the catalogue only.

use sqlx::{PgConnection, Row, postgres::PgRow};

use super::{super::Inner, migration};
use crate::{
    error::{Doing, Error, Result},
    table::{Adoptee, ColumnFound, Columns, Inspection, Part, TableName, quoted},
};

const DOING: &str = "inspect table";

/// Types whose values can be compared and written as text without loss.
const KEY_TYPES: [&str; 6] = ["bigint", "integer", "smallint", "uuid", "text", "character varying"];

/// One btree index.
pub(super) struct Index {
    pub(super) name: String,
    pub(super) valid: bool,
    keys: Vec<String>,
    only_where: String,
}

/// What the catalogue contains.
pub(super) struct Found {
    pub(super) oid: i64,
    pub(super) table: TableName,
    pub(super) indexes: Vec<Index>,
}

struct Column {
    name: String,
    has: String,
    required: bool,
    generated: bool,
}

/// Inspects the table; returns it as adoptable if nothing prevents that.
pub(super) async fn inspect(
    inner: &Inner,
    pg: &mut PgConnection,
    table: &TableName,
    columns: &Columns,
) -> Result<(Inspection, Option<Adoptee>)> {
    columns.check()?;
    let (oid, table, kind) = relation(inner, pg, table).await?;
    let (mut problems, mut key) = (kind.into_iter().collect::<Vec<String>>(), None);
    let rows = sqlx::query(inner.sql.adopt_columns.clone())
        .persistent(false)
        .bind(oid)
        .fetch_all(&mut *pg)
        .await
        .doing(DOING)?;
    match key_of(&rows).doing(DOING)? {
        Ok(found) => key = Some(found),
        Err(problem) => problems.push(problem),
    }
    let there: Vec<Column> = rows.iter().map(column).collect::<sqlx::Result<_>>().doing(DOING)?;
    let found: Vec<ColumnFound> = Part::ALL.map(|part| look_at(&table, columns, part, &there)).into();
    problems.extend(found.iter().filter_map(|column| column.problem.clone()));
    if let Some((name, _)) = &key
        && let Some(part) = found.iter().find(|column| column.column == *name)
    {
        problems.push(format!(
            "column {name:?} is the primary key, and cannot also be {}",
            part.part.as_str()
        ));
    }
    let indexes = sqlx::query(inner.sql.adopt_indexes.clone())
        .persistent(false)
        .bind(oid)
        .fetch_all(&mut *pg)
        .await
        .doing(DOING)?;
    let indexes: Vec<Index> = indexes.iter().map(index).collect::<sqlx::Result<_>>().doing(DOING)?;
    let facts = Found { oid, table, indexes };
    let serving = facts
        .indexes
        .iter()
        .find(|index| serves_claims(index, columns, &facts.table));
    let claim_first = serving.is_some_and(|index| index.keys.iter().any(|key| key == columns.name(Part::ClaimedAt)));
    let by_name = |index: Option<&Index>| index.map(|index| index.name.clone());
    let mut inspection = Inspection {
        table: facts.table.to_string(),
        key: key.clone(),
        columns: found,
        claim_index: by_name(serving),
        recovery_index: by_name(
            facts
                .indexes
                .iter()
                .find(|index| serves_recovery(index, columns, &facts.table)),
        ),
        problems,
        migration: Vec::new(),
    };
    let adoptee = key.filter(|_| inspection.problems.is_empty()).map(|key| Adoptee {
        table: facts.table.clone(),
        key,
        columns: columns.clone(),
        claim_first,
    });
    if let Some(adoptee) = &adoptee {
        let unproven = unproven(inner, pg, &facts).await?;
        inspection.migration = migration::missing(adoptee, &inspection, &facts, unproven);
    }
    Ok((inspection, adoptee))
}

/// The table's number and exact name, and the reason if the table cannot be adopted.
async fn relation(inner: &Inner, pg: &mut PgConnection, table: &TableName) -> Result<(i64, TableName, Option<String>)> {
    let row = sqlx::query(inner.sql.adopt_table.clone())
        .persistent(false)
        .bind(&table.schema)
        .bind(&table.name)
        .fetch_optional(pg)
        .await
        .doing(DOING)?;
    let Some(row) = row else {
        return Err(Error::NotFound(format!(
            "no table {table}; use its exact name, with its schema if that is not in the search path"
        )));
    };
    let read = || -> sqlx::Result<(i64, TableName, String, bool)> {
        let name = TableName {
            schema: row.try_get("schema")?,
            name: row.try_get("name")?,
        };
        Ok((
            row.try_get("oid")?,
            name,
            row.try_get("kind")?,
            row.try_get("has_children")?,
        ))
    };
    let (oid, name, kind, has_children) = read().doing(DOING)?;
    let problem = match (kind.as_str(), has_children) {
        ("r", false) => None,
        ("r", true) => Some(format!("{name} has child tables; adopt each of them instead")),
        ("p", _) => Some(format!(
            "{name} is partitioned; adopt its partitions one by one, or a plain table"
        )),
        ("f", _) => Some(format!(
            "{name} is a foreign table, and its rows cannot be locked; adopt it on its own server"
        )),
        _ => Some(format!("{name} is a view; adopt the table behind it")),
    };
    Ok((oid, name, problem))
}

fn key_of(rows: &[PgRow]) -> sqlx::Result<std::result::Result<(String, String), String>> {
    let none = "there is no primary key; add one with a single column of type bigint, integer, uuid or text";
    let mut found = Err(none.to_owned());
    for row in rows {
        if !row.try_get::<bool, _>("in_key")? {
            continue;
        }
        let (name, has): (String, String) = (row.try_get("name")?, row.try_get("type")?);
        let columns: i32 = row.try_get("key_columns")?;
        let plain = has.split('(').next().unwrap_or_default();
        found = match (columns, KEY_TYPES.contains(&plain)) {
            (1, true) => Ok((name, has)),
            (1, false) => Err(format!(
                "the primary key {name:?} is {has}; only bigint, integer, smallint, uuid and text can be used"
            )),
            _ => Err(format!(
                "the primary key has {columns} columns; only a key of a single column can be used"
            )),
        };
    }
    Ok(found)
}

fn column(row: &PgRow) -> sqlx::Result<Column> {
    Ok(Column {
        name: row.try_get("name")?,
        has: row.try_get("type")?,
        required: row.try_get("required")?,
        generated: row.try_get("generated")?,
    })
}

fn index(row: &PgRow) -> sqlx::Result<Index> {
    Ok(Index {
        name: row.try_get("name")?,
        valid: row.try_get("valid")?,
        keys: row.try_get("keys")?,
        only_where: row.try_get("only_where")?,
    })
}

fn look_at(table: &TableName, columns: &Columns, part: Part, there: &[Column]) -> ColumnFound {
    let name = columns.name(part);
    let found = there.iter().find(|column| column.name == name);
    let problem = match found {
        None if part == Part::Due => Some(format!(
            "there is no column {name:?}; name the column that holds the due time"
        )),
        None => None,
        Some(column) if !part.types().contains(&column.has.as_str()) => Some(format!(
            "column {name:?} is {}, but {} must be {}; name another column for it",
            column.has,
            part.as_str(),
            part.types().join(" or ")
        )),
        Some(column) if column.generated => Some(format!("column {name:?} is generated and cannot be written")),
        Some(column) if part.default().is_some() && !column.required => Some(format!(
            "column {name:?} allows null, and a row with null would never be claimed; make it not null"
        )),
        Some(column) if part.is_cleared() && column.required => Some(format!(
            "column {name:?} must allow null: alter table {} alter column {} drop not null",
            table.quoted(),
            quoted(name)
        )),
        Some(_) => None,
    };
    ColumnFound {
        part,
        column: name.to_owned(),
        has: found.map(|column| column.has.clone()),
        problem,
    }
}

/// Whether a claim can scan this index from the first due row and finds only active rows without a claim. Each of the
/// two conditions must be in the index predicate, or be a key column before the due time.
fn serves_claims(index: &Index, columns: &Columns, table: &TableName) -> bool {
    if !index.valid {
        return false;
    }
    if index.name == migration::due_index(table) {
        return true;
    }
    let (inactive, claimed_at) = (columns.name(Part::Inactive), columns.name(Part::ClaimedAt));
    let free = [format!("{claimed_at} is null")];
    let active = [format!("not {inactive}"), format!("{inactive} = false")];
    let conditions = conditions(index);
    if !conditions
        .iter()
        .all(|said| free.contains(said) || active.contains(said))
    {
        return false;
    }
    let Some(due) = index.keys.iter().position(|key| key == columns.name(Part::Due)) else {
        return false;
    };
    let before = &index.keys[..due];
    let only = before.iter().all(|key| key == inactive || key == claimed_at);
    let met = |column: &str, said: &[String]| {
        before.iter().any(|key| key == column) || said.iter().any(|said| conditions.contains(said))
    };
    only && met(inactive, &active) && met(claimed_at, &free)
}

/// Whether recovery can scan this index from the oldest claim.
fn serves_recovery(index: &Index, columns: &Columns, table: &TableName) -> bool {
    if !index.valid {
        return false;
    }
    if index.name == migration::claimed_index(table) {
        return true;
    }
    let (inactive, claimed_at) = (columns.name(Part::Inactive), columns.name(Part::ClaimedAt));
    let allowed = [
        format!("{claimed_at} is not null"),
        format!("not {inactive}"),
        format!("{inactive} = false"),
    ];
    // Without a predicate the index contains every row, but rows without a claim are separate from the others.
    index.keys.first().is_some_and(|key| key == claimed_at)
        && conditions(index).iter().all(|said| allowed.contains(said))
}

/// The index predicate, condition by condition, without the characters that differ between servers.
fn conditions(index: &Index) -> Vec<String> {
    let plain: String = index.only_where.chars().filter(|c| !"()\"".contains(*c)).collect();
    let said = plain.replace(" AND ", "\n").replace("NOT ", "not ");
    let said = said
        .replace(" IS not ", " is not ")
        .replace(" IS ", " is ")
        .replace("NULL", "null");
    let lines = said.lines().map(|line| line.trim().to_owned());
    lines.filter(|line| !line.is_empty()).collect()
}

/// Whether our own check constraint is not validated yet.
async fn unproven(inner: &Inner, pg: &mut PgConnection, found: &Found) -> Result<bool> {
    let unproven: Option<bool> = sqlx::query_scalar(inner.sql.adopt_unproven.clone())
        .persistent(false)
        .bind(found.oid)
        .bind(migration::check(&found.table))
        .fetch_optional(pg)
        .await
        .doing(DOING)?;
    Ok(unproven == Some(true))
}
