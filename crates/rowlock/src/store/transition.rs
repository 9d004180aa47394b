//! A move of one row of the user's own table from one status to another, and how it is written safely.
//!
//! The row's own status column is the lock: of two concurrent callers with the same move, one finds the row and the
//! other finds none. Names and texts go into the statement itself, because a parameter has a type and the user's column
//! may have another (an enum, a uuid). So everything accepted here can only be one name or one text.

use std::fmt;

use uuid::Uuid;

use crate::error::{Error, Result};

/// The longest name that every database accepts without truncation.
const NAME_BYTES_MAX: usize = 63;

/// Identifies a row of the user's own table.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RowId {
    /// A whole number.
    Number(i64),
    /// Any text without a NUL character or a backslash.
    Text(String),
    /// A uuid. On SQLite, it matches a blob column and a column of hyphenated text.
    Uuid(Uuid),
}

impl From<i64> for RowId {
    fn from(id: i64) -> RowId {
        RowId::Number(id)
    }
}

impl From<i32> for RowId {
    fn from(id: i32) -> RowId {
        RowId::Number(id.into())
    }
}

impl From<&str> for RowId {
    fn from(id: &str) -> RowId {
        RowId::Text(id.to_owned())
    }
}

impl From<&String> for RowId {
    fn from(id: &String) -> RowId {
        RowId::Text(id.clone())
    }
}

impl From<String> for RowId {
    fn from(id: String) -> RowId {
        RowId::Text(id)
    }
}

impl From<Uuid> for RowId {
    fn from(id: Uuid) -> RowId {
        RowId::Uuid(id)
    }
}

impl fmt::Display for RowId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RowId::Number(id) => id.fmt(f),
            RowId::Text(id) => fmt::Debug::fmt(id, f),
            RowId::Uuid(id) => id.fmt(f),
        }
    }
}

/// One move; checked before it is written.
#[derive(Clone, Debug)]
pub struct Move {
    pub table: String,
    pub id_column: String,
    pub column: String,
    pub id: RowId,
    pub from: String,
    pub to: String,
}

impl Move {
    /// Refuses anything that could be more than one name or one text, and a move between equal statuses.
    pub fn check(&self) -> Result<()> {
        let parts: Vec<&str> = self.table.split('.').collect();
        if parts.len() > 2 || !parts.iter().all(|part| is_name(part)) {
            let problem = format!(
                "{:?} is not a plain table name; use a name such as orders or shop.orders",
                self.table
            );
            return Err(Error::invalid("table", problem));
        }
        for (field, name) in [("column", &self.column), ("id_column", &self.id_column)] {
            if !is_name(name) {
                return Err(Error::invalid(
                    field,
                    format!("{name:?} is not a plain column name; use letters, digits and underscores"),
                ));
            }
        }
        let id = match &self.id {
            RowId::Text(id) => id,
            _ => "",
        };
        for (field, text) in [("id", id), ("from", &self.from), ("to", &self.to)] {
            if text.contains(['\0', '\\']) {
                let problem = format!("{text:?} contains a NUL character or a backslash");
                return Err(Error::invalid(field, problem));
            }
        }
        if self.from == self.to {
            let problem = format!("{:?} is also the status it starts from; use another status", self.to);
            return Err(Error::invalid("to", problem));
        }
        Ok(())
    }

    /// The statement of a checked move. All marks of the template are replaced in one pass, so that inserted text is
    /// never read as a mark.
    pub fn statement(&self, template: &str, table: &str, id: &str) -> String {
        let (column, id_column) = (name(&self.column), name(&self.id_column));
        let marks = [
            (table, self.table.split('.').map(name).collect::<Vec<_>>().join(".")),
            ("set value", format!("set {column}")),
            ("own.value", format!("own.{column}")),
            ("own.name", format!("own.{id_column}")),
            ("'to_status'", text(&self.to)),
            ("'from_status'", text(&self.from)),
            ("'row_id'", id.to_owned()),
        ];
        let lines = template.lines().filter(|line| !line.starts_with("--"));
        let template = lines.collect::<Vec<_>>().join("\n");
        let mut rest = template.as_str();
        let mut statement = String::new();
        let first = |rest: &str| {
            let found = marks
                .iter()
                .filter_map(|(mark, with)| Some((rest.find(mark)?, *mark, with)));
            found.min_by_key(|(at, ..)| *at)
        };
        while let Some((at, mark, with)) = first(rest) {
            statement.push_str(&rest[..at]);
            statement.push_str(with);
            rest = &rest[at + mark.len()..];
        }
        statement + rest
    }
}

/// Only letters, digits and underscores, which every database reads as a name once it is quoted.
fn is_name(name: &str) -> bool {
    let first = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    let rest = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    first && rest && name.len() <= NAME_BYTES_MAX
}

/// Quoted, so that the name may be an SQL keyword and keeps its case.
fn name(name: &str) -> String {
    format!("\"{name}\"")
}

/// A text as a literal without a type. Backslashes were refused, because an old setting of PostgreSQL gives them a
/// meaning.
pub fn text(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pay() -> Move {
        Move {
            table: "shop.orders".into(),
            id_column: "id".into(),
            column: "status".into(),
            id: RowId::from(42),
            from: "pending".into(),
            to: "paid".into(),
        }
    }

    const TEMPLATE: &str = "-- 'row_id' here is prose\nupdate t.x as own set value = 'to_status' where own.name = 'row_id' \
                            and own.value = 'from_status'\n";

    #[test]
    fn a_statement_names_the_callers_table_and_texts() {
        assert_eq!(
            pay().statement(TEMPLATE, "t.x", "'42'"),
            "update \"shop\".\"orders\" as own set \"status\" = 'paid' where own.\"id\" = '42' and own.\"status\" = 'pending'"
        );
    }

    #[test]
    fn what_is_put_in_is_never_read_as_a_mark() {
        let odd = Move {
            from: "'from_status'".into(),
            to: "own.name 'row_id' 'from_status'".into(),
            ..pay()
        };
        let written = odd.statement(TEMPLATE, "t.x", "'x'");
        assert!(
            written.contains("= 'own.name ''row_id'' ''from_status''' where"),
            "{written}"
        );
        assert!(written.ends_with("= '''from_status'''"), "{written}");
    }

    #[test]
    fn only_one_name_or_one_text_is_let_in() {
        assert!(pay().check().is_ok());
        for table in [
            "",
            ".",
            "a.b.c",
            "or ders",
            "orders;drop table x",
            "orders\"",
            "a-b",
            "1a",
            "ordérs",
            &"x".repeat(64),
        ] {
            let refused = Move {
                table: table.into(),
                ..pay()
            }
            .check();
            assert!(refused.is_err_and(|e| e.to_string().starts_with("table: ")), "{table}");
        }
        for column in ["", "status\" = 'x' --", "a.b", "status,id"] {
            let refused = Move {
                column: column.into(),
                ..pay()
            }
            .check();
            assert!(
                refused.is_err_and(|e| e.to_string().starts_with("column: ")),
                "{column}"
            );
        }
        for bad in ["a\0b", "\\' or 1=1 --"] {
            for refused in [
                Move {
                    id: bad.into(),
                    ..pay()
                },
                Move {
                    from: bad.into(),
                    ..pay()
                },
                Move {
                    to: bad.into(),
                    ..pay()
                },
            ] {
                assert!(refused.check().is_err(), "{bad:?}");
            }
        }
        assert!(
            Move {
                from: "it's; drop table x --".into(),
                ..pay()
            }
            .check()
            .is_ok()
        );
    }
}
