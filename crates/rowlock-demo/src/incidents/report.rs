//! What the scene says at the end, for someone who has never seen this before.

use super::{
    super::{
        report,
        run::Ran,
        show::{Show, Verdict},
    },
    EVALUATION_MS,
    check::{Findings, Summary},
};

/// A run and its count.
pub(crate) struct Ended {
    pub(crate) found: Findings,
    pub(crate) ran: Ran,
    pub(crate) entities: u32,
    pub(crate) evaluations: u32,
    pub(crate) workers: u32,
    pub(crate) pool: u32,
    pub(crate) careless: bool,
}

impl Verdict for Ended {
    fn is_clean(&self) -> bool {
        self.ran.rest.is_none() && self.found.is_clean()
    }

    fn unfinished(&self) -> Option<String> {
        self.ran.unfinished(self.found.open_max > 1 || self.found.stale > 0)
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Summary {
            entities: self.entities,
            evaluations: self.found.jobs,
            open_incidents_max: self.found.open_max,
            changed: self.found.changed,
            stale: self.found.stale,
            lost: self.unfinished().is_none().then(|| self.found.lost()),
            pool: self.pool,
            workers: self.workers,
            at_once: self.found.at_once,
            seconds: report::rounded(self.ran.seconds),
        })
    }

    fn table(&self, show: &Show) -> String {
        let title = format!(
            "{} entities, {} evaluations of each, on {}{}",
            self.entities,
            self.evaluations,
            show.database(),
            if self.careless { ", without the guard" } else { "" }
        );
        let mut text = report::title(&title, show.seed) + &self.rows() + &report::seconds(self.ran.seconds);
        if let Some(unfinished) = self.unfinished() {
            return text + &unfinished;
        }
        let Findings { open_max, stale, .. } = self.found;
        text += &report::promise(
            "open incidents, at most",
            open_max,
            open_max == 1,
            "for one entity at the same time",
        );
        text += &report::promise("stale", stale, stale == 0, "acted on an outdated state");
        let lost = self.found.lost();
        text += &report::promise("lost", lost, lost == 0, "evaluations without a recorded result");
        text += &if self.is_clean() { good(show) } else { self.bad() };
        text
    }

    fn is_meant(&self) -> bool {
        self.careless
    }
}

impl Ended {
    fn rows(&self) -> String {
        let found = &self.found;
        let ms = |ms: u64| ms as f64 / 1000.0;
        [
            report::row(
                "evaluations",
                found.jobs,
                &format!("{} to {} s each", ms(EVALUATION_MS.start), ms(EVALUATION_MS.end)),
            ),
            report::row(
                "running at the same time",
                found.at_once,
                &format!("over {} connections; none is held meanwhile", self.pool),
            ),
            report::row("acted", found.acted, "opened an incident or closed it"),
            report::row(
                "refused by the guard",
                found.changed,
                "another evaluation had acted first",
            ),
            report::row(
                "  state looked the same",
                found.unseen,
                "opened and closed again in between",
            ),
        ]
        .concat()
    }

    fn bad(&self) -> String {
        report::broken(self.careless, self.ran.rest.text().as_deref(), self.ran.seconds, &[])
    }
}

fn good(show: &Show) -> String {
    let program = report::program();
    let other = if show.site.is_postgres() {
        (format!("{program} demo incidents"), "the same on SQLite")
    } else {
        (
            format!("{program} demo incidents --database …"),
            "the same on PostgreSQL",
        )
    };
    "\n  Each evaluation read the state and worked on it without a lock or connection.\n  \
     In the transaction of its write it checked that the state had not changed. Of\n  \
     the evaluations that raced, one acted; the guard refused the others.\n\n"
        .to_owned()
        + &report::next(&[
            (format!("{program} demo incidents --careless"), "without the guard"),
            other,
        ])
}
