//! `cargo xtask bench --against COMMIT`: does a commit cost more processor time per job than an older one?
//!
//! Three programs run in turn: ours, ours of the older commit, and ours once more. A round gives one pair before ÷
//! after and one pair of equal programs, whose distance from 1 is what this machine cannot tell apart. The benchmarks
//! are those of the other runs, with the same sizes.

use std::fmt::Write;

use anyhow::{Result, bail};
use serde_json::{Map, Value, json};

use crate::case::{CASES, Case};
use crate::report;
use crate::run::Run;
use crate::sample::{Ended, Sample, Samples};
use crate::stats::percentile;

/// The benchmarks whose cases count processor time.
pub(crate) const LANES: [&str; 6] = ["S1", "S2", "S3", "S7", "S8", "S12"];
/// Fewer pairs say too little.
pub(crate) const PAIRS: usize = 7;
/// A machine that differs from itself by more needs more pairs.
const SPREAD_MAX: f64 = 0.05;
const CPU: &str = "cpu_us_per_job";

/// One case of both commits.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Compared {
    before_us: f64,
    after_us: f64,
    /// Median of before ÷ after; below 1, the newer commit costs more.
    ratio: f64,
    /// Median distance of equal programs from 1.
    spread: f64,
    pairs: usize,
}

/// Writes both forms into the run's folder; gives what belongs on standard output.
pub(crate) fn write(run: &Run) -> Result<String> {
    let compared: Vec<(&Case, Compared)> = CASES
        .iter()
        .filter_map(|case| Some((case, compare(&run.samples, case.name)?)))
        .collect();
    if compared.is_empty() {
        bail!(
            "no case was measured with all three programs; see samples.jsonl in {}",
            run.out.display()
        );
    }
    let mut text = String::new();
    let mut cases = Map::new();
    for (case, compared) in &compared {
        writeln!(text, "{}", line(case, compared))?;
        cases.insert(case.name.to_owned(), object(compared));
    }
    let object = json!({ "reduced": run.sizes.reduced, "cases": Value::Object(cases) });
    report::save(run, "against.txt", &text)?;
    report::save(
        run,
        "against.json",
        &format!("{}\n", serde_json::to_string_pretty(&object)?),
    )?;
    eprintln!("\nsamples and figures are in {}", run.out.display());
    Ok(if run.json { format!("{object}\n") } else { text })
}

fn compare(samples: &Samples, case: &str) -> Option<Compared> {
    let pairs = |first: &'static str, second: &'static str| -> Vec<f64> {
        let measured = |program| {
            samples
                .of(case, program)
                .filter(|sample| sample.ended == Ended::Measured)
        };
        let pair = |one: &Sample| {
            let other = measured(second).find(|other| other.round == one.round)?;
            Some(one.values.get(CPU)? / other.values.get(CPU)?)
        };
        measured(first).filter_map(pair).collect()
    };
    let ratios = pairs("before", "ours");
    let distances: Vec<f64> = pairs("ours", "again").iter().map(|ratio| (ratio - 1.0).abs()).collect();
    Some(Compared {
        before_us: samples.median(case, "before", CPU)?,
        after_us: samples.median(case, "ours", CPU)?,
        ratio: percentile(&ratios, 50.0)?,
        spread: percentile(&distances, 50.0)?,
        pairs: ratios.len(),
    })
}

fn line(case: &Case, compared: &Compared) -> String {
    let Compared {
        before_us,
        after_us,
        ratio,
        spread,
        pairs,
    } = compared;
    let more = if *spread > SPREAD_MAX {
        "; take more pairs with --rounds"
    } else {
        ""
    };
    format!(
        "{:<14} CPU µs/job before {before_us:.1}, after {after_us:.1}: ratio {ratio:.3} of {pairs} pairs, \
         equal programs differ by {spread:.3}{more}",
        case.name
    )
}

fn object(compared: &Compared) -> Value {
    json!({
        "before_us_per_job": compared.before_us,
        "after_us_per_job": compared.after_us,
        "ratio": compared.ratio,
        "spread": compared.spread,
        "pairs": compared.pairs,
        "more_pairs_needed": compared.spread > SPREAD_MAX || compared.pairs < PAIRS,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(rounds: &[(f64, f64, f64)]) -> Samples {
        let mut samples = Samples::default();
        for (round, (before, ours, again)) in rounds.iter().enumerate() {
            for (program, value) in [("before", before), ("ours", ours), ("again", again)] {
                samples.add(Sample::new("drain", program, round, Ended::Measured).with(CPU, *value));
            }
        }
        samples
    }

    #[test]
    fn a_ratio_is_the_median_of_pairs_and_the_spread_that_of_equal_programs() {
        let samples = samples(&[(10.0, 10.0, 10.0), (8.0, 10.0, 12.5), (9.0, 10.0, 10.0)]);
        let compared = compare(&samples, "drain").unwrap();
        assert_eq!((compared.ratio, compared.spread, compared.pairs), (0.9, 0.0, 3));
        assert_eq!((compared.before_us, compared.after_us), (9.0, 10.0));
    }

    #[test]
    fn a_round_that_one_program_did_not_end_is_no_pair() {
        let mut samples = samples(&[(10.0, 10.0, 10.0)]);
        samples.add(Sample::new("drain", "before", 1, Ended::Stalled).with(CPU, 1.0));
        samples.add(Sample::new("drain", "ours", 1, Ended::Measured).with(CPU, 10.0));
        assert_eq!(compare(&samples, "drain").unwrap().pairs, 1);
        assert_eq!(compare(&samples, "life"), None);
    }

    #[test]
    fn a_machine_that_differs_from_itself_asks_for_more_pairs() {
        let compared = compare(&samples(&[(10.0, 10.0, 11.0)]), "drain").unwrap();
        let case = CASES.iter().find(|case| case.name == "drain").unwrap();
        assert!(line(case, &compared).ends_with("take more pairs with --rounds"));
        assert_eq!(object(&compared)["more_pairs_needed"], true);
    }
}
