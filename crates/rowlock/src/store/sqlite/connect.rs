//! Connections: the readers, the writer, the errors of SQLite, and notifications of commits.

pub mod conns;
pub mod refused;
pub mod wake;
pub mod writer;
