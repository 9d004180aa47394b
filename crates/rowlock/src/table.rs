//! A user's table that is worked off like a queue: its name, the part that each of its columns plays, and the result of
//! its inspection.
//!
//! Names go into statements, so they are taken from the catalogue and always quoted. A template names its placeholders
//! `{id}`, `{due}` and so on, and is filled in one pass: inserted text is never expanded again.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    error::{Error, Result},
    job::{Job, check_name, number},
};

/// PostgreSQL cuts longer names off.
const NAME_BYTES_MAX: usize = 63;

/// Which column of an adopted table plays which part. `Columns::due("remind_at")` has the others by their usual names:
/// `claimed_at`, `claimed_by`, `claim_token`, `attempts`, `max_attempts`, `inactive`, `last_error`, `last_error_at`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Columns {
    names: [String; Part::ALL.len()],
}

/// The purpose of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// When the row is due; a failure moves it ahead.
    Due,
    /// When the row was claimed, or the claim last renewed.
    ClaimedAt,
    /// The worker that claimed it.
    ClaimedBy,
    /// The proof of the claim: every write needs it.
    ClaimToken,
    /// Attempts that failed or were lost.
    Attempts,
    /// How many there may be.
    MaxAttempts,
    /// The row is done or retired.
    Inactive,
    /// What went wrong last.
    LastError,
    /// When.
    LastErrorAt,
}

impl Part {
    /// Every part, in the order in which they are shown.
    pub const ALL: [Part; 9] = [
        Part::Due,
        Part::ClaimedAt,
        Part::ClaimedBy,
        Part::ClaimToken,
        Part::Attempts,
        Part::MaxAttempts,
        Part::Inactive,
        Part::LastError,
        Part::LastErrorAt,
    ];

    /// Its name in templates, and the column's name unless set.
    pub fn as_str(self) -> &'static str {
        match self {
            Part::Due => "due",
            Part::ClaimedAt => "claimed_at",
            Part::ClaimedBy => "claimed_by",
            Part::ClaimToken => "claim_token",
            Part::Attempts => "attempts",
            Part::MaxAttempts => "max_attempts",
            Part::Inactive => "inactive",
            Part::LastError => "last_error",
            Part::LastErrorAt => "last_error_at",
        }
    }

    /// The types that fit; a new column gets the first one.
    pub(crate) fn types(self) -> &'static [&'static str] {
        match self {
            Part::Due | Part::ClaimedAt | Part::LastErrorAt => &["timestamp with time zone"],
            Part::ClaimedBy | Part::LastError => &["text", "character varying"],
            Part::ClaimToken => &["uuid"],
            Part::Attempts | Part::MaxAttempts => &["integer", "bigint"],
            Part::Inactive => &["boolean"],
        }
    }

    /// Whether it is null while the row is not claimed, or nothing went wrong.
    pub(crate) fn is_cleared(self) -> bool {
        self != Part::Due && self.default().is_none()
    }

    /// The default of a column that is added: a constant, so that no row is rewritten for it.
    pub(crate) fn default(self) -> Option<&'static str> {
        match self {
            Part::Attempts => Some("0"),
            Part::MaxAttempts => Some("5"),
            Part::Inactive => Some("false"),
            _ => None,
        }
    }
}

impl Columns {
    /// With this column for the due time, and the usual names for the rest.
    pub fn due(name: impl Into<String>) -> Columns {
        Columns {
            names: Part::ALL.map(|part| part.as_str().to_owned()),
        }
        .with(Part::Due, name)
    }

    /// Sets another name for one of them.
    pub fn with(mut self, part: Part, name: impl Into<String>) -> Columns {
        self.names[part as usize] = name.into();
        self
    }

    /// The column that plays this part.
    pub fn name(&self, part: Part) -> &str {
        &self.names[part as usize]
    }

    /// Refuses what cannot be a column, and one column for two parts.
    pub(crate) fn check(&self) -> Result<()> {
        for (i, part) in Part::ALL.into_iter().enumerate() {
            let name = self.name(part);
            check_identifier(part.as_str(), name)?;
            if let Some(other) = Part::ALL[..i].iter().find(|other| self.name(**other) == name) {
                let problem = format!("column {name:?} is also used for {}; name another", other.as_str());
                return Err(Error::invalid(part.as_str(), problem));
            }
        }
        Ok(())
    }
}

/// A table by its exact name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TableName {
    /// Its schema; `None` until it is looked up.
    pub(crate) schema: Option<String>,
    pub(crate) name: String,
}

impl TableName {
    /// Reads `table`, `schema.table` or `"odd schema"."odd.table"`. A name without quotes is also taken literally: it
    /// is not folded to lower case.
    ///
    /// # Errors
    /// [`Error::Invalid`] for text that is not a name.
    pub fn parse(text: &str) -> Result<TableName> {
        let mut parts = identifiers(text)?;
        let name = parts.pop().unwrap_or_default();
        let schema = parts.pop();
        if !parts.is_empty() {
            let problem = format!("{text:?} has more than two parts; use table or schema.table");
            return Err(Error::invalid("table", problem));
        }
        for part in schema.iter().chain([&name]) {
            check_identifier("table", part)?;
        }
        Ok(TableName { schema, name })
    }

    /// Quoted for statements.
    pub(crate) fn quoted(&self) -> String {
        match &self.schema {
            Some(schema) => format!("{}.{}", quoted(schema), quoted(&self.name)),
            None => quoted(&self.name),
        }
    }

    /// The name under which it is stored: as people see it, or quoted where another table would look the same.
    pub(crate) fn exact(&self) -> String {
        let clear = |part: &String| !part.contains(['.', '"']);
        match self.schema.iter().all(clear) && clear(&self.name) {
            true => self.to_string(),
            false => self.quoted(),
        }
    }

    /// The queue under which its cases and metrics appear: its own name if that is a valid name, with the schema unless
    /// that is `public`; otherwise the valid characters of it and a number.
    pub(crate) fn queue(&self) -> String {
        let whole = self.exact();
        let plain = whole.strip_prefix("public.").unwrap_or(&whole);
        if check_name("queue", plain).is_ok() {
            return plain.to_owned();
        }
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let kept: String = plain.chars().filter(|c| fits(*c)).take(60).collect();
        format!("{kept}:{:016x}", number(&whole))
    }
}

impl std::fmt::Display for TableName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// The parts between dots; a part in double quotes may hold anything, and a double quote as two.
fn identifiers(text: &str) -> Result<Vec<String>> {
    let unclosed = || Error::invalid("table", format!("{text:?} has a quote that is not closed"));
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let mut part = String::new();
        if let Some(inner) = rest.strip_prefix('"') {
            rest = inner;
            loop {
                let end = rest.find('"').ok_or_else(unclosed)?;
                part.push_str(&rest[..end]);
                rest = &rest[end + 1..];
                match rest.strip_prefix('"') {
                    Some(more) => {
                        part.push('"');
                        rest = more;
                    }
                    None => break,
                }
            }
        } else {
            let end = rest.find('.').unwrap_or(rest.len());
            part.push_str(&rest[..end]);
            rest = &rest[end..];
        }
        parts.push(part);
        match rest.strip_prefix('.') {
            Some(more) => rest = more,
            None if rest.is_empty() => return Ok(parts),
            None => {
                let problem = format!("{text:?} continues after a closing quote; put a dot between schema and table");
                return Err(Error::invalid("table", problem));
            }
        }
    }
}

/// Anything that PostgreSQL can store as a name.
fn check_identifier(field: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.contains('\0') {
        let shown: String = name.chars().take(80).collect();
        let problem = format!("{shown:?} is not a valid name; use 1 to {NAME_BYTES_MAX} bytes");
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}

/// An identifier for a statement, whatever characters it has.
pub(crate) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A table that was inspected and can be worked off.
#[derive(Clone, Debug)]
pub struct Adoptee {
    pub table: TableName,
    /// The primary key: its column and its type, as the catalogue has them.
    pub key: (String, String),
    pub columns: Columns,
    /// Whether the index that claims use has the claim's time before the due time. The claim's time is null wherever
    /// claims look, but the planner walks an index in order only if the statement names the whole order.
    pub claim_first: bool,
}

impl Adoptee {
    /// A statement of this table.
    pub fn fill(&self, template: &str) -> String {
        let mut text = String::with_capacity(template.len() * 2);
        let mut rest = template;
        while let Some(open) = rest.find('{') {
            text.push_str(&rest[..open]);
            rest = &rest[open..];
            let known = rest.find('}').and_then(|end| Some((self.place(&rest[1..end])?, end)));
            match known {
                Some((value, end)) => {
                    text.push_str(&value);
                    rest = &rest[end + 1..];
                }
                None => {
                    text.push('{');
                    rest = &rest[1..];
                }
            }
        }
        text + rest
    }

    fn place(&self, name: &str) -> Option<String> {
        match name {
            "table" => Some(self.table.quoted()),
            "id" => Some(quoted(&self.key.0)),
            "id_type" => Some(self.key.1.clone()),
            "order" => {
                let due = format!("t.{}", quoted(self.columns.name(Part::Due)));
                let claimed_at = quoted(self.columns.name(Part::ClaimedAt));
                Some(match self.claim_first {
                    true => format!("t.{claimed_at}, {due}"),
                    false => due,
                })
            }
            _ => {
                let part = Part::ALL.into_iter().find(|part| part.as_str() == name)?;
                Some(quoted(self.columns.name(part)))
            }
        }
    }
}

/// The name of a row for external systems: the same on every attempt, after a reopen too, and different for every row.
/// It is made of the table's random name and the primary key, and of nothing that changes: the due time moves with
/// every backoff.
pub(crate) fn row_uid(identity: Uuid, id: &str) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(identity.as_bytes());
    hash.update(id.as_bytes());
    let mut first = [0u8; 16];
    first.copy_from_slice(&hash.finalize()[..16]);
    uuid::Builder::from_custom_bytes(first).into_uuid()
}

/// The case of a retired row, among the jobs. Reopening it puts the row back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RetiredRow {
    pub(crate) table: String,
    pub(crate) id: String,
    /// The value of the row's own `last_error_at`.
    pub(crate) retired_at: jiff::Timestamp,
    /// External calls that may or may not have happened.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) doubts: Vec<String>,
}

impl Job for RetiredRow {
    const KIND: &'static str = "rowlock.adopted-row";
}

/// What was found for one part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct ColumnFound {
    /// The part.
    pub part: Part,
    /// The column's name.
    pub column: String,
    /// Its type, if it is there.
    pub has: Option<String>,
    /// Why it cannot be used.
    pub problem: Option<String>,
}

/// The result of inspecting a table: what it has, and what it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// The table, with its schema.
    pub table: String,
    /// Its primary key's column and type.
    pub key: Option<(String, String)>,
    /// Each part and its column.
    pub columns: Vec<ColumnFound>,
    /// The index that claims use, if there is one.
    pub claim_index: Option<String>,
    /// The index that recovery uses, if there is one.
    pub recovery_index: Option<String>,
    /// What our migrations cannot fix, because they change or drop nothing of the user's.
    pub problems: Vec<String>,
    /// The statements that are missing, in order; each is a separate commit.
    pub migration: Vec<String>,
}

impl Inspection {
    /// Whether workers can start on it as it is.
    pub fn is_ready(&self) -> bool {
        self.problems.is_empty() && self.migration.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> std::result::Result<(Option<String>, String), String> {
        let name = TableName::parse(text).map_err(|e| e.to_string())?;
        Ok((name.schema, name.name))
    }

    #[test]
    fn a_name_is_taken_as_it_stands() {
        let both = |schema: &str, name: &str| Ok((Some(schema.to_owned()), name.to_owned()));
        assert_eq!(parsed("email_snoozes"), Ok((None, "email_snoozes".into())));
        assert_eq!(parsed("App.EmailSnoozes"), both("App", "EmailSnoozes"));
        assert_eq!(parsed(r#""odd.schema"."a ""b"" c""#), both("odd.schema", r#"a "b" c"#));
        assert_eq!(parsed("x; drop table y"), Ok((None, "x; drop table y".into())));
        for bad in ["", ".", "a.", "a.b.c", "\"a", "\"a\"b", "\"\"", "a\0", &"x".repeat(64)] {
            assert!(parsed(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_template_is_filled_once_and_with_quotes() {
        let table = Adoptee {
            table: TableName::parse(r#"app."a""{due}""#).unwrap_or_else(|e| panic!("{e}")),
            key: ("Id".into(), "bigint".into()),
            columns: Columns::due("{id}").with(Part::Inactive, "no longer"),
            claim_first: true,
        };
        assert_eq!(table.fill("order by {order}"), r#"order by t."claimed_at", t."{id}""#);
        assert_eq!(
            table.fill("update {table} set {due} = 1, {inactive} = {other} where {id} = $1::{id_type} -- {"),
            r#"update "app"."a""{due}" set "{id}" = 1, "no longer" = {other} where "Id" = $1::bigint -- {"#
        );
    }

    #[test]
    fn two_parts_need_two_columns() {
        assert!(Columns::due("remind_at").check().is_ok());
        let twice = Columns::due("claimed_at").check();
        assert_eq!(
            twice.map_err(|e| e.to_string()),
            Err("claimed_at: column \"claimed_at\" is also used for due; name another".into())
        );
        assert!(Columns::due("").check().is_err());
    }

    #[test]
    fn a_queue_is_a_plain_name_of_one_table() {
        let queue = |text: &str| TableName::parse(text).map(|table| table.queue()).unwrap_or_default();
        assert_eq!(queue("public.email_snoozes"), "email_snoozes");
        assert_eq!(queue("app.email_snoozes"), "app.email_snoozes");
        let odd = [queue(r#"public."a b""#), queue(r#"public."a  b""#), queue("public.é")];
        assert!(odd.iter().all(|queue| check_name("queue", queue).is_ok()), "{odd:?}");
        assert_ne!(odd[0], odd[1]);
        assert_ne!(queue(r#""a.b".c"#), queue(r#"a."b.c""#));
    }

    #[test]
    fn a_table_is_stored_under_a_name_of_its_own() {
        let exact = |text: &str| TableName::parse(text).map(|table| table.exact()).unwrap_or_default();
        assert_eq!(exact("app.email_snoozes"), "app.email_snoozes");
        assert_eq!(exact(r#""a.b".c"#), r#""a.b"."c""#);
        assert_eq!(exact(r#"a."b.c""#), r#""a"."b.c""#);
    }

    #[test]
    fn a_row_is_known_by_its_table_and_key_alone() {
        let (a, b) = (Uuid::from_u128(1), Uuid::from_u128(2));
        assert_eq!(row_uid(a, "7"), row_uid(a, "7"));
        assert_ne!(row_uid(a, "7"), row_uid(b, "7"));
        assert_ne!(row_uid(a, "7"), row_uid(a, "8"));
    }
}
