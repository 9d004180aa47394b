//! The pictures of the README are what the recorded runs draw. The picture of ARCHITECTURE.md is what its module draws.
//! `ROWLOCK_PICTURES=write` writes them again; look at them, in light and in dark, before you commit them.

use std::{fs, path::PathBuf};

use pictures::{
    demo::{Recorded, What},
    speed::Summary,
};

const DEMO_RUN: &str = "docs/pictures/demo.json";
const BENCHMARK: &str = "bench/runs/2026-11-15/summary.json";
const BYTES_MAX: usize = 60_000;

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(name)
}

fn read(name: &str) -> String {
    fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn demo_run() -> Recorded {
    Recorded::read(&read(DEMO_RUN)).unwrap()
}

fn assert_is_drawn(name: &str, svg: &str) {
    if std::env::var_os("ROWLOCK_PICTURES").is_some_and(|word| word == "write") {
        fs::write(path(name), svg).unwrap();
    }
    assert!(
        read(name) == svg,
        "{name} is not what the code draws; ROWLOCK_PICTURES=write writes it again"
    );
    assert!(svg.len() <= BYTES_MAX, "{name} has {} bytes", svg.len());
    assert!(
        svg.contains("@media (prefers-color-scheme: dark)"),
        "{name} is light only"
    );
    for part in ["<script", "href", "url(", "@import", "@font-face"] {
        assert!(!svg.contains(part), "{name} has {part}");
    }
}

#[test]
fn the_demo_picture_is_what_the_recorded_run_draws() {
    assert_is_drawn("docs/pictures/demo.svg", &pictures::demo::draw(&demo_run()));
}

#[test]
fn the_speed_picture_is_what_the_recorded_benchmark_draws() {
    let summary = Summary::read(&read(BENCHMARK)).unwrap();
    assert_is_drawn("docs/pictures/speed.svg", &pictures::speed::draw(&summary));
}

#[test]
fn the_picture_of_the_architecture_is_what_its_module_draws() {
    assert_is_drawn("docs/pictures/architecture.svg", &pictures::map::draw());
}

#[test]
fn the_recorded_run_lost_and_doubled_nothing_under_kills() {
    let run = demo_run();
    let found = &run.result;
    assert_eq!((found.lost, found.doubled), (0, 0));
    assert_eq!((found.jobs, found.done), (3 * run.orders, 3 * run.orders));
    assert!(run.orders >= 300 && found.kills >= 24, "{found:?}");
    let killed = run.events.iter().filter(|event| event.event == What::Killed);
    assert_eq!(killed.count() as i64, found.kills);
    assert!(
        run.samples
            .iter()
            .all(|sample| sample.doubled_rows + sample.missing_rows == 0)
    );
    assert_eq!(run.samples.last().map(|sample| sample.done), Some(found.done));
}
