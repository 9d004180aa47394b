//! The judgement of each benchmark.

use std::collections::BTreeMap;

use serde_json::json;

use super::{Lane, Measured, Verdict, all, at_least, at_most, best, ratio};
use crate::case::{Better, case};
use crate::lanes::ASKED;
use crate::sample::Ended;

/// Judges one benchmark.
pub(crate) fn judge(lane: Lane, measured: &Measured<'_>) -> Verdict {
    match lane.name {
        "S1" => s1(lane, measured),
        "S2" => s2(lane, measured),
        "S3" => s3(lane, measured),
        "S4" => s4(lane, measured),
        "S5" => s5(lane, measured),
        "S6" => s6(lane, measured),
        "S7" => s7(lane, measured),
        "S8" => s8(lane, measured),
        "S9" => s9(lane, measured),
        "S10" => s10(lane, measured),
        "S11" => s11(lane, measured),
        "S12" => s12(lane, measured),
        "S13" => s13(lane, measured),
        "C1" => by_other(lane, measured, "claims-before", 0.8),
        "Q1" => q1(lane, measured),
        "G1" => by_other(lane, measured, "groups-none", 0.7),
        _ => growth(lane, measured),
    }
}

/// The benchmark's first case: ours, best peer, ceiling; nothing judged yet.
fn plain(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let first = lane.cases[0];
    Verdict {
        lane,
        unit: case(first).unit,
        ours: measured.ours(first),
        best_peer: measured.best_peer(first),
        ceiling: measured.ceiling(first),
        met: None,
        more: BTreeMap::new(),
    }
}

impl Verdict {
    fn add(&mut self, name: &str, value: Option<f64>) {
        self.more.insert(name.to_owned(), json!(value));
    }

    /// Adds the figures of a case under its name; gives ours by the best peer, and by the ceiling.
    fn add_case(&mut self, measured: &Measured<'_>, name: &str) -> (Option<f64>, Option<f64>) {
        let ours = measured.ours(name);
        let (peer, ceiling) = (measured.best_peer(name), measured.ceiling(name));
        let to_peer = ratio(ours, peer.as_ref().map(|(_, figure)| *figure));
        let to_ceiling = ratio(ours, ceiling);
        self.more.insert(
            name.to_owned(),
            json!({
                "ours": ours,
                "best_peer": peer.as_ref().map(|(_, figure)| *figure),
                "best_peer_name": peer.as_ref().map(|(name, _)| name),
                "ceiling": ceiling,
                "ratio_peer": to_peer,
                "ratio_ceiling": to_ceiling,
            }),
        );
        (to_peer, to_ceiling)
    }
}

fn s1(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    let mut parts = Vec::new();
    for name in lane.cases {
        let (peer, ceiling) = verdict.add_case(measured, name);
        let river = ratio(measured.ours(name), measured.samples.median(name, "river", "per_s"));
        verdict.add(&format!("{name}_ratio_river"), river);
        parts.extend([at_least(ceiling, 0.8), at_least(peer, 1.5), at_least(river, 3.0)]);
    }
    verdict.met = all(&parts);
    verdict
}

fn s2(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    // The bare transaction knows no next job.
    verdict.ceiling = measured.ceiling("book");
    verdict.add_case(measured, "book");
    verdict.met = all(&[
        at_least(verdict.ratio_ceiling(), 0.85),
        at_least(verdict.ratio_peer(), 1.5),
    ]);
    verdict
}

/// A peer that cannot share a commit competes with what it does in its own way.
fn s3(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    verdict.ceiling = measured.ceiling("book");
    let mut figures: Vec<(String, f64)> = Vec::new();
    for peer in measured.peers("book") {
        let single = measured.samples.median("book", peer, "per_s");
        let shared = measured.samples.median("book-batch", peer, "per_s");
        match (shared, single) {
            (Some(shared), single) if single.is_none_or(|single| shared >= single) => {
                figures.push((peer.to_owned(), shared));
            }
            (_, Some(single)) => figures.push((format!("{peer}, one per commit"), single)),
            (_, None) => {}
        }
    }
    verdict.best_peer = best(figures, Better::More);
    verdict.met = all(&[
        at_least(verdict.ratio_ceiling(), 1.5),
        at_least(verdict.ratio_peer(), 3.0),
    ]);
    verdict
}

fn s4(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    for name in lane.cases {
        for value in ["p50_ms", "p95_ms", "p99_ms", "max_ms"] {
            verdict.add(&format!("{name}_{value}"), measured.samples.median(name, "ours", value));
        }
    }
    let load = measured.samples.median("pickup-load", "ours", "load_per_s");
    verdict.add("load_per_s", load);
    let stalls = |name: &&str| measured.samples.count(name, "ours", Ended::Stalled);
    let stalled: usize = lane.cases.iter().map(stalls).sum();
    verdict.add("stalled_runs", Some(stalled as f64));
    verdict.met = all(&[
        at_most(verdict.ours, 1.0),
        at_most(measured.samples.median("pickup", "ours", "p99_ms"), 5.0),
        Some(stalled == 0),
    ]);
    verdict
}

fn s5(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    let value = |name| measured.samples.median("hold", "ours", name);
    for name in ["first_per_s", "last_per_s", "kept", "held_s"] {
        verdict.add(name, value(name));
    }
    let stalled = measured.samples.count("hold", "ours", Ended::Stalled) > 0;
    verdict.met = if stalled {
        Some(false)
    } else {
        at_least(value("kept"), 0.9)
    };
    verdict
}

/// By the server's own time per job claimed, which does not depend on how many jobs a claim brought.
fn s6(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    let mut parts = Vec::new();
    for name in ["fill-empty", "fill-backlog", "fill-history"] {
        for value in ["per_s", "claim_ms", "claim_us_per_job"] {
            verdict.add(&format!("{name}_{value}"), measured.samples.median(name, "ours", value));
        }
    }
    for name in ["fill-backlog", "fill-history"] {
        let cost = |name| measured.samples.median(name, "ours", "claim_us_per_job");
        let by_claim = ratio(cost(name), cost("fill-empty"));
        let by_drain = ratio(measured.ours("fill-empty"), measured.ours(name));
        verdict.add(&format!("{name}_claim_ratio"), by_claim);
        verdict.add(&format!("{name}_drain_ratio"), by_drain);
        parts.push(at_most(by_claim.or(by_drain), 1.2));
    }
    verdict.met = all(&parts);
    verdict
}

/// What enqueue and drain of a program write to the log per job.
pub(crate) fn wal_bytes(measured: &Measured<'_>, program: &str) -> Option<f64> {
    let part = |name| measured.samples.median(name, program, "wal_per_job");
    Some(part("enqueue")? + part("drain")?)
}

fn s7(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let keeps = |peer: &&str| measured.programs.find(peer).and_then(|program| program.keeps_history()) == Some(true);
    let keeping: Vec<(String, f64)> = measured
        .peers("drain")
        .filter(keeps)
        .filter_map(|peer| Some((peer.to_owned(), wal_bytes(measured, peer)?)))
        .collect();
    let mut verdict = plain(lane, measured);
    verdict.unit = "bytes/job";
    verdict.ours = wal_bytes(measured, "ours");
    verdict.ceiling = wal_bytes(measured, "ceiling");
    verdict.best_peer = best(keeping, Better::Less);
    for name in ["enqueue", "drain"] {
        for value in ["wal_per_job", "commits_per_job"] {
            verdict.add(&format!("{name}_{value}"), measured.samples.median(name, "ours", value));
        }
    }
    let below = verdict.ratio_peer().map(|ratio| ratio < 1.0);
    verdict.met = all(&[at_most(verdict.ours, 1300.0), below]);
    verdict
}

fn s8(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    for name in lane.cases {
        verdict.add_case(measured, name);
    }
    verdict.met = at_least(verdict.ratio_peer(), 3.0);
    verdict
}

fn s9(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    verdict.best_peer = measured.best_peer("idle-1");
    let mut parts = Vec::new();
    for name in lane.cases {
        let memory = measured.samples.median(name, "ours", "resident_mb");
        let statements = measured.ours(name);
        verdict.add(&format!("{name}_statements_per_s"), statements);
        verdict.add(&format!("{name}_resident_mb"), memory);
        parts.extend([at_most(statements, 5.0), at_most(memory, 30.0)]);
    }
    verdict.met = all(&parts);
    verdict
}

fn s10(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    for name in lane.cases {
        verdict.add(&format!("{name}_per_s"), measured.ours(name));
    }
    let kept = ratio(measured.ours("share-8"), measured.ours("share-1"));
    verdict.add("eight_by_one", kept);
    verdict.met = at_least(kept, 0.9);
    verdict
}

fn s11(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    let mut figures: Vec<(String, f64)> = Vec::new();
    for peer in measured.peers("drain-defaults") {
        let reached = measured.reached("drain-defaults", peer);
        figures.extend(reached.map(|figure| (peer.to_owned(), figure)));
    }
    verdict.best_peer = best(figures, Better::More);
    let mut parts = Vec::new();
    for name in ["drain", "book-next", "book-batch"] {
        let kept = ratio(measured.ours(&format!("{name}-defaults")), measured.ours(name));
        verdict.add(&format!("{name}_defaults_by_best"), kept);
        parts.push(at_least(kept, 0.8));
    }
    verdict.met = all(&parts);
    verdict
}

fn s12(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    verdict.met = all(&[
        at_least(verdict.ratio_ceiling(), 0.5),
        at_least(verdict.ratio_peer(), 1.5),
    ]);
    verdict
}

fn s13(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    let late: Vec<&str> = measured
        .peers("stuck")
        .filter(|peer| measured.samples.count("stuck", peer, Ended::Stalled) > 0)
        .collect();
    verdict.more.insert("not_within_the_cap".to_owned(), json!(late));
    let stalled = measured.samples.count("stuck", "ours", Ended::Stalled) > 0;
    verdict.met = if stalled {
        Some(false)
    } else {
        at_most(verdict.ours, 16.0)
    };
    verdict
}

/// Our own figure against another one of ours.
fn by_other(lane: Lane, measured: &Measured<'_>, other: &str, bar: f64) -> Verdict {
    let mut verdict = plain(lane, measured);
    let base = measured.ours(other);
    let by_base = ratio(verdict.ours, base);
    verdict.add(&format!("{other}_per_s"), base);
    verdict.add(&format!("by_{other}"), by_base);
    verdict.met = at_least(by_base, bar);
    verdict
}

fn q1(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = by_other(lane, measured, "look-none", 0.8);
    let mut parts = vec![verdict.met];
    for asked in ASKED {
        let of = |value: String| measured.samples.median("look-on", "ours", &value);
        let took = of(format!("{asked}_ms"));
        verdict.add(&format!("{asked}_ms"), took);
        verdict.add(&format!("{asked}_max_ms"), of(format!("{asked}_max_ms")));
        parts.push(at_most(took, 300.0));
    }
    verdict.met = all(&parts);
    verdict
}

fn growth(lane: Lane, measured: &Measured<'_>) -> Verdict {
    let mut verdict = plain(lane, measured);
    for name in lane.cases {
        verdict.add(&format!("{name}_per_s"), measured.ours(name));
    }
    for (name, base) in [
        ("grow-future", "grow-base"),
        ("grow-queues", "grow-queues-base"),
        ("grow-kinds-50", "grow-kinds-1"),
    ] {
        verdict.add(
            &format!("{name}_by_base"),
            ratio(measured.ours(name), measured.ours(base)),
        );
    }
    verdict
}
