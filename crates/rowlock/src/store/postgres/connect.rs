//! Connections: where to connect, how connections are kept, and the notifications that arrive on them.

pub mod conns;
pub mod hosts;
pub mod pooler;
pub mod url;
pub mod wake;
