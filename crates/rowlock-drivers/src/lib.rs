//! Enqueue [Rowlock](rowlock) jobs from code that holds its transaction with another driver than sqlx: tokio-postgres,
//! diesel-async or SeaORM, each behind a feature of its name. The job exists if and only if that transaction commits.
//!
//! It calls `rowlock.enqueue_v1`, the function for every language, so the library's workers run the job like any other.
//! This crate only enqueues; handlers are written for [`rowlock`]'s workers. An idle worker finds the job with its next
//! poll. If that is too late, run `select rowlock.wake_v1('billing')` with the name of the queue after the commit.
//!
//! ```no_run
//! # #[cfg(feature = "tokio-postgres")]
//! # async fn f(mut client: tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
//! use rowlock::Job;
//! use rowlock_drivers::Enqueue;
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Serialize, Deserialize, Job)]
//! #[job(kind = "charge", queue = "billing")]
//! struct Charge {
//!     order: i64,
//! }
//!
//! let tx = client.transaction().await?;
//! tx.execute("insert into orders (id) values (1)", &[]).await?;
//! let put = Enqueue::new(&Charge { order: 1 }).key("charge:1").on_tokio_postgres(&tx).await?;
//! tx.commit().await?;
//! assert!(put.is_new);
//! # Ok(()) }
//! ```

#![warn(missing_debug_implementations)]

#[cfg(feature = "diesel-async")]
mod diesel_async;
#[cfg(feature = "sea-orm")]
mod sea_orm;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::time::Duration;

use jiff::Timestamp;
use rowlock::Job;
use serde_json::{Map, Value};

/// The code of a refusal because the key is held for another request.
const CONFLICT: &str = "RL003";
/// The code of a refusal because of bad input.
const INVALID: &str = "RL012";

/// What an enqueue did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Put {
    /// The job's id.
    pub id: i64,
    /// Whether this enqueue made the job; `false` when its key is held by a job for the same request.
    pub is_new: bool,
}

/// Why an enqueue failed. On PostgreSQL any error fails the transaction: roll it back.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<E> {
    /// The job cannot be written as JSON; nothing was sent.
    #[error("the job cannot be written as JSON: {0}")]
    Encode(#[source] serde_json::Error),
    /// The key is held by a job for another request.
    #[error("{0}")]
    KeyConflict(String),
    /// The field and what is wrong with it.
    #[error("{0}")]
    Invalid(String),
    /// An error of the driver.
    #[error(transparent)]
    Driver(E),
}

impl<E> Error<E> {
    /// What a refusal means, by its SQLSTATE.
    fn of(code: Option<&str>, said: Option<&str>, error: E) -> Error<E> {
        match (code, said) {
            (Some(CONFLICT), Some(said)) => Error::KeyConflict(said.to_owned()),
            (Some(INVALID), Some(said)) => Error::Invalid(said.to_owned()),
            _ => Error::Driver(error),
        }
    }
}

/// How long a key is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hold {
    /// While its job is open.
    WhileOpen,
    /// At least this long, and at least while its job is open.
    For(Duration),
    /// For ever.
    ForEver,
}

/// A job about to be enqueued: set options, then enqueue it on a transaction. The options mean the same as in
/// [`rowlock`]. The database refuses a bad value, as [`Error::Invalid`].
#[derive(Clone, Debug)]
#[must_use = "nothing is enqueued until it is given a transaction"]
pub struct Enqueue {
    kind: &'static str,
    payload: Result<String, String>,
    options: Map<String, Value>,
    schema: String,
}

impl Enqueue {
    /// This job, with its type's defaults.
    pub fn new<J: Job>(job: &J) -> Enqueue {
        let mut options = Map::new();
        options.insert("version".into(), J::VERSION.into());
        options.insert("queue".into(), J::QUEUE.into());
        options.insert("priority".into(), J::PRIORITY.into());
        options.insert("attempts".into(), J::ATTEMPTS_MAX.into());
        Enqueue {
            kind: J::KIND,
            payload: serde_json::to_string(job).map_err(|error| error.to_string()),
            options,
            schema: "rowlock".into(),
        }
    }

    /// In a schema of another name.
    pub fn schema(mut self, schema: impl Into<String>) -> Enqueue {
        self.schema = schema.into();
        self
    }

    /// The caller's name for the operation: a repeat gets the first one's job.
    pub fn key(self, key: impl Into<String>) -> Enqueue {
        self.set("key", key.into())
    }

    /// How long the key is held; without it, as long as the workers keep keys.
    pub fn hold(self, hold: Hold) -> Enqueue {
        match hold {
            Hold::WhileOpen => self.set("hold", "open"),
            Hold::For(period) => self.set("hold_ms", millis(period)),
            Hold::ForEver => self.set("hold", "ever"),
        }
    }

    /// Another queue.
    pub fn queue(self, queue: impl Into<String>) -> Enqueue {
        self.set("queue", queue.into())
    }

    /// The priority, 1 to 5. All jobs of 1 run before those of 2, and so on.
    pub fn priority(self, priority: i16) -> Enqueue {
        self.set("priority", priority)
    }

    /// How many attempts it gets.
    pub fn attempts(self, attempts_max: i32) -> Enqueue {
        self.set("attempts", attempts_max)
    }

    /// Not before this long from now, by the database's clock.
    pub fn after(self, delay: Duration) -> Enqueue {
        self.set("delay_ms", millis(delay))
    }

    /// Not before this time.
    pub fn at(self, at: Timestamp) -> Enqueue {
        self.set("at", at.to_string())
    }

    /// The job is cancelled if it did not begin by this time.
    pub fn expires(self, at: Timestamp) -> Enqueue {
        self.set("expires", at.to_string())
    }

    /// One tag more.
    pub fn tag(mut self, tag: impl Into<String>) -> Enqueue {
        let tags = self.options.entry("tags").or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(tags) = tags {
            tags.push(tag.into().into());
        }
        self
    }

    /// Runs after the jobs of this group that were enqueued before.
    pub fn group(self, group: impl Into<String>) -> Enqueue {
        self.set("group", group.into())
    }

    /// When it becomes a case, its group stops behind it; otherwise the group goes on.
    pub fn stop_group_when_retired(self) -> Enqueue {
        self.set("group_stops", true)
    }

    /// Waits until somebody completes this name.
    pub fn waits_for(self, name: impl Into<String>) -> Enqueue {
        self.set("waits_for", name.into())
    }

    /// The job is retired if nobody has completed the name it waits for after this long.
    pub fn wait_limit(self, limit: Duration) -> Enqueue {
        self.set("wait_limit_ms", millis(limit))
    }

    /// Another job that is enqueued when this one becomes a case, in the same commit.
    pub fn if_retired<J: Job>(mut self, job: &J) -> Enqueue {
        match serde_json::to_value(job) {
            Ok(payload) => {
                let undo = serde_json::json!({
                    "kind": J::KIND, "payload": payload, "version": J::VERSION, "queue": J::QUEUE,
                    "priority": J::PRIORITY, "attempts": J::ATTEMPTS_MAX,
                });
                self.set("if_retired", undo)
            }
            Err(error) => {
                self.payload = Err(error.to_string());
                self
            }
        }
    }

    /// The job runs only after it is triggered, for example by the SQS bridge.
    pub fn on_trigger(self) -> Enqueue {
        self.set("on_trigger", true)
    }

    /// The W3C `traceparent` that its attempts are linked to.
    pub fn trace(self, traceparent: impl Into<String>) -> Enqueue {
        self.set("trace", traceparent.into())
    }

    fn set(mut self, option: &str, value: impl Into<Value>) -> Enqueue {
        self.options.insert(option.to_owned(), value.into());
        self
    }

    /// The statement with its parameters: kind, payload and options.
    fn call<E>(&self) -> Result<Call<'_>, Error<E>> {
        use serde::ser::Error as _;
        let schema = self.schema.replace('"', "\"\"");
        Ok(Call {
            sql: format!("select id, is_new from \"{schema}\".enqueue_v1($1, $2::text::json, $3::text::json)"),
            kind: self.kind,
            payload: match &self.payload {
                Ok(payload) => payload,
                Err(error) => return Err(Error::Encode(serde_json::Error::custom(error))),
            },
            options: Value::Object(self.options.clone()).to_string(),
        })
    }
}

struct Call<'a> {
    sql: String,
    kind: &'a str,
    payload: &'a str,
    options: String,
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
