//! Outside calls, judged by the tills' own logs.

use super::{Finding, Harm, Look, field};
use crate::chaos::{history::Place, orders::Workload};

pub(super) fn check(look: &Look<'_>) -> Vec<Finding> {
    if !look.history.workloads.contains(&Workload::Charges) {
        return Vec::new();
    }
    vec![with_keys(look), without_keys(look)]
}

/// Where the till knows keys, every order is charged once, and the receipt is the one in the ledger.
fn with_keys(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new("one charge per order at a till that knows keys", Harm::Doubled);
    for job in look.of_kind("charge").filter(|job| job.payload["park"] == false) {
        let order = field(job, "order");
        let receipts = look.history.till.of(order);
        finding.expect(receipts.len() <= 1, || {
            format!("order {order} was charged {} times", receipts.len())
        });
        if look.done(job.id).is_some() {
            finding.expect_or(booked(look, job.id, receipts), Harm::Lost, || {
                format!("order {order} is done with receipts {receipts:?}")
            });
        }
        finding.expect_or(job.place != Place::Case, Harm::Lost, || {
            format!("the charge of order {order} became a case")
        });
    }
    finding.expect_or(look.history.till.repeats > 0, Harm::Weak, || {
        "no charge was ever repeated".into()
    });
    finding
}

/// Where it does not, nothing is called twice, and every doubt is for people to see.
fn without_keys(look: &Look<'_>) -> Finding {
    let mut finding = Finding::new(
        "at most one charge per order at a till without keys, and every doubt is seen",
        Harm::Doubled,
    );
    let mut doubts = 0;
    for job in look.of_kind("charge").filter(|job| job.payload["park"] == true) {
        let order = field(job, "order");
        let receipts = look.history.blind_till.of(order);
        finding.expect(receipts.len() <= 1, || {
            format!("order {order} was charged {} times", receipts.len())
        });
        if look.done(job.id).is_some() {
            finding.expect_or(booked(look, job.id, receipts), Harm::Lost, || {
                format!("order {order} is done with receipts {receipts:?}")
            });
        } else {
            let doubtful = look
                .history
                .effects
                .iter()
                .any(|e| e.job == job.id && e.state == "uncertain");
            doubts += 1;
            finding.expect_or(job.place == Place::Case && doubtful, Harm::Lost, || {
                format!(
                    "order {order} is {:?}, in doubt: {doubtful}, charged: {}",
                    job.place,
                    receipts.len()
                )
            });
        }
    }
    finding.expect_or(doubts > 0, Harm::Weak, || "no charge was ever in doubt".into());
    finding
}

fn booked(look: &Look<'_>, job: i64, receipts: &[i64]) -> bool {
    let notes: Vec<&str> = look.ledger(job).iter().map(|row| row.note.as_str()).collect();
    matches!(receipts, [receipt] if notes == [receipt.to_string()])
}

#[cfg(test)]
mod tests {
    use crate::chaos::{
        check::testing::{broken, charge, sound},
        history::Place,
    };

    const KEYS: &str = "one charge per order at a till that knows keys";
    const BLIND: &str = "at most one charge per order at a till without keys, and every doubt is seen";

    #[test]
    fn an_order_charged_twice_is_found_at_either_till() {
        let mut history = sound();
        let order = charge(&history, false);
        history.till.receipts.get_mut(&order).unwrap().push(12_345);
        assert_eq!(broken(&history), [KEYS]);
        let mut history = sound();
        let order = charge(&history, true);
        history.blind_till.receipts.insert(order, vec![1, 2]);
        assert_eq!(broken(&history), [BLIND]);
    }

    #[test]
    fn a_receipt_that_is_not_the_tills_is_found() {
        let mut history = sound();
        let order = charge(&history, false);
        history.till.receipts.insert(order, vec![777]);
        assert_eq!(broken(&history), [KEYS]);
    }

    #[test]
    fn a_charge_that_was_never_made_is_found() {
        let mut history = sound();
        let order = charge(&history, false);
        history.till.receipts.remove(&order);
        assert_eq!(broken(&history), [KEYS]);
    }

    #[test]
    fn a_doubt_that_nobody_sees_is_found() {
        let mut history = sound();
        history
            .effects
            .iter_mut()
            .for_each(|effect| effect.state = "replied".into());
        assert_eq!(broken(&history), [BLIND]);
        let mut history = sound();
        for job in history.jobs.iter_mut().filter(|job| job.payload["park"] == true) {
            job.place = Place::Ready;
        }
        assert!(broken(&history).contains(&BLIND));
    }
}
