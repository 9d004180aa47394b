//! Rows that the table itself refuses to change, by a constraint or a trigger of the user's: told once, and left out for a
//! while, so that one of them does not stop the others.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::attempt::hand::lock;
use crate::{
    error::{Error, chain},
    store::postgres::adopt::Refused,
};

/// How long such a row is left out; it may be mended meanwhile.
const LEFT_OUT: Duration = Duration::from_secs(60);
/// No more than this are remembered.
const ROWS_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct RefusedRows(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    left_out: HashMap<String, Instant>,
    told: HashSet<String>,
}

impl RefusedRows {
    /// Those that are not to be asked for now.
    pub(super) fn left_out(&self) -> Vec<String> {
        let left_out = &mut lock(&self.0).left_out;
        left_out.retain(|_, since| since.elapsed() < LEFT_OUT);
        left_out.keys().cloned().collect()
    }

    /// Leaves these out from now on, and tells of those that are new.
    pub(super) fn leave_out(&self, table: &str, refused: Refused) {
        for (id, error) in refused {
            self.tell(table, &id, &error);
            let left_out = &mut lock(&self.0).left_out;
            if left_out.len() >= ROWS_MAX {
                left_out.clear();
            }
            left_out.insert(id, Instant::now());
        }
    }

    /// Warns of a row, once in this process.
    pub(super) fn tell(&self, table: &str, id: &str, error: &Error) {
        let told = &mut lock(&self.0).told;
        if told.len() >= ROWS_MAX {
            told.clear();
        }
        if !told.insert(id.to_owned()) {
            return;
        }
        tracing::warn!(
            table,
            id,
            "the table refused a write to this row, other rows go on: {}",
            chain(error)
        );
    }
}
