//! How much may happen, so that the search ends.

use crate::world::Left;

/// The size of a model.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Jobs that producers enqueue.
    pub chains: usize,
    /// Jobs of a chain. Each is enqueued by the commit that ends the one before. The last is enqueued and never
    /// claimed, because it would add no new states.
    pub links: usize,
    /// Worker processes. One that dies is replaced.
    pub processes: usize,
    /// Attempts that are in a process's memory, or on the server, at the same time.
    pub runs: usize,
    /// Attempts of a job before it becomes a case.
    pub attempts_max: u8,
    /// Faults, and an operator's turns.
    pub left: Left,
}

impl Bounds {
    /// What a broken variant is searched in: enough for each of them to show.
    pub fn least() -> Bounds {
        Bounds {
            chains: 1,
            links: 2,
            processes: 2,
            runs: 2,
            attempts_max: 2,
            left: Left {
                pauses: 1,
                crashes: 0,
                cuts: 1,
                reopens: 1,
            },
        }
    }

    /// What every run of the tests searches: a crash as well, and a second lost reply, so that a claim and a commit of
    /// the same path can both lose theirs.
    pub fn usual() -> Bounds {
        let left = Left {
            pauses: 1,
            crashes: 1,
            cuts: 2,
            reopens: 1,
        };
        Bounds {
            left,
            ..Bounds::least()
        }
    }

    /// For a machine with a few minutes: two jobs that three processes compete for, and two of each fault for one job.
    pub fn large() -> [Bounds; 2] {
        let wide = Bounds {
            chains: 2,
            processes: 3,
            left: Left {
                pauses: 1,
                crashes: 1,
                cuts: 1,
                reopens: 1,
            },
            ..Bounds::least()
        };
        let deep = Bounds {
            left: Left {
                pauses: 2,
                crashes: 2,
                cuts: 2,
                reopens: 2,
            },
            ..Bounds::least()
        };
        [wide, deep]
    }

    /// The job that follows this one in its chain; a job that none follows is not run.
    pub fn next_of(&self, job: usize) -> Option<usize> {
        let next = job + 1;
        (!next.is_multiple_of(self.links)).then_some(next)
    }
}
