//! Rows that the table refuses to change, by a constraint or a trigger of the user's. Each is reported once and left
//! out for a while, so that it does not stop the others.

use std::{
    collections::{HashMap, HashSet},
    sync::Mutex,
    time::{Duration, Instant},
};

use crate::{
    attempt::hand::lock,
    error::{Error, chain},
    store::postgres::adopt::Refused,
};

/// How long such a row is left out; it may be fixed meanwhile.
const LEFT_OUT: Duration = Duration::from_secs(60);
/// No more than this are remembered.
const ROWS_MAX: usize = 10_000;

#[derive(Default)]
pub(super) struct RefusedRows(Mutex<Rows>);

#[derive(Default)]
struct Rows {
    left_out: HashMap<String, Instant>,
    reported: HashSet<String>,
}

impl RefusedRows {
    /// The rows that are not asked for now.
    pub(super) fn left_out(&self) -> Vec<String> {
        let left_out = &mut lock(&self.0).left_out;
        left_out.retain(|_, since| since.elapsed() < LEFT_OUT);
        left_out.keys().cloned().collect()
    }

    /// Leaves these out from now on, and reports those that are new.
    pub(super) fn leave_out(&self, table: &str, refused: Refused) {
        for (id, error) in refused {
            self.warn_once(table, &id, &error);
            let left_out = &mut lock(&self.0).left_out;
            if left_out.len() >= ROWS_MAX {
                left_out.clear();
            }
            left_out.insert(id, Instant::now());
        }
    }

    /// Warns of a row, once in this process.
    pub(super) fn warn_once(&self, table: &str, id: &str, error: &Error) {
        let reported = &mut lock(&self.0).reported;
        if reported.len() >= ROWS_MAX {
            reported.clear();
        }
        if !reported.insert(id.to_owned()) {
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
