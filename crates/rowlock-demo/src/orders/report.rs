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
}

impl Verdict for Ended {
    fn is_clean(&self) -> bool {
        self.ran.rest.is_none() && self.found.is_clean()
    }

    fn unfinished(&self) -> Option<String> {
        self.ran.unfinished(self.found.doubled() > 0)
    }

    fn json(&self) -> serde_json::Result<String> {
        let known = self.unfinished().is_none();
        serde_json::to_string(&Summary {
            jobs: self.found.jobs,
            done: self.found.done,
            effects: self.found.charges + self.found.mails,
            lost: known.then(|| self.found.lost()),
            doubled: known.then(|| self.found.doubled()),
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
        if let Some(unfinished) = self.unfinished() {
            return text + &unfinished;
        }
        let (lost, doubled) = (self.found.lost(), self.found.doubled());
        text += &report::promise("lost", lost, lost == 0, "orders missing stock, charge or receipt");
        text += &report::promise(
            "doubled",
            doubled,
            doubled == 0,
            "orders with any of these more than once",
        );
        text += &if self.is_clean() { self.good(show) } else { self.bad() };
        text
    }
}

impl Ended {
    fn rows(&self) -> String {
        let (found, ran) = (&self.found, &self.ran);
        let mut text = String::new();
        let mut row = |name: &str, value: i64, says: &str| text += &report::row(name, value, says);
        row(
            "orders placed",
            found.orders,
            "each committed together with its first job",
        );
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
            &format!(
                "{} orders charged, {} payments stored",
                found.orders_charged, found.paid
            ),
        );
        row(
            "receipts at the provider",
            found.mails,
            "counted in the provider's own log",
        );
        row(
            "workers killed",
            ran.kills as i64,
            &format!("SIGKILL, {} between a call and its reply", ran.struck),
        );
        row(
            "attempts cut short",
            found.cut_short,
            &format!("retried when their lease of {} s expired", LEASE.as_secs()),
        );
        row(
            "repeats suppressed",
            found.repeats,
            "same key again: the provider did nothing",
        );
        text
    }

    fn good(&self, show: &Show) -> String {
        let what = match self.ran.kills {
            0 => {
                "Every order was handled exactly once, and would be if workers were killed: a\n  job is marked done in \
                 the same commit as its writes, and external calls carry a\n  key that never changes."
            }
            _ => {
                "Workers were killed in the middle of their work, and every order was still\n  handled exactly once: a \
                 job is marked done in the same commit as its writes,\n  and external calls carry a key that never \
                 changes."
            }
        };
        format!("\n  {what}\n\n") + &report::next(&next(show.site.is_postgres(), report::in_checkout()))
    }

    fn bad(&self) -> String {
        let hit = [
            ("lost: order", self.found.lost.iter().copied().collect()),
            ("doubled: order", self.found.doubled.iter().copied().collect()),
        ];
        report::broken(false, self.ran.rest.text().as_deref(), self.ran.seconds, &hit)
    }
}

/// What a newcomer should see next. An installed program has no tests to run.
fn next(on_postgres: bool, in_checkout: bool) -> [(String, &'static str); 2] {
    let program = report::program();
    let second = match (in_checkout, on_postgres) {
        (true, _) => (
            "cargo xtask test".to_owned(),
            "the quick tests; add --long for the rest",
        ),
        (false, false) => (
            format!("{program} demo --database postgres://…"),
            "the same on PostgreSQL",
        ),
        (false, true) => (
            format!("{program} demo snoozes --database …"),
            "jobs from an existing table",
        ),
    };
    [(format!("{program} demo charges"), "replies get lost as well"), second]
}
