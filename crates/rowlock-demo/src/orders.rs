//! The first scene: every order is three jobs in a chain, and workers are killed all the time.

mod check;
mod report;
mod shop;

use std::ops::RangeInclusive;

use anyhow::Result;
use rowlock::Job;
use sqlx::Connection;

use self::shop::{ChargePayment, ITEMS, ReserveStock, SendReceipt};
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

/// Optional, so that an option in the wrong place is noticed.
#[derive(clap::Args)]
#[group(skip)]
#[command(after_help = super::after_help("jobs, done, effects, lost, doubled, kills, seconds"))]
pub(crate) struct Args {
    /// How many orders to place; each is three jobs [default: 300]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    orders: Option<u32>,
    /// How many worker processes [default: 4]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: Option<u32>,
    /// How many times to kill a worker with SIGKILL; a new one starts each time [default: 24]
    #[arg(long, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    kills: Option<u32>,
}

impl Args {
    /// An option that was set.
    pub(crate) fn given(&self) -> Option<&'static str> {
        let set = [
            (self.orders, "--orders"),
            (self.workers, "--workers"),
            (self.kills, "--kills"),
        ];
        set.iter().find_map(|(value, name)| value.map(|_| *name))
    }

    fn orders(&self) -> u32 {
        self.orders.unwrap_or(300)
    }

    fn workers(&self) -> u32 {
        self.workers.unwrap_or(4)
    }

    fn kills(&self) -> u32 {
        self.kills.unwrap_or(24)
    }
}

impl Scene for Args {
    type Ended = report::Ended;
    const NAME: &'static str = "orders";

    fn intro(&self, show: &Show) -> String {
        format!(
            "Running {} orders through {} worker processes on {}, with {} kills (SIGKILL)",
            self.orders(),
            self.workers(),
            show.database(),
            self.kills()
        )
    }

    fn size(&self) -> (&'static str, i64) {
        ("orders", self.orders().into())
    }

    async fn play<DB: Tables>(&self, show: &Show, crew: &mut Option<Crew>) -> Result<report::Ended> {
        show.step(show.creating());
        let mut ground = Ground::<DB>::open(&show.site, shop::SCHEMA).await?;
        let orders = i64::from(self.orders());
        for item in 0..ITEMS {
            let sql = ground.sql("insert into demo_stock (item, at_start, remaining) values ($1, $2, $2)");
            // More than the orders need, so that the count of what is left means something.
            DB::change(&mut ground.conn, sql, vec![item, orders / ITEMS + 10]).await?;
        }
        let moods = Moods {
            drops: 3,
            misses: 0,
            refuses: 0,
            slow: 3,
        };
        show.step("starting the payment provider");
        let mut provider = Provider::start(show, moods).await?;
        let role = ["orders", "--provider", &provider.address.to_string()].map(str::to_owned);
        show.step(&format!("starting {} workers", self.workers()));
        let crew = crew.insert(Crew::new(show, role.into())?);
        crew.hire(self.workers() as usize)?;
        let size = Size {
            work: orders,
            steps: 3,
            unit: "orders",
            kills: self.kills() as usize,
            bar: 24,
        };
        let ran = Run::new(show, &mut ground, crew, Some(&mut provider), (Orders, size));
        let ran = ran.finish().await?;
        show.step("counting orders, charges and receipts");
        let found = check::check(&mut ground, &provider.tally().await?).await?;
        Ok(report::Ended {
            found,
            ran,
            workers: self.workers(),
        })
    }
}

struct Orders;

impl<DB: Tables> Act<DB> for Orders {
    /// The order and its first job are one commit: neither is there without the other.
    async fn place(&self, ground: &mut Ground<DB>, orders: RangeInclusive<i64>) -> Result<()> {
        let insert = ground.sql("insert into demo_order (order_id, item) values ($1, $2)");
        let mut tx = ground.conn.begin().await?;
        for order in orders.clone() {
            DB::change(&mut tx, insert.clone(), vec![order, order % ITEMS]).await?;
        }
        let first_jobs = orders.map(|order| ReserveStock {
            order,
            item: order % ITEMS,
        });
        ground.rowlock.enqueue_all(&mut tx, first_jobs).await?;
        Ok(tx.commit().await?)
    }

    /// Counts the rows that finished jobs have left in the shop's tables.
    async fn progress(&self, ground: &mut Ground<DB>, kills: usize) -> Result<(i64, String)> {
        let sql = "select (select count(*) from demo_reservation) + (select count(*) from demo_receipt),
                          (select count(*) from demo_payment)";
        let (others, paid) = ground.pair(sql).await?;
        Ok((others + paid, format!("{paid} paid · {kills} workers killed")))
    }

    async fn faults(&self, ground: &mut Ground<DB>) -> Result<Option<Faults>> {
        let marks = [
            (ReserveStock::KIND, "demo_reservation"),
            (ChargePayment::KIND, "demo_payment"),
            (SendReceipt::KIND, "demo_receipt"),
        ];
        Ok(Some(ground.faults(&marks).await?))
    }
}
