//! Whose doing a job is: the W3C trace context of whoever enqueued it, which its row carries to every attempt.
//!
//! In the row it is a `traceparent`, and behind a space a `tracestate` if there is one. An attempt's span links to it
//! instead of being its child: what enqueued the job has ended long ago, and a job may be tried for days.

#[cfg(feature = "otel")]
use std::str::FromStr;

#[cfg(feature = "otel")]
use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use tracing::{Span, field};
#[cfg(feature = "otel")]
use tracing_opentelemetry::OpenTelemetrySpanExt;

use crate::{
    error::{Error, Result},
    lease::Token,
    state::Ended,
};

/// What the specification allows a `tracestate` to be.
const STATE_MAX: usize = 512;

/// Refuses what no one could read back.
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

/// The span of an attempt, linked to where its job came from. Nothing is made where nobody listens.
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
    if let Some(trace) = trace.filter(|_| !span.is_disabled()) {
        link(&span, trace);
    }
    span
}

/// Writes in an attempt's span how it ended, and ends it; `failed` where that is so, and what went wrong if it is known.
pub(crate) fn ended(span: Option<Span>, outcome: &'static str, failed: bool, error: Option<&str>) {
    let Some(span) = span.filter(|span| !span.is_disabled()) else {
        return;
    };
    // Inside it: a span is as long as the last time that somebody was.
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

#[cfg(not(feature = "otel"))]
pub(crate) fn current() -> Option<String> {
    None
}

#[cfg(not(feature = "otel"))]
fn link(_: &Span, _: &str) {}

/// Where this is awaited: the current span of `tracing`, or else of OpenTelemetry itself.
#[cfg(feature = "otel")]
pub(crate) fn current() -> Option<String> {
    let of_span = Span::current().context();
    let mut context = of_span.span().span_context().clone();
    if !context.is_valid() {
        context = Context::map_current(|current| current.span().span_context().clone());
    }
    if !context.is_valid() {
        return None;
    }
    let flags = context.trace_flags().to_u8() & 1;
    let parent = format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id());
    let state = context.trace_state().header();
    // What a caller from outside sent along must not keep a job from being enqueued.
    let whole = format!("{parent} {state}");
    Some(match !state.is_empty() && check(&whole).is_ok() {
        true => whole,
        false => parent,
    })
}

/// What does not read was not written here, and is not worth an attempt.
#[cfg(feature = "otel")]
fn link(span: &Span, trace: &str) {
    if let Some(context) = read(trace) {
        span.add_link(context);
    }
}

#[cfg(feature = "otel")]
fn read(trace: &str) -> Option<SpanContext> {
    check(trace).ok()?;
    let (parent, state) = trace.split_once(' ').unwrap_or((trace, ""));
    let mut parts = parent.split('-').skip(1);
    let id = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let state = TraceState::from_str(state).unwrap_or_default();
    Some(SpanContext::new(id, span, TraceFlags::new(flags), true, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "otel")]
    #[test]
    fn what_is_written_reads_back() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=1,other=2";
        let context = read(trace).expect("it reads");
        assert!(context.is_valid() && context.is_remote() && context.is_sampled());
        let _guard = Context::new().with_remote_span_context(context).attach();
        assert_eq!(current().as_deref(), Some(trace));
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
