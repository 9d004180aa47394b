//! A job: the typed unit of work, the options it is enqueued with, and the checks made before any SQL.
//!
//! A bad job must never poison the caller's transaction, so sizes, names and content are checked here, with the
//! field named, before a statement is sent.

mod limits;

use std::time::Duration;

use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use sha2::{Digest, Sha256};
use uuid::Uuid;

pub use self::limits::Limits;
use crate::{
    error::{Error, Result},
    group::Group,
    key::{Hold, Keyed, check_key},
    trace,
};

/// A unit of work. `#[derive(Job)]` fills this in; a plain `impl` works as well.
///
/// The type is the payload: it is written as JSON beside your data, and read back by the handler. Fields may be
/// added with `#[serde(default)]`; for any other change raise [`Job::VERSION`] and override [`Job::decode`].
pub trait Job: Serialize + DeserializeOwned + Send + 'static {
    /// Which handler runs it.
    const KIND: &'static str;
    /// The payload's version. A worker leaves jobs of a newer version than its own untouched.
    const VERSION: i32 = 1;
    /// The queue of its jobs unless set at enqueue.
    const QUEUE: &'static str = "default";
    /// How many attempts a job gets unless set at enqueue.
    const ATTEMPTS_MAX: i32 = 10;
    /// The priority of its jobs unless set at enqueue: 1 runs before 2, strictly, up to 5.
    const PRIORITY: i16 = 3;
    /// A handler that runs longer is cut off and the attempt fails.
    const TIME_LIMIT: Duration = Duration::from_secs(600);

    /// Reads a payload of any version up to [`Job::VERSION`].
    ///
    /// # Errors
    /// Any error makes the job a case, with the error's text as its reason.
    fn decode(version: i32, payload: &str) -> std::result::Result<Self, String> {
        let _ = version;
        // Tracking the path takes as long as reading, so only a payload that cannot be read is read a second time.
        let error = match serde_json::from_str(payload) {
            Ok(job) => return Ok(job),
            Err(error) => error,
        };
        let mut reader = serde_json::Deserializer::from_str(payload);
        let told = serde_path_to_error::deserialize::<_, Self>(&mut reader);
        Err(told.map_or_else(|e| unreadable(&e), |_| error.to_string()))
    }
}

/// Where the payload cannot be read, and why.
fn unreadable(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    let (path, inner) = (error.path(), error.inner());
    match path.iter().next() {
        Some(_) => format!("payload at {path}: {inner}"),
        None => format!("payload: {inner}"),
    }
}

/// When a job is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Due {
    /// This long from now, by the database's clock.
    In(Duration),
    At(Timestamp),
    /// When it is triggered.
    OnTrigger,
}

/// The due time of an untriggered job. It is later than every time that can be requested, so no claim ever sees the
/// job, and the job cannot be mistaken for a scheduled one.
const UNTRIGGERED_S: i64 = 253_370_851_200;

/// The due time of a job that waits to be triggered.
pub(crate) fn untriggered() -> Timestamp {
    Timestamp::from_second(UNTRIGGERED_S).unwrap_or(Timestamp::MAX)
}

/// The options of one job at enqueue; `None` takes the kind's default.
#[derive(Clone, Default)]
pub(crate) struct Options {
    pub(crate) queue: Option<String>,
    pub(crate) priority: Option<i16>,
    pub(crate) due: Option<Due>,
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) attempts_max: Option<i32>,
    pub(crate) tags: Vec<String>,
    pub(crate) if_retired: Option<Box<Draft>>,
    pub(crate) trace: Option<String>,
    pub(crate) waits_for: Option<String>,
    pub(crate) wait_limit: Option<Duration>,
    pub(crate) group: Option<Group>,
    pub(crate) key: Option<String>,
    pub(crate) hold: Option<Hold>,
    /// JSON that replaces the payload when two requests are compared.
    pub(crate) fingerprint: Option<String>,
}

crate::debug::debug_fields!(
    [] Options, "Options",
    queue, priority, due, expires_at, attempts_max, tags, waits_for, wait_limit, group, key, hold
);

/// What a job waits for before it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The name that must be completed.
    pub name: String,
    /// How long it waits at most.
    pub limit: Option<Duration>,
}

impl Wait {
    fn of(name: Option<String>, limit: Option<Duration>) -> Result<Option<Wait>> {
        match (name, limit) {
            (Some(name), limit) => Ok(Some(Wait { name, limit })),
            (None, None) => Ok(None),
            (None, Some(_)) => Err(Error::invalid("wait_limit", "set without a wait; add waits_for")),
        }
    }

    fn check(&self) -> Result<()> {
        check_key("waits_for", &self.name)?;
        check_delay("wait_limit", self.limit.unwrap_or_default())
    }

    pub(crate) fn limit_us(&self) -> Option<i64> {
        let us = |limit: Duration| i64::try_from(limit.as_micros()).unwrap_or(i64::MAX);
        self.limit.map(us)
    }
}

impl Options {
    /// The key with everything it needs, if there is one. Sizes are checked first: fingerprints are taken recursively.
    fn keyed(&self, kind: &str, payload: &str, limits: &Limits) -> Result<Option<Box<Keyed>>> {
        let Some(key) = &self.key else {
            let lone = [
                ("hold", self.hold.is_some()),
                ("fingerprint", self.fingerprint.is_some()),
            ];
            return match lone.into_iter().find(|(_, given)| *given) {
                Some((field, _)) => Err(Error::invalid(field, "set without a key; add .key(…)")),
                None => Ok(None),
            };
        };
        let request = self.fingerprint.as_deref().unwrap_or(payload);
        check_payload(request, limits)?;
        Keyed::new(key, self.hold.unwrap_or_default(), kind, request).map(Some)
    }
}

/// A job ready to be inserted: checked, encoded, with everything a statement needs.
#[derive(Clone, Debug)]
pub struct Draft {
    pub uid: Uuid,
    pub kind: String,
    pub version: i32,
    pub queue: String,
    pub priority: i16,
    pub attempts_max: i32,
    pub payload: String,
    /// A JSON array of strings.
    pub tags: Option<String>,
    pub due: Due,
    pub expires_at: Option<Timestamp>,
    pub chain: Option<i64>,
    pub position: i32,
    /// What is enqueued when the job is retired, as [`Draft::to_json`] writes it.
    pub if_retired: Option<String>,
    /// The trace context of the enqueuing code, as [`trace`](crate::trace) writes it.
    pub trace: Option<String>,
    /// The job is in `waiting` until this is completed.
    pub wait: Option<Wait>,
    pub group: Option<Group>,
    pub key: Option<Box<Keyed>>,
}

impl Draft {
    pub(crate) fn of<J: Job>(job: &J, options: Options, limits: &Limits) -> Result<Draft> {
        let payload = serde_json::to_string(job).map_err(|source| Error::Encode {
            kind: J::KIND.to_owned(),
            source,
        })?;
        let key = options.keyed(J::KIND, &payload, limits)?;
        Draft {
            uid: Uuid::now_v7(),
            kind: J::KIND.to_owned(),
            version: J::VERSION,
            queue: options.queue.unwrap_or_else(|| J::QUEUE.to_owned()),
            priority: options.priority.unwrap_or(J::PRIORITY),
            attempts_max: options.attempts_max.unwrap_or(J::ATTEMPTS_MAX),
            payload,
            tags: tags_json(&options.tags, limits)?,
            due: match options.due {
                Some(Due::At(at)) => Due::At(storable(at)),
                Some(due) => due,
                None => Due::In(Duration::ZERO),
            },
            expires_at: options.expires_at.map(storable),
            chain: None,
            position: 0,
            if_retired: options.if_retired.map(|d| d.to_json()).transpose()?,
            trace: options.trace.or_else(trace::current),
            wait: Wait::of(options.waits_for, options.wait_limit)?,
            group: options.group,
            key,
        }
        .checked(limits)
    }

    /// Refuses what SQL would refuse, or what no worker could run.
    pub(crate) fn checked(self, limits: &Limits) -> Result<Draft> {
        check_name("kind", &self.kind)?;
        check_name("queue", &self.queue)?;
        if self.version < 1 {
            return Err(Error::invalid(
                "version",
                format!("{} is out of range (1 or more)", self.version),
            ));
        }
        if !(1..=5).contains(&self.priority) {
            let problem = format!("{} is out of range (1 to 5; 1 runs first, default 3)", self.priority);
            return Err(Error::invalid("priority", problem));
        }
        if !(1..=10_000).contains(&self.attempts_max) {
            return Err(Error::invalid(
                "attempts",
                format!("{} is out of range (1 to 10000)", self.attempts_max),
            ));
        }
        check_payload(&self.payload, limits)?;
        if let Due::In(delay) = self.due {
            check_delay("after", delay)?;
        }
        self.trace.as_deref().map_or(Ok(()), trace::check)?;
        self.wait.as_ref().map_or(Ok(()), Wait::check)?;
        self.group.as_ref().map_or(Ok(()), Group::check)?;
        if self.wait.is_some() && self.group.is_some() {
            let problem =
                "a job of a group cannot also wait for a name; let a job that waits enqueue it as its next job";
            return Err(Error::invalid("group", problem));
        }
        Ok(self)
    }

    pub(crate) fn queue_no(&self) -> i64 {
        queue_no(&self.queue)
    }

    pub(crate) fn kind_no(&self) -> i64 {
        kind_no(&self.kind, self.version)
    }

    pub(crate) fn delay_us(&self) -> i64 {
        match self.due {
            Due::In(delay) => i64::try_from(delay.as_micros()).unwrap_or(i64::MAX),
            Due::At(_) | Due::OnTrigger => 0,
        }
    }

    pub(crate) fn due_at(&self) -> Option<Timestamp> {
        match self.due {
            Due::In(_) => None,
            Due::At(at) => Some(at),
            Due::OnTrigger => Some(untriggered()),
        }
    }

    /// The only form in which a job travels: as a next job, as a compensation in another job's body, and as an element
    /// of what SQLite enqueues. `rowlock.put_job` and SQLite's `enqueue/jobs.sql` read this form.
    pub(crate) fn encoded(&self) -> Encoded<'_> {
        let group = self.group.as_ref();
        Encoded {
            uid: self.uid,
            kind: &self.kind,
            kind_no: self.kind_no(),
            version: self.version,
            queue: &self.queue,
            queue_no: self.queue_no(),
            priority: self.priority,
            attempts_max: self.attempts_max,
            payload: &self.payload,
            tags: self.tags.as_deref(),
            chain: self.chain,
            position: self.position,
            due_us: self.due_at().map(Timestamp::as_microsecond),
            delay_us: self.delay_us(),
            expires_us: self.expires_at.map(Timestamp::as_microsecond),
            if_retired: self.if_retired.as_deref(),
            trace: self.trace.as_deref(),
            waits_for: self.wait.as_ref().map(|w| w.name.as_str()),
            limit_us: self.wait.as_ref().and_then(Wait::limit_us),
            in_group: group.map(|g| g.name.as_str()),
            group_no: group.map(Group::no),
            group_stops: group.map(|g| g.stops),
        }
    }

    /// [`Draft::encoded`] as JSON.
    pub(crate) fn to_json(&self) -> Result<String> {
        serde_json::to_string(&self.encoded()).map_err(|source| Error::Encode {
            kind: self.kind.clone(),
            source,
        })
    }
}

/// See [`Draft::encoded`]. Fields that hold JSON are stored as text: parsing and rewriting could change the order of
/// keys and the digits of numbers. Times are microseconds since 1970; missing values are left out.
#[derive(Serialize)]
pub(crate) struct Encoded<'a> {
    uid: Uuid,
    kind: &'a str,
    kind_no: i64,
    version: i32,
    queue: &'a str,
    queue_no: i64,
    priority: i16,
    attempts_max: i32,
    payload: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tags: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    chain: Option<i64>,
    position: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    due_us: Option<i64>,
    delay_us: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    if_retired: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    trace: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    waits_for: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_group: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_no: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_stops: Option<bool>,
}

/// The nearest time that every database and driver can store. Beyond it, "long ago" and "never" mean the same.
pub(crate) fn storable(at: Timestamp) -> Timestamp {
    /// The end of the year 9998.
    const LATEST_S: i64 = 253_370_764_800;
    let latest = Timestamp::from_second(LATEST_S).unwrap_or(Timestamp::MAX);
    at.clamp(Timestamp::UNIX_EPOCH, latest)
}

/// The number a queue's name is stored under in the claim index: the first eight bytes of its SHA-256.
pub(crate) fn queue_no(queue: &str) -> i64 {
    number(queue)
}

/// The number of a kind at a payload version. The version is part of the number, so that a worker's claims never see
/// jobs that are newer than its code.
pub(crate) fn kind_no(kind: &str, version: i32) -> i64 {
    number(&format!("{kind}@{version}"))
}

pub(crate) fn number(name: &str) -> i64 {
    let hash = Sha256::digest(name.as_bytes());
    let mut first = [0u8; 8];
    first.copy_from_slice(&hash[..8]);
    i64::from_be_bytes(first)
}

/// Names are what people type and read: 1 to 100 letters, digits, and `-_.:/`.
pub(crate) fn check_name(field: &str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "-_.:/".contains(c);
    if name.is_empty() || name.len() > 100 || !name.chars().all(fits) {
        let shown: String = name.chars().take(40).collect();
        let problem = format!("{shown:?} is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/");
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}

fn check_delay(field: &str, delay: Duration) -> Result<()> {
    if delay > Duration::from_secs(3600 * 24 * 366 * 10) {
        let problem = "the time is more than ten years away; use an earlier one";
        return Err(Error::invalid(field, problem));
    }
    Ok(())
}

fn tags_json(tags: &[String], limits: &Limits) -> Result<Option<String>> {
    if tags.len() > limits.tags_max {
        let problem = format!("{} given, at most {}", tags.len(), limits.tags_max);
        return Err(Error::invalid("tags", problem));
    }
    for (i, tag) in tags.iter().enumerate() {
        check_name(&format!("tags[{i}]"), tag)?;
    }
    Ok((!tags.is_empty()).then(|| serde_json::json!(tags).to_string()))
}

/// Checks size, depth and NUL in one walk over the text. The text is already JSON: a serialiser or a parser made it.
pub(crate) fn check_payload(payload: &str, limits: &Limits) -> Result<()> {
    if payload.len() > limits.payload_bytes_max {
        let problem = format!(
            "{} bytes, at most {}; store large data elsewhere and enqueue a reference to it",
            payload.len(),
            limits.payload_bytes_max
        );
        return Err(Error::invalid("payload", problem));
    }
    let bytes = payload.as_bytes();
    let (mut depth, mut i, mut in_string) = (0usize, 0usize, false);
    while i < bytes.len() {
        match bytes[i] {
            b'\\' if in_string => {
                if bytes[i..].starts_with(b"\\u0000") {
                    return Err(Error::invalid(
                        "payload",
                        format!("a string contains a NUL character at byte {i}; PostgreSQL cannot store it"),
                    ));
                }
                i += 1;
            }
            b'"' => in_string = !in_string,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > limits.depth_max {
                    return Err(Error::invalid(
                        "payload",
                        format!("nested deeper than {} levels at byte {i}", limits.depth_max),
                    ));
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        i += 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(payload: &str) -> Option<String> {
        let limits = Limits {
            payload_bytes_max: 100,
            depth_max: 3,
            tags_max: 2,
        };
        check_payload(payload, &limits).err().map(|e| e.to_string())
    }

    #[test]
    fn a_payload_is_checked_for_size_depth_and_nul() {
        assert_eq!(problem(r#"{"a":[1,{"b":"[[[["}]}"#), None);
        assert!(problem("[[[[]]]]").is_some_and(|p| p.contains("deeper than 3")));
        assert!(problem(r#"["a\u0000b"]"#).is_some_and(|p| p.contains("NUL")));
        assert_eq!(problem(r#"["a\\u0000b"]"#), None, "an escaped backslash is no NUL");
        assert!(problem(&"1".repeat(101)).is_some_and(|p| p.contains("at most 100")));
    }

    #[test]
    fn a_payload_that_cannot_be_read_names_the_place_unless_it_is_the_whole() {
        #[derive(Debug, Serialize, serde::Deserialize)]
        struct Order {
            id: i64,
        }
        impl Job for Order {
            const KIND: &'static str = "order";
        }
        let problem = |payload| Order::decode(1, payload).unwrap_err();
        assert_eq!(problem("{}"), "payload: missing field `id` at line 1 column 2");
        assert!(problem(r#"{"id":"x"}"#).starts_with("payload at id: invalid type"));
    }

    #[test]
    fn names_are_plain_words() {
        assert!(check_name("queue", "orders/eu-1").is_ok());
        for bad in ["", "a b", "a\0", "é", &"x".repeat(101), "a';drop"] {
            assert!(check_name("queue", bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_kinds_number_depends_on_its_version() {
        assert_ne!(kind_no("charge", 1), kind_no("charge", 2));
        assert_eq!(kind_no("charge", 1), kind_no("charge", 1));
    }
}
