//! What a message is: a pointer, a foreign message, or neither. Decided here, without I/O.

use std::time::Duration;

use rowlock::{Group, Hold, NamedJob};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use uuid::Uuid;

use crate::{
    config::{Config, is_name},
    outside::Incoming,
};

/// SQS keeps a message for fourteen days at most. A key that is held for longer catches every copy.
pub(crate) const KEY_HOLD: Hold = Hold::For(Duration::from_secs(15 * 24 * 3600));

/// A job and its uid, as a message names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pointer {
    pub(crate) job: i64,
    pub(crate) uid: Uuid,
}

/// A message that no bridge has sent, as the job that it becomes.
#[derive(Debug)]
pub(crate) struct Foreign {
    pub(crate) kind: String,
    pub(crate) payload: String,
    pub(crate) queue: String,
    pub(crate) attempts_max: i32,
    pub(crate) key: String,
    pub(crate) group: Option<Group>,
}

impl Foreign {
    pub(crate) fn job(&self) -> NamedJob {
        let job = NamedJob::new(&self.kind, &self.payload)
            .queue(&self.queue)
            .attempts(self.attempts_max)
            .key(&self.key)
            .hold(KEY_HOLD);
        self.group.iter().cloned().fold(job, NamedJob::group)
    }
}

#[derive(Debug)]
pub(crate) enum Body {
    Pointer(Pointer),
    Foreign(Box<Foreign>),
    /// It cannot be read, for this reason.
    Malformed(String),
}

/// A body with the two members `job` and `uid` and no other is a pointer, unless the message names a kind; anything
/// else that is JSON is a foreign message.
pub(crate) fn read(message: &Incoming, config: &Config) -> Body {
    let kind = message.attributes.get(&config.kind_attribute);
    if kind.is_none()
        && let Some(pointer) = pointer(&message.body)
    {
        return match pointer {
            Ok(pointer) => Body::Pointer(pointer),
            Err(problem) => Body::Malformed(problem),
        };
    }
    if let Err(error) = serde_json::from_str::<&RawValue>(&message.body) {
        return Body::Malformed(format!("the body is not JSON: {error}"));
    }
    let Some(kind) = kind.or(config.kind.as_ref()) else {
        let problem = format!(
            "the message names no kind; send the attribute {}, or give the bridge a kind",
            config.kind_attribute
        );
        return Body::Malformed(problem);
    };
    let key = message.attributes.get(&config.key_attribute).cloned();
    Body::Foreign(Box::new(Foreign {
        kind: kind.clone(),
        payload: message.body.clone(),
        queue: config.queue.clone(),
        attempts_max: config.attempts_max,
        key: key.unwrap_or_else(|| key_of(&message.id, &config.queue_url)),
        group: message.group.as_deref().map(group),
    }))
}

/// A message id is unique within its queue.
fn key_of(message: &str, queue_url: &str) -> String {
    let queue = queue_url.rsplit('/').next().unwrap_or_default();
    format!("sqs:{queue}:{message}")
}

/// `None` if the body is not a pointer; an error if it looks like one and is wrong.
fn pointer(body: &str) -> Option<Result<Pointer, String>> {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Shape<'a> {
        #[serde(borrow)]
        job: &'a RawValue,
        #[serde(borrow)]
        uid: &'a RawValue,
    }
    // serde would read a list of two values as the two members too.
    let object = body.trim_start().starts_with('{');
    let shape: Shape<'_> = serde_json::from_str(body).ok().filter(|_| object)?;
    let job = serde_json::from_str(shape.job.get());
    let uid = serde_json::from_str(shape.uid.get());
    Some(match (job, uid) {
        (Ok(job), Ok(uid)) => Ok(Pointer { job, uid }),
        (Err(error), _) => Err(format!("the pointer's job is not a number: {error}")),
        (_, Err(error)) => Err(format!("the pointer's uid is not valid: {error}")),
    })
}

/// A message group as a group of jobs. If no group can have the name, its hash is used, which is different for each
/// name.
fn group(name: &str) -> Group {
    match is_name(name) {
        true => Group::new(name),
        false => {
            let hash = Sha256::digest(name.as_bytes());
            let hex: String = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
            Group::new(format!("sqs:{hex}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(body: &str) -> Incoming {
        Incoming {
            id: "m-1".into(),
            body: body.into(),
            ..Incoming::default()
        }
    }

    fn config() -> Config {
        Config::new("http://127.0.0.1/1/jobs", "jobs")
    }

    #[test]
    fn a_pointer_has_a_job_and_a_uid_and_nothing_else() {
        let uid = Uuid::now_v7();
        let read_pointer = |body: String| read(&message(&body), &config());
        let body = read_pointer(format!("{{\"uid\": \"{uid}\", \"job\": 7}}"));
        assert!(
            matches!(body, Body::Pointer(p) if p == Pointer { job: 7, uid }),
            "{body:?}"
        );
        for bad in [
            "{\"job\": \"7\", \"uid\": \"x\"}".to_owned(),
            format!("{{\"job\": 7.5, \"uid\": \"{uid}\"}}"),
            format!("{{\"job\": 99999999999999999999, \"uid\": \"{uid}\"}}"),
            "{\"job\": 7, \"uid\": null}".to_owned(),
        ] {
            let body = read_pointer(bad.clone());
            assert!(
                matches!(&body, Body::Malformed(why) if why.starts_with("the pointer's ")),
                "{bad}: {body:?}"
            );
        }
        let body = read_pointer(format!("{{\"job\": 7, \"uid\": \"{uid}\", \"more\": 1}}"));
        assert!(
            matches!(&body, Body::Malformed(why) if why.contains("names no kind")),
            "{body:?}"
        );
    }

    #[test]
    fn a_foreign_message_is_a_job_under_its_own_key() {
        let mut config = config();
        config.kind = Some("import".into());
        let Body::Foreign(job) = read(&message("[1, 2]"), &config) else {
            panic!("a foreign message");
        };
        assert_eq!((job.kind.as_str(), job.payload.as_str()), ("import", "[1, 2]"));
        assert_eq!(job.key, "sqs:jobs:m-1");
        let mut named = message("{\"job\": 1, \"uid\": 2}");
        named.attributes.insert("rowlock-key".into(), "order:7".into());
        named.attributes.insert("rowlock-kind".into(), "other".into());
        named.group = Some("account:7".into());
        let Body::Foreign(job) = read(&named, &config) else {
            panic!("a kind makes it foreign");
        };
        assert_eq!((job.kind.as_str(), job.key.as_str()), ("other", "order:7"));
        assert_eq!(job.group, Some(Group::new("account:7")));
    }

    #[test]
    fn what_is_no_json_is_malformed() {
        let mut config = config();
        config.kind = Some("import".into());
        for bad in ["", "hello", "{\"a\": }", "{} {}", "\u{1}"] {
            assert!(matches!(read(&message(bad), &config), Body::Malformed(_)), "{bad:?}");
        }
    }

    #[test]
    fn every_message_group_has_a_group_of_its_own() {
        let odd = ["a b", "a#b", "", &"x".repeat(128)].map(group);
        let plain = group("account:42");
        assert_eq!(plain, Group::new("account:42"));
        for (i, one) in odd.iter().enumerate() {
            assert!(odd.iter().skip(i + 1).all(|other| other != one));
        }
    }
}
