//! The database fails over: a standby takes over under load, with every commit or without the last ones. The same
//! worker processes follow it, nothing acknowledged is lost where the standby was synchronous, and what is lost is lost
//! whole.
//!
//! Each test has its own primary and standby. The old primary stays up behind its fence, as it does in a network
//! that is split.

mod hosts;
mod lossy;
mod synchronous;
mod world;
