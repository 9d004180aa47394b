//! The W3C trace context of the code that enqueued a job. The job's row carries it to every attempt.
//!
//! In the row it is a `traceparent`, followed by a space and a `tracestate` if there is one. An attempt's span links to
//! the context instead of being its child: the enqueuing code ended long ago, and a job may be tried for days.
//!
//! The library stores and checks this text. A [`Propagator`] connects the text to a tracing system; the crate
//! `rowlock-otel` has one for OpenTelemetry. Without one, a job carries the context set with `.trace("00-…")` at its
//! enqueue.

use std::sync::OnceLock;

use tracing::{Span, field};

use crate::{
    error::{Error, Result},
    lease::Token,
    state::Ended,
};

/// Connects the trace context of jobs to a tracing system.
pub trait Propagator: Send + Sync + 'static {
    /// The trace context of the calling code: a W3C `traceparent`, followed by a space and a `tracestate` if there is
    /// one. Called wherever an enqueue that sets no context itself is awaited, so keep it quick. An invalid
    /// `tracestate` is left out, and an invalid `traceparent` means no context.
    fn current(&self) -> Option<String>;

    /// Links the span of an attempt to the context that its job carries, which is valid. Called for spans that a
    /// subscriber records.
    fn link(&self, span: &Span, trace: &str);
}

static PROPAGATOR: OnceLock<Box<dyn Propagator>> = OnceLock::new();

/// Sets the propagator of this process, for every handle and worker. The first one stays: `false` if there is one.
pub fn set_propagator(propagator: impl Propagator) -> bool {
    PROPAGATOR.set(Box::new(propagator)).is_ok()
}

/// The longest `tracestate` that the specification allows.
const STATE_MAX: usize = 512;

/// Refuses text that could not be read back.
pub(crate) fn check(trace: &str) -> Result<()> {
    let (parent, state) = trace.split_once(' ').unwrap_or((trace, ""));
    let hex = |part: &str, digits| part.len() == digits && part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    let some = |part: &str| part.bytes().any(|b| b != b'0');
    let parts: Vec<&str> = parent.split('-').collect();
    let reads = match parts[..] {
        [version, id, span, flags] => {
            hex(version, 2)
                && version != "ff"
                && hex(id, 32)
                && some(id)
                && hex(span, 16)
                && some(span)
                && hex(flags, 2)
        }
        _ => false,
    };
    if !reads {
        let problem = format!(
            "{parent:?} is not a valid traceparent, such as 00-{}-{}-01",
            "4b".repeat(16),
            "b7".repeat(8)
        );
        return Err(Error::invalid("trace", problem));
    }
    if state.len() > STATE_MAX || !state.bytes().all(|b| (b' '..=b'~').contains(&b)) {
        let problem = format!("the tracestate is not valid; use up to {STATE_MAX} printable characters");
        return Err(Error::invalid("trace", problem));
    }
    Ok(())
}

/// The span of an attempt, linked to the context of its job. No span is created when no subscriber records it.
pub(crate) fn attempt(
    (queue, worker): (&str, &str),
    token: Token,
    kind: &str,
    attempt: i32,
    trace: Option<&str>,
) -> Span {
    let span = tracing::info_span!(
        "queue.process",
        otel.kind = "consumer",
        queue,
        worker,
        job.id = token.id,
        kind,
        attempt,
        job.claim_token = %token,
        messaging.system = "rowlock",
        messaging.operation.name = "process",
        messaging.operation.r#type = "process",
        messaging.destination.name = queue,
        messaging.message.id = token.id,
        messaging.client.id = worker,
        outcome = field::Empty,
        otel.status_code = field::Empty,
        otel.status_description = field::Empty,
    );
    // Invalid text was not written here; ignore it instead of failing the attempt.
    if let Some(trace) = trace.filter(|trace| !span.is_disabled() && check(trace).is_ok())
        && let Some(propagator) = PROPAGATOR.get()
    {
        propagator.link(&span, trace);
    }
    span
}

/// Writes into an attempt's span how the attempt ended, and ends the span; `failed` if it failed, and the error if it
/// is known.
pub(crate) fn ended(span: Option<Span>, outcome: &'static str, failed: bool, error: Option<&str>) {
    let Some(span) = span.filter(|span| !span.is_disabled()) else {
        return;
    };
    // Inside the span, because a span lasts until it was last entered.
    span.in_scope(|| {
        span.record("outcome", outcome);
        if failed {
            span.record("otel.status_code", "ERROR");
            span.record("otel.status_description", error.unwrap_or(outcome));
        } else if outcome == Ended::Done.as_str() {
            span.record("otel.status_code", "OK");
        }
    });
}

/// The context of the code that awaits this.
pub(crate) fn current() -> Option<String> {
    PROPAGATOR.get()?.current().and_then(valid)
}

/// A context from an external caller must not keep a job from being enqueued.
fn valid(trace: String) -> Option<String> {
    if check(&trace).is_ok() {
        return Some(trace);
    }
    let (parent, _) = trace.split_once(' ')?;
    check(parent).is_ok().then(|| parent.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_from_outside_that_is_not_valid_is_left_out() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let whole = format!("{parent} a=1");
        assert_eq!(valid(whole.clone()), Some(whole));
        assert_eq!(valid(format!("{parent} a=\n")).as_deref(), Some(parent));
        assert_eq!(valid("00-4bf9 a=1".to_owned()), None);
        assert_eq!(valid("00-4bf9".to_owned()), None);
    }

    #[test]
    fn only_a_trace_context_is_taken() {
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for fits in [parent.to_owned(), format!("{parent} a=1,b=2")] {
            assert!(check(&fits).is_ok(), "{fits}");
        }
        for (bad, said) in [
            ("", "not a valid traceparent"),
            (
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
                "not a valid traceparent",
            ),
            (
                "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                "not a valid traceparent",
            ),
            (
                "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                "not a valid traceparent",
            ),
            (
                "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
                "not a valid traceparent",
            ),
            (&format!("{parent} a=\n"), "tracestate"),
            (&format!("{parent} {}", "a".repeat(513)), "tracestate"),
        ] {
            let error = check(bad).expect_err(bad).to_string();
            assert!(error.contains(said), "{bad:?}: {error}");
        }
    }
}
