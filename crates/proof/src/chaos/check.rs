//! The checker: what must hold of every history, whatever was done to the system.
//!
//! Each check counts what it looked at. One that had nothing to look at, although the run should have given it
//! something, has proven nothing and counts as broken.

mod breakers;
mod calls;
mod effects;
mod enqueues;
mod groups;
mod liveness;
mod paths;
mod people;
#[cfg(test)]
mod testing;
mod told;

use std::collections::HashMap;

pub use self::liveness::{percentile, recoveries};
use super::history::{History, JobRow, LedgerRow, OutcomeRow};

/// What a broken check means to a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// A job or its effect is missing.
    Lost,
    /// An effect happened twice.
    Doubled,
    /// Something was written under a lease that was over.
    Stale,
    /// A job went a way that there is not.
    Illegal,
    /// A worker was informed of something else than what happened.
    Wrong,
    /// It took too long, or did not come to rest.
    Late,
    /// The run was too weak to show anything.
    Weak,
}

/// What one check found.
#[derive(Debug)]
pub struct Finding {
    /// The check.
    pub name: &'static str,
    /// What it means when it is broken, unless a violation says otherwise.
    pub harm: Harm,
    /// How much it looked at.
    pub looked_at: usize,
    /// What broke it.
    pub violations: Vec<(Harm, String)>,
}

impl Finding {
    fn new(name: &'static str, harm: Harm) -> Finding {
        Finding {
            name,
            harm,
            looked_at: 0,
            violations: Vec::new(),
        }
    }

    /// Looks at one more thing, which is either so or broken.
    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        self.expect_or(holds, self.harm, what);
    }

    fn expect_or(&mut self, holds: bool, harm: Harm, what: impl FnOnce() -> String) {
        self.looked_at += 1;
        if !holds {
            self.violations.push((harm, what()));
        }
    }

    /// Whether it holds.
    pub fn holds(&self) -> bool {
        self.violations.is_empty()
    }
}

/// A history with what the checks look up again and again.
struct Look<'a> {
    history: &'a History,
    jobs: HashMap<i64, &'a JobRow>,
    outcomes: HashMap<i64, Vec<&'a OutcomeRow>>,
    ledger: HashMap<i64, Vec<&'a LedgerRow>>,
}

impl<'a> Look<'a> {
    fn new(history: &'a History) -> Look<'a> {
        let mut outcomes: HashMap<i64, Vec<&OutcomeRow>> = HashMap::new();
        for outcome in &history.outcomes {
            outcomes.entry(outcome.id).or_default().push(outcome);
        }
        outcomes.values_mut().for_each(|all| all.sort_by_key(|o| o.epoch));
        let mut ledger: HashMap<i64, Vec<&LedgerRow>> = HashMap::new();
        for row in &history.ledger {
            ledger.entry(row.job).or_default().push(row);
        }
        Look {
            history,
            jobs: history.jobs.iter().map(|job| (job.id, job)).collect(),
            outcomes,
            ledger,
        }
    }

    fn outcomes(&self, job: i64) -> &[&'a OutcomeRow] {
        self.outcomes.get(&job).map(Vec::as_slice).unwrap_or_default()
    }

    /// The outcome of this lease.
    fn outcome(&self, job: i64, epoch: i64) -> Option<&'a OutcomeRow> {
        self.outcomes(job).iter().find(|o| o.epoch == epoch).copied()
    }

    fn done(&self, job: i64) -> Option<&'a OutcomeRow> {
        let outcomes = self.outcomes(job).iter();
        outcomes.copied().find(|o| o.ended == rowlock::Ended::Done)
    }

    fn ledger(&self, job: i64) -> &[&'a LedgerRow] {
        self.ledger.get(&job).map(Vec::as_slice).unwrap_or_default()
    }

    fn of_kind<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'a JobRow> + 's {
        self.history.jobs.iter().filter(move |job| job.kind == kind)
    }
}

/// Runs every check that fits the run.
pub fn check(history: &History) -> Vec<Finding> {
    let look = Look::new(history);
    let mut findings = Vec::new();
    findings.extend(enqueues::check(&look));
    findings.extend(effects::check(&look));
    findings.extend(paths::check(&look));
    findings.extend(told::check(&look));
    findings.extend(breakers::check(&look));
    findings.extend(groups::check(&look));
    findings.extend(people::check(&look));
    findings.extend(calls::check(&look));
    findings.extend(liveness::check(&look));
    for finding in &mut findings {
        if finding.looked_at == 0 {
            let nothing = (Harm::Weak, "the run gave it nothing to look at".to_owned());
            finding.violations.push(nothing);
        }
    }
    findings
}

/// Checks whose feature there is not yet: named, never counted.
pub const NOT_YET_BUILT: [&str; 2] = ["one job per schedule and tick", "limits per key"];

fn field(job: &JobRow, name: &str) -> i64 {
    job.payload[name].as_i64().unwrap_or(i64::MIN)
}
