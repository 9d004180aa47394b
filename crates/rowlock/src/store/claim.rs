//! Claims: what a worker asks for, and what it gets.

use jiff::Timestamp;

use crate::lease::{Claimed, WorkerId};

/// Where a stretch of the claim index starts: the smallest key of the last claim there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    pub due_at: Timestamp,
    pub id: i64,
}

impl Cursor {
    /// From the beginning: a full sweep.
    pub const START: Cursor = Cursor {
        due_at: Timestamp::UNIX_EPOCH,
        id: 0,
    };
}

/// One contiguous range of the claim index.
#[derive(Clone, Copy, Debug)]
pub struct Stretch {
    pub queue_no: i64,
    pub kind_no: i64,
    pub priority: i16,
    pub from: Cursor,
}

/// What a worker asks for in one claim.
#[derive(Clone, Debug)]
pub struct ClaimAsk {
    pub worker: WorkerId,
    /// Queue number and how many jobs of it at most.
    pub queues: Vec<(i64, i32)>,
    /// In the order in which they are served; priorities must be in ascending order.
    pub stretches: Vec<Stretch>,
    /// Take only jobs whose last worker was lost (with a limit of one, and no other job held), or only other jobs.
    pub alone: bool,
    /// Kind numbers, each with a breaker that the kind is bound to. Jobs of a kind are taken only if all its breakers
    /// are closed.
    pub bound: Vec<(i64, String)>,
}

impl ClaimAsk {
    /// This request split by queue.
    pub fn parts(&self) -> impl Iterator<Item = ClaimAsk> + '_ {
        self.queues.iter().map(|(queue_no, places)| ClaimAsk {
            worker: self.worker,
            queues: vec![(*queue_no, *places)],
            stretches: self
                .stretches
                .iter()
                .filter(|p| p.queue_no == *queue_no)
                .copied()
                .collect(),
            alone: self.alone,
            bound: self.bound.clone(),
        })
    }

    /// This request with at most this many jobs of each queue.
    pub fn up_to(mut self, places: i32) -> ClaimAsk {
        for (_, most) in &mut self.queues {
            *most = places.min(*most);
        }
        self
    }
}

/// The answer to a claim.
#[derive(Debug)]
pub enum ClaimReply {
    /// At most as many as requested, in no guaranteed order.
    Jobs(Vec<Claimed>),
    /// The worker has been declared dead; nothing was taken.
    Dead,
    /// The database has failed over, as [`Store::failed_over`](super::Store::failed_over) says; nothing was taken.
    Moved,
}
