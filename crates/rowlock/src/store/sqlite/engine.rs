//! What workers and producers need.

use std::time::Duration;

use uuid::Uuid;

use super::{
    SqliteStore, body_lock, breaker, cases, claim, enqueue, group, journal, micros, recover, resolve, settle, sweep,
    triggers, views, waits, wake, writer,
};
use crate::{
    breaker::BreakerView,
    effect::{Begun, CallEnd, Intent, Noted},
    error::Error,
    job::Draft,
    key::Enqueued,
    lease::{Token, WorkerId},
    retention::Retention,
    store::{
        ClaimAsk, ClaimReply, Cut, Expired, Fut, Judged, Resolved, Settlement, Store, Stretch, Sweep, Swept, Wakes,
        body_lock::{Slot, SlotAsk},
        breaker::{BreakerMove, ProbeReply},
        triggers::Pulled,
        waits as wait,
    },
};

impl Store for SqliteStore {
    /// Returns the same store: its writer runs on a separate thread, and its connections belong to no runtime.
    fn separate_connections(&self) -> Box<dyn Store> {
        Box::new(self.clone())
    }

    fn enqueue<'a>(&'a self, drafts: &'a [Draft]) -> Fut<'a, Vec<Enqueued>> {
        Box::pin(async {
            if drafts.is_empty() {
                return Ok(Vec::new());
            }
            let write = self.write("enqueue", drafts.to_vec(), |db, now, drafts| {
                Box::pin(async move {
                    let put = enqueue::enqueue_all(db, now, drafts).await?;
                    let woken = put.as_ref().map(|put| enqueue::new_due_queues(drafts, put, now));
                    Ok((woken.unwrap_or_default(), put))
                })
            });
            let (woken, put) = write.await.map_err(Error::answered)?;
            self.wake(&woken);
            Ok(put?)
        })
    }

    fn complete<'a>(&'a self, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>> {
        Box::pin(async move {
            let input = (name.to_owned(), answer.map(str::to_owned));
            let write = self.write("complete", input, |db, now, (name, answer)| {
                Box::pin(waits::complete(db, now, name, answer.as_deref()))
            });
            let Some(mut woken) = write.await? else { return Ok(None) };
            let jobs = woken.len();
            woken.dedup();
            self.wake(&woken);
            Ok(i64::try_from(jobs).ok())
        })
    }

    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>> {
        Box::pin(async move {
            let write = self.write("trigger", pointers.to_vec(), |db, now, pointers| {
                Box::pin(triggers::trigger(db, now, pointers))
            });
            write.await.map_err(Error::answered)
        })
    }

    fn register<'a>(
        &'a self,
        worker: WorkerId,
        name: &'a str,
        lease: Duration,
        names: &'a [(i64, String)],
    ) -> Fut<'a, ()> {
        let input = (worker, name.to_owned(), lease, names.to_vec());
        Box::pin(self.write("register", input, |db, now, (worker, name, lease, names)| {
            Box::pin(async move {
                recover::register(db, now, *worker, name, *lease).await?;
                recover::note_names(db, names).await
            })
        }))
    }

    fn beat(&self, worker: WorkerId) -> Fut<'_, bool> {
        let limit = self.timing.lock;
        Box::pin(self.inner.writer.write("heartbeat", limit, worker, |db, now, worker| {
            Box::pin(recover::beat(db, now, *worker))
        }))
    }

    fn leave(&self, worker: WorkerId) -> Fut<'_, ()> {
        Box::pin(self.write("unregister", worker, |db, _, worker| {
            Box::pin(recover::leave(db, *worker))
        }))
    }

    fn claim<'a>(&'a self, ask: &'a ClaimAsk) -> Fut<'a, ClaimReply> {
        Box::pin(self.write("claim", ask.clone(), |db, now, ask| {
            Box::pin(claim::claim(db, now, ask))
        }))
    }

    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply> {
        let input = (names.to_vec(), ask.clone(), by.to_owned());
        Box::pin(self.write("claim a probe", input, |db, now, (names, ask, by)| {
            Box::pin(breaker::probe(db, now, names, ask, by))
        }))
    }

    fn alone_due<'a>(&'a self, stretches: &'a [Stretch], longer_than: Duration) -> Fut<'a, bool> {
        Box::pin(self.read("claim", async move |db, now| {
            views::alone_due(db, now.saturating_sub(micros(longer_than)), stretches).await
        }))
    }

    fn own_leases(&self, worker: WorkerId, _in_flight: bool) -> Fut<'_, Vec<Token>> {
        Box::pin(self.write("list own leases", worker, |db, _, worker| {
            Box::pin(recover::own_leases(db, *worker))
        }))
    }

    fn settle<'a>(&'a self, batch: &'a [Settlement]) -> Fut<'a, Vec<bool>> {
        Box::pin(async {
            let write = self.write("settle", batch.to_vec(), |db, now, batch| {
                Box::pin(settle::settle_all(db, now, batch))
            });
            let (held, woken) = write.await??;
            self.wake(&woken);
            Ok(batch.iter().map(|s| held.contains(&s.token)).collect())
        })
    }

    fn resolve(&self, token: Token) -> Fut<'_, Resolved> {
        Box::pin(self.write("resolve", token, |db, _, token| Box::pin(resolve::resolve(db, *token))))
    }

    /// There is no connection to end from outside: a connection belongs to its holder, and closes when it is dropped.
    fn cut(&self, holder: i64) -> Fut<'_, Cut> {
        Box::pin(async move {
            Ok(Cut {
                by_hand: writer::committed_by_user(holder),
                gone: true,
            })
        })
    }

    fn mark_dead(&self) -> Fut<'_, Judged> {
        Box::pin(self.write("mark dead workers", (), |db, now, ()| {
            Box::pin(recover::mark_dead(db, now))
        }))
    }

    fn expire(&self, max: i32) -> Fut<'_, Vec<Expired>> {
        Box::pin(async move {
            let write = self.write("expire", max, |db, now, max| Box::pin(recover::expire(db, now, *max)));
            let (expired, woken) = write.await?;
            self.wake(&woken);
            Ok(expired)
        })
    }

    fn forget_dead(&self) -> Fut<'_, i64> {
        Box::pin(self.write("remove dead workers", (), |db, _, ()| {
            Box::pin(recover::forget_dead(db))
        }))
    }

    fn sweep(&self, what: Sweep, max: i32) -> Fut<'_, wait::Swept> {
        Box::pin(async move {
            match what {
                Sweep::Waits { .. } => self.sweep_waits(max).await,
                Sweep::Groups => {
                    let write = self.write("sweep groups", (), |db, now, ()| Box::pin(group::withdraw(db, now)));
                    write.await.map(|()| wait::Swept::default())
                }
                Sweep::Cases => {
                    let write = self.write("name cases", max, |db, _, max| Box::pin(cases::name(db, *max)));
                    let moved = write.await?;
                    Ok(wait::Swept {
                        moved,
                        ..wait::Swept::default()
                    })
                }
            }
        })
    }

    fn maintain<'a>(&'a self, retention: &'a Retention) -> Fut<'a, Swept> {
        Box::pin(sweep::maintain(self, retention))
    }

    fn body_lock<'a>(&'a self, token: Token, key: &'a str, ask: SlotAsk) -> Fut<'a, Slot> {
        let doing = match ask {
            SlotAsk::Take { .. } => "lock",
            SlotAsk::Free { .. } => "release lock",
        };
        let input = (token, key.to_owned(), ask);
        Box::pin(self.write(doing, input, |db, now, (token, key, ask)| {
            Box::pin(body_lock::ask(db, now, *token, key, *ask))
        }))
    }

    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun> {
        Box::pin(self.write("store the intent", intent.clone(), |db, now, intent| {
            Box::pin(journal::begin(db, now, intent))
        }))
    }

    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted> {
        Box::pin(self.write("store the reply", end.clone(), |db, now, end| {
            Box::pin(journal::end(db, now, end))
        }))
    }

    fn move_breaker<'a>(&'a self, name: &'a str, step: BreakerMove<'a>) -> Fut<'a, Option<BreakerView>> {
        Box::pin(async move {
            let name = name.to_owned();
            match step {
                BreakerMove::Declare { policy, by } => {
                    let input = (name, *policy, by.to_owned());
                    let write = self.write("declare breakers", input, |db, now, (name, policy, by)| {
                        Box::pin(breaker::declare(db, now, name, policy, by))
                    });
                    write.await.map(|()| None)
                }
                BreakerMove::Note(note) => {
                    let write = self.write("update breaker", (name, note.clone()), |db, now, (name, note)| {
                        Box::pin(breaker::note(db, now, name, note))
                    });
                    write.await
                }
            }
        })
    }

    fn wake(&self, queues: &[i64]) {
        for queue_no in queues {
            // Without a listener, the error is ignored.
            let _ = self.hints().send(*queue_no);
        }
    }

    fn wakes(&self) -> Fut<'_, Wakes> {
        Box::pin(wake::listen(self))
    }
}

impl SqliteStore {
    async fn sweep_waits(&self, max: i32) -> crate::error::Result<wait::Swept> {
        // Read without the writer: a sweep with nothing to do must not wait for a turn, nor take one.
        let look = self.read("sweep waits", async |db, now| waits::due(db, now).await);
        let (due, groups, cases) = look.await?;
        let mut swept = wait::Swept {
            groups,
            cases,
            ..wait::Swept::default()
        };
        if due {
            let write = self.write("sweep waits", max, |db, now, max| {
                Box::pin(waits::end_over(db, now, *max))
            });
            let (over, woken) = write.await?;
            self.wake(&woken);
            swept.over = over;
        }
        Ok(swept)
    }
}
