//! What workers export.

mod adopt;
mod telemetry;
