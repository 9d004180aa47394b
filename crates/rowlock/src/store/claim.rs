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
    /// In the order they are to be served; priorities must come in rising order.
    pub stretches: Vec<Stretch>,
    /// Take only jobs whose last worker was lost (with a limit of one, and nothing else in hand), or only others.
    pub alone: bool,
    /// Kind numbers with each breaker they are bound to: nothing of them is taken unless all of those are closed.
    pub bound: Vec<(i64, String)>,
}

impl ClaimAsk {
    /// The same for each queue alone.
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

    /// The same with at most so many jobs of each queue.
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
    /// At most as many as asked for, in no promised order.
    Jobs(Vec<Claimed>),
    /// The worker has been declared dead; nothing was taken.
    Dead,
    /// The database has failed over, as [`Store::failed_over`](super::Store::failed_over) says; nothing was taken.
    Moved,
}
