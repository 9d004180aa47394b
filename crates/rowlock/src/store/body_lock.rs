//! Body locks: who may be in the body of work under a key, without a connection held meanwhile.
//!
//! A slot belongs to a token and holds only while the token's lease does. A token that lost its lease never gets it
//! back, so whoever finds such a slot may take it by swapping that very token for its own.

/// What is asked about a slot of a key.
#[derive(Clone, Copy, Debug)]
pub enum SlotAsk {
    /// One of so many, or again the one that the token has.
    Take { slots: i32 },
    /// This one is free again.
    Free { slot: i32 },
}

/// The answer to a [`SlotAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Slot {
    /// This slot, from 1.
    Taken(i32),
    Freed,
    /// Every slot has a living holder.
    Full,
    /// Somebody was quicker; there may be another slot.
    Raced,
    /// The token has no lease any more, and so no slot.
    LeaseLost,
}
