//! Breakers: nobody claims while one is open, and few while it is half-open.

use super::{Finding, Harm, Look};
use crate::chaos::{history::BreakerMove, jobs::LINE_PROBES, orders::Workload};

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    match look.history.workloads.contains(&Workload::Dials) {
        true => vec![shut(look), probes(look)],
        false => Vec::new(),
    }
}

/// Each stay of the breaker in this state, with the move that ended it.
fn stays<'a>(look: &Look<'a>, state: &'a str) -> impl Iterator<Item = (&'a BreakerMove, Option<&'a BreakerMove>)> {
    let moves = &look.history.line;
    let stays = moves.iter().enumerate();
    let inside = stays.filter(move |(_, entered)| entered.to == state);
    inside.map(|(at, entered)| (entered, moves.get(at + 1)))
}

/// When each lease of a bound job began and ended, in the order in which they began.
fn claims(look: &Look<'_>) -> Vec<(i64, i64, i64)> {
    let bound = look.of_kind("dial").flat_map(|job| look.outcomes(job.id));
    let mut claims: Vec<_> = bound.map(|o| (o.started_ms, o.ended_ms, o.id)).collect();
    claims.sort_unstable();
    claims
}

/// Those that began after the first time and before the second.
fn between(claims: &[(i64, i64, i64)], after: i64, before: i64) -> &[(i64, i64, i64)] {
    let first = claims.partition_point(|claim| claim.0 <= after);
    let last = claims.partition_point(|claim| claim.0 < before).max(first);
    &claims[first..last]
}

fn shut(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("no claim after a breaker opened", Harm::Stale);
    let claims = claims(look);
    for (opened, next) in stays(look, "open") {
        let until = next.map_or(i64::MAX, |next| next.at_ms);
        let meanwhile = between(&claims, opened.committed_ms, until);
        finding.expect(meanwhile.is_empty(), || {
            let (began, _, job) = meanwhile[0];
            format!(
                "version {} was open from {} to {until}, and job {job} was claimed {} ms into that, with {} more",
                opened.version,
                opened.committed_ms,
                began - opened.committed_ms,
                meanwhile.len() - 1
            )
        });
    }
    finding
}

fn probes(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("no more probes at once than may be", Harm::Illegal);
    let claims = claims(look);
    for (entered, next) in stays(look, "half_open") {
        let until = next.map_or(i64::MAX, |next| next.at_ms);
        let probes = between(&claims, entered.at_ms - 1, until);
        for (at, (began, _, job)) in probes.iter().enumerate() {
            let beside = probes[..at].iter().filter(|(_, ended, _)| ended > began).count();
            finding.expect(beside < LINE_PROBES, || {
                format!(
                    "version {}: job {job} was claimed beside {beside} others",
                    entered.version
                )
            });
        }
    }
    finding
}

#[cfg(test)]
mod tests {
    use super::super::testing::{broken, job_of, sound};
    use crate::chaos::history::History;

    /// The leases of the job that is bound, in their order.
    fn of_dial(history: &mut History) -> Vec<usize> {
        let job = job_of(history, "dial");
        let outcomes = history.outcomes.iter().enumerate();
        outcomes.filter(|(_, o)| o.id == job).map(|(at, _)| at).collect()
    }

    #[test]
    fn a_claim_while_it_is_open_is_noticed() {
        let mut history = sound();
        let last = *of_dial(&mut history).last().unwrap();
        // The move that let it through came later.
        history.line[1].at_ms = history.outcomes[last].ended_ms;
        assert!(broken(&history).contains(&"no claim after a breaker opened"));
    }

    #[test]
    fn a_claim_before_the_opening_is_committed_is_none_of_its_business() {
        let mut history = sound();
        history.line[0].committed_ms = i64::MAX;
        assert!(broken(&history).is_empty());
    }

    #[test]
    fn one_probe_too_many_is_noticed() {
        let mut history = sound();
        let last = *of_dial(&mut history).last().unwrap();
        let half_open = history.line[1].at_ms;
        // Two others ran into it, for as long.
        let jobs = ["transfer", "keyed"].map(|kind| job_of(&history, kind));
        let (began, ended) = (history.outcomes[last].started_ms, history.outcomes[last].ended_ms);
        assert!(began >= half_open);
        for id in jobs {
            history.jobs[id as usize - 1].kind = "dial".into();
            let outcome = history.outcomes.iter_mut().find(|o| o.id == id).unwrap();
            (outcome.started_ms, outcome.ended_ms) = (began, ended);
        }
        assert!(broken(&history).contains(&"no more probes at once than may be"));
    }
}
