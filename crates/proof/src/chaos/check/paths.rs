//! Paths: each job went from lease to lease along allowed transitions, with epochs that only grow, and is where its
//! last outcome led. The rules are written down here again, on purpose, instead of asking the library.

use std::collections::HashSet;

use rowlock::Ended;

use super::{Finding, Harm, Look, people::MEDDLED};
use crate::chaos::{
    history::{JobRow, OutcomeRow, Place},
    jobs::NOBODYS,
    orders::Workload,
};

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    let has = |workload| look.history.workloads.contains(&workload);
    let mut findings = vec![legal(look), places(look), counted(look), one_owner(look)];
    if has(Workload::Poison) {
        findings.push(retired(look));
    }
    if has(Workload::Unknown) {
        findings.push(unknown(look));
    }
    findings
}

/// Whether the job is over with this outcome, unless somebody reopens it.
fn ends(outcome: &OutcomeRow, attempts_max: i32) -> bool {
    match outcome.ended {
        Ended::Done | Ended::Cancelled | Ended::Retired => true,
        Ended::Lost => outcome.attempt >= attempts_max,
        _ => false,
    }
}

fn gives_back(outcome: &OutcomeRow) -> bool {
    matches!(outcome.ended, Ended::Deferred | Ended::Released)
}

fn legal(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("every history is a path that there is", Harm::Illegal);
    let reopened: HashSet<i64> = look.history.reopened.iter().copied().collect();
    for job in &look.history.jobs {
        if reopened.contains(&job.id) || job.kind == MEDDLED {
            continue;
        }
        let mut attempt = 0;
        let mut before: Option<&OutcomeRow> = None;
        for outcome in look.outcomes(job.id) {
            let step = || format!("{} {}: {:?} then {outcome:?}", job.kind, job.id, before);
            let epoch = before.map_or(0, |o| o.epoch);
            finding.expect(outcome.epoch == epoch + 1, || format!("epochs: {}", step()));
            finding.expect(outcome.attempt == attempt + 1, || format!("attempts: {}", step()));
            finding.expect(before.is_none_or(|o| !ends(o, job.attempts_max)), || {
                format!("after its end: {}", step())
            });
            finding.expect(before.is_none_or(|o| o.ended_ms <= outcome.started_ms), || {
                format!("two leases at once: {}", step())
            });
            attempt = outcome.attempt - i32::from(gives_back(outcome));
            before = Some(outcome);
        }
    }
    for outcome in &look.history.outcomes {
        finding.expect(look.jobs.contains_key(&outcome.id), || {
            format!("an outcome of job {}, which there is not", outcome.id)
        });
    }
    finding
}

fn places(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("every job stands where its last outcome led", Harm::Lost);
    for job in &look.history.jobs {
        let last = look.outcomes(job.id).last();
        let expected = match last {
            None => Place::Ready,
            Some(outcome) => after(outcome, job),
        };
        let reopened = job.place == Place::Ready && look.history.reopened.contains(&job.id);
        finding.expect(job.place == expected || reopened, || {
            format!("{} {} is {:?} after {last:?}", job.kind, job.id, job.place)
        });
    }
    finding
}

fn after(outcome: &OutcomeRow, job: &JobRow) -> Place {
    match outcome.ended {
        Ended::Done | Ended::Cancelled => Place::Nowhere,
        Ended::Retired => Place::Case,
        Ended::Lost if outcome.attempt >= job.attempts_max => Place::Case,
        _ => Place::Ready,
    }
}

fn counted(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("no job starts more often than it may", Harm::Illegal);
    let reopened: HashSet<i64> = look.history.reopened.iter().copied().collect();
    let counted = |job: &&JobRow| !reopened.contains(&job.id) && job.kind != MEDDLED;
    for job in look.history.jobs.iter().filter(counted) {
        let starts = look.outcomes(job.id).iter().filter(|o| !gives_back(o)).count();
        finding.expect(starts <= job.attempts_max as usize, || {
            format!(
                "{} {} was started {starts} times of {}",
                job.kind, job.id, job.attempts_max
            )
        });
    }
    finding
}

/// One lease is one process's: no two ran the same one, and nobody ran one that there was not.
fn one_owner(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("a lease is run by one process", Harm::Illegal);
    let mut owners = std::collections::HashMap::new();
    for rower in &look.history.rowers {
        for run in &rower.runs {
            let owner = *owners.entry((run.id, run.epoch)).or_insert(rower.name.as_str());
            finding.expect(owner == rower.name, || {
                format!(
                    "epoch {} of job {} was run by {owner} and by {}",
                    run.epoch, run.id, rower.name
                )
            });
            finding.expect(look.outcome(run.id, run.epoch).is_some(), || {
                format!(
                    "{} ran epoch {} of job {}, which never was",
                    rower.name, run.epoch, run.id
                )
            });
        }
    }
    finding
}

/// What can only fail is a case after all of its attempts, with its reason.
fn retired(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new(
        "what always fails becomes a case, after all its attempts",
        Harm::Illegal,
    );
    for job in look
        .history
        .jobs
        .iter()
        .filter(|job| job.kind == "poison" || job.kind == "doomed")
    {
        let outcomes = look.outcomes(job.id);
        let starts = outcomes.iter().filter(|o| !gives_back(o)).count();
        finding.expect(job.place == Place::Case && starts == job.attempts_max as usize, || {
            format!("{} {} is {:?} after {starts} attempts", job.kind, job.id, job.place)
        });
    }
    let mut said = 0;
    for outcome in look.of_kind("doomed").flat_map(|job| look.outcomes(job.id).iter()) {
        let error = outcome.error.as_deref().unwrap_or_default();
        said += usize::from(error.contains("it always fails"));
    }
    finding.expect(said > 0, || "no failed attempt kept what it said".into());
    // Nothing else runs out of attempts.
    for job in &look.history.jobs {
        let may = ["poison", "doomed", "charge", MEDDLED].contains(&job.kind.as_str());
        finding.expect_or(may || job.place != Place::Case, Harm::Lost, || {
            format!(
                "{} {} became a case: {:?}",
                job.kind,
                job.id,
                look.outcomes(job.id).last()
            )
        });
    }
    finding
}

fn unknown(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("a kind that nobody knows stays", Harm::Lost);
    for (order, id) in look.history.rowers.iter().flat_map(|rower| &rower.confirmed) {
        if let Some(job) = look.jobs.get(id).filter(|job| job.kind == NOBODYS) {
            let untouched = job.place == Place::Ready && look.outcomes(*id).is_empty();
            finding.expect(untouched, || format!("order {order}, job {id}, is {:?}", job.place));
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use rowlock::Ended;

    use crate::chaos::{
        check::testing::{broken, broken_names, job_of, sound},
        history::{Place, Run},
    };

    const PATH: &str = "every history is a path that there is";
    const PLACE: &str = "every job stands where its last outcome led";

    #[test]
    fn a_job_recovered_after_it_was_done_is_found() {
        let mut history = sound();
        let id = job_of(&history, "transfer");
        let done = history.outcomes.iter().find(|o| o.id == id).unwrap().clone();
        let mut lost = done.clone();
        (lost.epoch, lost.attempt, lost.ended) = (done.epoch + 1, done.attempt + 1, Ended::Lost);
        history.outcomes.push(lost);
        let found = broken(&history);
        assert!(found.contains(&PATH) && found.contains(&PLACE), "{found:?}");
    }

    #[test]
    fn two_ends_of_one_lease_are_found() {
        let mut history = sound();
        let mut twin = history.outcomes[0].clone();
        twin.ended = Ended::Lost;
        history.outcomes.push(twin);
        assert!(broken(&history).contains(&PATH));
    }

    #[test]
    fn an_epoch_that_is_missing_or_falls_is_found() {
        let mut history = sound();
        let id = job_of(&history, "tally");
        let outcome = history.outcomes.iter_mut().find(|o| o.id == id).unwrap();
        outcome.epoch = 3;
        assert!(broken(&history).contains(&PATH));
    }

    #[test]
    fn two_leases_at_once_are_found() {
        let mut history = sound();
        let id = job_of(&history, "doomed");
        let second = history
            .outcomes
            .iter_mut()
            .find(|o| o.id == id && o.epoch == 2)
            .unwrap();
        second.started_ms -= 500;
        assert_eq!(broken(&history), [PATH]);
    }

    #[test]
    fn a_job_that_stands_nowhere_without_an_end_is_found() {
        let mut history = sound();
        let id = job_of(&history, "transfer");
        let outcome = history.outcomes.iter_mut().find(|o| o.id == id).unwrap();
        outcome.ended = Ended::Retried;
        assert!(broken(&history).contains(&PLACE));
    }

    #[test]
    fn a_job_in_two_places_is_found() {
        let mut history = sound();
        history.jobs[0].place = Place::Several;
        assert_eq!(broken(&history), [PLACE]);
    }

    #[test]
    fn an_attempt_too_many_is_found() {
        let mut history = sound();
        let id = job_of(&history, "doomed");
        history.jobs.iter_mut().find(|job| job.id == id).unwrap().attempts_max = 3;
        let found = broken(&history);
        assert!(found.contains(&"no job starts more often than it may"), "{found:?}");
    }

    #[test]
    fn a_lease_that_two_processes_ran_is_found() {
        let mut history = sound();
        let run = history.rowers[0].runs[0];
        history.rowers[1].runs.push(Run {
            from: run.from + 9_000,
            to: run.to.map(|to| to + 9_000),
            ..run
        });
        assert_eq!(broken(&history), ["a lease is run by one process"]);
    }

    #[test]
    fn a_body_run_without_a_lease_is_found() {
        let mut history = sound();
        let run = Run {
            id: history.jobs[0].id,
            epoch: 77,
            from: 1,
            to: Some(2),
        };
        history.rowers[0].runs.push(run);
        assert_eq!(broken(&history), ["a lease is run by one process"]);
    }

    #[test]
    fn a_good_job_that_ran_out_of_attempts_is_found() {
        let mut history = sound();
        let id = job_of(&history, "link");
        history.jobs.iter_mut().find(|job| job.id == id).unwrap().place = Place::Case;
        let found = broken(&history);
        assert!(
            found.contains(&"what always fails becomes a case, after all its attempts"),
            "{found:?}"
        );
    }

    #[test]
    fn a_failure_that_left_no_reason_is_found() {
        let mut history = sound();
        history.outcomes.iter_mut().for_each(|outcome| outcome.error = None);
        assert_eq!(
            broken(&history),
            ["what always fails becomes a case, after all its attempts"]
        );
    }

    #[test]
    fn an_unknown_kind_that_was_thrown_away_is_found() {
        let mut history = sound();
        let id = job_of(&history, "nobodys");
        history.jobs.iter_mut().find(|job| job.id == id).unwrap().place = Place::Nowhere;
        assert_eq!(
            broken_names(&history),
            [PLACE.to_owned(), "a kind that nobody knows stays".to_owned()]
        );
    }
}
