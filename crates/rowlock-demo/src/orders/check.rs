//! The audit: what should have happened, against the shop's tables, the provider's log and the outcome log.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use rowlock::{Ended, State};
use serde::Serialize;

use super::super::{ground::Ground, own::Tables, provider::Tally};

/// What was found.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) orders: i64,
    /// Rows in the shop's tables.
    pub(crate) reserved: i64,
    pub(crate) paid: i64,
    pub(crate) stock_at_start: i64,
    pub(crate) stock_left: i64,
    /// Actions at the provider.
    pub(crate) charges: i64,
    pub(crate) orders_charged: usize,
    pub(crate) mails: i64,
    pub(crate) repeats: i64,
    /// Jobs, and attempts that ended with their worker.
    pub(crate) jobs: i64,
    pub(crate) done: i64,
    pub(crate) cut_short: i64,
    pub(crate) lost: BTreeSet<i64>,
    pub(crate) doubled: BTreeSet<i64>,
}

impl Findings {
    /// Stock that left the shelf without a reservation, or the other way round.
    pub(crate) fn stock_gap(&self) -> i64 {
        self.stock_at_start - self.stock_left - self.reserved
    }

    /// Every order without one of its effects, and every reservation that took no stock.
    pub(crate) fn lost(&self) -> i64 {
        self.lost.len() as i64 + (-self.stock_gap()).max(0)
    }

    /// Every order with one of its effects twice, and stock that was taken twice.
    pub(crate) fn doubled(&self) -> i64 {
        self.doubled.len() as i64 + self.stock_gap().max(0)
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.lost() == 0 && self.doubled() == 0 && self.done == self.jobs
    }
}

/// What `--json` prints: these fields, no more.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) jobs: i64,
    pub(crate) done: i64,
    pub(crate) effects: i64,
    /// None if the run did not finish.
    pub(crate) lost: Option<i64>,
    pub(crate) doubled: Option<i64>,
    pub(crate) kills: usize,
    pub(crate) seconds: f64,
}

/// Looks at everything, once no worker runs any more.
pub(crate) async fn check<DB: Tables>(ground: &mut Ground<DB>, tally: &Tally) -> Result<Findings> {
    let mut found = Findings::default();
    let orders = ground.pairs("select order_id, item from demo_order").await?;
    let orders: BTreeSet<i64> = orders.into_iter().map(|(order, _)| order).collect();
    found.orders = orders.len() as i64;
    let mut counts: Vec<HashMap<i64, i64>> = vec![tally.charges.clone(), tally.mails.clone()];
    for table in ["demo_reservation", "demo_payment", "demo_receipt"] {
        let rows = format!("select order_id, count(*) from {table} group by order_id");
        counts.push(ground.pairs(&rows).await?.into_iter().collect());
    }
    for effects in &counts {
        let times = |order: &i64| effects.get(order).copied().unwrap_or(0);
        found.lost.extend(orders.iter().filter(|order| times(order) == 0));
        found.doubled.extend(orders.iter().filter(|order| times(order) > 1));
        // An effect for an order that nobody placed is one too many.
        found
            .doubled
            .extend(effects.keys().filter(|order| !orders.contains(order)));
    }
    found.charges = tally.charges.values().sum();
    found.orders_charged = tally.charges.len();
    found.mails = tally.mails.values().sum();
    found.repeats = tally.repeats;
    found.reserved = counts[2].values().sum();
    found.paid = counts[3].values().sum();
    for (at_start, left) in ground.pairs("select at_start, remaining from demo_stock").await? {
        found.stock_at_start += at_start;
        found.stock_left += left;
    }
    let jobs = ground.jobs().await?;
    let done = jobs
        .iter()
        .filter(|job| job.state == State::Finished && job.last_outcome == Some(Ended::Done));
    found.done = done.count() as i64;
    found.jobs = jobs.len() as i64;
    found.cut_short = ground.cut_short(&jobs).await?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{super::super::own::Site, *};

    #[test]
    fn stock_that_does_not_add_up_is_lost_or_doubled() {
        let mut found = Findings {
            stock_at_start: 10,
            stock_left: 7,
            reserved: 3,
            ..Findings::default()
        };
        assert_eq!((found.lost(), found.doubled(), found.is_clean()), (0, 0, true));
        found.stock_left = 6;
        assert_eq!((found.lost(), found.doubled(), found.is_clean()), (0, 1, false));
        found.stock_left = 8;
        assert_eq!((found.lost(), found.doubled(), found.is_clean()), (1, 0, false));
    }

    /// Orders 1 to 3, all in order.
    fn tally() -> Tally {
        let once: HashMap<i64, i64> = (1..=3).map(|order| (order, 1)).collect();
        Tally {
            charges: once.clone(),
            mails: once,
            ..Tally::default()
        }
    }

    /// What the audit says of three good orders and whatever `sql` did to them.
    async fn audit(sql: &str, tally: &Tally) -> (Vec<i64>, Vec<i64>) {
        let site = Site::new(None, "demo").unwrap();
        let good = "insert into demo_stock values (0, 10, 7);
            insert into demo_order values (1, 0), (2, 0), (3, 0);
            insert into demo_reservation values (1, 0), (2, 0), (3, 0);
            insert into demo_payment values (1, 1), (2, 2), (3, 3);
            insert into demo_receipt values (1, 1), (2, 2), (3, 3);";
        let all = format!("{}{good}{sql}", super::super::shop::SCHEMA);
        let mut ground = Ground::<sqlx::Sqlite>::open(&site, &all).await.unwrap();
        let found = check(&mut ground, tally).await.unwrap();
        (found.lost.into_iter().collect(), found.doubled.into_iter().collect())
    }

    #[tokio::test]
    async fn the_audit_finds_every_effect_that_is_missing_or_there_twice() {
        assert_eq!(audit("", &tally()).await, (vec![], vec![]));
        for table in ["demo_reservation", "demo_payment", "demo_receipt"] {
            let lost = format!("delete from {table} where order_id = 2;");
            assert_eq!(audit(&lost, &tally()).await, (vec![2], vec![]), "{table}");
            let doubled = format!("insert into {table} values (3, 0);");
            assert_eq!(audit(&doubled, &tally()).await, (vec![], vec![3]), "{table}");
        }
        let mut seen = tally();
        seen.charges.insert(1, 2);
        seen.mails.remove(&2);
        assert_eq!(audit("", &seen).await, (vec![2], vec![1]));
        seen.charges.insert(99, 1);
        assert_eq!(
            audit("", &seen).await,
            (vec![2], vec![1, 99]),
            "a charge for an order that nobody placed"
        );
    }

    #[test]
    fn a_job_that_is_not_done_is_no_clean_run() {
        let found = Findings {
            jobs: 3,
            done: 2,
            ..Findings::default()
        };
        assert!(!found.is_clean());
    }
}
