//! What workers export by OTLP, and a receiver to hold it against the database.

pub mod collector;
