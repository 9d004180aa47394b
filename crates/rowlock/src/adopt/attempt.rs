//! An attempt at a claimed row: what is decoded, where its end is written, where it is looked up.

use std::sync::Arc;

use sqlx::Postgres;

use super::{
    hand::RowInHand,
    handle::{Handler, RowAttempt},
    rows::RowShared,
};
use crate::{
    attempt::{self, Claim, Decoding, Env, Finished, Nobody, hand::InHand},
    error::Result,
    fault::point,
    handle::{Attempt, RowAfter},
    store::{
        InTx, Isolation, Resolved, SettledIn, Settlement,
        postgres::adopt::{ClaimedRow, Ending, RowEnd, Settled},
    },
    worker::shared::Claims,
};

/// A row under its claim.
pub(super) struct RowClaim<'a> {
    pub(super) env: &'a Env<Postgres>,
    pub(super) shared: &'a Arc<RowShared>,
    pub(super) row: &'a Arc<RowInHand>,
}

impl Claim<Postgres> for RowClaim<'_> {
    fn env(&self) -> &Env<Postgres> {
        self.env
    }

    fn hand(&self) -> &InHand {
        &self.row.hand
    }

    fn succeeded(&self, after: RowAfter) {
        // When the row goes on, the calls of its staged handler are over.
        let staged = matches!(self.shared.handler, Handler::Staged(_));
        self.row.done_as(match after {
            RowAfter::Inactive => RowEnd::Done,
            RowAfter::Deleted => RowEnd::Deleted,
            RowAfter::Kept => RowEnd::Kept {
                calls_of: staged.then_some(self.row.uid),
            },
        });
    }

    async fn settle_in(&self, held: &mut <Postgres as InTx>::Held, settlement: &Settlement) -> Result<SettledIn> {
        let (end, marker) = (self.row.end_of(settlement), self.row.hand.token.to_string());
        let ending = Ending {
            row: &self.row.token,
            end: &end,
            marker: Some(&marker),
        };
        let store = self.shared.store();
        let settled = store.settle_row_in(&self.shared.table, held, ending);
        Ok(match settled.await? {
            Settled::Applied => SettledIn::Applied { woken: Vec::new() },
            Settled::Lost => SettledIn::LeaseLost,
            Settled::NotOurs => SettledIn::NotOurs,
        })
    }

    async fn resolve(&self, settlement: &Settlement) -> Result<Resolved> {
        self.shared
            .claims
            .resolve(self.shared.store(), self.row, settlement)
            .await
    }

    /// A row has no log of outcomes: once others may claim it, its columns no longer tell how this attempt ended.
    fn gives_up(&self) -> bool {
        self.row.is_claim_over()
    }

    async fn calls(&self) -> Result<Vec<String>> {
        let made = self.shared.store().calls_of_row(self.row.uid).await?;
        Ok(made.iter().map(|name| format!("effect {name:?}")).collect())
    }
}

/// Runs one attempt of a row.
pub(super) async fn run(claim: &RowClaim<'_>, claimed: &ClaimedRow) -> Finished {
    let RowClaim { shared, row, .. } = claim;
    let ending = &row.hand.ending;
    if claimed.attempts >= claimed.max_attempts {
        // Set by hand, or left by another program. Without a case the row would never be claimed again.
        let problem = format!(
            "{} of {} attempts are already used; lower the row's attempts to run it again",
            claimed.attempts, claimed.max_attempts
        );
        return attempt::settle(ending.retired(problem));
    }
    let given = RowAttempt {
        row: Arc::clone(row),
        shared: Arc::clone(shared),
    };
    point!("before-handler");
    let decoded = attempt::decoding(|| match &shared.handler {
        Handler::Atomic(decode) => decode(&claimed.row, given).map(Decoding::Atomic),
        Handler::Staged(decode) => decode(&claimed.row, given).map(Decoding::Staged),
    });
    let level = Isolation::ReadCommitted;
    match decoded {
        Ok(Decoding::Atomic(decoded)) => attempt::atomic(claim, decoded, level, plain(shared, row), &mut Nobody).await,
        Ok(Decoding::Staged(ready)) => attempt::staged(claim, ready, level).await,
        Err(problem) => attempt::settle(ending.retired(problem)),
    }
}

/// The attempt in the form that jobs use, for the transaction that jobs and rows share.
pub(super) fn plain(shared: &RowShared, row: &RowInHand) -> Attempt {
    let InHand {
        token, ending, names, ..
    } = &row.hand;
    Attempt {
        token: *token,
        uid: row.uid,
        attempt: ending.attempt,
        attempts_max: ending.attempts_max,
        chain: token.id,
        position: 0,
        queue: names.queue.to_string(),
        created_at: row.due_at,
        recovered: false,
        trace: None,
        stopping: shared.stopping.clone(),
    }
}
