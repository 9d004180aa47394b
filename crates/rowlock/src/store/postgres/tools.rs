//! What workers and handlers use besides the jobs themselves.

pub mod body_lock;
pub mod breaker;
pub mod by_key;
pub mod guard;
pub mod journal;
pub mod ledger;
pub mod triggers;
pub mod waits;
