//! What a run leaves behind: the tables for people, the object for programs, the machine, the pictures.

mod detail;
mod summary;

use anyhow::{Context, Result};
use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{CellAlignment, ContentArrangement, Table};
use pictures::number;

use crate::case::case;
use crate::picture;
use crate::run::Run;
use crate::verdict::{LANES, Measured, Verdict, judge};

pub(crate) use self::detail::ranked;

/// Wide enough for every column on one line; files have no terminal to fit.
const WIDTH: u16 = 180;

/// Writes the object alone.
pub(crate) fn write_summary(run: &Run) -> Result<()> {
    let object = summary::object(run, &verdicts(run));
    save(
        run,
        "summary.json",
        &format!("{}\n", serde_json::to_string_pretty(&object)?),
    )
}

fn verdicts(run: &Run) -> Vec<Verdict> {
    let measured = Measured {
        samples: &run.samples,
        programs: &run.programs,
    };
    let lanes = LANES.iter().filter(|lane| run.wants(&[lane.name]));
    lanes.map(|lane| judge(*lane, &measured)).collect()
}

/// Writes everything into the run's folder; gives what belongs on standard output.
pub(crate) fn write(run: &Run) -> Result<String> {
    let verdicts = verdicts(run);
    let object = summary::object(run, &verdicts);
    let mut text = lanes_table(run, &verdicts);
    text.push_str(&detail::tables(run, &verdicts));
    save(run, "table.txt", &text)?;
    write_summary(run)?;
    for verdict in &verdicts {
        if let Some(svg) = picture::draw(run, verdict) {
            save(run, &format!("{}.svg", verdict.lane.name), &svg)?;
        }
    }
    eprintln!("\nsamples, tables and pictures are in {}", run.out.display());
    Ok(if run.json { format!("{object}\n") } else { text })
}

/// Writes one file of the run.
pub(crate) fn save(run: &Run, name: &str, text: &str) -> Result<()> {
    let path = run.out.join(name);
    std::fs::write(&path, text).with_context(|| format!("could not write {}", path.display()))
}

/// One row per benchmark.
fn lanes_table(run: &Run, verdicts: &[Verdict]) -> String {
    let mut table = table(&[
        "lane",
        "what",
        "ours",
        "best peer",
        "ceiling",
        "× peer",
        "× ceiling",
        "target",
        "met",
    ]);
    for verdict in verdicts {
        let name = match run.sizes.reduced {
            true => format!("{} reduced", verdict.lane.name),
            false => verdict.lane.name.to_owned(),
        };
        let peer = verdict.best_peer.as_ref();
        let first = case(verdict.lane.cases[0]);
        let stalled = run.samples.median(first.name, "ours", first.value).is_none();
        let note = if stalled && verdict.ours.is_some() {
            " (stalled)"
        } else {
            ""
        };
        table.add_row(vec![
            name,
            verdict.lane.title.to_owned(),
            verdict
                .ours
                .map_or_else(|| "not measured".to_owned(), |ours| figure(ours, verdict.unit) + note),
            peer.map_or_else(dash, |(name, value)| format!("{} ({name})", number(*value))),
            verdict.ceiling.map_or_else(dash, number),
            verdict.ratio_peer().map_or_else(dash, times),
            verdict.ratio_ceiling().map_or_else(dash, times),
            verdict.lane.target.to_owned(),
            met(verdict.met).to_owned(),
        ]);
    }
    let mut text = format!("{table}\n");
    for (name, reason) in &run.programs.left_out {
        text.push_str(&format!("left out: {name}: {reason}\n"));
    }
    for violation in &run.violations {
        text.push_str(&format!("VIOLATION: {violation}\n"));
    }
    text
}

/// A table in the house's look; every column but the first two is read by its right edge.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_preset(UTF8_FULL_CONDENSED)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(header.to_vec());
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn dash() -> String {
    "–".to_owned()
}

fn met(met: Option<bool>) -> &'static str {
    match met {
        Some(true) => "met",
        Some(false) => "NOT MET",
        None => "–",
    }
}

fn times(ratio: f64) -> String {
    format!("{ratio:.2}")
}

/// A figure with its unit.
pub(crate) fn figure(value: f64, unit: &str) -> String {
    format!("{} {unit}", number(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_has_its_unit() {
        assert_eq!(figure(0.0, "s"), "0.00 s");
    }

    #[test]
    fn an_open_target_is_not_shown_as_missed() {
        assert_eq!((met(None), met(Some(true)), met(Some(false))), ("–", "met", "NOT MET"));
    }
}
