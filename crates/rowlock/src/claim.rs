//! Take due jobs under a lease: what to ask for, in which order, from where, and when to ask again.
//!
//! Order is a contract: strictly by priority; within one queue, kind and priority by due time, then id. Between kinds
//! of the same priority the planner rotates, so that a long backlog of one kind cannot starve another.
//!
//! Each range (queue, kind, priority) has a cursor, the smallest key of its last claim. Without a cursor, an old open
//! transaction makes every claim walk all dead index entries again. Sweeps find jobs that a late commit or an aborted
//! claim left behind the cursor: the same statement from an older cursor, at bounded cost.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{
    breaker::KnownBreakers,
    job::{kind_no, queue_no},
    lease::{Claimed, WorkerId},
    pause::Pauses,
    store::{ClaimAsk, Cursor, Stretch},
};

/// How far behind the cursor a near sweep starts, and how often one is made.
const NEAR: Duration = Duration::from_secs(5);
const NEAR_EVERY: Duration = Duration::from_millis(100);
/// How often a full sweep is made at most, unless it costs more than a twentieth of the time.
const FULL_EVERY: Duration = Duration::from_secs(1);
const FULL_COST_SHARE: u32 = 20;

/// The most payload bytes that one claim should fetch, estimated from the size of recent payloads.
const CLAIM_BYTES: f64 = 16e6;

/// A claim's starting point, relative to each range's cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Cursor,
    Near,
    Full,
}

struct Lane {
    queue_no: i64,
    kind: String,
    kind_no: i64,
    priority: i16,
    cursor: Cursor,
    /// The dependencies of its kind.
    bound: Arc<[String]>,
    /// The claim that last found something here.
    found: u64,
}

/// The memory of one claimer.
pub(crate) struct Planner {
    lanes: Vec<Lane>,
    index: HashMap<(i64, i64, i16), usize>,
    claims: u64,
    near_at: Option<Instant>,
    full_at: Option<Instant>,
    full_cost: Duration,
    /// Smoothed payload size.
    bytes: f64,
    /// What must not be claimed now.
    pauses: Arc<Pauses>,
    breakers: KnownBreakers,
}

impl Planner {
    /// `kinds` are the handlers' kinds with the newest version each can read.
    pub(crate) fn new<'a>(queues: impl Iterator<Item = &'a str>, kinds: &[(&str, i32)]) -> Planner {
        let mut lanes = Vec::new();
        for queue in queues {
            for (kind, newest) in kinds {
                for version in 1..=*newest {
                    for priority in 1..=5 {
                        lanes.push(Lane {
                            queue_no: queue_no(queue),
                            kind: (*kind).to_owned(),
                            kind_no: kind_no(kind, version),
                            priority,
                            cursor: Cursor::START,
                            bound: Arc::default(),
                            found: 0,
                        });
                    }
                }
            }
        }
        let index = lanes
            .iter()
            .enumerate()
            .map(|(i, l)| ((l.queue_no, l.kind_no, l.priority), i))
            .collect();
        Planner {
            lanes,
            index,
            claims: 0,
            near_at: None,
            full_at: None,
            full_cost: Duration::ZERO,
            bytes: 0.0,
            pauses: Arc::default(),
            breakers: KnownBreakers::default(),
        }
    }

    /// From here on, claims jobs of this kind only while these breakers are closed, as far as is known here.
    pub(crate) fn bind(&mut self, kind: &str, names: &[String], known: &KnownBreakers) {
        let bound: Arc<[String]> = names.into();
        for lane in self.lanes.iter_mut().filter(|lane| lane.kind == kind) {
            lane.bound = bound.clone();
        }
        self.breakers = known.clone();
    }

    /// From here on, the planner claims nothing that these pauses stop.
    pub(crate) fn heed(&mut self, pauses: Arc<Pauses>) {
        self.pauses = pauses;
    }

    /// How far back the next claim should look.
    pub(crate) fn reach(&self, now: Instant) -> Reach {
        let due = |at: Option<Instant>, every: Duration| at.is_none_or(|at| now.duration_since(at) >= every);
        if due(self.full_at, FULL_EVERY.max(self.full_cost * FULL_COST_SHARE)) {
            Reach::Full
        } else if due(self.near_at, NEAR_EVERY) {
            Reach::Near
        } else {
            Reach::Cursor
        }
    }

    /// The claim for these free slots per queue.
    pub(crate) fn ask(&mut self, worker: WorkerId, places: &[(i64, i32)], reach: Reach) -> ClaimAsk {
        self.claims += 1;
        let most = if self.bytes > 0.0 {
            (CLAIM_BYTES / self.bytes).max(1.0) as i32
        } else {
            i32::MAX
        };
        let queues = places.iter().map(|(queue, n)| (*queue, (*n).min(most))).collect();
        let lanes = self.lanes(&places.iter().map(|(queue, _)| *queue).collect(), reach);
        ClaimAsk {
            worker,
            queues,
            bound: bound(&lanes, &[]),
            stretches: stretches(&lanes, reach),
            alone: false,
        }
    }

    /// The claims that may probe breakers that are not closed: each set of breakers with the claim for the ranges that
    /// need exactly these.
    pub(crate) fn ask_probes(
        &self,
        worker: WorkerId,
        places: &[(i64, i32)],
        alone: bool,
    ) -> BTreeMap<Vec<String>, ClaimAsk> {
        let wanted = places.iter().map(|(queue, _)| *queue).collect();
        let mut sets: BTreeMap<Vec<String>, Vec<&Lane>> = BTreeMap::new();
        for lane in self.open_lanes(&wanted).filter(|lane| !lane.bound.is_empty()) {
            match self.breakers.to_try(&lane.bound) {
                Some(names) if !names.is_empty() => sets.entry(names).or_default().push(lane),
                _ => {}
            }
        }
        let asks = sets.into_iter().map(|(names, mut lanes)| {
            lanes.sort_by_key(|lane| (lane.priority, lane.found));
            let ask = ClaimAsk {
                worker,
                queues: places.to_vec(),
                bound: bound(&lanes, &names),
                stretches: stretches(&lanes, Reach::Full),
                alone,
            };
            (names, ask)
        });
        asks.collect()
    }

    /// One job whose last worker was lost, from one queue.
    pub(crate) fn ask_alone(&self, worker: WorkerId, queue: i64) -> ClaimAsk {
        let lanes = self.lanes(&HashSet::from([queue]), Reach::Full);
        ClaimAsk {
            worker,
            queues: vec![(queue, 1)],
            bound: bound(&lanes, &[]),
            stretches: stretches(&lanes, Reach::Full),
            alone: true,
        }
    }

    /// All ranges of these queues in which something may be claimed now, including probes.
    pub(crate) fn lanes_of(&self, queues: &[i64]) -> Vec<Stretch> {
        let wanted = queues.iter().copied().collect();
        let lanes = self.open_lanes(&wanted);
        let lanes: Vec<&Lane> = lanes
            .filter(|lane| self.breakers.to_try(&lane.bound).is_some())
            .collect();
        stretches(&lanes, Reach::Full)
    }

    fn open_lanes<'a>(&'a self, wanted: &HashSet<i64>) -> impl Iterator<Item = &'a Lane> {
        let open = move |lane: &&Lane| wanted.contains(&lane.queue_no) && !self.pauses.stop(lane.queue_no, &lane.kind);
        self.lanes.iter().filter(open)
    }

    /// Orders by priority. Within a priority, the range served longest ago comes first, so that kinds take turns.
    /// Between sweeps, the ranges that lately had work come before the others, which cost a look and likely bring
    /// nothing. With each sweep every range gets its turn; otherwise a long backlog of one kind would hide another for
    /// ever.
    fn lanes(&self, wanted: &HashSet<i64>, reach: Reach) -> Vec<&Lane> {
        let open = self.open_lanes(wanted);
        let mut lanes: Vec<&Lane> = open.filter(|lane| self.breakers.admit(&lane.bound)).collect();
        let recent = self.claims.saturating_sub(100);
        lanes.sort_by_key(|l| (l.priority, reach == Reach::Cursor && l.found <= recent, l.found));
        lanes
    }

    /// Learns from the result of a claim. A range that brought nothing keeps its cursor.
    pub(crate) fn learn(&mut self, jobs: &[Claimed], reach: Reach, asked_at: Instant, now: Instant) {
        if reach != Reach::Cursor {
            self.near_at = Some(now);
        }
        if reach == Reach::Full {
            self.full_at = Some(now);
            self.full_cost = now.duration_since(asked_at);
        }
        let mut smallest: HashMap<usize, Cursor> = HashMap::new();
        for job in jobs {
            if let Some(body) = &job.body {
                self.bytes += (body.payload.len() as f64 - self.bytes) * 0.05;
            }
            let Some(lane) = self.index.get(&(job.queue_no, job.kind_no, job.priority)) else {
                continue;
            };
            let key = Cursor {
                due_at: job.due_at,
                id: job.token.id,
            };
            let least = smallest.entry(*lane).or_insert(key);
            *least = key.min(*least);
        }
        for (lane, cursor) in smallest {
            self.lanes[lane].cursor = cursor;
            self.lanes[lane].found = self.claims;
        }
    }
}

/// The part of the claim index that each of these ranges covers.
fn stretches(lanes: &[&Lane], reach: Reach) -> Vec<Stretch> {
    let from = |lane: &Lane| match reach {
        Reach::Cursor => lane.cursor,
        Reach::Near => back(lane.cursor),
        Reach::Full => Cursor::START,
    };
    let stretch = |lane: &&Lane| Stretch {
        queue_no: lane.queue_no,
        kind_no: lane.kind_no,
        priority: lane.priority,
        from: from(lane),
    };
    lanes.iter().map(stretch).collect()
}

/// Each of their kinds with each breaker that it is bound to, except those that are probed.
fn bound(lanes: &[&Lane], tried: &[String]) -> Vec<(i64, String)> {
    let mut bound: Vec<(i64, String)> = Vec::new();
    for lane in lanes.iter().filter(|lane| !lane.bound.is_empty()) {
        if bound.iter().any(|(kind_no, _)| *kind_no == lane.kind_no) {
            continue;
        }
        let names = lane.bound.iter().filter(|name| !tried.contains(name));
        bound.extend(names.map(|name| (lane.kind_no, name.clone())));
    }
    bound
}

fn back(cursor: Cursor) -> Cursor {
    match cursor.due_at.checked_sub(NEAR) {
        Ok(due_at) => Cursor { due_at, id: 0 },
        Err(_) => Cursor::START,
    }
}

/// How long to wait before asking again when nothing was found.
pub(crate) struct Pace {
    idle: Duration,
    woken_at: Option<Instant>,
}

impl Pace {
    /// After a notification, claim this often for this long: the hint may be ahead of other commits.
    const FAST: Duration = Duration::from_millis(20);
    const FAST_FOR: Duration = Duration::from_millis(250);
    /// After a claim that found some jobs: more may be on their way, and a short wait collects them.
    pub(crate) const FLOW: Duration = Duration::from_millis(5);
    const IDLE_MIN: Duration = Duration::from_millis(250);
    const IDLE_MAX: Duration = Duration::from_secs(1);

    pub(crate) fn new() -> Pace {
        Pace {
            idle: Pace::IDLE_MIN,
            woken_at: None,
        }
    }

    pub(crate) fn woken(&mut self, now: Instant) {
        self.woken_at = Some(now);
        self.idle = Pace::IDLE_MIN;
    }

    pub(crate) fn found(&mut self) {
        self.idle = Pace::IDLE_MIN;
    }

    /// The wait after an empty claim; grows while nothing comes.
    pub(crate) fn empty(&mut self, now: Instant) -> Duration {
        if self.woken_at.is_some_and(|at| now.duration_since(at) < Pace::FAST_FOR) {
            return Pace::FAST;
        }
        let wait = self.idle;
        self.idle = (self.idle * 3 / 2).min(Pace::IDLE_MAX);
        wait.mul_f64(0.9 + 0.1 * fastrand::f64())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::lease::Token;

    fn claimed(kind: &str, priority: i16, due_s: i64, id: i64) -> Claimed {
        Claimed {
            token: Token {
                id,
                epoch: 1,
                worker: WorkerId(1),
            },
            attempt: 1,
            attempts_max: 1,
            queue_no: queue_no("q"),
            kind_no: kind_no(kind, 1),
            priority,
            due_at: Timestamp::from_second(due_s).unwrap(),
            claimed_at: Timestamp::UNIX_EPOCH,
            alone: false,
            expired: false,
            body: None,
        }
    }

    fn order(planner: &mut Planner) -> Vec<(i64, i16)> {
        let ask = planner.ask(WorkerId(1), &[(queue_no("q"), 10)], Reach::Cursor);
        ask.stretches.iter().map(|p| (p.kind_no, p.priority)).collect()
    }

    #[test]
    fn priorities_come_first_and_kinds_take_turns() {
        let mut planner = Planner::new(["q"].into_iter(), &[("a", 1), ("b", 1)]);
        let (a, b) = (kind_no("a", 1), kind_no("b", 1));
        let now = Instant::now();

        let first = order(&mut planner);
        planner.learn(&[claimed("a", 3, 100, 1)], Reach::Cursor, now, now);
        order(&mut planner);
        planner.learn(&[claimed("b", 3, 100, 2)], Reach::Cursor, now, now);
        let turn = order(&mut planner);
        planner.learn(&[claimed("a", 3, 101, 3)], Reach::Cursor, now, now);
        let next = order(&mut planner);

        assert!(first.is_sorted_by_key(|(_, priority)| *priority));
        let third = |stretches: &[(i64, i16)]| stretches.iter().filter(|p| p.1 == 3).map(|p| p.0).collect::<Vec<_>>();
        assert_eq!(third(&turn), [a, b], "a was served before b, so it is a's turn");
        assert_eq!(third(&next), [b, a]);
    }

    #[test]
    fn a_lane_that_never_had_work_comes_first_with_every_sweep() {
        let mut planner = Planner::new(["q"].into_iter(), &[("a", 1), ("b", 1)]);
        let now = Instant::now();
        order(&mut planner);
        planner.learn(&[claimed("a", 3, 100, 1)], Reach::Cursor, now, now);

        let mut first = |reach| {
            let ask = planner.ask(WorkerId(1), &[(queue_no("q"), 10)], reach);
            ask.stretches.iter().find(|p| p.priority == 3).map(|p| p.kind_no)
        };
        assert_eq!(first(Reach::Cursor), Some(kind_no("a", 1)));
        assert_eq!(first(Reach::Near), Some(kind_no("b", 1)));
        assert_eq!(first(Reach::Full), Some(kind_no("b", 1)));
    }

    #[test]
    fn a_cursor_is_the_smallest_key_of_the_last_claim_and_an_empty_claim_leaves_it() {
        let mut planner = Planner::new(["q"].into_iter(), &[("a", 1)]);
        let now = Instant::now();
        planner.learn(
            &[claimed("a", 3, 200, 8), claimed("a", 3, 100, 9)],
            Reach::Cursor,
            now,
            now,
        );
        planner.learn(&[], Reach::Cursor, now, now);

        let ask = planner.ask(WorkerId(1), &[(queue_no("q"), 10)], Reach::Cursor);
        let cursor = ask
            .stretches
            .iter()
            .find(|p| p.priority == 3)
            .map(|p| (p.from.due_at.as_second(), p.from.id));
        assert_eq!(cursor, Some((100, 9)));

        let near = planner.ask(WorkerId(1), &[(queue_no("q"), 10)], Reach::Near);
        assert_eq!(
            near.stretches
                .iter()
                .find(|p| p.priority == 3)
                .map(|p| p.from.due_at.as_second()),
            Some(95)
        );
    }

    #[test]
    fn full_sweeps_cost_at_most_a_twentieth_of_the_time() {
        let mut planner = Planner::new(["q"].into_iter(), &[("a", 1)]);
        let start = Instant::now();
        assert_eq!(planner.reach(start), Reach::Full);

        let end = start + Duration::from_millis(500);
        planner.learn(&[], Reach::Full, start, end);
        assert_eq!(planner.reach(end), Reach::Cursor);
        assert_eq!(planner.reach(end + Duration::from_millis(200)), Reach::Near);
        assert_eq!(planner.reach(end + Duration::from_secs(9)), Reach::Near);
        assert_eq!(planner.reach(end + Duration::from_secs(10)), Reach::Full);
    }

    #[test]
    fn every_version_up_to_the_handlers_own_has_its_lanes() {
        let planner = Planner::new(["q", "r"].into_iter(), &[("a", 3)]);
        assert_eq!(planner.lanes_of(&[queue_no("q")]).len(), 3 * 5);
        assert_eq!(planner.lanes_of(&[queue_no("q"), queue_no("r")]).len(), 2 * 3 * 5);
    }

    #[test]
    fn polling_is_fast_after_a_wake_and_slows_down_when_idle() {
        let mut pace = Pace::new();
        let now = Instant::now();
        pace.woken(now);
        assert_eq!(pace.empty(now + Duration::from_millis(100)), Pace::FAST);
        for _ in 0..20 {
            pace.empty(now + Duration::from_secs(1));
        }
        assert!(pace.empty(now + Duration::from_secs(1)) >= Duration::from_millis(900));
    }
}
