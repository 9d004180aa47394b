//! Body locks: which jobs may work under a key, without holding a connection meanwhile.
//!
//! A slot belongs to a token and holds only while the token's lease holds. A token that lost its lease never gets the
//! lease back. So a caller that finds such a slot may take it, by replacing exactly that token with its own.

/// A request for a slot of a key.
#[derive(Clone, Copy, Debug)]
pub enum SlotAsk {
    /// Takes one of this many slots, or returns the slot that the token already has.
    Take { slots: i32 },
    /// Frees this slot.
    Free { slot: i32 },
}

/// The answer to a [`SlotAsk`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Slot {
    /// This slot; slots count from 1.
    Taken(i32),
    Freed,
    /// Every slot has a holder whose lease holds.
    Full,
    /// A concurrent caller took the slot; another slot may be free.
    Raced,
    /// The token's lease is over, and so is its slot.
    LeaseLost,
}
