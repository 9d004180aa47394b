//! The tables behind the benchmarks' figures: every program of every case, with its settings.

use super::{dash, number, table};
use crate::case::{Better, Case, case};
use crate::run::Run;
use crate::sample::Ended;
use crate::verdict::Verdict;

/// Further values of a case's samples and their headings.
pub(super) fn columns(name: &str) -> &'static [(&'static str, &'static str)] {
    match name {
        "pickup" | "pickup-poll" | "pickup-load" => &[
            ("p50_ms", "p50 ms"),
            ("p95_ms", "p95 ms"),
            ("p99_ms", "p99 ms"),
            ("max_ms", "max ms"),
            ("load_per_s", "load jobs/s"),
        ],
        "hold" => &[
            ("held_s", "held s"),
            ("first_per_s", "first part"),
            ("last_per_s", "last part"),
            ("kept", "last ÷ first"),
            ("per_s", "mean"),
        ],
        "fill-empty" | "fill-backlog" | "fill-history" => &[
            ("claims", "claims"),
            ("claim_ms", "ms per claim"),
            ("claim_us_per_job", "claim µs per job"),
        ],
        "idle-1" | "idle-50" => &[("statements_per_s", "statements/s"), ("resident_mb", "resident MB")],
        "stuck" => &[],
        _ if name.starts_with("sqlite") => &[("cpu_us_per_job", "CPU µs/job")],
        _ if name.starts_with("share") => &[("least_jobs", "least jobs of a process")],
        _ => &[
            ("client_us_per_job", "client CPU µs/job"),
            ("server_us_per_job", "server CPU µs/job"),
            ("commits_per_job", "commits/job"),
            ("wal_per_job", "WAL bytes/job"),
        ],
    }
}

/// A table per case, once each; cases that only ours ran share one.
pub(super) fn tables(run: &Run, verdicts: &[Verdict]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let mut text = String::new();
    for verdict in verdicts {
        let new = verdict.lane.cases.iter().copied();
        let new: Vec<&str> = new
            .filter(|name| !shown.contains(name) && !run.samples.programs(name).is_empty())
            .collect();
        shown.extend(&new);
        let (alone, compared): (Vec<&str>, Vec<&str>) = new.into_iter().partition(|name| is_ours_alone(run, name));
        for name in compared {
            text.push_str(&one(run, verdict.lane.name, case(name)));
        }
        if !alone.is_empty() {
            text.push_str(&own(run, verdict, &alone));
        }
    }
    text
}

fn is_ours_alone(run: &Run, name: &str) -> bool {
    run.samples.programs(name) == ["ours"]
}

fn own(run: &Run, verdict: &Verdict, names: &[&str]) -> String {
    let first = case(names[0]);
    let columns: Vec<_> = columns(first.name)
        .iter()
        .filter(|(value, _)| *value != first.value)
        .collect();
    let mut header = vec!["case", "what", first.unit, "min–max", "rounds"];
    header.extend(columns.iter().map(|(_, heading)| *heading));
    header.push("note");
    let mut table = table(&header);
    for name in names {
        let case = case(name);
        let mut row = vec![case.name.to_owned(), case.title.to_owned()];
        row.extend(figures(run, case, "ours", columns.iter().map(|(value, _)| *value)));
        table.add_row(row);
    }
    let mut text = format!(
        "\n{} · {}, ours{}\n{table}\n",
        verdict.lane.name,
        verdict.lane.title,
        reduced(run)
    );
    let settings = run
        .programs
        .find("ours")
        .and_then(|known| known.settings(first.settings).map(str::to_owned));
    if let Some(settings) = settings {
        text.push_str(&format!("  ours: {settings}\n"));
    }
    text
}

fn reduced(run: &Run) -> &'static str {
    if run.sizes.reduced { ", reduced" } else { "" }
}

/// Median, ends, rounds, the further values and the note of one program in one case.
fn figures<'a>(run: &Run, case: Case, program: &str, more: impl Iterator<Item = &'a str>) -> Vec<String> {
    let spread = run.samples.spread(case.name, program, case.value);
    let mut row = vec![
        spread.map_or_else(dash, |spread| number(spread.median)),
        spread.map_or_else(dash, |spread| format!("{}–{}", number(spread.min), number(spread.max))),
        spread.map_or_else(|| "0".to_owned(), |spread| spread.count.to_string()),
    ];
    for value in more {
        let median = run.samples.median(case.name, program, value);
        row.push(median.map_or_else(dash, number));
    }
    row.push(note(run, case, program));
    row
}

fn one(run: &Run, lane: &str, case: Case) -> String {
    let columns: Vec<_> = columns(case.name)
        .iter()
        .filter(|(value, _)| *value != case.value)
        .collect();
    let mut header = vec!["program", "version", case.unit, "min–max", "rounds"];
    header.extend(columns.iter().map(|(_, heading)| *heading));
    header.push("note");
    let mut table = table(&header);
    for program in ranked(run, case) {
        let mut row = vec![
            program.clone(),
            run.programs.find(&program).map_or_else(dash, |known| known.full_name()),
        ];
        row.extend(figures(run, case, &program, columns.iter().map(|(value, _)| *value)));
        table.add_row(row);
    }
    let reduced = reduced(run);
    let better = if case.better == Better::Less {
        ", less is better"
    } else {
        ""
    };
    let mut text = format!("\n{lane} · {} ({}{better}{reduced})\n{table}\n", case.title, case.name);
    for program in ranked(run, case) {
        let settings = run
            .programs
            .find(&program)
            .and_then(|known| known.settings(case.settings).map(str::to_owned));
        if let Some(settings) = settings {
            text.push_str(&format!("  {program}: {settings}\n"));
        }
    }
    text
}

fn note(run: &Run, case: Case, program: &str) -> String {
    let stalled = run.samples.count(case.name, program, Ended::Stalled);
    let all = run.samples.of(case.name, program).count();
    match run.samples.why_not(case.name, program) {
        Some(why) if stalled > 0 && all > 1 => format!("{stalled} of {all} {why}"),
        Some(why) => why,
        None => String::new(),
    }
}

/// The programs of a case, best first, those without a figure last.
pub(crate) fn ranked(run: &Run, case: Case) -> Vec<String> {
    let mut programs: Vec<(String, Option<f64>)> = run
        .samples
        .programs(case.name)
        .into_iter()
        .map(|program| (program.to_owned(), run.samples.median(case.name, program, case.value)))
        .collect();
    programs.sort_by(|(_, a), (_, b)| match (a, b) {
        (Some(a), Some(b)) if case.better == Better::More => b.total_cmp(a),
        (Some(a), Some(b)) => a.total_cmp(b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    programs.into_iter().map(|(program, _)| program).collect()
}
