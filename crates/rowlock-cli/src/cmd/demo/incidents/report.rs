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
        self.ran.stuck.is_none() && self.found.is_clean()
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Summary {
            entities: self.entities,
            evaluations: self.found.jobs,
            open_incidents_max: self.found.open_max,
            changed: self.found.changed,
            stale: self.found.stale,
            lost: self.found.lost(),
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
            if self.careless { ", carelessly" } else { "" }
        );
        let mut text = report::title(&title, show.seed) + &self.rows() + &report::seconds(self.ran.seconds);
        let Findings { open_max, stale, .. } = self.found;
        text += &report::promise(
            "open at once, at most",
            open_max,
            open_max == 1,
            "incidents of one entity",
        );
        text += &report::promise("stale", stale, stale == 0, "acted on a state that was not the latest");
        let lost = self.found.lost();
        text += &report::promise("lost", lost, lost == 0, "evaluations that left no trace");
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
                "under way at once",
                found.at_once,
                &format!("over {} connections: none is held meanwhile", self.pool),
            ),
            report::row("acted", found.acted, "opened an incident, or closed it"),
            report::row(
                "told that it changed",
                found.changed,
                "another had acted first: ended quietly",
            ),
            report::row(
                "  and looked the same",
                found.unseen,
                "opened and closed again in between",
            ),
        ]
        .concat()
    }

    fn bad(&self) -> String {
        report::broken(self.careless, self.ran.stuck.as_deref(), self.ran.seconds, &[])
    }
}

fn good(show: &Show) -> String {
    let other = if show.site.is_postgres() {
        ("rowlock demo incidents".to_owned(), "the same on SQLite")
    } else {
        (
            "rowlock demo incidents --database …".to_owned(),
            "the same on PostgreSQL",
        )
    };
    "\n  Each evaluation looked, thought for a while with no lock and no connection,\n  \
     and asked in the transaction of its write whether what it saw still held. Of\n  \
     those that raced one acted; the others were told, and ended quietly.\n\n"
        .to_owned()
        + &report::next(&[
            ("rowlock demo incidents --careless".to_owned(), "without the guard"),
            other,
        ])
}
