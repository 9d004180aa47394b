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
        self.ran.rest.is_none() && self.found.is_clean()
    }

    fn unfinished(&self) -> Option<String> {
        let broken = !self.found.doubled.is_empty() || self.found.keyed.uncertain > 0;
        self.ran.unfinished(broken)
    }

    fn json(&self) -> serde_json::Result<String> {
        let (found, known) = (&self.found, self.unfinished().is_none());
        serde_json::to_string(&Summary {
            jobs: found.jobs,
            done: found.done,
            effects: found.charges,
            lost: known.then_some(found.lost.len()),
            doubled: known.then_some(found.doubled.len()),
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
            if self.careless { ", without the protection" } else { "" }
        );
        let mut text = report::title(&title, show.seed) + &self.accounts() + &self.troubles();
        text += &report::seconds(self.ran.seconds);
        if let Some(unfinished) = self.unfinished() {
            return text + &unfinished;
        }
        let (lost, doubled) = (&self.found.lost, &self.found.doubled);
        text += &report::promise(
            "lost",
            lost.len() as i64,
            lost.is_empty(),
            "orders not charged and not left to a person",
        );
        text += &report::promise(
            "doubled",
            doubled.len() as i64,
            doubled.is_empty(),
            "orders charged more than once",
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
            0 if charged == 0 => "no call was left uncertain".to_owned(),
            not => format!("{charged} charged, {not} not: a person must ask"),
        };
        [
            report::heading("account with idempotency keys: if uncertain, call again with the same key"),
            report::row("orders", keyed.orders, "each committed together with its job"),
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
                "account without idempotency keys: if uncertain, call again anyway"
            } else {
                "account without idempotency keys: if uncertain, let a person decide"
            }),
            report::row("orders", keyless.orders, "each committed together with its job"),
            report::row(
                "charged once",
                keyless.charged_once,
                "one line each in the provider's own log",
            ),
            report::row("uncertain, a case each", keyless.uncertain, &doubts),
            "\n".to_owned(),
            report::heading("what went wrong on purpose"),
        ]
        .concat()
    }

    fn troubles(&self) -> String {
        [
            report::row(
                "workers killed",
                self.ran.kills as i64,
                &format!("SIGKILL, {} between a charge and its reply", self.ran.struck),
            ),
            report::row(
                "attempts cut short",
                self.found.cut_short,
                &format!("retried when their lease of {} s expired", LEASE.as_secs()),
            ),
            report::row(
                "replies lost",
                self.found.dropped,
                "charged, but the reply never arrived",
            ),
        ]
        .concat()
    }

    fn bad(&self) -> String {
        let hit = [
            ("lost: order", self.found.lost.iter().copied().collect()),
            ("doubled: order", self.found.doubled.iter().copied().collect()),
        ];
        report::broken(self.careless, self.ran.rest.text().as_deref(), self.ran.seconds, &hit)
    }
}

fn good(show: &Show) -> String {
    let program = report::program();
    let second = match show.keep {
        true => (format!("{program} demo incidents"), "evaluations that race"),
        false => (format!("{program} demo charges --keep"), "look at the cases"),
    };
    "\n  Rowlock stores an intent before each external call and the reply after it, so\n  \
     the next worker knows which calls are uncertain. With idempotency keys it\n  \
     calls again, and the provider does nothing twice. Without keys it repeats no\n  \
     call: each uncertain call becomes a case with its open intent, until a person\n  \
     has asked the provider and records what happened.\n\n"
        .to_owned()
        + &report::next(&[
            (format!("{program} demo charges --careless"), "see double charges"),
            second,
        ])
}
