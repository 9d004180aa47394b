//! How much each benchmark does, in a full run and in a reduced one.
//!
//! Every program of a benchmark gets the same number of jobs; a slow one is cut by the limit, never spared.

/// Counts are jobs unless their name says otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) reduced: bool,
    pub(crate) rounds: usize,
    /// The most a verb may take before it counts as stalled.
    pub(crate) limit_s: u64,
    pub(crate) payload: usize,
    pub(crate) noop: usize,
    pub(crate) life: usize,
    pub(crate) book: usize,
    pub(crate) sqlite: usize,
    pub(crate) pickups: usize,
    pub(crate) hold_ours_s: u64,
    pub(crate) hold_peers_s: u64,
    /// Rows of backlog, and of history.
    pub(crate) filled: u64,
    pub(crate) filled_drain: usize,
    /// Jobs that are finished, and live, while somebody looks on; and how many are drained then.
    pub(crate) finished: u64,
    pub(crate) live: u64,
    pub(crate) looked: usize,
    /// Rows due in a day.
    pub(crate) future: u64,
    pub(crate) growth: usize,
    /// Jobs of 64 KB, which are too large for `growth` of them.
    pub(crate) growth_wide: usize,
    pub(crate) queues: usize,
    /// Jobs, each in a separate group.
    pub(crate) groups: usize,
    pub(crate) share: usize,
    pub(crate) idle_s: u64,
    pub(crate) stuck_s: u64,
    /// Peers' defaults can be a thousand times slower than their best.
    pub(crate) defaults_peers: usize,
    pub(crate) defaults_limit_s: u64,
}

impl Sizes {
    pub(crate) fn full() -> Sizes {
        Sizes {
            reduced: false,
            rounds: 3,
            limit_s: 30,
            payload: 200,
            noop: 50_000,
            life: 50_000,
            book: 6_000,
            sqlite: 20_000,
            pickups: 200,
            hold_ours_s: 600,
            hold_peers_s: 30,
            filled: 10_000_000,
            filled_drain: 50_000,
            finished: 2_000_000,
            live: 500_000,
            looked: 100_000,
            future: 1_000_000,
            growth: 20_000,
            growth_wide: 2_000,
            queues: 10_000,
            groups: 100_000,
            share: 100_000,
            idle_s: 15,
            stuck_s: 60,
            defaults_peers: 5_000,
            defaults_limit_s: 15,
        }
    }

    pub(crate) fn quick() -> Sizes {
        Sizes {
            reduced: true,
            rounds: 1,
            limit_s: 25,
            noop: 20_000,
            life: 20_000,
            book: 3_000,
            sqlite: 10_000,
            pickups: 60,
            hold_ours_s: 60,
            hold_peers_s: 20,
            filled: 1_000_000,
            filled_drain: 20_000,
            finished: 200_000,
            live: 50_000,
            looked: 20_000,
            future: 200_000,
            growth: 10_000,
            growth_wide: 500,
            share: 40_000,
            groups: 20_000,
            idle_s: 8,
            stuck_s: 30,
            defaults_peers: 2_000,
            defaults_limit_s: 5,
            ..Sizes::full()
        }
    }
}
