//! Enqueues: all or nothing with the order that they came with; one job per key.

use std::collections::{HashMap, HashSet};

use super::{Finding, Harm, Look, field};
use crate::chaos::orders::Workload;

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    let mut findings = vec![acknowledged(look), rolled_back(look), whole(look)];
    if look.history.workloads.contains(&Workload::Keys) {
        findings.push(keys(look));
    }
    findings
}

fn acknowledged(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("acknowledged orders are there", Harm::Lost);
    let purchases: HashMap<i64, i64> = look.history.purchases.iter().copied().collect();
    for (order, id) in look.history.rowers.iter().flat_map(|rower| &rower.confirmed) {
        finding.expect(purchases.get(order) == Some(id) && look.jobs.contains_key(id), || {
            format!("order {order} was acknowledged with job {id}, and is not there")
        });
    }
    finding
}

fn rolled_back(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("orders rolled back are not there", Harm::Doubled);
    let purchases: HashSet<i64> = look.history.purchases.iter().map(|(order, _)| *order).collect();
    for order in look.history.rowers.iter().flat_map(|rower| &rower.rolled_back) {
        finding.expect(!purchases.contains(order), || {
            format!("order {order} was rolled back, and is there")
        });
    }
    finding
}

/// Whatever became of the commit: an order without its job, or a job without its order, there is not.
fn whole(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("an order and its job are in one commit", Harm::Lost);
    let purchases: HashMap<i64, i64> = look.history.purchases.iter().copied().collect();
    for (order, id) in &look.history.purchases {
        finding.expect(look.jobs.contains_key(id), || format!("order {order} has no job {id}"));
    }
    for job in &look.history.jobs {
        if job.chain.is_some() || job.kind == "keyed" {
            continue;
        }
        let order = field(job, "order");
        finding.expect_or(purchases.get(&order) == Some(&job.id), Harm::Doubled, || {
            format!("job {} has no order {order}", job.id)
        });
    }
    finding
}

fn keys(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("one job per key", Harm::Doubled);
    let mut by_slot: HashMap<i64, i64> = HashMap::new();
    for job in look.of_kind("keyed") {
        let slot = field(job, "slot");
        let first = by_slot.insert(slot, job.id);
        finding.expect(first.is_none(), || {
            format!("slot {slot} has jobs {first:?} and {}", job.id)
        });
    }
    let mut asked: HashMap<i64, usize> = HashMap::new();
    for (slot, id) in look.history.rowers.iter().flat_map(|rower| &rower.keyed) {
        *asked.entry(*slot).or_default() += 1;
        finding.expect(by_slot.get(slot) == Some(id), || {
            format!(
                "a producer was given job {id} for slot {slot}, which is {:?}",
                by_slot.get(slot)
            )
        });
    }
    let raced = asked.values().filter(|asked| **asked > 1).count();
    finding.expect_or(raced > 0, Harm::Weak, || "no two producers asked for one key".into());
    finding
}

#[cfg(test)]
mod tests {
    use crate::chaos::check::testing::{broken, sound};

    #[test]
    fn an_acknowledged_order_that_is_gone_is_found() {
        let mut history = sound();
        let order = history.rowers[0].confirmed[0].0;
        history.purchases.retain(|(no, _)| *no != order);
        assert_eq!(
            broken(&history),
            [
                "acknowledged orders are there",
                "an order and its job are in one commit"
            ]
        );
    }

    #[test]
    fn an_order_without_its_job_is_found() {
        let mut history = sound();
        history.purchases.push((999, 998));
        assert_eq!(broken(&history), ["an order and its job are in one commit"]);
    }

    #[test]
    fn an_order_that_was_rolled_back_and_is_there_is_found() {
        let mut history = sound();
        let there = history.purchases[0].0;
        history.rowers[0].rolled_back.push(there);
        assert_eq!(broken(&history), ["orders rolled back are not there"]);
    }

    #[test]
    fn a_second_job_of_a_key_is_found() {
        let mut history = sound();
        let keyed = history.jobs.iter().position(|job| job.kind == "keyed").unwrap();
        let other = history.jobs.iter().position(|job| job.kind == "transfer").unwrap();
        history.rowers[0].keyed[0].1 = history.jobs[other].id;
        assert_eq!(broken(&history), ["one job per key"]);
        let mut history = sound();
        let twin = history.jobs[keyed].clone();
        history.jobs.push(crate::chaos::history::JobRow { id: 5_000, ..twin });
        assert!(broken(&history).contains(&"one job per key"));
    }
}
