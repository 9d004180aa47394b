//! The second scene: workers are killed *and* the provider loses replies. Half of the orders are charged to an account
//! that honours idempotency keys, where calling again is safe. The other account ignores keys: calling again is not
//! safe.

mod check;
mod report;
mod shop;

use std::ops::RangeInclusive;

use anyhow::Result;
use rowlock::Job;
use sqlx::Connection;

use self::shop::{ChargeOrder, account};
pub(crate) use self::shop::{Shop, worker};
use super::{
    crew::Crew,
    ground::Ground,
    own::Tables,
    provider::{Moods, Provider},
    record::Faults,
    run::{Act, Run, Size},
    show::{Scene, Show},
};

#[derive(clap::Args)]
#[command(after_help = super::after_help(
    "jobs, done, effects, lost, doubled, uncertain, kills, dropped_replies, seconds"
))]
pub(crate) struct Args {
    /// How many orders to charge, one job each
    #[arg(long, default_value_t = 400, value_parser = clap::value_parser!(u32).range(2..=100_000))]
    orders: u32,
    /// How many worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// How many times to kill a worker with SIGKILL; a new one starts each time
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    kills: u32,
    /// Percentage of replies that the provider loses after it has charged
    #[arg(long, default_value_t = 6, value_parser = clap::value_parser!(u32).range(0..=50))]
    drops: u32,
    /// Call again whenever the outcome is uncertain, even without keys, to see double charges (exit code 1)
    #[arg(long)]
    careless: bool,
}

impl Scene for Args {
    type Ended = report::Ended;
    const NAME: &'static str = "charges";

    fn intro(&self, show: &Show) -> String {
        let Args {
            orders,
            workers,
            kills,
            drops,
            ..
        } = self;
        format!(
            "Charging {orders} orders with {workers} worker processes on {}, with {kills} kills (SIGKILL).\n\
             The provider loses {drops} % of its replies and honours idempotency keys for half of the orders.",
            show.database()
        )
    }

    fn size(&self) -> (&'static str, i64) {
        ("orders", self.orders.into())
    }

    async fn play<DB: Tables>(&self, show: &Show, crew: &mut Option<Crew>) -> Result<report::Ended> {
        show.step(show.creating());
        let mut ground = Ground::<DB>::open(&show.site, shop::SCHEMA).await?;
        let moods = Moods {
            drops: self.drops,
            misses: 2,
            refuses: 3,
            slow: 3,
        };
        show.step("starting the payment provider");
        let mut provider = Provider::start(show, moods).await?;
        let role = ["charges", "--provider", &provider.address.to_string()].map(str::to_owned);
        let mut role = Vec::from(role);
        role.extend(self.careless.then(|| "--careless".to_owned()));
        show.step(&format!("starting {} workers", self.workers));
        let crew = crew.insert(Crew::new(show, role)?);
        crew.hire(self.workers as usize)?;
        let size = Size {
            work: i64::from(self.orders),
            steps: 1,
            unit: "orders",
            kills: self.kills as usize,
            bar: 16,
        };
        let ran = Run::new(show, &mut ground, crew, Some(&mut provider), (Charges, size));
        let ran = ran.finish().await?;
        show.step("counting orders and charges");
        let found = check::check(&mut ground, &provider.tally().await?).await?;
        Ok(report::Ended {
            found,
            ran,
            workers: self.workers,
            careless: self.careless,
        })
    }
}

struct Charges;

impl<DB: Tables> Act<DB> for Charges {
    const CASES_ARE_FINE: bool = true;

    /// The order and its job are one commit: neither is there without the other.
    async fn place(&self, ground: &mut Ground<DB>, orders: RangeInclusive<i64>) -> Result<()> {
        let insert = ground.sql("insert into demo_order (order_id) values ($1)");
        let mut tx = ground.conn.begin().await?;
        for order in orders.clone() {
            DB::change(&mut tx, insert.clone(), vec![order]).await?;
        }
        let jobs = orders.map(|order| ChargeOrder {
            order,
            account: account(order),
        });
        ground.rowlock.enqueue_all(&mut tx, jobs).await?;
        Ok(tx.commit().await?)
    }

    async fn progress(&self, ground: &mut Ground<DB>, kills: usize) -> Result<(i64, String)> {
        let (paid, _) = ground.pair("select count(*), count(*) from demo_payment").await?;
        let status = ground.observe.status().await?;
        let doubts: i64 = status.lanes.iter().map(|lane| lane.cases).sum();
        Ok((
            paid + doubts,
            format!("{paid} paid · {doubts} uncertain · {kills} killed"),
        ))
    }

    async fn faults(&self, ground: &mut Ground<DB>) -> Result<Option<Faults>> {
        Ok(Some(ground.faults(&[(ChargeOrder::KIND, "demo_payment")]).await?))
    }
}
