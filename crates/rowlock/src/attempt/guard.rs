//! Runs user code so that a panic, a cut-off or a refused next job is an answer, never a crash of the worker.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tracing::Instrument;

use super::hand::InHand;
use crate::{
    handle::{Done, Fragile, Outcome, atomic::HandlerFuture, panic_text},
    root::Backend,
};

/// How the user's code came to an end.
#[allow(clippy::large_enum_variant, reason = "it lives for a moment, on the stack")]
pub(crate) enum Body<DB: Backend> {
    Returned(Outcome<DB>),
    Panicked(String),
    Cut,
}

/// Runs a handler until it returns or is cut off.
pub(crate) async fn guarded<DB: Backend>(handler: HandlerFuture<DB>, hand: &InHand) -> Body<DB> {
    let span = hand.show();
    tokio::select! {
        biased;
        () = hand.cut.cancelled() => Body::Cut,
        outcome = Fragile::new(handler).caught().instrument(span) => match outcome {
            // `.ok()` and `Ok(…)` are the same: a next job or result that was refused fails the attempt.
            Ok(outcome) => Body::Returned(outcome.and_then(Done::ok)),
            Err(text) => Body::Panicked(text),
        },
    }
}

/// Decodes a job or a row by user code, which may panic. `Err` is the text of the case.
pub(crate) fn decoding<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(decoded) => decoded,
        Err(panic) => Err(format!("decoding panicked: {}", panic_text(&*panic))),
    }
}
