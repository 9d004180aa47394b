//! The storage contract for body locks: who may be in the body of work under a key, without a connection held meanwhile.
//!
//! A slot belongs to a token and holds only while the token's lease does. A token that lost its lease never gets it
//! back, so whoever finds such a slot may take it by swapping that very token for its own.

use super::Fut;
use crate::lease::Token;

/// The answer to a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Take {
    /// This slot, from 1.
    Taken(i32),
    /// Every slot has a living holder.
    Full,
    /// Somebody was quicker; there may be another slot.
    Raced,
    /// The token has no lease any more.
    LeaseLost,
}

/// The engine's verbs for body locks, on connections of the store's own, each a commit.
pub trait BodyLocks: Send + Sync {
    /// Takes one of the key's slots, or says again which one the token has.
    fn take_slot<'a>(&'a self, token: Token, key: &'a str, slots: i32) -> Fut<'a, Take>;
    /// Frees a slot; `false` when the token's lease, and the slot with it, was lost before.
    fn free_slot<'a>(&'a self, token: Token, key: &'a str, slot: i32) -> Fut<'a, bool>;
}
