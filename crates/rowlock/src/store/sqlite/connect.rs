//! Connections: those that read, the one that writes, what SQLite refuses, and hints at commits.

pub mod conns;
pub mod refused;
pub mod wake;
pub mod writer;
