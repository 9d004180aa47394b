//! The trace context of OpenTelemetry, as the W3C text that a job's row carries.

use std::str::FromStr;

use opentelemetry::{
    Context,
    trace::{SpanContext, SpanId, TraceContextExt, TraceFlags, TraceId, TraceState},
};
use rowlock::trace::{Propagator, set_propagator};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Connects jobs to traces, in the whole process: an enqueue stores the current trace context with the job, and the
/// span of each attempt links to it. Call it once at the start of every program that enqueues or works. `false` if a
/// propagator was set before, by this function or by other code: the first one stays.
///
/// The current context is that of the current span of `tracing`, or else of OpenTelemetry itself, where the enqueue is
/// awaited.
pub fn install() -> bool {
    set_propagator(OpenTelemetry)
}

#[derive(Debug)]
struct OpenTelemetry;

impl Propagator for OpenTelemetry {
    fn current(&self) -> Option<String> {
        let of_span = Span::current().context();
        let mut context = of_span.span().span_context().clone();
        if !context.is_valid() {
            context = Context::map_current(|current| current.span().span_context().clone());
        }
        context.is_valid().then(|| written(&context))
    }

    fn link(&self, span: &Span, trace: &str) {
        if let Some(context) = read(trace) {
            span.add_link(context);
        }
    }
}

fn written(context: &SpanContext) -> String {
    let flags = context.trace_flags().to_u8() & 1;
    let parent = format!("00-{}-{}-{flags:02x}", context.trace_id(), context.span_id());
    match context.trace_state().header() {
        state if state.is_empty() => parent,
        state => format!("{parent} {state}"),
    }
}

/// `None` where the text is not a trace context; the library passes on only what is.
fn read(trace: &str) -> Option<SpanContext> {
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

    #[test]
    fn what_is_written_reads_back() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 vendor=1,other=2";
        let context = read(trace).expect("it reads");
        assert!(context.is_valid() && context.is_remote() && context.is_sampled());
        let _guard = Context::new().with_remote_span_context(context).attach();
        assert_eq!(OpenTelemetry.current().as_deref(), Some(trace));
    }
}
