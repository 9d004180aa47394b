//! Handlers of kinds that are known only by name: for programs that learn at start which kinds to serve.
//!
//! There is no type to decode into, so no payload is invalid here, and each payload reaches the handler byte for byte.
//! Claims go by kind and version, so you still set which versions the handler reads; newer ones stay untouched.

use std::{borrow::Cow, future::Future, sync::Arc, time::Duration};

use super::{
    Batch, Outcome, Staged,
    atomic::{Handler, HandlerFuture, Shape},
};
use crate::{backoff::Backoff, root::Backend, store::Isolation};

/// A kind by its name, with the settings that a type has in its [`Job`](crate::Job) impl. See [`NamedKind::staged`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedKind {
    pub(crate) kind: String,
    pub(crate) version: i32,
    pub(crate) attempts_max: i32,
    pub(crate) time_limit: Duration,
}

impl NamedKind {
    /// A kind whose handler reads version 1, for 10 min at most.
    pub fn new(kind: impl Into<String>) -> NamedKind {
        NamedKind {
            kind: kind.into(),
            version: 1,
            attempts_max: 10,
            time_limit: Duration::from_secs(600),
        }
    }

    /// The newest version of the payload that the handler reads (1 unless set); it gets every version up to this one.
    pub fn version(mut self, version: i32) -> NamedKind {
        self.version = version;
        self
    }

    /// The most attempts that its jobs have (10 unless set). Each job has its own number; this one only determines how
    /// long keys must be kept.
    pub fn attempts(mut self, attempts_max: i32) -> NamedKind {
        self.attempts_max = attempts_max;
        self
    }

    /// A handler that runs longer is cut off and the attempt fails (10 min unless set).
    pub fn time_limit(mut self, limit: Duration) -> NamedKind {
        self.time_limit = limit;
        self
    }
}

/// A job as it is stored, for a handler without a type for it.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RawJob {
    /// Its kind.
    pub kind: String,
    /// The version that its payload was written in.
    pub version: i32,
    /// JSON, byte for byte as it was enqueued.
    pub payload: String,
}

crate::debug::debug_fields!([] RawJob, "RawJob", kind, version);

impl<DB: Backend> Handler<DB> {
    pub(crate) fn staged_named<A, F, Fut>(state: Arc<A>, kind: NamedKind, f: F) -> Handler<DB>
    where
        A: Send + Sync + 'static,
        F: Fn(Staged<A, DB>, RawJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome<DB>> + Send + 'static,
    {
        let f = Arc::new(f);
        let shape = Shape::Staged(Arc::new(move |body, attempt, rowlock| {
            let job = RawJob {
                kind: body.kind.clone(),
                version: body.version,
                payload: body.payload.clone(),
            };
            let (state, rowlock, f) = (state.clone(), rowlock.clone(), f.clone());
            Ok(Box::new(move |outside| {
                Box::pin(f(Staged::of_job(state, rowlock, attempt, outside), job)) as HandlerFuture<DB>
            }))
        }));
        Handler {
            kind: Cow::Owned(kind.kind),
            queue: "default",
            version: kind.version,
            attempts_max: kind.attempts_max,
            time_limit: kind.time_limit,
            backoff: Backoff::DEFAULT,
            level: Isolation::default(),
            batch: Batch::NONE,
            breakers: Vec::new(),
            shape,
        }
    }
}
