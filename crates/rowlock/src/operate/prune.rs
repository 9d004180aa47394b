//! Retention by hand: removes now what the workers' upkeep removes every ten minutes or so.

use std::time::Instant;

use serde::Serialize;

use super::Operate;
use crate::{
    error::Result,
    retention::{Retention, spelled},
    store::action::{Action, Bulk},
};

/// What was removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Pruned {
    /// Finished jobs, with their attempts and results.
    pub jobs: u64,
    /// Cases that were not decided in time, with their jobs.
    pub cases: u64,
    /// Keys of jobs whose hold was over.
    pub keys: u64,
    /// Entries of the ledger whose hold was over.
    pub ledger: u64,
}

impl Operate {
    /// Removes what is past its retention, as the upkeep of every worker does, in many small commits; what is not over
    /// is never removed. `tell` is called with what was removed whenever there is more.
    ///
    /// The workers keep their own retention. A shorter retention here removes more than the workers would; a longer one
    /// does not keep what they remove. The audit records the start and the end.
    ///
    /// # Errors
    /// [`Error::Config`](crate::Error::Config) when the retention is refused, as a worker would refuse it. Cancel
    /// safety: what was removed stays removed.
    pub async fn prune(
        &self,
        retention: &Retention,
        actor: &str,
        tell: impl Fn(&Pruned) + Send + Sync,
    ) -> Result<Pruned> {
        retention.check(std::iter::empty())?;
        let mut detail = format!("finished jobs older than {}", spelled(retention.history));
        if let Some(cases) = retention.cases {
            detail += &format!(", cases older than {}", spelled(cases));
        }
        self.prune_deed(actor, "prune", &detail, 0, "begun").await?;
        let begun = Instant::now();
        let mut all = Pruned::default();
        let ended = loop {
            // The same moment in every round: rows that end meanwhile are left for the next run; otherwise this would
            // not end.
            let retention = Retention {
                history: retention.history.saturating_add(begun.elapsed()),
                cases: retention.cases.map(|cases| cases.saturating_add(begun.elapsed())),
                ..*retention
            };
            let swept = match self.store.maintain(&retention).await {
                Ok(swept) => swept,
                Err(error) => break Err(error),
            };
            all.jobs += swept.jobs;
            all.cases += swept.cases;
            all.keys += swept.keys;
            all.ledger += swept.ledger;
            if swept.jobs == 0 && swept.cases == 0 {
                break Ok(());
            }
            tell(&all);
        };
        let after = match &ended {
            Ok(()) => format!("cases {}, keys {}, ledger {}", all.cases, all.keys, all.ledger),
            Err(error) => format!("ended by: {error}"),
        };
        let jobs = i64::try_from(all.jobs).unwrap_or(i64::MAX);
        let noted = self.prune_deed(actor, "pruned", &detail, jobs, &after).await;
        ended?;
        noted?;
        Ok(all)
    }

    async fn prune_deed(&self, actor: &str, verb: &str, detail: &str, jobs: i64, after: &str) -> Result<()> {
        let bulk = Bulk {
            verb,
            detail,
            jobs,
            after,
        };
        self.store.act(Action::Note(bulk), actor).await.map(drop)
    }
}
