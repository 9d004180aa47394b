//! The audit: the provider's log against the shop's tables, the jobs and the effect journal.

use std::collections::{BTreeSet, HashMap, HashSet};

use anyhow::Result;
use rowlock::{Ended, State, effect::EffectFilter};
use serde::Serialize;

use super::{
    super::{desk::Account, ground::Ground, own::Tables, provider::Tally},
    shop::account,
};

/// What was found at one account.
#[derive(Default)]
pub(crate) struct Books {
    pub(crate) orders: i64,
    /// Done, charged once and noted once.
    pub(crate) charged_once: i64,
    /// Cases that show their open intent.
    pub(crate) uncertain: i64,
    /// How many of those the provider had charged.
    pub(crate) uncertain_charged: i64,
}

/// What was found.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) keyed: Books,
    pub(crate) keyless: Books,
    pub(crate) jobs: i64,
    pub(crate) done: i64,
    pub(crate) charges: i64,
    pub(crate) repeats: i64,
    pub(crate) dropped: i64,
    pub(crate) cut_short: i64,
    /// Orders that are neither settled nor shown as in doubt.
    pub(crate) lost: BTreeSet<i64>,
    /// Orders charged or noted twice.
    pub(crate) doubled: BTreeSet<i64>,
}

/// What `--json` prints.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) jobs: i64,
    pub(crate) done: i64,
    pub(crate) effects: i64,
    /// None if the run did not finish.
    pub(crate) lost: Option<usize>,
    pub(crate) doubled: Option<usize>,
    pub(crate) uncertain: i64,
    pub(crate) kills: usize,
    pub(crate) dropped_replies: i64,
    pub(crate) seconds: f64,
}

impl Findings {
    pub(crate) fn orders(&self) -> i64 {
        self.keyed.orders + self.keyless.orders
    }

    /// Nothing lost, nothing doubled, and no doubt where the provider honours keys: calling again is safe there.
    pub(crate) fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.keyed.uncertain == 0 && self.jobs == self.orders()
    }

    fn books(&mut self, order: i64) -> &mut Books {
        match account(order) {
            Account::Keyed => &mut self.keyed,
            Account::Keyless => &mut self.keyless,
        }
    }

    /// One order: how often it was charged and noted, and where its job is.
    fn add(&mut self, order: i64, charges: i64, payments: i64, standing: Standing) {
        self.done += i64::from(matches!(standing, Standing::Done));
        let books = self.books(order);
        books.orders += 1;
        match standing {
            Standing::Done if charges > 0 && payments > 0 => {
                books.charged_once += i64::from(charges == 1 && payments == 1);
            }
            Standing::InDoubt if payments == 0 => {
                books.uncertain += 1;
                books.uncertain_charged += charges.min(1);
            }
            _ => {
                self.lost.insert(order);
            }
        }
        if charges > 1 || payments > 1 {
            self.doubled.insert(order);
        }
    }
}

/// Where an order's job is.
#[derive(Clone, Copy)]
enum Standing {
    Done,
    /// A case whose effect is shown in doubt.
    InDoubt,
    /// Anything else.
    Astray,
}

/// Looks at everything, once no worker runs any more.
pub(crate) async fn check<DB: Tables>(ground: &mut Ground<DB>, tally: &Tally) -> Result<Findings> {
    let orders = ground.pairs("select order_id, order_id from demo_order").await?;
    let payments = ground
        .pairs("select order_id, count(*) from demo_payment group by order_id")
        .await?;
    let payments: HashMap<i64, i64> = payments.into_iter().collect();
    let jobs = ground.jobs().await?;
    let mut found = Findings {
        jobs: jobs.len() as i64,
        charges: tally.charges.values().sum(),
        repeats: tally.repeats,
        dropped: tally.dropped,
        cut_short: ground.cut_short(&jobs).await?,
        ..Findings::default()
    };
    let doubtful = EffectFilter::new().doubtful().limit(jobs.len() as u32 + 1);
    let doubtful: HashSet<i64> = ground
        .observe
        .effects(&doubtful)
        .await?
        .iter()
        .map(|effect| effect.id)
        .collect();
    let mut standings: HashMap<i64, Standing> = HashMap::new();
    for job in &jobs {
        let standing = match job.state {
            State::Finished if job.last_outcome == Some(Ended::Done) => Standing::Done,
            State::Case if doubtful.contains(&job.id) => Standing::InDoubt,
            _ => Standing::Astray,
        };
        standings.insert(job.payload["order"].as_i64().unwrap_or_default(), standing);
    }
    let times = |counts: &HashMap<i64, i64>, order: i64| counts.get(&order).copied().unwrap_or(0);
    for (order, _) in &orders {
        let standing = standings.get(order).copied().unwrap_or(Standing::Astray);
        found.add(
            *order,
            times(&tally.charges, *order),
            times(&payments, *order),
            standing,
        );
    }
    // A charge for an order that nobody placed is one too many.
    let placed: HashSet<i64> = orders.into_iter().map(|(order, _)| order).collect();
    found
        .doubled
        .extend(tally.charges.keys().filter(|order| !placed.contains(order)));
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lost and doubled orders among these, and the doubts: (order, charges, payments, standing).
    fn audit(orders: &[(i64, i64, i64, Standing)]) -> (Vec<i64>, Vec<i64>, i64, bool) {
        let mut found = Findings {
            jobs: orders.len() as i64,
            ..Findings::default()
        };
        for (order, charges, payments, standing) in orders {
            found.add(*order, *charges, *payments, *standing);
        }
        let clean = found.is_clean();
        let uncertain = found.keyed.uncertain + found.keyless.uncertain;
        (
            found.lost.into_iter().collect(),
            found.doubled.into_iter().collect(),
            uncertain,
            clean,
        )
    }

    #[test]
    fn an_order_is_charged_once_or_in_doubt_and_anything_else_is_found() {
        use Standing::{Astray, Done, InDoubt};
        let good = [(1, 1, 1, Done), (2, 1, 1, Done), (3, 0, 0, InDoubt), (5, 1, 0, InDoubt)];
        assert_eq!(audit(&good), (vec![], vec![], 2, true));
        for (bad, lost, doubled) in [
            ((7, 0, 1, Done), true, false),
            ((7, 1, 0, Done), true, false),
            ((7, 2, 1, Done), false, true),
            ((7, 1, 2, Done), false, true),
            ((7, 2, 0, InDoubt), false, true),
            ((7, 1, 1, InDoubt), true, false),
            ((7, 1, 1, Astray), true, false),
            ((7, 0, 0, Astray), true, false),
        ] {
            let hit = |hit: bool| if hit { vec![7] } else { vec![] };
            let (found_lost, found_doubled, _, clean) = audit(&[bad]);
            assert_eq!((found_lost, found_doubled, clean), (hit(lost), hit(doubled), false));
        }
    }

    #[test]
    fn a_doubt_where_keys_are_honoured_is_no_clean_run() {
        let (lost, doubled, uncertain, clean) = audit(&[(2, 1, 0, Standing::InDoubt)]);
        assert_eq!((lost, doubled, uncertain, clean), (vec![], vec![], 1, false));
    }
}
