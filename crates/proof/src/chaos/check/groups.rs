//! Groups: one at a time, in the order of their commits.

use std::collections::BTreeMap;

use super::{Finding, Harm, Look};
use crate::chaos::{history::JobRow, orders::Workload};

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    match look.history.workloads.contains(&Workload::Groups) {
        true => vec![alone(look), order(look)],
        false => Vec::new(),
    }
}

fn groups<'a>(look: &Look<'a>) -> BTreeMap<&'a str, Vec<&'a JobRow>> {
    let mut groups: BTreeMap<&str, Vec<&JobRow>> = BTreeMap::new();
    for job in &look.history.jobs {
        if let Some(group) = &job.group {
            groups.entry(group).or_default().push(job);
        }
    }
    groups
}

fn alone(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("never two of a group under way", Harm::Illegal);
    for (group, jobs) in groups(look) {
        let leases = jobs.iter().flat_map(|job| look.outcomes(job.id));
        let mut leases: Vec<_> = leases.map(|o| (o.started_ms, o.ended_ms, o.id)).collect();
        leases.sort_unstable();
        for two in leases.windows(2) {
            let [(_, over, before), (began, _, job)] = [two[0], two[1]];
            finding.expect(over <= began, || {
                format!(
                    "{group}: job {job} was claimed {} ms before job {before} was over",
                    over - began
                )
            });
        }
    }
    finding
}

/// One whose enqueue was committed before another's began runs before it; those that were open at the same time may
/// come either way. The id is what a job begins with: it may be younger than its time.
fn order(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("a group runs in the order of its commits", Harm::Illegal);
    for (group, jobs) in groups(look) {
        for job in &jobs {
            let Some(began) = look.outcomes(job.id).first().map(|o| o.started_ms) else {
                continue;
            };
            let before = jobs.iter().filter(|b| b.id < job.id && b.committed_ms < job.created_ms);
            let over = |before: &JobRow| look.outcomes(before.id).last().map_or(i64::MAX, |o| o.ended_ms);
            if let Some(last) = before.max_by_key(|b| over(b)) {
                finding.expect(over(last) <= began, || {
                    format!("{group}: job {} was claimed before job {} was over", job.id, last.id)
                });
            }
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, job_of, sound};

    #[test]
    fn two_at_once_are_noticed() {
        let mut history = sound();
        let first = job_of(&history, "posting");
        let lease = history.outcomes.iter_mut().rfind(|o| o.id == first).unwrap();
        lease.ended_ms += 1_000;
        assert!(broken(&history).contains(&"never two of a group under way"));
    }

    #[test]
    fn one_that_overtakes_another_is_noticed() {
        let mut history = sound();
        let first = job_of(&history, "posting");
        let second = history.jobs.iter().rfind(|job| job.kind == "posting").unwrap().id;
        assert_ne!(first, second);
        let times = |id| {
            history
                .outcomes
                .iter()
                .filter(move |o| o.id == id)
                .map(|o| (o.started_ms, o.ended_ms))
        };
        let (early, late) = (times(first).next().unwrap(), times(second).next_back().unwrap());
        for outcome in &mut history.outcomes {
            if outcome.id == second {
                (outcome.started_ms, outcome.ended_ms) = (early.0 - 9, early.0 - 5);
            }
        }
        assert!(early < late);
        let broken = broken(&history);
        assert!(
            broken.contains(&"a group runs in the order of its commits"),
            "{broken:?}"
        );
        assert!(!broken.contains(&"never two of a group under way"), "{broken:?}");
    }

    #[test]
    fn those_that_were_open_at_the_same_time_have_no_order() {
        let mut history = sound();
        let first = job_of(&history, "posting");
        let second = first + 1;
        history.jobs[first as usize - 1].committed_ms = history.jobs[second as usize - 1].created_ms;
        let early = history.outcomes.iter().find(|o| o.id == first).unwrap().started_ms;
        for outcome in history.outcomes.iter_mut().filter(|o| o.id == second) {
            (outcome.started_ms, outcome.ended_ms) = (early - 9, early - 5);
        }
        assert!(!broken(&history).contains(&"a group runs in the order of its commits"));
    }
}
