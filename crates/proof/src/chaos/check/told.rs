//! What workers were told: that an attempt is done, lost, committed or not, against what the database says.

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
            // What was undone in a batch is run again under the same lease.
            let again = look.jobs.get(id).is_some_and(|job| job.kind == "tally");
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
}
