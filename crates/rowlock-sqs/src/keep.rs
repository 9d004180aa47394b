//! Messages that become cases: what cannot be read, and pointers to no job of this database.
//!
//! A case is a job that was retired by hand. So the bridge enqueues the job first, under a key made of the message's
//! id, and then retires it. In between the job is untriggered in a separate queue, so that no worker can take it. If a
//! bridge dies between the two, another one does the same again. The message is deleted only after both.

use std::collections::BTreeMap;

use rowlock::{
    Admin, Enqueued, Error, NamedJob, Result, State,
    observe::{JobFilter, Untaken},
};
use serde::Serialize;

use crate::{body::KEY_HOLD, outside::Incoming};

/// The kind of a job that is a message kept as a case.
pub const CASE_KIND: &str = "sqs-message";
/// The queue of such jobs, which no bridge sweeps.
pub const CASE_QUEUE: &str = "sqs-cases";

const ACTOR: &str = "rowlock-sqs";

/// What a kept message takes at most; a payload may take a little more.
const BODY_BYTES_MAX: usize = 900 << 10;

/// A kept message. It is equal on every delivery, so its key shows that a repeat is one.
#[derive(Serialize)]
struct Kept<'a> {
    queue_url: &'a str,
    message_id: &'a str,
    body: &'a str,
    /// How much of the ends of body and attributes is missing, because a payload cannot take it.
    #[serde(skip_serializing_if = "Option::is_none")]
    cut_bytes: Option<usize>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    attributes: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<&'a str>,
}

/// Keeps it once, however often it comes. Returns the id of its job.
pub(crate) async fn keep(admin: &Admin, queue_url: &str, message: &Incoming, reason: &str) -> Result<i64> {
    let payload = payload(queue_url, message)?;
    let key = format!("sqs-case:{}", message.id);
    let job = NamedJob::new(CASE_KIND, payload)
        .queue(CASE_QUEUE)
        .attempts(1)
        .on_trigger()
        .key(key.clone())
        .hold(KEY_HOLD);
    let id = match admin.enqueue(job).await {
        Ok(Enqueued::New(id)) => {
            retire(admin, id, reason).await?;
            return Ok(id);
        }
        Ok(put) => put.id(),
        // It was kept before, from another queue or by another version of this crate.
        Err(Error::KeyConflict { .. }) => match of_key(admin, key).await? {
            Some(id) => id,
            None => return Ok(0),
        },
        Err(error) => return Err(error),
    };
    // Leave a job that an operator has reopened. Only a job that is still as it was enqueued is not a case yet.
    let found = admin.observe().standing(&[id]).await?;
    if found.first().is_some_and(|job| job.untriggered()) {
        retire(admin, id, reason).await?;
    }
    Ok(id)
}

async fn of_key(admin: &Admin, key: String) -> Result<Option<i64>> {
    let filter = JobFilter::new().key(key);
    Ok(admin.observe().jobs(&filter).await?.first().map(|job| job.id))
}

/// Makes a case of it, unless it is one or an operator has decided on it.
async fn retire(admin: &Admin, id: i64, reason: &str) -> Result<()> {
    match admin.operate().retire(id, Some(reason), ACTOR).await {
        Err(Error::Conflict(said)) => {
            let found = admin.observe().standing(&[id]).await?;
            match found.first().map(|job| job.state) {
                None | Some(State::Case | State::Finished) => Ok(()),
                Some(_) => Err(Error::Conflict(said)),
            }
        }
        // An operator decided on it, and it was pruned since.
        Err(Error::NotFound(_)) => Ok(()),
        retired => retired,
    }
}

/// Retires the jobs of bridges that died before they could. Returns how many.
pub(crate) async fn mend(admin: &Admin, older_than: std::time::Duration) -> Result<usize> {
    let found = admin
        .observe()
        .untaken(&Untaken::untriggered(CASE_QUEUE, older_than))
        .await?;
    for job in &found {
        retire(
            admin,
            job.id,
            "a kept message; its bridge died before it recorded the reason",
        )
        .await?;
    }
    Ok(found.len())
}

/// With as much of the body and the attributes as fits, the longest of them cut first. PostgreSQL stores no NUL, and
/// SQS itself takes none.
fn payload(queue_url: &str, message: &Incoming) -> Result<String> {
    let storable = |text: &str| text.replace('\0', "\u{fffd}");
    let body = storable(&message.body);
    let attributes: Vec<(&str, String)> = message
        .attributes
        .iter()
        .map(|(name, value)| (name.as_str(), storable(value)))
        .collect();
    let texts = || {
        attributes
            .iter()
            .map(|(_, value)| value.as_str())
            .chain([body.as_str()])
    };
    let mut most = texts().map(str::len).max().unwrap_or_default();
    loop {
        let cut: usize = texts().map(|text| text.len() - head(text, most).len()).sum();
        let kept = Kept {
            queue_url,
            message_id: &message.id,
            body: head(&body, most),
            cut_bytes: (cut > 0).then_some(cut),
            attributes: attributes
                .iter()
                .map(|(name, value)| (*name, head(value, most)))
                .collect(),
            group: message.group.as_deref(),
        };
        let text = serde_json::to_string(&kept)
            .map_err(|error| Error::Config(format!("a message cannot be kept as JSON: {error}")))?;
        if text.len() <= BODY_BYTES_MAX || most == 0 {
            return Ok(text);
        }
        most = most * 3 / 4;
    }
}

/// Its beginning, of so many bytes at most.
fn head(text: &str, bytes_max: usize) -> &str {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_does_not_fit_is_cut_and_says_so() {
        let message = Incoming {
            id: "m-1".into(),
            body: "\"ü\0".repeat(400_000),
            ..Incoming::default()
        };
        let text = payload("http://127.0.0.1/1/jobs", &message).unwrap();
        assert!(text.len() <= BODY_BYTES_MAX);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert!(read["cut_bytes"].as_u64().unwrap() > 0);
        assert!(read["body"].as_str().unwrap().starts_with("\"ü\u{fffd}"));
    }

    #[test]
    fn an_attribute_that_does_not_fit_is_cut_and_the_short_ones_are_not() {
        let mut message = Incoming {
            id: "m-1".into(),
            body: "short".into(),
            ..Incoming::default()
        };
        message.attributes.insert("note".into(), "\"".repeat(600_000));
        message.attributes.insert("rowlock-kind".into(), "no such kind".into());
        let text = payload("http://127.0.0.1/1/jobs", &message).unwrap();
        assert!(text.len() <= BODY_BYTES_MAX);
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        let note = read["attributes"]["note"].as_str().unwrap();
        assert!(note.len() > 300_000, "{}", note.len());
        assert_eq!(read["cut_bytes"], serde_json::json!(600_000 - note.len()));
        assert_eq!(read["body"], "short");
        assert_eq!(read["attributes"]["rowlock-kind"], "no such kind");
    }
}
