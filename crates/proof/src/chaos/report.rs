//! What a run is summed up to: a table for people, one object for machines.

use std::fmt::Write;

use serde_json::{Value, json};

use super::{
    check::{Finding, Harm, NOT_YET_BUILT, check, percentile, recoveries},
    history::History,
};

/// One database's part of a run.
pub struct Part {
    /// The database.
    pub database: String,
    /// How long it took, in seconds.
    pub seconds: f64,
    /// What happened.
    pub history: History,
    /// What the checks found.
    pub findings: Vec<Finding>,
}

impl Part {
    /// Checks a history.
    pub fn new(database: &str, seconds: f64, history: History) -> Part {
        Part {
            database: database.to_owned(),
            seconds,
            findings: check(&history),
            history,
        }
    }

    /// Every violation.
    pub fn violations(&self) -> impl Iterator<Item = (&Finding, Harm, &str)> {
        let all = self.findings.iter();
        all.flat_map(|finding| {
            finding
                .violations
                .iter()
                .map(move |(harm, what)| (finding, *harm, what.as_str()))
        })
    }

    fn count(&self, harm: Harm) -> usize {
        self.violations().filter(|(_, of, _)| *of == harm).count()
    }

    fn faults(&self) -> usize {
        self.history.faults.counts.values().sum()
    }

    fn cuts(&self) -> usize {
        let faults = &self.history.faults;
        faults.cut_committed + faults.cut_not_committed + faults.cut_unknown
    }

    fn lost_seen(&self) -> usize {
        self.history.rowers.iter().map(|rower| rower.lost.len()).sum()
    }

    fn resolved(&self) -> usize {
        self.history.rowers.iter().map(|rower| rower.resolved.len()).sum()
    }

    /// For people.
    pub fn table(&self) -> String {
        let mut text = format!(
            "{}: {:.0} s, {} jobs\n",
            self.database,
            self.seconds,
            self.history.jobs.len()
        );
        let mut line = |what: &str, value: String| _ = writeln!(text, "  {what:<72} {value:>10}");
        for (kind, times) in &self.history.faults.counts {
            line(kind, times.to_string());
        }
        line("all faults", self.faults().to_string());
        let faults = &self.history.faults;
        line("commits cut off, and committed", faults.cut_committed.to_string());
        line(
            "commits cut off, and not committed",
            faults.cut_not_committed.to_string(),
        );
        line("leases lost, and refused", self.lost_seen().to_string());
        line("commits looked up", self.resolved().to_string());
        let times = recoveries(&self.history);
        let recovery = percentile(&times, 0.99).map_or("-".into(), |ms| format!("{ms} ms"));
        line("dead worker to claimable, 99th of 100", recovery);
        for finding in &self.findings {
            let verdict = match finding.violations.len() {
                0 => format!("{} ok", finding.looked_at),
                broken => format!("{broken} BROKEN"),
            };
            line(finding.name, verdict);
        }
        for name in NOT_YET_BUILT {
            line(name, "not yet built".into());
        }
        for missing in &faults.missing {
            line(missing, "missing".into());
        }
        for finding in &self.findings {
            for (harm, what) in finding.violations.iter().take(4) {
                _ = writeln!(text, "  {harm:?}: {}: {what}", finding.name);
            }
        }
        text
    }

    /// Every violation, a line each.
    pub fn all_violations(&self) -> String {
        let line = |(finding, harm, what): (&Finding, Harm, &str)| format!("{harm:?}: {}: {what}\n", finding.name);
        self.violations().map(line).collect()
    }
}

/// One object over all parts.
pub fn object(parts: &[Part], seed: u64) -> Value {
    let sum = |of: &dyn Fn(&Part) -> usize| parts.iter().map(of).sum::<usize>();
    let harmed = |harm: Harm| sum(&|part| part.count(harm));
    let mut times: Vec<i64> = parts.iter().flat_map(|part| recoveries(&part.history)).collect();
    times.sort_unstable();
    let mut kinds: Vec<&String> = parts
        .iter()
        .flat_map(|part| part.history.faults.counts.keys())
        .collect();
    kinds.sort_unstable();
    kinds.dedup();
    json!({
        "jobs": sum(&|part| part.history.jobs.len()),
        "faults": sum(&Part::faults),
        "fault_kinds": kinds.len(),
        "lost": harmed(Harm::Lost),
        "doubled": harmed(Harm::Doubled),
        "stale_writes": harmed(Harm::Stale),
        "illegal_transitions": harmed(Harm::Illegal),
        "lease_lost_seen": sum(&Part::lost_seen),
        "commit_cuts": sum(&Part::cuts),
        "commit_cuts_committed": sum(&|part| part.history.faults.cut_committed),
        "commit_cuts_not_committed": sum(&|part| part.history.faults.cut_not_committed),
        "commits_resolved": sum(&Part::resolved),
        "wrong_resolutions": harmed(Harm::Wrong),
        "breaker_trips": sum(&|part| part.history.line.iter().filter(|moved| moved.to == "open").count()),
        "recovery_ms_p99": percentile(&times, 0.99),
        "recoveries": times.len(),
        "violations": sum(&|part| part.violations().count()),
        "seed": seed,
        "databases": parts.iter().map(part_object).collect::<Vec<_>>(),
    })
}

fn part_object(part: &Part) -> Value {
    let checks: Vec<Value> = part
        .findings
        .iter()
        .map(|f| json!({"check": f.name, "looked_at": f.looked_at, "violations": f.violations.len()}))
        .collect();
    json!({
        "database": part.database,
        "seconds": part.seconds.round(),
        "jobs": part.history.jobs.len(),
        "faults": part.history.faults.counts,
        "missing": part.history.faults.missing,
        "checks": checks,
        "not_yet_built": NOT_YET_BUILT,
    })
}
