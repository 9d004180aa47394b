//! Operators: what they decide about a job holds, and nothing goes on after an end except by an operator command.

use std::collections::HashSet;

use rowlock::Ended;

use super::{Finding, Harm, Look};
use crate::chaos::{
    history::{JobRow, OutcomeRow},
    orders::Workload,
};

/// The kind that people meddle with; its paths are looked at here alone.
pub(super) const MEDDLED: &str = "errand";

/// An attempt that an operator ended, whichever worker had it.
pub(super) fn by_hand(outcome: &OutcomeRow) -> bool {
    outcome.worker == 0
}

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    match look.history.workloads.contains(&Workload::Errands) {
        true => vec![stands(look), noted(look)],
        false => Vec::new(),
    }
}

fn times(look: &Look<'_>, job: i64, verb: &str) -> usize {
    let deeds = look.history.deeds.iter();
    deeds.filter(|(id, done)| *id == job && done == verb).count()
}

/// Each lease ends once, attempts begin anew after an end, and each end that is followed was taken back by a person.
fn stands(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("nothing follows an end but by a person's word", Harm::Illegal);
    for job in look.of_kind(MEDDLED) {
        let (mut epoch, mut used) = (0, 0);
        let (mut rerun, mut reopened) = (0, 0);
        let mut before: Option<&OutcomeRow> = None;
        for outcome in look.outcomes(job.id) {
            let step = || format!("{} {}: {before:?} then {outcome:?}", job.kind, job.id);
            match before.map(|outcome| outcome.ended) {
                Some(Ended::Done | Ended::Cancelled) => (rerun, used) = (rerun + 1, 0),
                Some(Ended::Retired) => (reopened, used) = (reopened + 1, 0),
                _ => {}
            }
            finding.expect(outcome.epoch == epoch + 1, || format!("epochs: {}", step()));
            // A person may end what nobody had begun.
            let counted = outcome.attempt == used + 1 || (by_hand(outcome) && outcome.attempt == used);
            finding.expect(counted, || format!("attempts: {}", step()));
            let gives_back = matches!(outcome.ended, Ended::Deferred | Ended::Released);
            (epoch, used) = (outcome.epoch, outcome.attempt - i32::from(gives_back));
            before = Some(outcome);
        }
        let (may_rerun, may_reopen) = (times(look, job.id, "rerun"), times(look, job.id, "reopen"));
        finding.expect(rerun <= may_rerun && reopened <= may_reopen, || {
            format!(
                "job {} went on after {rerun} ends and {reopened} retirements; people wanted {may_rerun} and {may_reopen}",
                job.id
            )
        });
    }
    finding
}

/// What the audit says was done was done, and nothing else.
fn noted(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new(
        "every deed of a person is an outcome, and the other way round",
        Harm::Wrong,
    );
    let ended = |job: &JobRow, ended: Ended| {
        let outcomes = look.outcomes(job.id).iter();
        outcomes.filter(|o| by_hand(o) && o.ended == ended).count()
    };
    for job in look.of_kind(MEDDLED) {
        for (verb, outcome) in [("cancel", Ended::Cancelled), ("retire", Ended::Retired)] {
            let (deeds, ends) = (times(look, job.id, verb), ended(job, outcome));
            finding.expect(deeds == ends, || {
                format!(
                    "job {}: {deeds} times {verb} in the audit, {ends} such outcomes",
                    job.id
                )
            });
        }
    }
    // One or the other may not come about in a short run.
    let verbs: HashSet<&str> = look.history.deeds.iter().map(|(_, verb)| verb.as_str()).collect();
    finding.expect_or(verbs.len() >= 4, Harm::Weak, || {
        format!("people did no more than {verbs:?}")
    });
    finding
}

#[cfg(test)]
mod tests {
    use rowlock::Ended;

    use crate::chaos::check::testing::{broken, sound};

    const STANDS: &str = "nothing follows an end but by a person's word";
    const NOTED: &str = "every deed of a person is an outcome, and the other way round";

    #[test]
    fn a_job_that_goes_on_after_its_end_without_a_word_is_found() {
        let mut history = sound();
        history.deeds.retain(|(_, verb)| verb != "rerun");
        let found = broken(&history);
        assert!(found.contains(&STANDS), "{found:?}");
    }

    #[test]
    fn a_deed_that_left_nothing_is_found() {
        let mut history = sound();
        let (id, _) = *history.deeds.iter().find(|(_, verb)| verb == "cancel").unwrap();
        history.outcomes.retain(|outcome| outcome.id != id);
        let found = broken(&history);
        assert!(found.contains(&NOTED), "{found:?}");
    }

    #[test]
    fn an_end_by_a_hand_that_nobody_lent_is_found() {
        let mut history = sound();
        let done = history.outcomes.iter_mut().find(|o| o.worker == 0).unwrap();
        done.ended = Ended::Retired;
        let found = broken(&history);
        assert!(found.contains(&NOTED), "{found:?}");
    }

    #[test]
    fn a_success_that_counted_after_a_cancel_is_found() {
        let mut history = sound();
        let by_hand = history
            .outcomes
            .iter()
            .find(|o| o.worker == 0 && o.attempt == 1)
            .unwrap();
        let mut late = history.ledger[0].clone();
        (late.job, late.epoch) = (by_hand.id, by_hand.epoch);
        history.ledger.push(late);
        let found = broken(&history);
        assert!(found.contains(&"no write under a lease that was over"), "{found:?}");
    }
}
