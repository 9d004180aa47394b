//! Rows with one claim each: how the worker's shared loop renews them, ends them and runs their handler.

use std::{sync::Arc, time::Duration};

use sqlx::Postgres;

use super::{
    attempt::{self, RowClaim},
    hand::RowInHand,
    handle::Handler,
    refused::RefusedRows,
    watch,
};
use crate::{
    attempt::{Env, hand::Cut},
    backoff::Backoff,
    error::{Error, Result},
    event::Event,
    job::Job,
    root::Rowlock,
    store::{
        Resolved, Settlement, Store,
        postgres::{
            PgStore,
            adopt::{AdoptedTable, ClaimedRow, Settled, refused},
        },
    },
    table::RetiredRow,
    worker::{
        breaker::{self, BreakerNews},
        line::{Line, Place, Turn, Waits},
        settler::{self, Left},
        shared::{Claims, Shared},
    },
};

/// What a worker on a table shares.
pub(crate) type RowShared = Shared<Rows>;

/// The claims of one worker on a table.
pub(crate) struct Rows {
    pub(super) rowlock: Rowlock<Postgres>,
    pub(super) table: Arc<AdoptedTable>,
    pub(super) handler: Handler,
    pub(super) backoff: Backoff,
    pub(super) time_limit: Duration,
    pub(super) refused: RefusedRows,
}

impl Claims for Rows {
    type Held = RowInHand;
    type Store = PgStore;

    /// A row has no log of outcomes: once others may claim it, its columns no longer tell how an earlier attempt ended.
    const LOGS_ENDS: bool = false;

    fn store(&self) -> &PgStore {
        self.rowlock.store()
    }

    fn engine(store: &PgStore) -> &dyn Store {
        store
    }

    fn separate(store: &PgStore) -> PgStore {
        store.separate()
    }

    async fn settle(&self, store: &PgStore, rows: &[Arc<RowInHand>], ends: &[Settlement]) -> Result<Vec<bool>> {
        let mut applied = Vec::with_capacity(rows.len());
        for (row, end) in rows.iter().zip(ends) {
            let settled = store.settle_row(&self.table, &row.token, &row.end_of(end)).await?;
            applied.push(settled == Settled::Applied);
        }
        Ok(applied)
    }

    async fn resolve(&self, store: &PgStore, row: &RowInHand, end: &Settlement) -> Result<Resolved> {
        let found = store.look_at_row(&self.table, &row.token, &row.end_of(end)).await?;
        Ok(match found {
            None => Resolved::StillLeased,
            Some(Settled::Applied) => Resolved::Ended(end.ended),
            Some(Settled::Lost | Settled::NotOurs) => Resolved::Lost,
        })
    }

    fn abandons(&self, row: &RowInHand, error: &Error) -> bool {
        let id = &row.token.id;
        if refused(error) {
            // The table would refuse the write again, perhaps from recovery too. The claim stays until the row is
            // fixed.
            self.refused.warn_once(&self.table.queue, id, error);
            return true;
        }
        let over = row.is_claim_over();
        if over {
            tracing::warn!(id, "could not settle a row, leaving it to recovery: {}", error.cause());
        }
        over
    }

    /// The row keeps its slot until the breakers have recorded its end: the next row starts with that knowledge.
    async fn tell_breakers(shared: &RowShared, news: Vec<BreakerNews>) {
        breaker::report(shared, news).await;
    }

    fn stop_all(shared: &RowShared, why: Cut) {
        for row in shared.in_hand() {
            row.hand.session().stop(why);
        }
    }

    fn cut_late(shared: &RowShared) {
        let mut cut = false;
        for row in shared.in_hand() {
            let session = row.hand.session();
            if session.is_ending(shared.timing.lease) && !session.cut.is_cancelled() {
                session.stop(Cut::LeaseEnding);
                cut = true;
            }
        }
        if cut {
            shared.emit(Event::CutOff);
        }
    }

    async fn watch(shared: &Arc<RowShared>, beats: &PgStore, rest: &PgStore) {
        watch::watch_rows(shared, beats, rest).await;
    }

    /// A worker on a table has no entry to remove.
    async fn leave(_: &RowShared) {}
}

/// A claimed row that waits for a slot.
pub(super) struct WaitingRow {
    pub(super) claimed: ClaimedRow,
    pub(super) row: Arc<RowInHand>,
}

impl Waits for WaitingRow {
    fn hand(&self) -> &crate::attempt::hand::InHand {
        &self.row.hand
    }

    fn kind(&self) -> &str {
        RetiredRow::KIND
    }

    /// Two keys of a table may have the same number, so the place includes the random part of the token.
    fn place(&self) -> Place {
        let token = self.row.hand.token;
        (0, self.claimed.due_at, token.id, token.worker.0)
    }
}

/// What turns claimed rows into running tasks.
pub(super) struct RowCrew {
    pub(super) shared: Arc<RowShared>,
    pub(super) env: Env<Postgres>,
    pub(super) line: Arc<Line<WaitingRow>>,
}

impl RowCrew {
    /// Appends a row to the rows that wait for a slot.
    pub(super) fn push(&self, waiting: WaitingRow) {
        self.line.queue.took_one();
        self.shared.take(waiting.row.clone());
        self.line.push(waiting);
    }

    /// Waits for a slot and runs the row that is first then, until its end is written and the breakers have recorded
    /// it.
    pub(super) async fn run_next(&self, session: Arc<crate::attempt::hand::Session>) {
        match self.line.next(&self.shared, &session).await {
            Turn::Leave => {}
            Turn::End(waiting, finished) => {
                let _held = HeldRow::new(self, &waiting);
                self.finish(settler::conclude(&self.shared, finished, waiting.row))
                    .await;
            }
            Turn::Run(waiting, _slot) => {
                let _held = HeldRow::new(self, &waiting);
                let began = std::time::Instant::now();
                let claim = RowClaim {
                    env: &self.env,
                    shared: &self.shared,
                    row: &waiting.row,
                };
                let finished = attempt::run(&claim, &waiting.claimed).await;
                self.line.learn(&self.shared, began, 1);
                self.finish(settler::conclude(&self.shared, finished, waiting.row))
                    .await;
            }
        }
    }

    async fn finish(&self, left: Left<Rows>) {
        match left {
            Left::Nothing => {}
            Left::Tell(news) => Rows::tell_breakers(&self.shared, news).await,
            Left::Write(end) => drop(settler::write(&self.shared, self.shared.store(), vec![end]).await),
        }
    }
}

/// Releases a row however its task ends, because a row that stays in hand is renewed for ever.
struct HeldRow<'a> {
    crew: &'a RowCrew,
    token: crate::lease::Token,
}

impl<'a> HeldRow<'a> {
    fn new(crew: &'a RowCrew, waiting: &WaitingRow) -> HeldRow<'a> {
        let token = waiting.row.hand.token;
        HeldRow { crew, token }
    }
}

impl Drop for HeldRow<'_> {
    fn drop(&mut self) {
        self.crew.line.queue.let_one_go();
        self.crew.shared.let_go(self.token);
    }
}
