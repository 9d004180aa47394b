//! The storage contract for hints from outside: jobs that stand untriggered, and those that nobody has taken.

use uuid::Uuid;

use super::Fut;
use crate::observe::{Standing, Untaken};

/// A job that was made due just now.
#[derive(Debug)]
pub struct Pulled {
    pub id: i64,
    /// How often it had been claimed.
    pub epoch: i64,
}

/// Hints on connections of the store's own.
pub trait Triggers: Send + Sync {
    /// Makes those due that stand untriggered, where the uid is theirs; says which they are.
    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>>;
    /// Where each stands that there is.
    fn standing<'a>(&'a self, ids: &'a [i64]) -> Fut<'a, Vec<Standing>>;
    /// Those in ready that nobody has taken.
    fn untaken<'a>(&'a self, which: &'a Untaken) -> Fut<'a, Vec<Standing>>;
}
