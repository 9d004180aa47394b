//! Effects in the database: one for a job that is done, none for any other, in the commit of its outcome.

use std::collections::{HashMap, HashSet};

use rowlock::Ended;

use super::{Finding, Harm, Look, field};
use crate::chaos::{
    jobs::{ACCOUNTS, LINKS, NOBODYS, OPENING_BALANCE},
    orders::Workload,
};

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    let has = |workload| look.history.workloads.contains(&workload);
    let mut findings = vec![once(look), fenced(look), sums(look)];
    if look.history.has_xids {
        findings.push(one_commit(look));
    }
    if has(Workload::Chains) {
        findings.push(chains(look));
    }
    if has(Workload::Guards) {
        findings.push(guards(look));
    }
    findings
}

fn once(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("an effect for every job done, and only once", Harm::Doubled);
    for job in look.history.jobs.iter().filter(|job| job.kind != NOBODYS) {
        let rows = look.ledger(job.id).len();
        // More than once only where a person had it run once more, which its path says.
        let most = look.outcomes(job.id).iter().filter(|o| o.ended == Ended::Done).count();
        // A guard that finds its thing changed ends the job without its effect.
        let least = if job.kind == "guarded" { 0 } else { most };
        finding.expect(rows <= most, || {
            format!("{} {} has {rows} effects, and was done {most} times", job.kind, job.id)
        });
        finding.expect_or(rows >= least, Harm::Lost, || {
            format!("{} {} is done without its effect", job.kind, job.id)
        });
    }
    for row in &look.history.ledger {
        finding.expect(look.jobs.contains_key(&row.job), || {
            format!("an effect of job {}, which there is not", row.job)
        });
    }
    finding
}

/// Every effect was written under the lease that the job was settled with.
fn fenced(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("no write under a lease that was over", Harm::Stale);
    for row in &look.history.ledger {
        let ended = look.outcome(row.job, row.epoch).map(|outcome| outcome.ended);
        finding.expect(ended == Some(Ended::Done), || {
            format!(
                "job {} has an effect of epoch {}, which ended as {ended:?}",
                row.job, row.epoch
            )
        });
    }
    finding
}

fn sums(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("every account has what its transfers say", Harm::Doubled);
    let mut expected = vec![OPENING_BALANCE; ACCOUNTS as usize];
    for job in &look.history.jobs {
        let amount = match job.kind.as_str() {
            "transfer" => field(job, "amount"),
            "tally" => 1,
            _ => continue,
        };
        if look.done(job.id).is_some() {
            expected[(field(job, "from") - 1) as usize] -= amount;
            expected[(field(job, "to") - 1) as usize] += amount;
        }
    }
    for (at, (expected, balance)) in expected.iter().zip(&look.history.balances).enumerate() {
        finding.expect(expected == balance, || {
            format!("account {} has {balance} instead of {expected}", at + 1)
        });
    }
    finding.expect(look.history.balances.len() == expected.len(), || {
        "an account is missing".into()
    });
    let sum: i64 = look.history.balances.iter().sum();
    finding.expect(sum == ACCOUNTS * OPENING_BALANCE, || {
        format!("all accounts together have {sum}")
    });
    finding
}

fn one_commit(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("effect, outcome and next link in one transaction", Harm::Illegal);
    for row in &look.history.ledger {
        // An effect of a lease that ended otherwise is another check's.
        let outcome = look.outcome(row.job, row.epoch).filter(|o| o.ended == Ended::Done);
        let Some(done) = outcome.map(|outcome| outcome.xid) else {
            continue;
        };
        finding.expect(done == row.xid, || {
            format!("job {}: effect in {}, outcome in {done}", row.job, row.xid)
        });
    }
    // Every transaction in which a link of a chain was done.
    let mut ends: HashMap<i64, HashSet<i64>> = HashMap::new();
    for job in look.of_kind("link") {
        if let Some(done) = look.done(job.id) {
            ends.entry(job.chain.unwrap_or(job.id)).or_default().insert(done.xid);
        }
    }
    for job in &look.history.jobs {
        if let Some(root) = job.chain {
            let with = ends.get(&root).is_some_and(|ends| ends.contains(&job.xid));
            finding.expect(with, || {
                format!(
                    "link {} was enqueued in {}, in which no link of its chain was done",
                    job.id, job.xid
                )
            });
        }
    }
    finding
}

/// A chain has all of its links, each as often as its fan-out says.
fn chains(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("every chain has its links", Harm::Lost);
    let mut by_root: HashMap<i64, Vec<i64>> = HashMap::new();
    for job in look.of_kind("link") {
        by_root
            .entry(job.chain.unwrap_or(job.id))
            .or_default()
            .push(field(job, "depth"));
    }
    for (root, mut depths) in by_root {
        depths.sort_unstable();
        let harm = if depths.len() > LINKS {
            Harm::Doubled
        } else {
            Harm::Lost
        };
        finding.expect_or(depths == [1, 2, 3, 3, 4, 4, 5, 5], harm, || {
            format!("chain {root} has links of depths {depths:?}")
        });
    }
    finding
}

/// Two decisions never rest on the same state of a thing, and every state but the last one led to one.
fn guards(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("no two commits on what one guard saw", Harm::Doubled);
    let mut by_entity: HashMap<i64, Vec<i64>> = HashMap::new();
    for (entity, seen, job) in &look.history.decisions {
        by_entity.entry(*entity).or_default().push(*seen);
        finding.expect(look.done(*job).is_some(), || {
            format!("job {job} decided about {entity} and is not done")
        });
    }
    for (entity, mut seen) in by_entity {
        seen.sort_unstable();
        for (version, seen) in (0..).zip(&seen) {
            finding.expect(version == *seen, || {
                format!("decision {version} about {entity} rests on version {seen}")
            });
        }
    }
    let all = look
        .of_kind("guarded")
        .filter(|job| look.done(job.id).is_some())
        .count();
    let raced = all.saturating_sub(look.history.decisions.len());
    finding.expect_or(raced > 0, Harm::Weak, || "no guard ever found its thing changed".into());
    let retired = look.of_kind("guarded").filter(|job| {
        let ends = look.outcomes(job.id).iter();
        ends.clone().any(|outcome| outcome.ended == Ended::Retired)
    });
    let retired = retired.count();
    finding.expect_or(retired == 0, Harm::Lost, || {
        format!("{retired} guarded jobs became cases")
    });
    finding
}

#[cfg(test)]
mod tests {
    use crate::chaos::check::testing::{broken, job_of, sound};

    #[test]
    fn a_doubled_effect_is_found() {
        let mut history = sound();
        let twin = history.ledger[0].clone();
        history.ledger.push(twin);
        assert_eq!(broken(&history), ["an effect for every job done, and only once"]);
    }

    #[test]
    fn a_missing_effect_is_found() {
        let mut history = sound();
        let id = job_of(&history, "transfer");
        history.ledger.retain(|row| row.job != id);
        assert_eq!(broken(&history), ["an effect for every job done, and only once"]);
    }

    #[test]
    fn an_effect_of_a_job_that_was_retired_is_found() {
        let mut history = sound();
        let id = job_of(&history, "doomed");
        let row = crate::chaos::history::LedgerRow {
            job: id,
            ..history.ledger[0].clone()
        };
        history.ledger.push(row);
        let found = broken(&history);
        assert!(
            found.contains(&"an effect for every job done, and only once"),
            "{found:?}"
        );
        assert!(found.contains(&"no write under a lease that was over"), "{found:?}");
    }

    #[test]
    fn a_write_under_an_old_lease_is_found() {
        let mut history = sound();
        history.ledger[0].epoch += 1;
        assert_eq!(broken(&history), ["no write under a lease that was over"]);
    }

    #[test]
    fn an_effect_in_another_commit_is_found() {
        let mut history = sound();
        history.ledger[0].xid += 1;
        assert_eq!(broken(&history), ["effect, outcome and next link in one transaction"]);
    }

    #[test]
    fn a_link_enqueued_in_another_commit_is_found() {
        let mut history = sound();
        let link = history.jobs.iter().position(|job| job.chain.is_some()).unwrap();
        history.jobs[link].xid += 1_000_000;
        assert_eq!(broken(&history), ["effect, outcome and next link in one transaction"]);
    }

    #[test]
    fn money_that_appears_is_found() {
        let mut history = sound();
        history.balances[3] += 1;
        assert_eq!(broken(&history), ["every account has what its transfers say"]);
    }

    #[test]
    fn a_chain_with_a_link_too_many_or_too_few_is_found() {
        let mut history = sound();
        let link = history.jobs.iter().position(|job| job.chain.is_some()).unwrap();
        history.jobs[link].payload["depth"] = 5.into();
        assert_eq!(broken(&history), ["every chain has its links"]);
    }

    #[test]
    fn two_decisions_on_one_state_are_found() {
        let mut history = sound();
        history.decisions[1].1 = history.decisions[0].1;
        assert_eq!(broken(&history), ["no two commits on what one guard saw"]);
    }
}
