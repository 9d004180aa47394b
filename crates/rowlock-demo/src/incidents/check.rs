//! The audit: every change in the order in which it was made, against what its decision was based on; and what the
//! worker processes noted.

use std::{collections::HashMap, path::Path};

use anyhow::Result;
use rowlock::{Ended, State};
use serde::Serialize;

use super::{
    super::{ground::Ground, own::Tables},
    watch::notes,
};

/// What was found.
#[derive(Default)]
pub(crate) struct Findings {
    pub(crate) jobs: i64,
    pub(crate) done: i64,
    /// Incidents opened or closed.
    pub(crate) acted: i64,
    /// The guard found that another was first.
    pub(crate) changed: i64,
    /// Of those, how many would not have noticed by comparing what is open.
    pub(crate) unseen: i64,
    /// The most incidents that one entity had open at a time.
    pub(crate) open_max: i64,
    /// Changes that were based on a state other than the one before them.
    pub(crate) stale: i64,
    /// The most evaluations that were under way at a time.
    pub(crate) at_once: i64,
}

/// What `--json` prints.
#[derive(Serialize)]
pub(crate) struct Summary {
    pub(crate) entities: u32,
    pub(crate) evaluations: i64,
    pub(crate) open_incidents_max: i64,
    pub(crate) changed: i64,
    pub(crate) stale: i64,
    /// None if the run did not finish.
    pub(crate) lost: Option<i64>,
    pub(crate) pool: u32,
    pub(crate) workers: u32,
    pub(crate) at_once: i64,
    pub(crate) seconds: f64,
}

impl Findings {
    /// Evaluations that neither acted nor have a recorded reason.
    pub(crate) fn lost(&self) -> i64 {
        (self.jobs - self.acted - self.changed).abs()
    }

    pub(crate) fn is_clean(&self) -> bool {
        self.open_max == 1 && self.stale == 0 && self.lost() == 0 && self.done == self.jobs
    }

    /// One change after another: entity, step, and how many changes of this entity its decision had seen.
    fn replay(&mut self, changes: impl IntoIterator<Item = (i64, i64, i64)>) {
        let mut entities: HashMap<i64, (i64, i64)> = HashMap::new();
        for (entity, step, seen) in changes {
            let (made, open) = entities.entry(entity).or_default();
            self.acted += 1;
            self.stale += i64::from(seen != *made);
            *made += 1;
            *open += step;
            self.open_max = self.open_max.max(*open);
        }
    }

    fn read_notes(&mut self, text: &str, spans: &mut Vec<(u128, u128)>) -> Result<()> {
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[..] {
                ["evaluated", begun, ended] => spans.push((begun.parse()?, ended.parse()?)),
                ["unseen"] => self.unseen += 1,
                ["seen"] => {}
                ["changed", count] => self.changed += count.parse::<i64>()?,
                _ => anyhow::bail!("a worker's notes have a broken line: {line}"),
            }
        }
        Ok(())
    }
}

/// Looks at everything, once no worker runs any more.
pub(crate) async fn check<DB: Tables>(ground: &mut Ground<DB>, folder: &Path, processes: u32) -> Result<Findings> {
    let mut found = Findings::default();
    let steps = ground.pairs("select entity, step from demo_change order by no").await?;
    let seen = ground.pairs("select no, seen from demo_change order by no").await?;
    let changes = steps.iter().zip(&seen);
    found.replay(changes.map(|((entity, step), (_, seen))| (*entity, *step, *seen)));
    let mut spans = Vec::new();
    for number in 1..=processes {
        // A process that never got to work has noted nothing.
        let text = std::fs::read_to_string(notes(folder, number)).unwrap_or_default();
        found.read_notes(&text, &mut spans)?;
    }
    found.at_once = most_at_once(&spans);
    let jobs = ground.jobs().await?;
    let done = jobs
        .iter()
        .filter(|job| job.state == State::Finished && job.last_outcome == Some(Ended::Done));
    found.done = done.count() as i64;
    found.jobs = jobs.len() as i64;
    Ok(found)
}

/// The most spans that overlap at a point in time.
fn most_at_once(spans: &[(u128, u128)]) -> i64 {
    let mut steps: Vec<(u128, i64)> = spans
        .iter()
        .flat_map(|(begun, ended)| [(*begun, 1), (*ended, -1)])
        .collect();
    // An end before a beginning at the same moment.
    steps.sort_unstable();
    let (mut now, mut most) = (0, 0);
    for (_, step) in steps {
        now += step;
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(changes: &[(i64, i64, i64)]) -> (i64, i64) {
        let mut found = Findings::default();
        found.replay(changes.iter().copied());
        (found.open_max, found.stale)
    }

    #[test]
    fn two_open_incidents_and_stale_decisions_are_found() {
        assert_eq!(replayed(&[(1, 1, 0), (2, 1, 0), (1, -1, 1), (1, 1, 2)]), (1, 0));
        assert_eq!(replayed(&[(1, 1, 0), (1, 1, 0)]), (2, 1), "both saw nothing open");
        let open_closed_open = [(1, 1, 0), (1, -1, 1), (1, 1, 0)];
        assert_eq!(replayed(&open_closed_open), (1, 1), "never two open, and yet stale");
    }

    #[test]
    fn an_evaluation_that_left_no_trace_is_lost() {
        let mut found = Findings {
            jobs: 3,
            done: 3,
            acted: 1,
            changed: 2,
            open_max: 1,
            ..Findings::default()
        };
        assert!(found.is_clean());
        found.changed = 1;
        assert_eq!((found.lost(), found.is_clean()), (1, false));
    }

    #[test]
    fn overlapping_spans_are_counted() {
        assert_eq!(most_at_once(&[]), 0);
        assert_eq!(most_at_once(&[(1, 5), (2, 3), (3, 9), (5, 6)]), 2);
    }
}
