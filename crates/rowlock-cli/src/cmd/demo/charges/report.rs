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
    pub(crate) careless: bool,
}

impl Verdict for Ended {
    fn is_clean(&self) -> bool {
        self.ran.stuck.is_none() && self.found.is_clean()
    }

    fn json(&self) -> serde_json::Result<String> {
        let found = &self.found;
        serde_json::to_string(&Summary {
            jobs: found.jobs,
            done: found.done,
            effects: found.charges,
            lost: found.lost.len(),
            doubled: found.doubled.len(),
            uncertain: found.keyed.uncertain + found.keyless.uncertain,
            kills: self.ran.kills,
            dropped_replies: found.dropped,
            seconds: report::rounded(self.ran.seconds),
        })
    }

    fn table(&self, show: &Show) -> String {
        let title = format!(
            "{} charges by {} worker processes on {}{}",
            self.found.orders(),
            self.workers,
            show.database(),
            if self.careless { ", carelessly" } else { "" }
        );
        let mut text = report::title(&title, show.seed) + &self.accounts() + &self.troubles();
        text += &report::seconds(self.ran.seconds);
        let (lost, doubled) = (&self.found.lost, &self.found.doubled);
        text += &report::promise(
            "lost",
            lost.len() as i64,
            lost.is_empty(),
            "orders neither charged nor left to a person",
        );
        text += &report::promise(
            "doubled",
            doubled.len() as i64,
            doubled.is_empty(),
            "orders charged twice",
        );
        text += &if self.is_clean() { good(show) } else { self.bad() };
        text
    }

    fn is_meant(&self) -> bool {
        self.careless
    }

    fn looks(&self) -> &'static [&'static str] {
        &["cases", "effects", "status"]
    }
}

impl Ended {
    fn accounts(&self) -> String {
        let (keyed, keyless) = (&self.found.keyed, &self.found.keyless);
        let charged = keyless.uncertain_charged;
        let doubts = match keyless.uncertain - charged {
            0 if charged == 0 => "nobody was asked".to_owned(),
            not => format!("{charged} of them charged, {not} not: ask the provider"),
        };
        [
            report::heading("the account that honours keys: in doubt, call again under the same key"),
            report::row("orders", keyed.orders, "each in one commit with its job"),
            report::row(
                "charged once",
                keyed.charged_once,
                "one line each in the provider's own log",
            ),
            report::row(
                "repeats suppressed",
                self.found.repeats,
                "same key again: the provider did nothing",
            ),
            "\n".to_owned(),
            report::heading(if self.careless {
                "the account that ignores keys: in doubt, call again all the same"
            } else {
                "the account that ignores keys: in doubt, leave it to a person"
            }),
            report::row("orders", keyless.orders, "each in one commit with its job"),
            report::row(
                "charged once",
                keyless.charged_once,
                "one line each in the provider's own log",
            ),
            report::row("in doubt, a case each", keyless.uncertain, &doubts),
            "\n".to_owned(),
            report::heading("meanwhile"),
        ]
        .concat()
    }

    fn troubles(&self) -> String {
        [
            report::row(
                "workers killed",
                self.ran.kills as i64,
                &format!("SIGKILL, {} between a charge and its answer", self.ran.struck),
            ),
            report::row(
                "attempts cut short",
                self.found.cut_short,
                &format!("taken up again after a lease of {} s", LEASE.as_secs()),
            ),
            report::row(
                "replies lost",
                self.found.dropped,
                "charged, and cut off before the answer",
            ),
        ]
        .concat()
    }

    fn bad(&self) -> String {
        let hit = [
            ("lost: order", self.found.lost.iter().copied().collect()),
            ("doubled: order", self.found.doubled.iter().copied().collect()),
        ];
        report::broken(self.careless, self.ran.stuck.as_deref(), self.ran.seconds, &hit)
    }
}

fn good(show: &Show) -> String {
    let other = if show.site.is_postgres() {
        ("rowlock demo charges".to_owned(), "the same on SQLite")
    } else {
        ("rowlock demo charges --database …".to_owned(), "the same on PostgreSQL")
    };
    "\n  An intent is stored before every call and its reply after it, so whoever comes\n  \
     later knows what is in doubt. Where keys are honoured it calls again, and the\n  \
     provider does nothing twice. Where they are not, nobody can know: no call is\n  \
     repeated, and every doubt is a case that shows its open intent, until a person\n  \
     has asked the provider and says what happened.\n\n"
        .to_owned()
        + &report::next(&[
            (
                "rowlock demo charges --careless".to_owned(),
                "call again in every doubt",
            ),
            ("rowlock demo charges --keep".to_owned(), "and look at the cases"),
            other,
        ])
}
