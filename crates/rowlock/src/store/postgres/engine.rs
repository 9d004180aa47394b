//! What workers and producers need.

use std::time::Duration;

use uuid::Uuid;

use super::{
    PgStore, body_lock, breaker, cases, claim, conns, enqueue, group, journal, keys,
    recover::{self, Terminated},
    resolve, settle, sweep, triggers, waits, wake,
};
use crate::{
    breaker::BreakerView,
    effect::{Begun, CallEnd, Intent, Noted},
    job::Draft,
    key::Enqueued,
    lease::{Token, WorkerId},
    retention::Retention,
    store::{
        ClaimAsk, ClaimReply, Cut, Expired, Fut, Judged, Resolved, Settlement, Since, Store, Stretch, Sweep, Swept,
        Wakes,
        body_lock::{Slot, SlotAsk},
        breaker::{BreakerMove, ProbeReply},
        keys::may_wait,
        triggers::Pulled,
        waits as wait,
    },
};

impl Store for PgStore {
    fn separate_connections(&self) -> Box<dyn Store> {
        Box::new(self.separate())
    }

    fn enqueue<'a>(&'a self, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async {
            let put = enqueue::commit(&self.0, drafts).await?;
            self.wake(&enqueue::new_queues(drafts, &put));
            Ok(put)
        })
    }

    fn complete<'a>(&'a self, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>> {
        Box::pin(waits::complete(&self.0, name, answer))
    }

    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>> {
        Box::pin(triggers::trigger(&self.0, pointers))
    }

    /// `names` is not stored: functions in the database compute the numbers.
    fn register<'a>(
        &'a self,
        worker: WorkerId,
        name: &'a str,
        lease: Duration,
        _names: &'a [(i64, String)],
    ) -> Fut<'a, ()> {
        Box::pin(recover::register(&self.0, worker, name, lease))
    }

    fn beat(&self, worker: WorkerId) -> Fut<'_, bool> {
        Box::pin(recover::beat(&self.0, worker))
    }

    fn leave(&self, worker: WorkerId) -> Fut<'_, ()> {
        Box::pin(recover::leave(&self.0, worker))
    }

    fn failed_over(&self, since: Since) -> bool {
        match since {
            Since::Registered(worker) => self.0.hosts.has_moved(worker),
            Since::Opened(holder) => self.0.hosts.has_left(conns::backend(holder).0),
        }
    }

    fn claim<'a>(&'a self, ask: &'a ClaimAsk) -> Fut<'a, ClaimReply> {
        Box::pin(claim::claim(&self.0, ask))
    }

    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply> {
        Box::pin(breaker::claim_probe(&self.0, names, ask, by))
    }

    fn alone_due<'a>(&'a self, stretches: &'a [Stretch], longer_than: Duration) -> Fut<'a, bool> {
        Box::pin(recover::alone_due(&self.0, stretches, longer_than))
    }

    fn own_leases(&self, worker: WorkerId, in_flight: bool) -> Fut<'_, Vec<Token>> {
        Box::pin(recover::own_leases(&self.0, worker, in_flight))
    }

    fn settle<'a>(&'a self, batch: &'a [Settlement]) -> Fut<'a, Vec<bool>> {
        let settled = self.bounded("settle", async {
            let (applied, woken) = settle::settle(&self.0, batch).await?;
            self.wake(&woken);
            Ok(applied)
        });
        Box::pin(async {
            // The wait for a turn does not count towards the time limit, because it says nothing about the server.
            let _turn = keys::turn(&self.0, batch.iter().any(|s| may_wait(&s.next))).await;
            settled.await
        })
    }

    fn resolve(&self, token: Token) -> Fut<'_, Resolved> {
        Box::pin(resolve::resolve(&self.0, token))
    }

    fn cut(&self, holder: i64) -> Fut<'_, Cut> {
        self.bounded("end a backend", async move {
            let ended = recover::terminate(&self.0, holder).await?;
            let by_hand = matches!(ended, Terminated::Outside);
            Ok(Cut {
                by_hand,
                // Behind a pooler, a connection outside a transaction belongs to no client.
                gone: matches!(ended, Terminated::Gone) || (by_hand && !self.0.named()),
            })
        })
    }

    fn mark_dead(&self) -> Fut<'_, Judged> {
        Box::pin(recover::mark_dead(&self.0))
    }

    fn expire(&self, max: i32) -> Fut<'_, Vec<Expired>> {
        self.bounded("expire", async move {
            let (expired, woken) = recover::expire(&self.0, max).await?;
            self.wake(&woken);
            Ok(expired)
        })
    }

    fn forget_dead(&self) -> Fut<'_, i64> {
        Box::pin(recover::forget_dead(&self.0))
    }

    fn sweep(&self, what: Sweep, max: i32) -> Fut<'_, wait::Swept> {
        Box::pin(async move {
            let (swept, woken) = match what {
                Sweep::Waits { names } => waits::sweep(&self.0, max, names).await?,
                Sweep::Groups => (wait::Swept::default(), self.sweep_groups(max).await?),
                Sweep::Cases => {
                    let moved = cases::name(&self.0, max).await?;
                    let swept = wait::Swept {
                        moved,
                        ..wait::Swept::default()
                    };
                    (swept, Vec::new())
                }
            };
            self.wake(&woken);
            Ok(swept)
        })
    }

    fn maintain<'a>(&'a self, retention: &'a Retention) -> Fut<'a, Swept> {
        Box::pin(sweep::maintain(&self.0, retention))
    }

    fn body_lock<'a>(&'a self, token: Token, key: &'a str, ask: SlotAsk) -> Fut<'a, Slot> {
        Box::pin(body_lock::ask(&self.0, token, key, ask))
    }

    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun> {
        Box::pin(journal::begin(&self.0, intent))
    }

    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted> {
        Box::pin(journal::end(&self.0, end))
    }

    fn move_breaker<'a>(&'a self, name: &'a str, step: BreakerMove<'a>) -> Fut<'a, Option<BreakerView>> {
        Box::pin(async move {
            match step {
                BreakerMove::Declare { policy, by } => breaker::declare(&self.0, name, policy, by).await,
                BreakerMove::Note(note) => breaker::note(&self.0, name, note).await,
            }
        })
    }

    fn wake(&self, queues: &[i64]) {
        if queues.is_empty() {
            return;
        }
        let sender = self.0.wakes.get_or_init(|| wake::sender(&self.0));
        for queue in queues {
            // The task ends only with the store, and then the notification is not needed any more.
            let _ = sender.send(*queue);
        }
    }

    fn wakes(&self) -> Fut<'_, Wakes> {
        self.bounded("listen", wake::listen(&self.0))
    }
}

impl PgStore {
    async fn sweep_groups(&self, max: i32) -> crate::error::Result<Vec<i64>> {
        let limit = Duration::from_secs(60);
        self.within(limit, group::SWEEPING, group::sweep(&self.0, max)).await
    }
}
