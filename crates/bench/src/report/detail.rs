//! The tables behind the lanes' figures: every program of every case, with its settings.

use super::{dash, number, table};
use crate::bench::Bench;
use crate::case::{Better, Case, case};
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
        _ if name.starts_with("sqlite") => &[],
        _ if name.starts_with("share") => &[("least_jobs", "least jobs of a process")],
        _ => &[("commits_per_job", "commits/job"), ("wal_per_job", "WAL bytes/job")],
    }
}

/// A table per case, once each.
pub(super) fn tables(bench: &Bench, verdicts: &[Verdict]) -> String {
    let mut shown: Vec<&str> = Vec::new();
    let mut text = String::new();
    for verdict in verdicts {
        for name in verdict.lane.cases {
            if shown.contains(name) || bench.samples.programs(name).is_empty() {
                continue;
            }
            shown.push(name);
            text.push_str(&one(bench, verdict.lane.name, case(name)));
        }
    }
    text
}

fn one(bench: &Bench, lane: &str, case: Case) -> String {
    let columns: Vec<_> = columns(case.name)
        .iter()
        .filter(|(value, _)| *value != case.value)
        .collect();
    let mut header = vec!["program", "version", case.unit, "min–max", "rounds"];
    header.extend(columns.iter().map(|(_, heading)| *heading));
    header.push("note");
    let mut table = table(&header);
    for program in ranked(bench, case) {
        let mut row = vec![
            program.clone(),
            bench
                .programs
                .find(&program)
                .map_or_else(dash, |known| known.full_name()),
        ];
        let spread = bench.samples.spread(case.name, &program, case.value);
        row.push(spread.map_or_else(dash, |spread| number(spread.median)));
        row.push(spread.map_or_else(dash, |spread| format!("{}–{}", number(spread.min), number(spread.max))));
        row.push(spread.map_or_else(|| "0".to_owned(), |spread| spread.count.to_string()));
        for (value, _) in &columns {
            let median = bench.samples.median(case.name, &program, value);
            row.push(median.map_or_else(dash, number));
        }
        row.push(note(bench, case, &program));
        table.add_row(row);
    }
    let reduced = if bench.sizes.reduced { ", reduced" } else { "" };
    let better = if case.better == Better::Less {
        ", less is better"
    } else {
        ""
    };
    let mut text = format!("\n{lane} · {} ({}{better}{reduced})\n{table}\n", case.title, case.name);
    for program in ranked(bench, case) {
        let settings = bench
            .programs
            .find(&program)
            .and_then(|known| known.settings(case.settings).map(str::to_owned));
        if let Some(settings) = settings {
            text.push_str(&format!("  {program}: {settings}\n"));
        }
    }
    text
}

fn note(bench: &Bench, case: Case, program: &str) -> String {
    let stalled = bench.samples.count(case.name, program, Ended::Stalled);
    let all = bench.samples.of(case.name, program).count();
    match bench.samples.why_not(case.name, program) {
        Some(why) if stalled > 0 && all > 1 => format!("{stalled} of {all} {why}"),
        Some(why) => why,
        None => String::new(),
    }
}

/// The programs of a case, best first, those without a figure last.
pub(crate) fn ranked(bench: &Bench, case: Case) -> Vec<String> {
    let mut programs: Vec<(String, Option<f64>)> = bench
        .samples
        .programs(case.name)
        .into_iter()
        .map(|program| (program.to_owned(), bench.samples.median(case.name, program, case.value)))
        .collect();
    programs.sort_by(|(_, a), (_, b)| match (a, b) {
        (Some(a), Some(b)) if case.better == Better::More => b.total_cmp(a),
        (Some(a), Some(b)) => a.total_cmp(b),
        (a, b) => b.is_some().cmp(&a.is_some()),
    });
    programs.into_iter().map(|(program, _)| program).collect()
}
