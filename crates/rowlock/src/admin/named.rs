//! A job without its type.

use std::time::Duration;

use crate::{group::Group, key::Hold};

/// A job named by its kind, for producers that do not have its type.
///
/// ```
/// let job = rowlock::NamedJob::new("resize", r#"{"id": 7}"#).queue("pictures").key("resize-7");
/// ```
#[derive(Clone)]
pub struct NamedJob {
    pub(crate) kind: String,
    pub(crate) version: i32,
    pub(crate) payload: String,
    pub(crate) queue: String,
    pub(crate) priority: i16,
    pub(crate) attempts_max: i32,
    pub(crate) delay: Duration,
    pub(crate) on_trigger: bool,
    pub(crate) key: Option<String>,
    pub(crate) hold: Hold,
    pub(crate) group: Option<Group>,
}

crate::debug::debug_fields!(
    [] NamedJob, "NamedJob",
    kind, version, queue, priority, attempts_max, delay, on_trigger, key, hold, group
);

impl NamedJob {
    /// A job of this kind with a payload of JSON: version 1, queue `default`, priority 3, 10 attempts, due now.
    pub fn new(kind: impl Into<String>, payload: impl Into<String>) -> NamedJob {
        NamedJob {
            kind: kind.into(),
            version: 1,
            payload: payload.into(),
            queue: "default".into(),
            priority: 3,
            attempts_max: 10,
            delay: Duration::ZERO,
            on_trigger: false,
            key: None,
            hold: Hold::default(),
            group: None,
        }
    }

    /// The payload's version.
    pub fn version(mut self, version: i32) -> NamedJob {
        self.version = version;
        self
    }

    /// Its queue.
    pub fn queue(mut self, queue: impl Into<String>) -> NamedJob {
        self.queue = queue.into();
        self
    }

    /// 1 runs first, 5 last.
    pub fn priority(mut self, priority: i16) -> NamedJob {
        self.priority = priority;
        self
    }

    /// How many attempts it gets.
    pub fn attempts(mut self, attempts_max: i32) -> NamedJob {
        self.attempts_max = attempts_max;
        self
    }

    /// Due this long from now.
    pub fn after(mut self, delay: Duration) -> NamedJob {
        self.delay = delay;
        self
    }

    /// Due when it is triggered, whatever the delay is.
    pub fn on_trigger(mut self) -> NamedJob {
        self.on_trigger = true;
        self
    }

    /// The caller's name for the operation: one job per key while it is held.
    pub fn key(mut self, key: impl Into<String>) -> NamedJob {
        self.key = Some(key.into());
        self
    }

    /// How long the key is held.
    pub fn hold(mut self, hold: Hold) -> NamedJob {
        self.hold = hold;
        self
    }

    /// Runs in this group's order.
    pub fn group(mut self, group: impl Into<Group>) -> NamedJob {
        self.group = Some(group.into());
        self
    }
}
