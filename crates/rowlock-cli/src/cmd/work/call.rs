//! What a program or a server gets to know about its job.

use std::{io, time::Duration};

use rowlock::{Attempt, EffectKey, Fail, JobId, RawJob};
use rustix::io::Errno;

/// How often a claim is given back for a reason that is not the job's, before an attempt counts.
pub(crate) const GIVEN_BACK_MAX: i64 = 100;

/// The pause after this machine ran out of files, processes or memory.
const EXHAUSTED_PAUSE: Duration = Duration::from_secs(5);

/// One call: the job, the attempt, and the key that stays the same over all attempts.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) payload: String,
    pub(crate) key: String,
    id: JobId,
    uid: String,
    kind: String,
    version: i32,
    queue: String,
    attempt: i32,
    attempts_max: i32,
    epoch: i64,
    /// How many claims of the job were given back instead of counted.
    pub(crate) given_back: i64,
    traceparent: Option<String>,
    tracestate: Option<String>,
}

impl Call {
    pub(crate) fn of(attempt: &Attempt, job: &RawJob, key: &EffectKey) -> Call {
        Call {
            payload: job.payload.clone(),
            key: key.as_str().to_owned(),
            id: attempt.id(),
            uid: attempt.uid().to_string(),
            kind: job.kind.clone(),
            version: job.version,
            queue: attempt.queue().to_owned(),
            attempt: attempt.attempt(),
            attempts_max: attempt.attempts_max(),
            epoch: attempt.epoch(),
            given_back: attempt.epoch().saturating_sub(attempt.attempt().into()),
            traceparent: attempt.traceparent().map(str::to_owned),
            tracestate: attempt.tracestate().map(str::to_owned),
        }
    }

    /// The failure of a call that could not begin. If this machine has run out of files, processes or memory, the
    /// attempt is given back: the job is not the cause, and another machine may have enough.
    pub(crate) fn fail_for(&self, error: &io::Error, reason: String) -> Fail {
        let exhausted = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::AGAIN, Errno::NOBUFS];
        let code = error.raw_os_error();
        match exhausted.iter().any(|errno| Some(errno.raw_os_error()) == code) {
            true if self.given_back < GIVEN_BACK_MAX => Fail::defer(EXHAUSTED_PAUSE).because(reason),
            _ => Fail::retry(reason),
        }
    }

    /// The facts by name, as `JOB_ID`; variables and headers are named after these.
    pub(crate) fn facts(&self) -> [(&'static str, String); 8] {
        [
            ("JOB_ID", self.id.to_string()),
            ("JOB_UID", self.uid.clone()),
            ("KIND", self.kind.clone()),
            ("VERSION", self.version.to_string()),
            ("QUEUE", self.queue.clone()),
            ("ATTEMPT", self.attempt.to_string()),
            ("ATTEMPTS_MAX", self.attempts_max.to_string()),
            ("EPOCH", self.epoch.to_string()),
        ]
    }

    /// The trace context of the enqueuing code: `traceparent` and `tracestate`, if known.
    pub(crate) fn trace(&self) -> [(&'static str, Option<&str>); 2] {
        [
            ("traceparent", self.traceparent.as_deref()),
            ("tracestate", self.tracestate.as_deref()),
        ]
    }
}
