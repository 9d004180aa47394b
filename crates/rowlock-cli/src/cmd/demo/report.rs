//! What the demo says at the end, for someone who has never seen this before.

use super::{
    super::own::Site,
    Args,
    check::{Findings, Summary},
    shop,
};
use crate::output::{BOLD, DIM, GREEN, PLAIN, RED};

/// A run and its count.
pub(crate) struct Ended {
    pub(crate) found: Findings,
    pub(crate) seconds: f64,
    pub(crate) kills: usize,
    pub(crate) struck: usize,
    /// What was not over when the time was.
    pub(crate) stuck: Option<String>,
}

impl Ended {
    pub(crate) fn is_clean(&self) -> bool {
        self.stuck.is_none() && self.found.is_clean()
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            jobs: self.found.jobs,
            done: self.found.done,
            effects: self.found.charges + self.found.mails,
            lost: self.found.lost(),
            doubled: self.found.doubled(),
            kills: self.kills,
            seconds: (self.seconds * 1000.0).round() / 1000.0,
        }
    }
}

/// What is about to happen.
pub(crate) fn intro(args: &Args, site: &Site) -> String {
    let Args {
        orders, workers, kills, ..
    } = args;
    format!(
        "{orders} orders through {workers} worker processes on {}, killing one {kills} times …",
        database(site)
    )
}

fn database(site: &Site) -> &'static str {
    if site.is_postgres() { "PostgreSQL" } else { "SQLite" }
}

pub(crate) fn table(ended: &Ended, args: &Args, site: &Site, seed: u64) -> String {
    let found = &ended.found;
    let mut text = format!(
        "\n  {BOLD}{} orders, {} jobs, {} worker processes on {}{PLAIN}   {DIM}seed {seed}{PLAIN}\n\n",
        found.orders,
        found.jobs,
        args.workers,
        database(site)
    );
    let mut row = |name: &str, value: i64, says: String| text += &line("", name, value, &says);
    row(
        "orders placed",
        found.orders,
        "each in one commit with its first job".into(),
    );
    row(
        "stock reserved",
        found.reserved,
        format!(
            "{} at the start − {} = {} left",
            found.stock_at_start, found.reserved, found.stock_left
        ),
    );
    row(
        "charges at the provider",
        found.charges,
        format!("{} orders charged, {} payments noted", found.orders_charged, found.paid),
    );
    row(
        "receipts at the provider",
        found.mails,
        "counted outside the database as well".into(),
    );
    row(
        "workers killed",
        ended.kills as i64,
        format!("SIGKILL, {} between a call and its answer", ended.struck),
    );
    row(
        "attempts cut short",
        found.cut_short,
        format!("run again after their lease of {} s", shop::LEASE.as_secs()),
    );
    row(
        "repeats suppressed",
        found.repeats,
        "same key again: the provider did nothing".into(),
    );
    text += &format!("  {:<26}{:>6.1}\n\n", "seconds", ended.seconds);
    text += &count("lost", found.lost(), "orders without stock, charge or receipt");
    text += &count("doubled", found.doubled(), "orders with one of these twice");
    text += &if ended.is_clean() { good(args, site) } else { bad(ended) };
    text
}

fn line(style: &str, name: &str, value: i64, says: &str) -> String {
    format!("  {style}{name:<26}{value:>6}{PLAIN}   {DIM}{says}{PLAIN}\n")
}

fn count(name: &str, value: i64, says: &str) -> String {
    line(if value == 0 { GREEN } else { RED }, name, value, says)
}

fn good(args: &Args, site: &Site) -> String {
    let kills = args.kills.max(1) * 4;
    let other = if site.is_postgres() {
        format!("{:<40}the same on SQLite", "rowlock demo")
    } else {
        format!("{:<40}the same on PostgreSQL", "rowlock demo --database postgres://…")
    };
    format!(
        "\n  Workers died in the middle of their work, yet every order was handled exactly\n  \
         once: a job is done in the same commit as its writes, and calls outside carry\n  \
         a key that never changes.\n\n  \
         {DIM}next:{PLAIN}  {:<40}more of it\n         {other}\n\n",
        format!("rowlock demo --kills {kills}"),
    )
}

fn bad(ended: &Ended) -> String {
    let mut text = format!("\n  {RED}This must not happen.{PLAIN}\n");
    if let Some(stuck) = &ended.stuck {
        text += &format!("  not over after {:.0} s: {stuck}\n", ended.seconds);
    }
    for (name, orders) in [("lost", &ended.found.lost), ("doubled", &ended.found.doubled)] {
        if !orders.is_empty() {
            let some: Vec<String> = orders.iter().take(10).map(i64::to_string).collect();
            text += &format!("  {name}: order {}\n", some.join(", "));
        }
    }
    text + "\n"
}
