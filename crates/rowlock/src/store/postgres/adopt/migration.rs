//! What a table needs before it can be adopted, as statements that are one commit each.
//!
//! The statements only add. New columns have constant defaults, so that no row is rewritten. Checks are added without
//! checking existing rows and validated afterwards, which blocks no other caller. Indexes are built concurrently.

use super::inspect::Found;
use crate::table::{Adoptee, Inspection, Part, TableName, quoted};

/// A name for one of our objects on this table. PostgreSQL would cut off a name that is too long, and with it the part
/// that makes the name unique.
fn ours(table: &TableName, what: &str) -> String {
    let mut name = table.name.clone();
    while name.len() + what.len() > 63 {
        name.pop();
    }
    name + what
}

pub(super) fn due_index(table: &TableName) -> String {
    ours(table, "_rowlock_due")
}

pub(super) fn claimed_index(table: &TableName) -> String {
    ours(table, "_rowlock_claimed")
}

pub(super) fn check(table: &TableName) -> String {
    ours(table, "_rowlock_check")
}

/// The statements that are missing.
pub(super) fn missing(adoptee: &Adoptee, seen: &Inspection, found: &Found, unproven: bool) -> Vec<String> {
    let (mut columns, checked) = columns(adoptee, seen);
    if !columns.is_empty() {
        // While this statement waits for a lock, every later statement on the table waits behind it, so the wait is
        // short.
        columns.insert(0, "set lock_timeout = '5s'".into());
    }
    if checked || unproven {
        let check = quoted(&check(&adoptee.table));
        columns.push(adoptee.fill("alter table {table} validate constraint ") + &check);
    }
    let mut statements = columns;
    let indexes = [
        (
            seen.claim_index.is_none(),
            due_index(&adoptee.table),
            "on {table} ({due}) where not {inactive} and {claimed_at} is null",
        ),
        (
            seen.recovery_index.is_none(),
            claimed_index(&adoptee.table),
            "on {table} ({claimed_at}) where {claimed_at} is not null",
        ),
    ];
    for (missing, name, of) in indexes {
        if !missing {
            continue;
        }
        if statements
            .last()
            .is_none_or(|last| !last.contains("index concurrently"))
        {
            // The build waits for every open transaction, but blocks no other caller.
            statements.push("set lock_timeout = 0".into());
        }
        let schema = adoptee.table.schema.as_deref().map(quoted).unwrap_or_default();
        if found.indexes.iter().any(|index| index.name == name && !index.valid) {
            // The remains of an interrupted build: the name shows that the index is ours, and the index is of no use.
            statements.push(format!("drop index concurrently if exists {schema}.{}", quoted(&name)));
        }
        let create = format!("create index concurrently if not exists {} ", quoted(&name));
        statements.push(create + &adoptee.fill(of));
    }
    statements
}

/// One statement for all columns, with a check on columns that have a range; and whether there is a check.
fn columns(adoptee: &Adoptee, seen: &Inspection) -> (Vec<String>, bool) {
    let absent: Vec<Part> = seen
        .columns
        .iter()
        .filter(|column| column.has.is_none())
        .map(|column| column.part)
        .collect();
    if absent.is_empty() {
        return (Vec::new(), false);
    }
    let mut added: Vec<String> = Vec::new();
    for part in &absent {
        let name = quoted(adoptee.columns.name(*part));
        let default = part.default().map(|value| format!(" not null default {value}"));
        let kind = part
            .types()
            .first()
            .unwrap_or(&"text")
            .replace("timestamp with time zone", "timestamptz");
        added.push(format!(
            "  add column if not exists {name} {kind}{}",
            default.unwrap_or_default()
        ));
    }
    // Only for columns added here: values in the user's own columns are not restricted.
    let ranges = [
        (vec![Part::Attempts], "{attempts} >= 0"),
        (vec![Part::MaxAttempts], "{max_attempts} > 0"),
        (
            vec![Part::ClaimedAt, Part::ClaimToken],
            "({claimed_at} is null) = ({claim_token} is null)",
        ),
    ];
    let of_added = |(parts, _): &(Vec<Part>, &'static str)| parts.iter().all(|part| absent.contains(part));
    let checks: Vec<&str> = ranges
        .iter()
        .filter(|range| of_added(range))
        .map(|(_, check)| *check)
        .collect();
    let checked = !checks.is_empty();
    if checked {
        let name = quoted(&check(&adoptee.table));
        added.push(format!(
            "  add constraint {name} check ({}) not valid",
            adoptee.fill(&checks.join(" and "))
        ));
    }
    let statement = format!("{}\n{}", adoptee.fill("alter table {table}"), added.join(",\n"));
    (vec![statement], checked)
}
