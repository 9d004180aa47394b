//! What the scene says at the end, for someone who has never seen this before.

use super::{
    super::{
        LEASE, report,
        run::Ran,
        show::{Show, Verdict},
    },
    check::{Findings, Summary},
};

/// A run and its count.
pub(crate) struct Ended {
    pub(crate) found: Findings,
    pub(crate) ran: Ran,
    pub(crate) workers: u32,
    pub(crate) kills_wanted: u32,
}

impl Verdict for Ended {
    fn is_clean(&self) -> bool {
        self.ran.stuck.is_none() && self.found.is_clean()
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Summary {
            jobs: self.found.jobs,
            done: self.found.done,
            effects: self.found.charges + self.found.mails,
            lost: self.found.lost(),
            doubled: self.found.doubled(),
            kills: self.ran.kills,
            seconds: report::rounded(self.ran.seconds),
        })
    }

    fn table(&self, show: &Show) -> String {
        let title = format!(
            "{} orders, {} jobs, {} worker processes on {}",
            self.found.orders,
            self.found.jobs,
            self.workers,
            show.database()
        );
        let mut text = report::title(&title, show.seed) + &self.rows() + &report::seconds(self.ran.seconds);
        let (lost, doubled) = (self.found.lost(), self.found.doubled());
        text += &report::promise("lost", lost, lost == 0, "orders without stock, charge or receipt");
        text += &report::promise("doubled", doubled, doubled == 0, "orders with one of these twice");
        text += &if self.is_clean() { self.good(show) } else { self.bad() };
        text
    }
}

impl Ended {
    fn rows(&self) -> String {
        let (found, ran) = (&self.found, &self.ran);
        let mut text = String::new();
        let mut row = |name: &str, value: i64, says: &str| text += &report::row(name, value, says);
        row("orders placed", found.orders, "each in one commit with its first job");
        row(
            "stock reserved",
            found.reserved,
            &format!(
                "{} at the start − {} = {} left",
                found.stock_at_start, found.reserved, found.stock_left
            ),
        );
        row(
            "charges at the provider",
            found.charges,
            &format!("{} orders charged, {} payments noted", found.orders_charged, found.paid),
        );
        row(
            "receipts at the provider",
            found.mails,
            "counted outside the database as well",
        );
        row(
            "workers killed",
            ran.kills as i64,
            &format!("SIGKILL, {} between a call and its answer", ran.struck),
        );
        row(
            "attempts cut short",
            found.cut_short,
            &format!("run again after their lease of {} s", LEASE.as_secs()),
        );
        row(
            "repeats suppressed",
            found.repeats,
            "same key again: the provider did nothing",
        );
        text
    }

    fn good(&self, show: &Show) -> String {
        let kills = self.kills_wanted.max(1) * 4;
        let other = if show.site.is_postgres() {
            ("rowlock demo".to_owned(), "the same on SQLite")
        } else {
            (
                "rowlock demo --database postgres://…".to_owned(),
                "the same on PostgreSQL",
            )
        };
        let died = match self.ran.kills {
            0 => "Every order was handled exactly once, and would be if workers died in the\n  middle of their work",
            _ => "Workers died in the middle of their work, yet every order was handled exactly\n  once",
        };
        format!(
            "\n  {died}: a job is done in the same commit as its writes, and calls\n  \
             outside carry a key that never changes.\n\n"
        ) + &report::next(&[(format!("rowlock demo --kills {kills}"), "more of it"), other])
    }

    fn bad(&self) -> String {
        let hit = [
            ("lost: order", self.found.lost.iter().copied().collect()),
            ("doubled: order", self.found.doubled.iter().copied().collect()),
        ];
        report::broken(false, self.ran.stuck.as_deref(), self.ran.seconds, &hit)
    }
}
