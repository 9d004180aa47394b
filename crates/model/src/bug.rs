//! The protocol's broken variants: mistakes that job queues have shipped, or that ours must not make.
//!
//! If no mistake can break a rule, the search may not check the rule at all. So each rule has at least one variant
//! here, and the search must find its counterexample.

use crate::rule::Rule;

/// One list for the mistakes and the rule that each breaks, so that none can be left out of either.
macro_rules! bugs {
    ($($(#[$doc:meta])+ $bug:ident => $rule:ident,)+) => {
        /// One mistake.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Bug {
            $($(#[$doc])+ $bug,)+
        }

        impl Bug {
            /// Every mistake.
            pub const ALL: &[Bug] = &[$(Bug::$bug,)+];

            /// The rule that it breaks.
            pub fn breaks(self) -> Rule {
                match self {
                    $(Bug::$bug => Rule::$rule,)+
                }
            }
        }
    };
}

bugs! {
    /// The settlement names the job and not the token.
    SettleById => Token,
    /// The settlement matched no row, and the transaction commits all the same.
    CommitAnyway => Token,
    /// An operator may reopen a job that is done.
    ReopenFinished => OneWrite,
    /// The handler's writes commit, and the outcome is written after.
    SettleApart => Together,
    /// The next link is enqueued after the commit.
    LinkApart => Together,
    /// A failure is recorded in the handler's transaction without rolling its writes back.
    FailureKeepsWrite => Together,
    /// Recovery reads the leases of the dead, and later puts those jobs back whatever has become of them.
    RecoveryOverwrites => Absorbing,
    /// A case is put back without a row in `audit`.
    ReopenUnaudited => Absorbing,
    /// A claim reads the ready row and leaves it there until the job is settled.
    ClaimKeepsReady => OneLease,
    /// A claim does not raise the epoch.
    EpochKept => Epochs,
    /// A reopened job begins again at epoch zero.
    EpochReset => Epochs,
    /// The attempt is counted when it is settled, so that one that never is costs nothing.
    AttemptAtSettle => Attempts,
    /// A commit without a reply is taken for failed.
    AssumeFailed => Resolved,
    /// A commit without a reply is taken for done.
    AssumeDone => Resolved,
    /// The outcome is looked up without waiting for the old transaction's lock on the lease.
    LookWithoutLock => Resolved,
    /// Lease and outcome are asked for in one statement, whose snapshot is older than the lock it waits for.
    OneStatement => Resolved,
    /// The lease is looked at while the settlement itself may still be on its way.
    LookTooSoon => Resolved,
    /// Nobody looks for leases whose claim reply was lost.
    NoSweep => Ends,
    /// A dead worker's row is removed while a claim of it is under way.
    ForgetTooSoon => Ends,
}
