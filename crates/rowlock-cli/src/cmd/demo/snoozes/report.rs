//! What the scene says at the end.

use serde::Serialize;

use super::{
    super::{
        report,
        show::{Show, Verdict},
    },
    Found,
};

#[derive(Serialize)]
struct Summary {
    rows: i64,
    sent: i64,
    lost: i64,
    doubled: i64,
    retired: i64,
    kills: i64,
    seconds: f64,
}

impl Found {
    /// What keeps it from being clean beside what was lost or doubled.
    fn stuck(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.active > 0 {
            parts.push(format!("{} rows are still active", self.active));
        }
        if self.retired != self.poison {
            parts.push(format!(
                "{} rows were retired, and {} are poison",
                self.retired, self.poison
            ));
        }
        if self.unexplained > 0 {
            parts.push(format!("{} retired rows have no error or no case", self.unexplained));
        }
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

impl Verdict for Found {
    fn is_clean(&self) -> bool {
        self.lost.is_empty() && self.doubled.is_empty() && self.stuck().is_none()
    }

    fn json(&self) -> serde_json::Result<String> {
        serde_json::to_string(&Summary {
            rows: self.rows,
            sent: self.sent,
            lost: self.lost.len() as i64,
            doubled: self.doubled.len() as i64,
            retired: self.retired,
            kills: self.kills,
            seconds: report::rounded(self.seconds),
        })
    }

    fn table(&self, show: &Show) -> String {
        let title = format!(
            "{} reminders, {} worker processes on {}",
            self.rows,
            self.workers,
            show.database()
        );
        let (lost, doubled) = (self.lost.len() as i64, self.doubled.len() as i64);
        let struck = format!("SIGKILL, {} right after a mail was sent", self.struck);
        let mut text = [
            report::title(&title, show.seed),
            report::row("rows", self.rows, "of email_snoozes, a table of the application's own"),
            report::row("sent", self.sent, "reminders that the mail provider has"),
            report::row("repeats suppressed", self.repeats, "asked for again under the same key"),
            report::row(
                "retired",
                self.retired,
                "poison rows, each with its last_error and a case",
            ),
            report::row("workers killed", self.kills, &struck),
            report::seconds(self.seconds),
            report::promise("lost", lost, lost == 0, "reminders that were never sent"),
            report::promise("doubled", doubled, doubled == 0, "reminders that were sent twice"),
        ]
        .concat();
        text += &match self.is_clean() {
            true => good(),
            false => report::broken(
                false,
                self.stuck().as_deref(),
                self.seconds,
                &[("lost", self.lost.clone()), ("doubled", self.doubled.clone())],
            ),
        };
        text
    }

    fn looks(&self) -> &'static [&'static str] {
        &["status", "cases"]
    }
}

fn good() -> String {
    "\n  The rows stayed the application's own: claimed, retried and retired in their\n  \
     own columns, with a token on every write. A killed worker's rows were taken\n  \
     over, and asked for their mail again under the key they had before.\n\n"
        .to_owned()
        + &report::next(&[
            (
                "rowlock demo snoozes --keep …".to_owned(),
                "look at the rows and their cases",
            ),
            (
                "rowlock adopt TABLE --due COLUMN".to_owned(),
                "what your own table needs",
            ),
        ])
}
