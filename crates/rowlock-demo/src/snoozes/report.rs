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
    /// None if the run did not finish.
    lost: Option<i64>,
    doubled: Option<i64>,
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
                "{} rows were retired, but {} are invalid",
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

    fn unfinished(&self) -> Option<String> {
        if self.active == 0 || !self.doubled.is_empty() || self.unexplained > 0 {
            return None;
        }
        let still = match self.active {
            1 => "1 row is still active".to_owned(),
            active => format!("{active} rows are still active"),
        };
        let parts = format!("{} of {} reminders are sent", self.sent, self.rows);
        Some(report::unfinished(self.seconds, &still, &parts))
    }

    fn json(&self) -> serde_json::Result<String> {
        let known = self.unfinished().is_none();
        serde_json::to_string(&Summary {
            rows: self.rows,
            sent: self.sent,
            lost: known.then_some(self.lost.len() as i64),
            doubled: known.then_some(self.doubled.len() as i64),
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
            report::row("rows", self.rows, "in email_snoozes, an application table"),
            report::row("sent", self.sent, "reminders in the mail provider's log"),
            report::row("repeats suppressed", self.repeats, "requested again with the same key"),
            report::row("retired", self.retired, "bad rows, each with last_error and a case"),
            report::row("workers killed", self.kills, &struck),
            report::seconds(self.seconds),
        ]
        .concat();
        if let Some(unfinished) = self.unfinished() {
            return text + &unfinished;
        }
        text += &report::promise("lost", lost, lost == 0, "reminders that were never sent");
        text += &report::promise("doubled", doubled, doubled == 0, "reminders sent more than once");
        text += &match self.is_clean() {
            true => good(show),
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

fn good(show: &Show) -> String {
    let program = report::program();
    let look = (format!("{program} demo snoozes --keep …"), "look at rows and cases");
    let adopt = (
        format!("{program} adopt TABLE --due COLUMN"),
        "what your own table needs",
    );
    let next = match show.keep {
        true => vec![adopt],
        false => vec![look, adopt],
    };
    "\n  The rows stay in the application's table: workers claim, retry and retire them\n  \
     in the table's own columns, with a token on every write. When a worker is\n  \
     killed, another takes over its rows and requests the mail with the same key.\n\n"
        .to_owned()
        + &report::next(&next)
}
