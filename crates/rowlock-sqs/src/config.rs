//! Every setting of a bridge, with its limits.

use std::time::Duration;

use crate::error::{Error, Result};

/// What a bridge does with its queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// Receives messages and triggers or enqueues jobs.
    #[default]
    Consume,
    /// Sends pointers to jobs that are not triggered or not taken.
    Produce,
    /// Both.
    Both,
}

impl Role {
    pub(crate) fn consumes(self) -> bool {
        matches!(self, Role::Consume | Role::Both)
    }

    pub(crate) fn produces(self) -> bool {
        matches!(self, Role::Produce | Role::Both)
    }
}

/// A bridge's settings. [`Config::new`] has a default for each; [`Bridge::new`](crate::Bridge::new) checks them.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The SQS queue's address. One that ends in `.fifo` is a FIFO queue: its message groups are groups of jobs.
    pub queue_url: String,
    /// The queue of jobs: foreign messages go to it, and the sweep looks at it.
    pub queue: String,
    /// What the bridge does with the queue.
    pub role: Role,
    /// The kind of a foreign message that names none; without it such a message is malformed.
    pub kind: Option<String>,
    /// The message attribute that names a foreign message's kind.
    pub kind_attribute: String,
    /// The message attribute that names a foreign message's operation, instead of its message id.
    pub key_attribute: String,
    /// How many attempts a foreign message's job gets.
    pub attempts_max: i32,
    /// How long a message is hidden from others; extended at a third of it while the work runs. Whole seconds, 1 to
    /// 600.
    pub visibility: Duration,
    /// How long a poll waits for a message. Whole seconds, at most 20.
    pub wait: Duration,
    /// How many polls run at the same time, 1 to 32.
    pub receivers: usize,
    /// How many messages are held at the same time, 10 to 10,000.
    pub held_max: usize,
    /// How long a message is held at most while its job is not taken or runs; then it is deleted, and the row goes on
    /// alone. At most eleven hours, because SQS ends a message's invisibility after twelve.
    pub hold_max: Duration,
    /// How often the rows of held messages are read.
    pub look: Duration,
    /// How often the sweep runs.
    pub sweep: Duration,
    /// An untriggered job gets its first pointer from the sweep when it is this old. Choose a short time if only the
    /// sweep sends, and the same as `grace` if a [`Relay`](crate::Relay) sends too.
    pub first_after: Duration,
    /// A job that is due and not taken, or untriggered although a pointer was sent, gets another pointer after this
    /// long; then after twice that, and so on up to 64 times.
    pub grace: Duration,
    /// How many jobs a sweep reads in one statement, 1 to 1,000.
    pub sweep_max: u32,
    /// How many sends the sweep remembers, so that a deep backlog is not sent over and over. At least 1,000.
    pub sent_max: usize,
    /// The address of a dead-letter queue whose messages become cases.
    pub drain_url: Option<String>,
}

impl Config {
    /// Defaults for this SQS queue and this queue of jobs.
    pub fn new(queue_url: impl Into<String>, queue: impl Into<String>) -> Config {
        Config {
            queue_url: queue_url.into(),
            queue: queue.into(),
            role: Role::Consume,
            kind: None,
            kind_attribute: "rowlock-kind".into(),
            key_attribute: "rowlock-key".into(),
            attempts_max: 10,
            visibility: Duration::from_secs(30),
            wait: Duration::from_secs(20),
            receivers: 1,
            held_max: 1000,
            hold_max: Duration::from_secs(3600),
            look: Duration::from_millis(250),
            sweep: Duration::from_secs(1),
            first_after: Duration::from_secs(1),
            grace: Duration::from_secs(60),
            sweep_max: 1000,
            sent_max: 100_000,
            drain_url: None,
        }
    }

    pub(crate) fn check(&self) -> Result<()> {
        let seconds = |field, value: Duration, min: u64, max: u64| {
            let whole = value.subsec_nanos() == 0 && (min..=max).contains(&value.as_secs());
            let problem = format!("{value:?} is out of range ({min} to {max} whole seconds)");
            whole.then_some(()).ok_or(Error::Config { field, problem })
        };
        let span = |field, value: Duration, min: Duration, max: Duration| {
            let problem = format!("{value:?} is out of range ({min:?} to {max:?})");
            (min..=max)
                .contains(&value)
                .then_some(())
                .ok_or(Error::Config { field, problem })
        };
        let count = |field, value: usize, min: usize, max: usize| {
            let problem = format!("{value} is out of range ({min} to {max})");
            (min..=max)
                .contains(&value)
                .then_some(())
                .ok_or(Error::Config { field, problem })
        };
        let (ms, hour) = (Duration::from_millis, Duration::from_secs(3600));
        for (field, url) in [
            ("queue_url", Some(&self.queue_url)),
            ("drain_url", self.drain_url.as_ref()),
        ] {
            if url.is_some_and(|url| !url.starts_with("http")) {
                let problem = "not a URL; use the URL of the queue, such as \
                               https://sqs.eu-west-1.amazonaws.com/123456789012/name";
                return Err(Error::Config {
                    field,
                    problem: problem.into(),
                });
            }
        }
        for (field, name) in [("queue", Some(&self.queue)), ("kind", self.kind.as_ref())] {
            if let Some(name) = name.filter(|name| !is_name(name)) {
                let shown: String = name.chars().take(40).collect();
                let problem = format!("{shown:?} is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/");
                return Err(Error::Config { field, problem });
            }
        }
        if !(1..=10_000).contains(&self.attempts_max) {
            return Err(Error::Config {
                field: "attempts_max",
                problem: format!("{} is out of range (1 to 10000)", self.attempts_max),
            });
        }
        seconds("visibility", self.visibility, 1, 600)?;
        seconds("wait", self.wait, 0, 20)?;
        count("receivers", self.receivers, 1, 32)?;
        count("held_max", self.held_max, 10 * self.receivers, 10_000)?;
        span("hold_max", self.hold_max, ms(1), 11 * hour)?;
        span("look", self.look, ms(10), ms(10_000))?;
        span("sweep", self.sweep, ms(10), hour)?;
        span("first_after", self.first_after, Duration::ZERO, hour)?;
        span("grace", self.grace, ms(10), hour)?;
        count("sweep_max", self.sweep_max as usize, 1, 1000)?;
        count("sent_max", self.sent_max, 1000, 10_000_000)
    }
}

/// Whether a queue, a kind or a group can have this name.
pub(crate) fn is_name(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    !name.is_empty() && name.len() <= 100 && name.chars().all(fits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_within_the_limits_and_what_is_not_is_named() {
        let good = Config::new("http://127.0.0.1/1/jobs", "jobs");
        assert!(good.check().is_ok());
        let said = |change: fn(&mut Config)| {
            let mut config = good.clone();
            change(&mut config);
            config.check().unwrap_err().to_string()
        };
        assert_eq!(
            said(|c| c.visibility = Duration::from_millis(1500)),
            "visibility: 1.5s is out of range (1 to 600 whole seconds)"
        );
        assert_eq!(said(|c| c.held_max = 9), "held_max: 9 is out of range (10 to 10000)");
        assert!(said(|c| c.queue_url = "jobs".into()).starts_with("queue_url: not a URL"));
        assert!(said(|c| c.drain_url = Some("x".into())).starts_with("drain_url: "));
        assert!(said(|c| c.queue = "a b".into()).starts_with("queue: \"a b\" is not a valid name; use 1 to 100 of"));
        assert!(said(|c| c.kind = Some(String::new())).starts_with("kind: \"\" is not"));
        assert_eq!(
            said(|c| c.attempts_max = -1),
            "attempts_max: -1 is out of range (1 to 10000)"
        );
        assert!(said(|c| c.hold_max = Duration::from_secs(12 * 3600)).starts_with("hold_max: "));
    }
}
