//! Judgements over samples made by hand.

use std::sync::Arc;

use super::*;
use crate::programs::Program;
use crate::sample::Sample;

fn programs(peers: &[&str]) -> Programs {
    let mut programs = Programs::default();
    for peer in peers {
        let mut program = Program::for_test("true", &[]);
        program.name = (*peer).to_owned();
        program.about = serde_json::json!({"keeps_history": *peer != "graphile"});
        programs.all.push(Arc::new(program));
    }
    programs
}

fn samples(figures: &[(&str, &str, &str, f64)]) -> Samples {
    let mut samples = Samples::default();
    for (case, program, value, figure) in figures {
        samples.add(Sample::new(case, program, 0, Ended::Measured).with(value, *figure));
    }
    samples
}

fn verdict(name: &str, samples: &Samples, programs: &Programs) -> Verdict {
    let lane = LANES.iter().find(|lane| lane.name == name).copied().unwrap();
    judge(lane, &Measured { samples, programs })
}

#[test]
fn s1_is_met_only_if_both_cases_beat_the_ceiling_the_peers_and_river() {
    let figures = |ours| {
        let mut figures = Vec::new();
        for case in ["drain", "life"] {
            figures.extend([
                (case, "ours", "per_s", ours),
                (case, "ceiling", "per_s", 50_000.0),
                (case, "graphile", "per_s", 20_000.0),
                (case, "river", "per_s", 10_000.0),
            ]);
        }
        samples(&figures)
    };
    let programs = programs(&["river", "graphile"]);
    let good = verdict("S1", &figures(41_000.0), &programs);
    assert_eq!(good.met, Some(true));
    assert_eq!(good.best_peer, Some(("graphile".to_owned(), 20_000.0)));
    assert_eq!((good.ratio_peer(), good.ratio_ceiling()), (Some(2.05), Some(0.82)));
    assert_eq!(verdict("S1", &figures(39_000.0), &programs).met, Some(false));
}

#[test]
fn without_peers_a_target_against_them_is_open() {
    let samples = samples(&[
        ("enqueue", "ours", "per_s", 90.0),
        ("enqueue", "ceiling", "per_s", 100.0),
    ]);
    assert_eq!(verdict("S12", &samples, &programs(&[])).met, None);
}

#[test]
fn a_peer_that_cannot_share_a_commit_competes_one_by_one() {
    let samples = samples(&[
        ("book-batch", "ours", "per_s", 9_000.0),
        ("book", "ceiling", "per_s", 5_000.0),
        ("book", "graphile", "per_s", 2_500.0),
        ("book", "pgboss", "per_s", 100.0),
        ("book-batch", "pgboss", "per_s", 1_600.0),
    ]);
    let verdict = verdict("S3", &samples, &programs(&["graphile", "pgboss"]));
    assert_eq!(
        verdict.best_peer,
        Some(("graphile, one per commit".to_owned(), 2_500.0))
    );
    assert_eq!(verdict.met, Some(true));
}

#[test]
fn log_bytes_are_compared_with_peers_that_keep_history() {
    let mut figures = Vec::new();
    for (program, bytes) in [("ours", 600.0), ("river", 1_500.0), ("graphile", 100.0)] {
        figures.extend([
            ("enqueue", program, "wal_per_job", bytes),
            ("drain", program, "wal_per_job", bytes),
        ]);
    }
    let verdict = verdict("S7", &samples(&figures), &programs(&["river", "graphile"]));
    assert_eq!(
        (verdict.ours, verdict.best_peer.clone()),
        (Some(1_200.0), Some(("river".to_owned(), 3_000.0)))
    );
    assert_eq!(verdict.met, Some(true));
}

#[test]
fn a_stalled_run_of_ours_misses_s4_s5_and_s13() {
    let mut samples = samples(&[
        ("pickup", "ours", "p50_ms", 0.5),
        ("pickup", "ours", "p99_ms", 2.0),
        ("hold", "ours", "kept", 1.0),
        ("stuck", "ours", "seconds", 12.0),
    ]);
    for case in ["pickup", "hold", "stuck"] {
        samples.add(Sample::new(case, "ours", 1, Ended::Stalled));
    }
    for lane in ["S4", "S5", "S13"] {
        assert_eq!(verdict(lane, &samples, &programs(&[])).met, Some(false), "{lane}");
    }
}

#[test]
fn nothing_measured_is_neither_met_nor_missed() {
    for lane in LANES.iter().filter(|lane| lane.name != "S4") {
        assert_eq!(
            judge(
                *lane,
                &Measured {
                    samples: &Samples::default(),
                    programs: &programs(&[])
                }
            )
            .met,
            None
        );
    }
}

#[test]
fn a_target_is_open_while_a_part_is_and_missed_when_one_is() {
    assert_eq!(all(&[Some(true), Some(true)]), Some(true));
    assert_eq!(all(&[Some(true), None]), None);
    assert_eq!(all(&[None, Some(false)]), Some(false));
}

#[test]
fn ratios_need_both_sides() {
    assert_eq!(ratio(Some(3.0), Some(2.0)), Some(1.5));
    assert_eq!(ratio(Some(3.0), None), None);
    assert_eq!(ratio(Some(3.0), Some(0.0)), None);
    assert_eq!(at_least(None, 1.0), None);
    assert_eq!(at_most(Some(1.0), 1.0), Some(true));
}

#[test]
fn the_best_is_the_most_or_the_least() {
    let figures = || vec![("a".to_owned(), 2.0), ("b".to_owned(), 3.0), ("c".to_owned(), 1.0)];
    assert_eq!(best(figures(), Better::More), Some(("b".to_owned(), 3.0)));
    assert_eq!(best(figures(), Better::Less), Some(("c".to_owned(), 1.0)));
    assert_eq!(best(Vec::new(), Better::Less), None);
}

#[test]
fn every_case_of_a_lane_is_in_the_table() {
    for name in LANES.iter().flat_map(|lane| lane.cases) {
        assert_eq!(case(name).name, *name);
    }
}
