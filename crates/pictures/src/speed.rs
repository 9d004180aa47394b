//! The README's picture of throughput, from the `summary.json` of a recorded benchmark: each system's median rate for
//! draining a full queue, and for enqueuing and draining at the same time.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::{Anchor, Canvas, Look, Paint, number};

const WIDTH: f64 = 800.0;
const LEFT: f64 = 226.0;
const RIGHT: f64 = WIDTH - 92.0;
const ROW: f64 = 46.0;
const BAR: f64 = 17.0;
/// The smallest text: still legible when a phone shows the picture at half its width.
const SMALL: f64 = 18.0;

/// The parts of a benchmark's summary that the picture needs.
#[derive(Clone, Debug, Deserialize)]
pub struct Summary {
    /// The folder of the run.
    pub run: String,
    /// Rounds; the figure is their median.
    pub rounds: u64,
    /// Every system, by its key.
    pub programs: BTreeMap<String, Program>,
    /// Every benchmark, by its name.
    pub lanes: Lanes,
}

/// A system that was measured.
#[derive(Clone, Debug, Deserialize)]
pub struct Program {
    /// The name of its package.
    pub name: String,
}

/// The benchmarks.
#[derive(Clone, Debug, Deserialize)]
pub struct Lanes {
    /// No-op jobs.
    #[serde(rename = "S1")]
    pub no_op: Lane,
}

/// One benchmark.
#[derive(Clone, Debug, Deserialize)]
pub struct Lane {
    /// What was measured in it.
    pub cases: Cases,
}

/// The two cases of the benchmark.
#[derive(Clone, Debug, Deserialize)]
pub struct Cases {
    /// A full queue is drained.
    pub drain: Case,
    /// Jobs are enqueued and drained at the same time.
    pub life: Case,
}

/// One case.
#[derive(Clone, Debug, Deserialize)]
pub struct Case {
    /// Each system's rate, by its key.
    pub programs: BTreeMap<String, Rate>,
}

/// Jobs per second.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Rate {
    /// The median of the rounds.
    pub median: f64,
}

struct Row {
    label: String,
    ours: bool,
    paints: [Paint; 2],
    rates: [Option<f64>; 2],
}

impl Summary {
    /// Reads the summary of a run.
    ///
    /// # Errors
    /// The text is not a summary with both cases of benchmark S1.
    pub fn read(json: &str) -> serde_json::Result<Summary> {
        serde_json::from_str(json)
    }

    /// One row per system, the fastest drain first.
    fn rows(&self) -> Vec<Row> {
        let Cases { drain, life } = &self.lanes.no_op.cases;
        let mut rows: Vec<Row> = drain
            .programs
            .iter()
            .map(|(key, rate)| {
                let name = self.programs.get(key).map_or(key, |program| &program.name);
                let (label, paints) = match key.as_str() {
                    "ours" => ("Rowlock", [Paint::Ours, Paint::OursLight]),
                    "ceiling" => ("raw SQL, no queue", [Paint::Ceiling, Paint::CeilingLight]),
                    _ => (name.as_str(), [Paint::Peer, Paint::PeerLight]),
                };
                Row {
                    label: label.to_owned(),
                    ours: key == "ours",
                    paints,
                    rates: [Some(rate.median), life.programs.get(key).map(|rate| rate.median)],
                }
            })
            .collect();
        rows.sort_by(|a, b| b.rates[0].unwrap_or(0.0).total_cmp(&a.rates[0].unwrap_or(0.0)));
        rows
    }
}

/// The picture as an SVG file.
pub fn draw(summary: &Summary) -> String {
    let rows = summary.rows();
    let mut canvas = Canvas::new(WIDTH, "No-op jobs per second: Rowlock, other job queues and raw SQL");
    let title = Look::plain(Anchor::Start).size(27.0).bold(true);
    canvas.text(24.0, 42.0, "No-op jobs per second on PostgreSQL", title);
    let quiet = Look::quiet(Anchor::Start).size(SMALL);
    let legend = [
        (24.0, "drain a full queue", [Paint::Ours, Paint::Peer]),
        (
            270.0,
            "enqueue and drain at the same time",
            [Paint::OursLight, Paint::PeerLight],
        ),
    ];
    for (x, text, paints) in legend {
        for (paint, x) in paints.into_iter().zip([x, x + 16.0]) {
            canvas.rect(x, 60.0, 14.0, 14.0, paint);
        }
        canvas.text(x + 40.0, 73.0, text, quiet);
    }
    let top = 92.0;
    let most = rows.iter().flat_map(|row| row.rates).flatten().fold(1.0, f64::max);
    for (place, row) in rows.iter().enumerate() {
        let top = top + place as f64 * ROW;
        let label = Look::plain(Anchor::End).size(SMALL).bold(row.ours);
        canvas.text(LEFT - 12.0, top + ROW / 2.0 + 4.0, &row.label, label);
        for ((rate, paint), y) in row.rates.iter().zip(row.paints).zip([top + 4.0, top + 5.0 + BAR]) {
            let Some(rate) = rate else { continue };
            let width = rate / most * (RIGHT - LEFT);
            canvas.rect(LEFT, y, width, BAR, paint);
            let figure = Look::plain(Anchor::Start).size(SMALL - 2.0).bold(row.ours);
            canvas.text(LEFT + width + 8.0, y + BAR - 3.0, &number(*rate), figure);
        }
    }
    let bottom = top + rows.len() as f64 * ROW + 28.0;
    let below = format!(
        "median of {} rounds, each system at the fastest settings we found; {}",
        summary.rounds, summary.run
    );
    canvas.text(24.0, bottom, &below, quiet);
    canvas.y = bottom + 4.0;
    canvas.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_comes_first_and_every_figure_is_from_the_file() {
        let summary = Summary::read(
            r#"{"run":"bench/runs/x","rounds":3,"programs":{"ours":{"name":"rowlock"},"other":{"name":"other-queue"}},
                "lanes":{"S1":{"cases":{
                  "drain":{"programs":{"other":{"median":1500.4},"ours":{"median":4321.0},"ceiling":{"median":9000.0}}},
                  "life":{"programs":{"ours":{"median":3000.0}}}}}}}"#,
        )
        .unwrap();
        let labels: Vec<String> = summary.rows().into_iter().map(|row| row.label).collect();
        assert_eq!(labels, ["raw SQL, no queue", "Rowlock", "other-queue"]);
        let svg = draw(&summary);
        for part in ["9,000", "4,321", "3,000", "1,500", "median of 3 rounds", "bench/runs/x"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }
}
