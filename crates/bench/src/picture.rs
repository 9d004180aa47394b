//! One picture per benchmark, drawn as SVG by the crate `pictures`: self-contained, and legible at the width of a
//! README.

mod bars;
mod lines;
mod ranges;

use pictures::{Canvas, number};

use self::bars::{Bar, Panel};
use self::lines::Series;
use self::ranges::Range;
use crate::case::{Case, case};
use crate::lanes::PROCESSES;
use crate::programs::Role;
use crate::report::ranked;
use crate::run::Run;
use crate::sample::Ended;
use crate::verdict::{Measured, Verdict, wal_bytes};

/// Seconds over which the lines of S5 are smoothed.
const SMOOTH_S: usize = 5;

/// The benchmark's picture; `None` when nothing was measured in it.
pub(crate) fn draw(run: &Run, verdict: &Verdict) -> Option<String> {
    let cases = verdict.lane.cases;
    if cases.iter().all(|name| run.samples.programs(name).is_empty()) {
        return None;
    }
    let title = format!("{} · {}", verdict.lane.name, verdict.lane.title);
    let mut canvas = Canvas::titled(&title, &below(run, verdict));
    match verdict.lane.name {
        "S4" => pickups(run, &mut canvas, cases),
        "S5" => hold(run, &mut canvas),
        "S6" => store(run, &mut canvas),
        "S7" => wal(run, &mut canvas),
        "S9" => idle(run, &mut canvas),
        "S10" => processes(run, &mut canvas),
        "S11" => defaults(run, &mut canvas),
        "growth" => growth(run, &mut canvas),
        "S2" => {
            programs(run, &mut canvas, case("book-next"), Some("book"));
            programs(run, &mut canvas, case("book"), None);
        }
        "S3" => shared_commits(run, &mut canvas),
        _ => cases
            .iter()
            .for_each(|name| programs(run, &mut canvas, case(name), None)),
    }
    Some(canvas.finish())
}

/// What holds for the whole picture: rounds, size, target.
fn below(run: &Run, verdict: &Verdict) -> String {
    let size = if run.sizes.reduced { "reduced size, " } else { "" };
    let rounds = match (verdict.lane.name, run.sizes.rounds) {
        ("S5" | "S9" | "S13", _) | (_, 1) => "one run".to_owned(),
        ("S4", many) => format!("median of {many} rounds, peers one"),
        (_, many) => format!("median of {many} rounds, whiskers from least to most"),
    };
    if verdict.lane.target.is_empty() {
        return format!("{size}{rounds}");
    }
    let met = match verdict.met {
        Some(true) => " (met)",
        Some(false) => " (not met)",
        None => "",
    };
    format!("{size}{rounds}; target: {}{met}", verdict.lane.target)
}

fn role(run: &Run, program: &str) -> Role {
    run.programs.find(program).map_or(Role::Peer, |known| known.role)
}

fn label(run: &Run, program: &str) -> String {
    match role(run, program) {
        Role::Ours => "rowlock".to_owned(),
        Role::Ceiling => "ceiling (raw SQL)".to_owned(),
        Role::Peer => program.to_owned(),
    }
}

/// Every program of a case, best first. A ceiling can come from another case.
fn programs(run: &Run, canvas: &mut Canvas, case: Case, ceiling_case: Option<&str>) {
    let mut bars: Vec<Bar> = ranked(run, case)
        .iter()
        .map(|program| bar(run, case, program))
        .collect();
    if let Some(spread) = ceiling_case.and_then(|name| run.samples.spread(name, "ceiling", case.value)) {
        let bar = Bar::of("bare transaction", Role::Ceiling, spread);
        let place = bars
            .iter()
            .position(|other| other.parts.first().is_none_or(|value| *value < bar.parts[0]));
        bars.insert(place.unwrap_or(bars.len()), bar);
    }
    let title = case.title.to_owned();
    bars::draw(
        canvas,
        &Panel {
            title,
            unit: case.unit.to_owned(),
            bars,
        },
    );
}

/// A program that cannot share a commit is shown by what it does one by one, lighter.
fn shared_commits(run: &Run, canvas: &mut Canvas) {
    let (batch, single) = (case("book-batch"), case("book"));
    let mut bars: Vec<Bar> = Vec::new();
    for program in run.samples.programs(single.name) {
        let own = run.samples.spread(batch.name, program, batch.value);
        if own.is_some() || run.samples.count(batch.name, program, Ended::Stalled) > 0 {
            bars.push(bar(run, batch, program));
        } else if role(run, program) == Role::Ceiling {
            bars.push(bar(run, single, program));
        } else if let Some(spread) = run.samples.spread(single.name, program, single.value) {
            let mut bar = Bar::of(label(run, program), role(run, program), spread);
            // The second part of a bar is the light one.
            bar.parts.insert(0, 0.0);
            bars.push(bar);
        }
    }
    let end = |bar: &Bar| bar.parts.iter().sum::<f64>();
    bars.sort_by(|a, b| end(b).total_cmp(&end(a)));
    let title = format!("{} (light bars: one job per commit)", batch.title);
    let unit = batch.unit.to_owned();
    bars::draw(canvas, &Panel { title, unit, bars });
}

fn bar(run: &Run, case: Case, program: &str) -> Bar {
    let (role, mut label) = (role(run, program), label(run, program));
    if role == Role::Ceiling && case.name.starts_with("book") {
        label = "bare transaction".to_owned();
    }
    if let Some(spread) = run.samples.spread(case.name, program, case.value) {
        return Bar::of(label, role, spread);
    }
    let stalled = run.samples.spread_of(case.name, program, case.value, Ended::Stalled);
    match stalled {
        Some(spread) if case.name == "stuck" => Bar {
            note: Some(format!("not within {:.0} s", spread.median)),
            ..Bar::of(label, role, spread)
        },
        Some(spread) => Bar {
            note: Some(format!("{}, cut at its time limit", number(spread.median))),
            ..Bar::of(label, role, spread)
        },
        None => {
            let why = run.samples.why_not(case.name, program).unwrap_or_default();
            Bar::none(label, role, &why)
        }
    }
}

fn pickups(run: &Run, canvas: &mut Canvas, cases: &[&str]) {
    let mut rows = Vec::new();
    for name in cases {
        for program in ranked(run, case(name)) {
            let value = |value| {
                let samples = &run.samples;
                let stalled = || {
                    samples
                        .spread_of(name, &program, value, Ended::Stalled)
                        .map(|spread| spread.median)
                };
                samples.median(name, &program, value).or_else(stalled)
            };
            let (Some(p50), Some(p95), Some(p99)) = (value("p50_ms"), value("p95_ms"), value("p99_ms")) else {
                continue;
            };
            let more = match *name {
                "pickup-poll" => ", polling only",
                "pickup-load" => ", half load",
                _ => "",
            };
            let missing = run.samples.spread_of(name, &program, "missing", Ended::Stalled);
            let missing = missing.map_or_else(String::new, |missing| format!(", {:.0} never started", missing.max));
            rows.push(Range {
                label: format!("{}{more}{missing}", label(run, &program)),
                ours: role(run, &program) == Role::Ours,
                p50,
                p95,
                p99,
            });
        }
    }
    ranges::draw(
        canvas,
        "from commit to the start of the handler: p50 (full), p95 (small), p99 (open)",
        &rows,
    );
}

fn hold(run: &Run, canvas: &mut Canvas) {
    let mut all = Vec::new();
    let short_s = run.sizes.hold_peers_s as usize;
    for program in run.samples.programs("hold") {
        for sample in run.samples.of("hold", program) {
            let ours = role(run, program) == Role::Ours;
            all.push((label(run, program), ours, sample.series.clone()));
        }
    }
    let series = |label: &str, ours, values: &[f64]| Series {
        label: label.to_owned(),
        ours,
        points: lines::smooth(values, SMOOTH_S),
        spread: Vec::new(),
    };
    let panel = |title: String, series| lines::Panel {
        title,
        x_label: format!("seconds with the old transaction open (mean of {SMOOTH_S} s)"),
        y_label: "jobs/s".to_owned(),
        series,
        steps: Vec::new(),
    };
    let first = all.iter().filter(|(_, _, values)| !values.is_empty());
    let first = first.map(|(label, ours, values)| series(label, *ours, &values[..values.len().min(short_s)]));
    lines::draw(canvas, &panel(format!("every program, {short_s} s"), first.collect()));
    let ours = all.iter().filter(|(_, ours, values)| *ours && values.len() > short_s);
    let ours: Vec<Series> = ours.map(|(label, ours, values)| series(label, *ours, values)).collect();
    if !ours.is_empty() {
        lines::draw(canvas, &panel(format!("rowlock, {} s", run.sizes.hold_ours_s), ours));
    }
}

/// Our own cases as rows of one panel.
fn own(run: &Run, canvas: &mut Canvas, title: &str, (value, unit): (&str, &str), rows: &[(&str, &str)]) {
    let mut bars = Vec::new();
    for (name, label) in rows {
        match run.samples.spread(name, "ours", value) {
            Some(spread) => bars.push(Bar::of(*label, Role::Ours, spread)),
            None => {
                let why = run.samples.why_not(name, "ours");
                bars.extend(why.map(|why| Bar::none(*label, Role::Ours, &why)));
            }
        }
    }
    bars::draw(
        canvas,
        &Panel {
            title: title.to_owned(),
            unit: unit.to_owned(),
            bars,
        },
    );
}

fn store(run: &Run, canvas: &mut Canvas) {
    let rows = format!("{}M", run.sizes.filled / 1_000_000);
    let (backlog, history) = (format!("{rows} in backlog"), format!("{rows} in history"));
    let rows = [
        ("fill-empty", "empty tables"),
        ("fill-backlog", backlog.as_str()),
        ("fill-history", history.as_str()),
    ];
    let title = "time the server spends claiming, per job";
    own(run, canvas, title, ("claim_us_per_job", "µs"), &rows);
    own(run, canvas, "no-op jobs drained", ("per_s", "jobs/s"), &rows);
}

fn wal(run: &Run, canvas: &mut Canvas) {
    let measured = Measured {
        samples: &run.samples,
        programs: &run.programs,
    };
    let mut figures: Vec<(f64, Bar)> = Vec::new();
    for program in run.samples.programs("drain") {
        let Some(sum) = wal_bytes(&measured, program) else {
            continue;
        };
        let part = |name| run.samples.median(name, program, "wal_per_job").unwrap_or_default();
        let keeps = run.programs.find(program).and_then(|known| known.keeps_history());
        let history = if keeps == Some(false) { ", no history" } else { "" };
        let bar = Bar {
            label: format!("{}{history}", label(run, program)),
            role: role(run, program),
            parts: vec![part("enqueue"), part("drain")],
            whisker: None,
            note: None,
        };
        figures.push((sum, bar));
    }
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    bars::draw(
        canvas,
        &Panel {
            title: "dark: enqueue; light: drain".to_owned(),
            unit: "bytes per job".to_owned(),
            bars: figures.into_iter().map(|(_, bar)| bar).collect(),
        },
    );
}

fn idle(run: &Run, canvas: &mut Canvas) {
    for (title, value, unit) in [
        ("statements while idle", "statements_per_s", "statements/s"),
        ("resident memory", "resident_mb", "MB"),
    ] {
        let mut bars = Vec::new();
        for (name, queues) in [("idle-1", "1 queue"), ("idle-50", "50 queues")] {
            for program in run.samples.programs(name) {
                if let Some(spread) = run.samples.spread(name, program, value) {
                    let label = format!("{}, {queues}", label(run, program));
                    bars.push(Bar::of(label, role(run, program), spread));
                }
            }
        }
        bars::draw(
            canvas,
            &Panel {
                title: title.to_owned(),
                unit: unit.to_owned(),
                bars,
            },
        );
    }
}

fn processes(run: &Run, canvas: &mut Canvas) {
    let (mut points, mut spread) = (Vec::new(), Vec::new());
    for processes in PROCESSES {
        if let Some(found) = run.samples.spread(&format!("share-{processes}"), "ours", "per_s") {
            points.push((processes as f64, found.median));
            spread.push((found.min, found.max));
        }
    }
    let series = Series {
        label: "rowlock".to_owned(),
        ours: true,
        points,
        spread,
    };
    lines::draw(
        canvas,
        &lines::Panel {
            title: "no-op jobs drained by all processes together".to_owned(),
            x_label: "worker processes".to_owned(),
            y_label: "jobs/s".to_owned(),
            series: vec![series],
            steps: PROCESSES.iter().map(|&processes| processes as f64).collect(),
        },
    );
}

fn defaults(run: &Run, canvas: &mut Canvas) {
    let rows = [
        ("drain", "no-op, best"),
        ("drain-defaults", "no-op, defaults"),
        ("book-next", "atomic + next, best"),
        ("book-next-defaults", "atomic + next, defaults"),
        ("book-batch", "ten per commit, best"),
        ("book-batch-defaults", "ten per commit, defaults"),
    ];
    own(run, canvas, "rowlock", ("per_s", "jobs/s"), &rows);
    programs(run, canvas, case("drain-defaults"), None);
}

fn growth(run: &Run, canvas: &mut Canvas) {
    let future = format!("{} due in a day", number(run.sizes.future as f64));
    let panels: [(&str, &[(&str, &str)]); 4] = [
        (
            "rows that are not due",
            &[("grow-base", "none"), ("grow-future", &future)],
        ),
        (
            "queues, of which the worker serves 100",
            &[("grow-queues-base", "100"), ("grow-queues", "10,000")],
        ),
        ("kinds", &[("grow-kinds-1", "1"), ("grow-kinds-50", "50")]),
        (
            "payload",
            &[
                ("grow-payload-200", "200 B"),
                ("grow-payload-2048", "2 KB"),
                ("grow-payload-65536", "64 KB"),
            ],
        ),
    ];
    for (title, rows) in panels {
        own(run, canvas, title, ("per_s", "jobs/s"), rows);
    }
}
