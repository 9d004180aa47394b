//! Methods on a typed connection: the caller's own, or one that a handler holds.

use std::ops::{Deref, DerefMut};

use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use sqlx_core::transaction::TransactionManager;

use super::{
    BY_KEY, PgStore, Pm, batch, begin_text, conns::Lent, enqueue, guard, ledger, pass_on, pooler, settle, waits,
};
use crate::{
    error::{Doing, Error},
    job::Draft,
    key::Enqueued,
    lease::Token,
    store::{
        Fut, InTx, Isolation, Open, Opening, SettledIn, Settlement, TxEnd,
        batch::{Parted, SettledShared},
        guard::GuardAsk,
        ledger::{Ask, Entry, Mine, Taken},
        transition::Move,
    },
};

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        self.pg_ref()
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        self.pg()
    }
}

impl InTx for Postgres {
    type Store = PgStore;
    type Held = Lent;

    const BEGIN: &'static str = "begin";
    const EXCLUSIVE: bool = false;

    fn holder(held: &Lent) -> i64 {
        held.holder()
    }

    fn begin(store: &PgStore, what: Open) -> Fut<'_, Lent> {
        let (text, serializable) = match what {
            Open::Handler(opening) => (begin_text(opening), opening.level == Isolation::Serializable),
            Open::Shared(opening) => (
                batch::begin_text(&store.0, opening),
                opening.level == Isolation::Serializable,
            ),
            // One snapshot: a counter that is read after the data it protects must not be newer than the data.
            Open::Read(timing) => {
                let ms = timing.lock.as_millis();
                let text = format!(
                    "begin isolation level repeatable read read only; set local lock_timeout = {ms}; \
                     set local idle_in_transaction_session_timeout = {ms}"
                );
                (text, false)
            }
        };
        Box::pin(async move {
            let mut lent = store.0.handlers.begin(text).await?;
            lent.serializable = serializable;
            Ok(lent)
        })
    }

    fn part<'a>(store: &'a PgStore, held: &'a mut Lent, keep: bool, more: bool) -> Fut<'a, Parted> {
        store.part(held, keep, more)
    }

    fn settle_in<'a>(store: &'a PgStore, held: &'a mut Lent, settlement: &'a Settlement) -> Fut<'a, SettledIn> {
        Box::pin(async move {
            let mut ours = Pm::get_transaction_depth(held.pg()) == 1;
            if !store.0.named() {
                // Behind a pooler and outside a transaction, each part of a statement may go to another server.
                ours &= pooler::in_transaction(held.pg()).await.doing("settle")?;
            }
            if !ours {
                return Ok(SettledIn::NotOurs);
            }
            if held.serializable {
                sqlx::raw_sql(BY_KEY).execute(held.pg()).await.doing("settle")?;
            }
            settle::settle_in(&store.0, held.pg(), settlement).await
        })
    }

    fn settle_shared<'a>(
        store: &'a PgStore,
        held: &'a mut Lent,
        marker: &'a Token,
        batch: &'a [Settlement],
    ) -> Fut<'a, SettledShared> {
        store.settle_shared(held, marker, batch)
    }

    fn pass_on<'a>(
        store: &'a PgStore,
        held: &'a mut Lent,
        settlement: &'a Settlement,
        next: &mut dyn FnMut() -> Option<Opening>,
    ) -> Option<Fut<'a, SettledIn>> {
        match pass_on::passes_on(&store.0, held, settlement) {
            true => pass_on::pass_on(&store.0, held, settlement, next()?),
            false => None,
        }
    }

    fn end(_store: &PgStore, mut held: Lent, how: TxEnd) -> Fut<'_, ()> {
        Box::pin(async move {
            match how {
                TxEnd::Commit => Pm::commit(held.pg()).await.doing("commit")?,
                TxEnd::RollBack => Pm::rollback(held.pg()).await.doing("roll back")?,
            }
            held.give_back();
            Ok(())
        })
    }

    fn enqueue_in<'a>(store: &'a PgStore, conn: &'a mut PgConnection, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>> {
        let put = enqueue::enqueue(&store.0, conn, drafts, true);
        Box::pin(async { put.await.map_err(Error::answered) })
    }

    fn complete_in<'a>(
        store: &'a PgStore,
        conn: &'a mut PgConnection,
        name: &'a str,
        answer: Option<&'a str>,
    ) -> Fut<'a, Option<i64>> {
        Box::pin(async move {
            let completed = waits::complete_whole(&store.0, conn, name, answer).await;
            completed.doing("complete").map_err(Error::answered)
        })
    }

    fn answer_in<'a>(store: &'a PgStore, conn: &'a mut PgConnection, id: i64) -> Fut<'a, Option<String>> {
        Box::pin(async move { waits::answer(&store.0, conn, id).await.doing("read answer") })
    }

    fn guard<'a>(store: &'a PgStore, conn: &'a mut PgConnection, ask: GuardAsk<'a>) -> Fut<'a, Option<i64>> {
        Box::pin(async move {
            let answer = match ask {
                GuardAsk::Lock(keys) => {
                    let locked = guard::lock(&store.0, conn, keys).await;
                    return locked.map(|()| None).map_err(|fault| fault.answered("guard"));
                }
                GuardAsk::Read(key) => guard::version(&store.0, conn, key).await.doing("read version"),
                GuardAsk::Raise { key, seen } => guard::raise(&store.0, conn, key, seen).await.doing("raise version"),
            };
            answer.map_err(Error::answered)
        })
    }

    fn transition<'a>(store: &'a PgStore, conn: &'a mut PgConnection, step: &'a Move) -> Fut<'a, u64> {
        let moved = guard::transition(&store.0, conn, step);
        Box::pin(async { moved.await.doing("transition").map_err(Error::answered) })
    }

    fn once_take<'a>(store: &'a PgStore, conn: &'a mut PgConnection, ask: &'a Ask) -> Fut<'a, Taken> {
        let taken = ledger::take(&store.0, conn, ask);
        Box::pin(async { taken.await.map_err(|fault| fault.answered("once")) })
    }

    fn once_store<'a>(
        store: &'a PgStore,
        conn: &'a mut PgConnection,
        key: &'a str,
        mine: Mine,
        answer: &'a str,
    ) -> Fut<'a, bool> {
        let stored = ledger::store(&store.0, conn, key, mine, answer);
        Box::pin(async { stored.await.doing("once").map_err(Error::answered) })
    }

    fn once_read<'a>(store: &'a PgStore, conn: &'a mut PgConnection, key: &'a str) -> Fut<'a, Option<Entry>> {
        let found = ledger::read_alone(&store.0, conn, key);
        Box::pin(async { found.await.doing("once").map_err(Error::answered) })
    }

    fn once_savepoint(conn: &mut PgConnection, no: u64, back: bool) -> Fut<'_, ()> {
        let text = AssertSqlSafe(crate::store::ledger::savepoint(no, back));
        Box::pin(async { sqlx::raw_sql(text).execute(conn).await.map(drop).doing("once") })
    }
}
