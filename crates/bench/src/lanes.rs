//! The benchmarks, group by group: which cases run, in which order, how often.
//!
//! A group begins with the figures that matter most, so that a run cut short still has them. Rounds are interleaved:
//! every program once, then every program again in another order, so that a slow phase of the machine falls on all of
//! them.

mod growth;
mod hold;
mod idle;
mod look;
mod pickup;
mod store;
mod stuck;
mod throughput;

use crate::bench::Bench;
use crate::programs::{Kind, Role};
use crate::progress::Progress;

pub(crate) use growth::PROCESSES;
pub(crate) use look::ASKED;

/// One group of benchmarks, run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Group {
    Drain,
    Book,
    Pickup,
    Defaults,
    Sqlite,
    Share,
    Idle,
    Growth,
    Claims,
    Groups,
    Look,
    Store,
    Stuck,
    Hold,
}

const GROUPS: [(Group, &str, &[&str]); 14] = [
    (Group::Drain, "S1 S7 S12", &["S1", "S7", "S11", "S12"]),
    (Group::Book, "S2 S3", &["S2", "S3", "S11"]),
    (Group::Defaults, "S11", &["S11"]),
    (Group::Pickup, "S4", &["S4"]),
    (Group::Sqlite, "S8", &["S8"]),
    (Group::Share, "S10", &["S10"]),
    (Group::Idle, "S9", &["S9"]),
    (Group::Growth, "growth", &["growth"]),
    (Group::Claims, "C1", &["C1"]),
    (Group::Groups, "G1", &["G1"]),
    (Group::Look, "Q1", &["Q1"]),
    (Group::Store, "S6", &["S6"]),
    (Group::Stuck, "S13", &["S13"]),
    (Group::Hold, "S5", &["S5"]),
];

/// Runs what was asked for. A benchmark that cannot run leaves samples that say so.
pub(crate) async fn run(bench: &mut Bench) {
    let wanted: Vec<_> = GROUPS.iter().filter(|(_, _, lanes)| bench.run.wants(lanes)).collect();
    let guesses: Vec<(usize, f64)> = wanted.iter().map(|(group, ..)| plan(bench, *group)).collect();
    bench.progress = Progress::new(guesses.iter().map(|(_, seconds)| seconds).sum());
    for ((group, name, _), (steps, guess_s)) in wanted.into_iter().zip(guesses) {
        bench.progress.begin(name, steps, guess_s);
        match group {
            Group::Drain => throughput::drain(bench).await,
            Group::Book => throughput::book(bench).await,
            Group::Defaults => throughput::defaults(bench).await,
            Group::Pickup => pickup::run(bench).await,
            Group::Sqlite => throughput::sqlite(bench).await,
            Group::Share => growth::share(bench).await,
            Group::Idle => idle::run(bench).await,
            Group::Growth => growth::run(bench).await,
            Group::Claims => growth::claims(bench).await,
            Group::Groups => growth::groups(bench).await,
            Group::Look => look::run(bench).await,
            Group::Store => store::run(bench).await,
            Group::Stuck => stuck::run(bench).await,
            Group::Hold => hold::run(bench).await,
        }
    }
}

/// Steps of a group and a guess of its seconds, for the time shown as left; the guesses are those of a small machine.
fn plan(bench: &Bench, group: Group) -> (usize, f64) {
    let sizes = &bench.run.sizes;
    let programs = bench.run.programs.on(Kind::Postgres).len();
    let peers = bench
        .run
        .programs
        .all
        .iter()
        .filter(|program| program.role == Role::Peer);
    let peers = peers.filter(|program| program.on.contains(&Kind::Postgres)).count();
    let on_sqlite = bench.run.programs.on(Kind::Sqlite).len();
    let rounds = sizes.rounds;
    let each = |steps: usize, seconds: f64| (steps, steps as f64 * seconds);
    match group {
        Group::Drain => each(programs * rounds * 3, 1.5 + sizes.noop as f64 / 15_000.0),
        Group::Book => each((programs * 2 + 2) * rounds, 2.0 + sizes.book as f64 / 2_000.0),
        Group::Defaults => each(3 * rounds + peers, 4.0),
        Group::Pickup => each(peers + 3 * rounds, 3.0 + sizes.pickups as f64 * 0.05),
        Group::Sqlite => each(on_sqlite * rounds * 3, 1.0 + sizes.sqlite as f64 / 10_000.0),
        Group::Share => each(5 * rounds, 2.0 + sizes.share as f64 / 20_000.0),
        Group::Idle => each(2, 4.0 + sizes.idle_s as f64),
        Group::Growth => each(9 * rounds, 2.0 + sizes.growth as f64 / 10_000.0),
        Group::Claims => each(2 * rounds, 2.0 + sizes.noop as f64 / 20_000.0),
        Group::Groups => each(2 * rounds, 4.0 + sizes.groups as f64 / 5_000.0),
        Group::Look => {
            let (steps, seconds) = each(2 * rounds, 4.0 + sizes.looked as f64 / 10_000.0);
            (steps, seconds + (sizes.finished + sizes.live) as f64 / 60_000.0)
        }
        Group::Store => {
            let (steps, seconds) = each(3 * rounds, 3.0 + sizes.filled_drain as f64 / 10_000.0);
            (steps, seconds + sizes.filled as f64 / 60_000.0)
        }
        Group::Stuck => (programs, sizes.stuck_s as f64 + 10.0),
        Group::Hold => {
            let seconds = sizes.hold_ours_s as f64 + peers as f64 * (sizes.hold_peers_s as f64 + 3.0);
            (peers + 1, seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lane_is_run_by_some_group() {
        for lane in &crate::verdict::LANES {
            let run = GROUPS.iter().any(|(_, _, lanes)| lanes.contains(&lane.name));
            assert!(run, "nothing runs {}", lane.name);
        }
    }
}
