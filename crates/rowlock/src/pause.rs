//! What operators have paused: a queue, a kind or a group whose jobs are not claimed until it is resumed.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, PoisonError},
};

use jiff::Timestamp;
use serde::Serialize;

use crate::{
    error::Result,
    group::{Member, group_no},
    job::{check_name, queue_no},
};

/// What can be paused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase", tag = "what", content = "name")]
#[non_exhaustive]
pub enum Target {
    /// Every job of this queue.
    Queue(String),
    /// Every job of this kind, whatever its queue and version.
    Kind(String),
    /// Every job of this group.
    Group(String),
}

impl Target {
    /// A queue by its name.
    pub fn queue(name: impl Into<String>) -> Target {
        Target::Queue(name.into())
    }

    /// A kind by its name.
    pub fn kind(name: impl Into<String>) -> Target {
        Target::Kind(name.into())
    }

    /// A group by its name.
    pub fn group(name: impl Into<String>) -> Target {
        Target::Group(name.into())
    }

    pub(crate) fn check(&self) -> Result<()> {
        match self {
            Target::Queue(name) => check_name("queue", name),
            Target::Kind(name) => check_name("kind", name),
            Target::Group(name) => check_name("group", name),
        }
    }

    /// As it is stored.
    pub(crate) fn key(&self) -> String {
        match self {
            Target::Queue(name) => format!("queue:{name}"),
            Target::Kind(name) => format!("kind:{name}"),
            Target::Group(name) => format!("group:{name}"),
        }
    }

    pub(crate) fn group_no(&self) -> Option<i64> {
        match self {
            Target::Group(name) => Some(group_no(name)),
            Target::Queue(_) | Target::Kind(_) => None,
        }
    }

    /// `None` for a target that only a newer version knows.
    pub(crate) fn parse(key: &str) -> Option<Target> {
        match key.split_once(':')? {
            ("queue", name) => Some(Target::queue(name)),
            ("kind", name) => Some(Target::kind(name)),
            ("group", name) => Some(Target::group(name)),
            _ => None,
        }
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Target::Queue(name) => write!(f, "queue {name}"),
            Target::Kind(name) => write!(f, "kind {name}"),
            Target::Group(name) => write!(f, "group {name}"),
        }
    }
}

/// One pause.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct PauseView {
    /// What is paused.
    #[serde(flatten)]
    pub target: Target,
    /// Since when.
    pub since: Timestamp,
    /// Who paused it.
    pub by: String,
}

/// All pauses that a worker knows of.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Pauses {
    queues: HashSet<i64>,
    kinds: HashSet<String>,
    groups: HashSet<i64>,
}

impl Pauses {
    pub(crate) fn of(views: Vec<PauseView>) -> Pauses {
        let mut pauses = Pauses::default();
        for view in views {
            match view.target {
                Target::Queue(name) => drop(pauses.queues.insert(queue_no(&name))),
                Target::Kind(name) => drop(pauses.kinds.insert(name)),
                Target::Group(name) => drop(pauses.groups.insert(group_no(&name))),
            }
        }
        pauses
    }

    /// Whether jobs of this queue and kind must not be claimed.
    pub(crate) fn stop(&self, queue_no: i64, kind: &str) -> bool {
        self.stop_queue(queue_no) || (!self.kinds.is_empty() && self.kinds.contains(kind))
    }

    pub(crate) fn stop_group(&self, member: Option<Member>) -> bool {
        !self.groups.is_empty() && member.is_some_and(|member| self.groups.contains(&member.no))
    }

    pub(crate) fn stop_queue(&self, queue_no: i64) -> bool {
        !self.queues.is_empty() && self.queues.contains(&queue_no)
    }
}

/// The pauses as they were read last.
#[derive(Clone, Debug, Default)]
pub(crate) struct KnownPauses(Arc<Mutex<Arc<Pauses>>>);

impl KnownPauses {
    pub(crate) fn now(&self) -> Arc<Pauses> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether the pauses changed.
    pub(crate) fn set(&self, pauses: Pauses) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = **known != pauses;
        if changed {
            *known = Arc::new(pauses);
        }
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_stored_is_read_back() {
        for target in [
            Target::queue("orders"),
            Target::kind("charge:card"),
            Target::group("account:42"),
        ] {
            assert_eq!(Target::parse(&target.key()), Some(target));
        }
        assert_eq!(Target::parse("planet:mars"), None);
        assert_eq!(Target::parse("queue"), None);
    }

    #[test]
    fn a_pause_stops_what_it_names_and_nothing_else() {
        let view = |target| PauseView {
            target,
            since: Timestamp::UNIX_EPOCH,
            by: "me".into(),
        };
        let pauses = Pauses::of(vec![view(Target::queue("a")), view(Target::kind("x"))]);
        let stopped = [("a", "y"), ("a", "x"), ("b", "x"), ("b", "y")].map(|(q, k)| pauses.stop(queue_no(q), k));
        assert_eq!(stopped, [true, true, true, false]);
        assert!(!Pauses::default().stop(queue_no("a"), "x"));
    }
}
