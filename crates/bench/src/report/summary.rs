//! The one object of `--json` and summary.json.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::detail::columns;
use crate::case::case;
use crate::run::Run;
use crate::sample::Ended;
use crate::verdict::Verdict;

/// Every benchmark by name, with the spread of every program beside its verdict.
pub(super) fn object(run: &Run, verdicts: &[Verdict]) -> Value {
    let mut lanes = Map::new();
    for verdict in verdicts {
        lanes.insert(verdict.lane.name.to_owned(), lane(run, verdict));
    }
    let mut programs = Map::new();
    for program in &run.programs.all {
        programs.insert(program.name.clone(), program.about.clone());
    }
    json!({
        "run": run_name(&run.out),
        "reduced": run.sizes.reduced,
        "rounds": run.sizes.rounds,
        "lanes": lanes,
        "programs": programs,
        "left_out": run.programs.left_out,
        "violations": run.violations,
    })
}

/// The folder below the tree; of one elsewhere only its name, for a path says where somebody's home is.
fn run_name(out: &Path) -> String {
    let shown = if out.is_absolute() {
        out.file_name().map(Path::new)
    } else {
        Some(out)
    };
    shown.unwrap_or(out).display().to_string()
}

fn lane(run: &Run, verdict: &Verdict) -> Value {
    let peer = verdict.best_peer.as_ref();
    let mut lane = json!({
        "title": verdict.lane.title,
        "unit": verdict.unit,
        "ours": verdict.ours,
        "best_peer": peer.map(|(_, figure)| *figure),
        "best_peer_name": peer.map(|(name, _)| name),
        "ceiling": verdict.ceiling,
        "ratio_peer": verdict.ratio_peer(),
        "ratio_ceiling": verdict.ratio_ceiling(),
        "target": verdict.lane.target,
        "met": verdict.met,
        "reduced": run.sizes.reduced,
        "more": verdict.more,
    });
    let mut cases = Map::new();
    for name in verdict.lane.cases {
        cases.insert((*name).to_owned(), programs(run, name));
    }
    lane["cases"] = Value::Object(cases);
    lane
}

fn programs(run: &Run, name: &str) -> Value {
    let (samples, about) = (&run.samples, case(name));
    let mut programs = Map::new();
    for program in samples.programs(name) {
        let mut one = Map::new();
        if let Some(spread) = samples.spread(name, program, about.value) {
            one.insert("median".to_owned(), json!(spread.median));
            one.insert("min".to_owned(), json!(spread.min));
            one.insert("max".to_owned(), json!(spread.max));
            one.insert("rounds".to_owned(), json!(spread.count));
        }
        for (value, _) in columns(name) {
            if let Some(median) = samples.median(name, program, value) {
                one.insert((*value).to_owned(), json!(median));
            }
        }
        let stalled = samples.count(name, program, Ended::Stalled);
        if stalled > 0 {
            one.insert("stalled".to_owned(), json!(stalled));
        }
        if let Some(why) = samples.why_not(name, program) {
            one.insert("why_not".to_owned(), json!(why));
        }
        programs.insert(program.to_owned(), Value::Object(one));
    }
    json!({"unit": about.unit, "programs": programs})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_is_named_without_a_home() {
        assert_eq!(run_name(Path::new("bench/runs/2026-11-15")), "bench/runs/2026-11-15");
        assert_eq!(run_name(Path::new("/far/away/out")), "out");
    }
}
