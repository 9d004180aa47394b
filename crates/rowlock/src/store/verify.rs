//! The check of the invariants: one statement each, all from one snapshot.

use super::rows::{Columns, Noun};
use crate::observe::{Breach, Seen};

/// The row that every statement returns; `found` is a JSON array, or null.
impl Noun for Seen {
    fn of(row: &impl Columns) -> sqlx::Result<Seen> {
        let found: Option<String> = row.read("found")?;
        let breaches: Vec<Breach> =
            serde_json::from_str(found.as_deref().unwrap_or("[]")).map_err(|e| sqlx::Error::Decode(e.into()))?;
        Ok(Seen {
            looked: row.read("looked")?,
            whole: row.read("whole")?,
            broken: row.read("broken")?,
            breaches,
        })
    }
}
