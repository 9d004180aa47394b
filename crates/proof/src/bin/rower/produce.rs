//! The producer: orders and their jobs, in one commit each time.

use std::time::Duration;

use anyhow::{Result, bail};
use proof::chaos::{
    jobs::{
        ACCOUNTS, Charge, Dial, Doomed, Errand, GROUPS, Guarded, Keyed, Link, MEMORY, Mishap, Nobodys, Poison, Posting,
        Tally, Transfer, Trip,
    },
    log::{Line, Log, now_ms},
    orders::{Role, RowerOrders, Workload},
};
use rowlock::Job;
use sqlx::Connection as _;
use tokio_util::sync::CancellationToken;

use super::{BACKLOG, BEGIN, Connection, db::Rowlock};

/// Producers that share keys meet within this time.
const SLOT_MS: i64 = 60;
/// How far apart jobs that end a process are, on average.
const POISON_EVERY: Duration = Duration::from_secs(12);
/// How long a commit may take before the connection is given up.
const PATIENCE: Duration = Duration::from_secs(8);

struct Producer<'a> {
    rowlock: Rowlock,
    log: Log,
    random: fastrand::Rng,
    workloads: &'a [Workload],
    /// The next order's number.
    next: i64,
    /// One database writes at a time: nobody may take long.
    one_writer: bool,
    slow: bool,
    rate: u32,
    /// Harmful orders so far.
    harmful: u32,
}

/// Produces until the signal to stop. Whatever fails is tried again with a new connection and a new order.
pub(crate) async fn produce(orders: &RowerOrders, stop: &CancellationToken) -> Result<()> {
    let Role::Produce {
        no,
        rate,
        backlog,
        slow,
        ref workloads,
        seed,
    } = orders.role
    else {
        bail!("these are not a producer's orders");
    };
    let mut producer = Producer {
        rowlock: Rowlock::open(&orders.url)?,
        log: Log::open(&orders.log)?,
        random: fastrand::Rng::with_seed(seed),
        workloads,
        next: no << 32,
        one_writer: orders.url.starts_with("sqlite:"),
        slow,
        rate,
        harmful: 0,
    };
    while !stop.is_cancelled() {
        let connecting = Connection::connect(&orders.url);
        let Ok(Ok(mut conn)) = tokio::time::timeout(PATIENCE, connecting).await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        // Its connection is gone, or in an unknown state.
        while !stop.is_cancelled() {
            let round = producer.round(&mut conn, backlog);
            match tokio::time::timeout(PATIENCE, round).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    tracing::info!(%error, "an order failed");
                    break;
                }
                Err(_) => break,
            }
        }
    }
    Ok(())
}

impl Producer<'_> {
    /// One commit of several orders, and a pause that keeps the rate.
    async fn round(&mut self, conn: &mut Connection, backlog: i64) -> Result<()> {
        let waiting: i64 = sqlx::query_scalar(BACKLOG).fetch_one(&mut *conn).await?;
        if waiting > backlog {
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Ok(());
        }
        if self.workloads.contains(&Workload::Keys) {
            self.keyed(conn).await?;
        }
        let count = self.random.u32(1..=50);
        let orders: Vec<i64> = (0..i64::from(count)).map(|n| self.next + n).collect();
        self.next += i64::from(count);
        for order in &orders {
            self.log.write(&Line::Try { order: *order });
        }
        sqlx::query(BEGIN).execute(&mut *conn).await?;
        let mut made = Vec::new();
        for order in orders {
            let id = self.enqueue(conn, order).await?;
            let insert = sqlx::query("insert into purchase (no, job) values ($1, $2)");
            insert.bind(order).bind(id).execute(&mut *conn).await?;
            made.push((order, id));
        }
        if self.random.u32(..100) < 3 {
            sqlx::query("rollback").execute(&mut *conn).await?;
            made.iter()
                .for_each(|(order, _)| self.log.write(&Line::RolledBack { order: *order }));
        } else {
            sqlx::query("commit").execute(&mut *conn).await?;
            made.iter()
                .for_each(|(order, id)| self.log.write(&Line::Confirmed { order: *order, id: *id }));
        }
        tokio::time::sleep(Duration::from_millis(u64::from(1000 * count / self.rate.max(1)))).await;
        Ok(())
    }

    /// Every producer asks for the same slot at about the same time.
    async fn keyed(&mut self, conn: &mut Connection) -> Result<()> {
        let slot = now_ms() / SLOT_MS;
        sqlx::query(BEGIN).execute(&mut *conn).await?;
        let enqueued = self
            .rowlock
            .enqueue(conn, Keyed { slot })
            .key(format!("slot:{slot}"))
            .await?;
        sqlx::query("commit").execute(&mut *conn).await?;
        self.log.write(&Line::Keyed {
            slot,
            id: enqueued.id(),
        });
        Ok(())
    }

    async fn enqueue(&mut self, conn: &mut Connection, order: i64) -> Result<i64> {
        let account = |random: &mut fastrand::Rng| random.i64(1..=ACCOUNTS);
        let rowlock = self.rowlock.clone();
        Ok(match self.choose() {
            Workload::Transfers => {
                let (from, to) = (account(&mut self.random), account(&mut self.random));
                let amount = self.random.i64(1..100);
                let ms = self.takes(700);
                put(
                    &rowlock,
                    conn,
                    Transfer {
                        order,
                        from,
                        to,
                        amount,
                        ms,
                    },
                )
                .await?
            }
            Workload::Tallies => {
                let (from, to) = (account(&mut self.random), account(&mut self.random));
                put(&rowlock, conn, Tally { order, from, to }).await?
            }
            Workload::Chains => put(&rowlock, conn, Link { order, depth: 1 }).await?,
            Workload::Charges => {
                let park = self.random.u32(..4) == 0;
                put(&rowlock, conn, Charge { order, park }).await?
            }
            Workload::Dials => put(&rowlock, conn, Dial { order }).await?,
            Workload::Errands => {
                // Some wait for a while, so that there is always something to decide about.
                let (ms, after) = (self.random.u64(0..60), self.random.u64(0..2_500));
                let enqueue = rowlock.enqueue(conn, Errand { order, ms });
                enqueue.after(Duration::from_millis(after)).await?.id()
            }
            Workload::Groups => {
                let group = format!("group:{}", self.random.u32(..GROUPS));
                let enqueue = rowlock.enqueue(conn, Posting { order }).group(group);
                enqueue.await?.id()
            }
            Workload::Guards => {
                let entity = self.random.i64(1..=20);
                let ms = self.takes(if self.slow { 9_000 } else { 3_000 });
                put(&rowlock, conn, Guarded { order, entity, ms }).await?
            }
            Workload::Poison | Workload::Keys => self.harmful(conn, order).await?,
            Workload::Unknown => put(&rowlock, conn, Nobodys { order }).await?,
        })
    }

    /// One that goes wrong. Those that end a process come seldom: what is proven with them needs no number.
    async fn harmful(&mut self, conn: &mut Connection, order: i64) -> Result<i64> {
        let rowlock = self.rowlock.clone();
        // About one order in fifty is harmful.
        let deadly = 50.0 / (f64::from(self.rate) * POISON_EVERY.as_secs_f64());
        self.harmful += 1;
        // The first ones, so that no run is without.
        if self.harmful == 2 {
            return glut(&rowlock, conn, order).await;
        }
        if self.harmful == 3 || self.random.f64() < deadly {
            return put(&rowlock, conn, Poison { order }).await;
        }
        let mishap = match self.random.u32(..10) {
            0..4 => return put(&rowlock, conn, Doomed { order }).await,
            4..7 => Mishap::Panic,
            7..9 => Mishap::Hang,
            _ => return glut(&rowlock, conn, order).await,
        };
        put(&rowlock, conn, Trip { order, mishap }).await
    }

    /// Most jobs are quick; some outlast a heartbeat, and a few a lease, if they hold no transaction during it.
    fn takes(&mut self, most: u64) -> u64 {
        let most = if self.one_writer { most / 5 } else { most };
        let long = if self.slow { 30 } else { 1 };
        match self.random.u32(..200) {
            roll if roll < long => self.random.u64(most / 3..most),
            roll if roll < long + 9 => self.random.u64(most / 20..most / 4),
            _ => self.random.u64(0..3),
        }
    }

    fn choose(&mut self) -> Workload {
        let roll = self.random.u32(..1000);
        let chosen = match roll {
            0..340 => Workload::Transfers,
            340..390 => Workload::Errands,
            390..430 => Workload::Groups,
            430..480 => Workload::Dials,
            480..760 => Workload::Tallies,
            760..830 => Workload::Chains,
            830..900 => Workload::Charges,
            900..977 => Workload::Guards,
            977..998 => Workload::Poison,
            _ => Workload::Unknown,
        };
        if self.workloads.contains(&chosen) {
            return chosen;
        }
        // Keys have a separate commit.
        let others: Vec<Workload> = self
            .workloads
            .iter()
            .copied()
            .filter(|of| *of != Workload::Keys)
            .collect();
        match others.len() {
            0 => Workload::Transfers,
            count => others[self.random.usize(..count)],
        }
    }
}

/// One that asks for more memory than there is, for those who have little.
async fn glut(rowlock: &Rowlock, conn: &mut Connection, order: i64) -> Result<i64> {
    let mishap = Mishap::Glut;
    let enqueue = rowlock.enqueue(conn, Trip { order, mishap }).queue(MEMORY);
    Ok(enqueue.await?.id())
}

async fn put<J: Job>(rowlock: &Rowlock, conn: &mut Connection, job: J) -> Result<i64> {
    Ok(rowlock.enqueue(conn, job).await?.id())
}
