//! What the samples say about each benchmark: ours against the best peer and the ceiling, and whether the target is
//! met.
//!
//! Pure: samples in, verdicts out. A target with a part that was not measured is neither met nor missed, unless another
//! part is missed.

mod judge;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::case::{Better, case};
use crate::programs::Programs;
use crate::sample::{Ended, Samples};

pub(crate) use judge::{judge, wal_bytes};

/// A benchmark and what it aims at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lane {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) target: &'static str,
    /// The cases it shows, the one that gives its figure first.
    pub(crate) cases: &'static [&'static str],
}

const fn lane(name: &'static str, title: &'static str, target: &'static str, cases: &'static [&'static str]) -> Lane {
    Lane {
        name,
        title,
        target,
        cases,
    }
}

/// The benchmarks in order.
pub(crate) const LANES: [Lane; 17] = [
    lane(
        "S1",
        "no-op drain and lifecycle",
        "≥ 0.8 × ceiling; ≥ 1.5 × every peer, ≥ 3 × river",
        &["drain", "life"],
    ),
    lane(
        "S2",
        "atomic job with next job, one per commit",
        "≥ 0.85 × bare transaction; ≥ 1.5 × every peer",
        &["book-next", "book"],
    ),
    lane(
        "S3",
        "atomic jobs, up to ten per commit",
        "≥ 1.5 × bare transaction; ≥ 3 × every peer",
        &["book-batch"],
    ),
    lane(
        "S4",
        "pickup, idle worker",
        "p50 ≤ 1 ms, p99 ≤ 5 ms, none missing",
        &["pickup", "pickup-poll", "pickup-load"],
    ),
    lane(
        "S5",
        "old transaction held open",
        "last part ≥ 0.9 × first part",
        &["hold"],
    ),
    lane(
        "S6",
        "large backlog, large history",
        "claim ≤ 1.2 × that on empty tables",
        &["fill-backlog", "fill-history", "fill-empty"],
    ),
    lane(
        "S7",
        "WAL bytes per job, enqueue + drain",
        "≤ 1,300; below every peer that keeps history",
        &["drain", "enqueue"],
    ),
    lane(
        "S8",
        "SQLite lifecycle, synchronous=FULL",
        "≥ 3 × best peer on SQLite",
        &["sqlite-life", "sqlite-drain", "sqlite-enqueue"],
    ),
    lane(
        "S9",
        "idle worker, 1 and 50 queues",
        "≤ 5 statements/s, ≤ 30 MB resident",
        &["idle-50", "idle-1"],
    ),
    lane(
        "S10",
        "worker processes on one backlog",
        "8 processes ≥ 0.9 × one process",
        &["share-8", "share-1", "share-2", "share-4", "share-16"],
    ),
    lane(
        "S11",
        "untouched defaults",
        "≥ 0.8 × best settings in S1, S2, S3",
        &["drain-defaults", "book-next-defaults", "book-batch-defaults"],
    ),
    lane(
        "S12",
        "bulk enqueue",
        "≥ 0.5 × raw insert; ≥ 1.5 × every peer",
        &["enqueue"],
    ),
    lane("S13", "killed worker's job claimed again", "≤ 16 s", &["stuck"]),
    lane(
        "C1",
        "a claim that uses no breaker, group or trace",
        "≥ 0.8 × the claim before there were any",
        &["claims", "claims-before"],
    ),
    lane(
        "G1",
        "groups, one of them blocked",
        "≥ 0.7 × no groups",
        &["groups-many", "groups-none"],
    ),
    lane(
        "Q1",
        "looking on, beside a large history and backlog",
        "≥ 0.8 × nobody looks; each answer < 300 ms",
        &["look-on", "look-none"],
    ),
    lane(
        "growth",
        "more rows, queues, kinds, bytes",
        "",
        &[
            "grow-base",
            "grow-future",
            "grow-queues-base",
            "grow-queues",
            "grow-kinds-1",
            "grow-kinds-50",
            "grow-payload-200",
            "grow-payload-2048",
            "grow-payload-65536",
        ],
    ),
];

/// What came out of one benchmark.
#[derive(Clone, Debug)]
pub(crate) struct Verdict {
    pub(crate) lane: Lane,
    pub(crate) unit: &'static str,
    pub(crate) ours: Option<f64>,
    pub(crate) best_peer: Option<(String, f64)>,
    pub(crate) ceiling: Option<f64>,
    pub(crate) met: Option<bool>,
    /// Further figures by name.
    pub(crate) more: BTreeMap<String, Value>,
}

impl Verdict {
    /// Ours by the best peer's figure.
    pub(crate) fn ratio_peer(&self) -> Option<f64> {
        ratio(self.ours, self.best_peer.as_ref().map(|(_, figure)| *figure))
    }

    /// Ours by the ceiling's.
    pub(crate) fn ratio_ceiling(&self) -> Option<f64> {
        ratio(self.ours, self.ceiling)
    }
}

/// The samples, with who is who.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured<'a> {
    pub(crate) samples: &'a Samples,
    pub(crate) programs: &'a Programs,
}

impl Measured<'_> {
    /// Our median of a case's own figure; if every round stalled, how far they came.
    pub(crate) fn ours(&self, name: &str) -> Option<f64> {
        self.reached(name, "ours")
    }

    pub(crate) fn ceiling(&self, name: &str) -> Option<f64> {
        self.samples.median(name, "ceiling", case(name).value)
    }

    /// The peer with the best median.
    pub(crate) fn best_peer(&self, name: &str) -> Option<(String, f64)> {
        let case = case(name);
        let figures = self.peers(name).filter_map(|peer| {
            let figure = self.samples.median(name, peer, case.value)?;
            Some((peer.to_owned(), figure))
        });
        best(figures.collect(), case.better)
    }

    /// The peers that tried a case.
    pub(crate) fn peers<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.samples
            .programs(name)
            .into_iter()
            .filter(|program| self.programs.is_peer(program))
    }

    /// How far a program came in a case, also where it stalled.
    pub(crate) fn reached(&self, name: &str, program: &str) -> Option<f64> {
        let value = case(name).value;
        let stalled = || {
            self.samples
                .spread_of(name, program, value, Ended::Stalled)
                .map(|spread| spread.median)
        };
        self.samples.median(name, program, value).or_else(stalled)
    }
}

pub(crate) fn best(mut figures: Vec<(String, f64)>, better: Better) -> Option<(String, f64)> {
    figures.sort_by(|a, b| a.1.total_cmp(&b.1));
    match better {
        Better::More => figures.pop(),
        Better::Less => (!figures.is_empty()).then(|| figures.remove(0)),
    }
}

pub(crate) fn ratio(ours: Option<f64>, other: Option<f64>) -> Option<f64> {
    let other = other.filter(|other| *other > 0.0)?;
    Some(ours? / other)
}

/// Every part of a target: missed if one is missed, else open if one is open.
pub(crate) fn all(parts: &[Option<bool>]) -> Option<bool> {
    if parts.contains(&Some(false)) {
        return Some(false);
    }
    parts.iter().copied().collect::<Option<Vec<bool>>>().map(|_| true)
}

pub(crate) fn at_least(value: Option<f64>, limit: f64) -> Option<bool> {
    value.map(|value| value >= limit)
}

pub(crate) fn at_most(value: Option<f64>, limit: f64) -> Option<bool> {
    value.map(|value| value <= limit)
}
