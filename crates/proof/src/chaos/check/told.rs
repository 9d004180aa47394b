//! What workers heard: that an attempt is done, lost, committed or not, compared with what the database says.

use rowlock::Ended;

use super::{Finding, Harm, Look};

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    let mut findings = vec![done(look), lost(look)];
    if look.history.faults.wanted.iter().any(|kind| kind.starts_with("commit")) {
        findings.push(resolved(look));
    }
    findings
}

fn done(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("what was called done is done", Harm::Wrong);
    for rower in &look.history.rowers {
        for (id, epoch) in &rower.done {
            let ended = look.outcome(*id, *epoch).map(|outcome| outcome.ended);
            finding.expect(ended == Some(Ended::Done), || {
                format!(
                    "{} was told that epoch {epoch} of job {id} is done, and it is {ended:?}",
                    rower.name
                )
            });
        }
    }
    finding
}

/// The settlement of a lost lease was refused, and left nothing.
fn lost(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("what lost its lease left nothing", Harm::Stale);
    for rower in &look.history.rowers {
        for (id, epoch) in &rower.lost {
            let ended = look.outcome(*id, *epoch).map(|outcome| outcome.ended);
            let wrote = look.ledger(*id).iter().any(|row| row.epoch == *epoch);
            finding.expect(ended != Some(Ended::Done) && !wrote, || {
                format!(
                    "{} lost epoch {epoch} of job {id}, which is {ended:?}, effect: {wrote}",
                    rower.name
                )
            });
        }
    }
    finding
}

fn resolved(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("a commit without a reply is looked up rightly", Harm::Wrong);
    for rower in &look.history.rowers {
        for (id, epoch, committed) in &rower.resolved {
            let ended = look.outcome(*id, *epoch).map(|outcome| outcome.ended);
            let kind = look.jobs.get(id).map_or("", |job| job.kind.as_str());
            // What was undone in a batch is run again under the same lease. Where a guard found a change, nothing
            // but that is written, and written once more.
            let again = kind == "tally" || (kind == "guarded" && look.ledger(*id).is_empty());
            let right = match committed {
                true => ended.is_some_and(|ended| ended != Ended::Lost),
                false => again || ended != Some(Ended::Done),
            };
            finding.expect(right, || {
                format!(
                    "{} was told committed: {committed} of epoch {epoch} of job {id}, which is {ended:?}",
                    rower.name
                )
            });
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use crate::chaos::check::testing::{broken, job_of, sound};

    #[test]
    fn a_job_called_done_that_is_not_is_found() {
        let mut history = sound();
        let id = job_of(&history, "doomed");
        history.rowers[0].done.push((id, 1));
        assert_eq!(broken(&history), ["what was called done is done"]);
    }

    #[test]
    fn a_lost_lease_whose_effect_stands_is_found() {
        let mut history = sound();
        let id = job_of(&history, "transfer");
        history.rowers[0].lost.push((id, 1));
        assert_eq!(broken(&history), ["what lost its lease left nothing"]);
    }

    #[test]
    fn a_commit_resolved_wrongly_is_found_both_ways() {
        for (kind, committed) in [("transfer", false), ("transfer", true)] {
            let mut history = sound();
            let id = job_of(&history, kind);
            let epoch = if committed { 9 } else { 1 };
            history.rowers[0].resolved.push((id, epoch, committed));
            assert_eq!(broken(&history), ["a commit without a reply is looked up rightly"]);
        }
    }

    #[test]
    fn what_a_changed_guard_ended_may_be_written_once_more_and_its_effect_may_not() {
        for effects in [0, 1] {
            let mut history = sound();
            let guarded: Vec<i64> = history
                .jobs
                .iter()
                .filter(|job| job.kind == "guarded")
                .map(|job| job.id)
                .collect();
            let count = |id: i64| history.ledger.iter().filter(|row| row.job == id).count();
            let id = guarded
                .into_iter()
                .find(|id| count(*id) == effects)
                .expect("one of each");
            history.rowers[0].resolved.push((id, 1, false));
            let wrong: &[&str] = if effects == 0 {
                &[]
            } else {
                &["a commit without a reply is looked up rightly"]
            };
            assert_eq!(broken(&history), wrong);
        }
    }
}
