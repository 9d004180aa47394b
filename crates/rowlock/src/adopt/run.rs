//! A worker on an adopted table: its parts, the claims, and how it stops.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use sqlx::Postgres;
use tokio::sync::{Notify, Semaphore};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use uuid::Uuid;

use super::{Settings, attempt, hand::RowInHand, handle::Handler, refused::RefusedRows, reopen, watch};
use crate::{
    attempt::{
        Env,
        hand::{Cut, lock},
    },
    breaker::Breaker,
    error::{Error, Result},
    event::{Event, emit},
    handle::Emit,
    job::{Job, queue_no},
    lease::Token,
    pause::{self, Pauses},
    root::Rowlock,
    store::{
        Timing, breaker,
        postgres::{
            PgStore,
            adopt::{AdoptedTable, Asked, ClaimedRow, Probed},
        },
        setting,
    },
    table::RetiredRow,
    worker::{
        breaker::{Breakers, Teller},
        patiently,
    },
};

/// The wait after a claim that found less than was asked for; it doubles up to the poll.
const WAIT_MIN: Duration = Duration::from_millis(20);
/// The wait after an error of a claim.
const WAIT_ERROR: Duration = Duration::from_millis(500);

/// What the parts of a worker share.
pub(crate) struct Shared {
    pub(super) env: Env<Postgres>,
    pub(super) store: PgStore,
    pub(super) table: Arc<AdoptedTable>,
    pub(super) handler: Handler,
    pub(super) settings: Settings,
    pub(super) timing: Timing,
    pub(super) breakers: Breakers,
    pub(super) teller: Teller,
    pub(super) pauses: pause::Known,
    pub(super) refused: RefusedRows,
    in_hand: Mutex<HashMap<Uuid, Arc<RowInHand>>>,
    pub(super) slots: Arc<Semaphore>,
    /// Somebody should look whether there is something to claim.
    pub(super) woken: Arc<Notify>,
    /// A row was let go of.
    freed: Notify,
    pub(super) stopping: CancellationToken,
    pub(super) gone: CancellationToken,
}

impl Shared {
    fn new(
        rowlock: Rowlock<Postgres>,
        table: Arc<AdoptedTable>,
        mut settings: Settings,
        handler: Handler,
        declared: &[(String, Breaker)],
    ) -> Arc<Shared> {
        let timing = Timing::of_lease(settings.lease);
        // Each row tells its own news before the next one gets its slot, so nobody listens to the channel.
        let (breakers, _) = Breakers::new(declared.to_vec());
        let (woken, gone) = (Arc::<Notify>::default(), CancellationToken::new());
        let (counters, listeners) = (settings.counters.clone(), std::mem::take(&mut settings.listeners));
        let tell: Emit = Arc::new(move |event| emit(event, &counters, &listeners));
        let resolved = tell.clone();
        Arc::new(Shared {
            store: rowlock.store().clone(),
            timing,
            slots: Arc::new(Semaphore::new(settings.slots)),
            teller: Teller {
                store: Arc::new(rowlock.store().clone()),
                known: breakers.known.clone(),
                by: settings.name.clone(),
                emit: tell.clone(),
                woken: woken.clone(),
                gone: gone.clone(),
            },
            env: Env {
                rowlock,
                timing,
                resolved: Box::new(move |token, committed| {
                    let Token { id, epoch, .. } = token;
                    resolved(Event::CommitResolved { id, epoch, committed });
                }),
                emit: tell,
                // Every row has a claim of its own, see `attempt`.
                held: Arc::new(|| true),
            },
            breakers,
            table,
            handler,
            settings,
            pauses: pause::Known::default(),
            refused: RefusedRows::default(),
            in_hand: Mutex::default(),
            woken,
            freed: Notify::new(),
            stopping: CancellationToken::new(),
            gone,
        })
    }

    pub(super) fn emit(&self, event: Event) {
        (self.env.emit)(event);
    }

    pub(super) fn rowlock(&self) -> &Rowlock<Postgres> {
        &self.env.rowlock
    }

    pub(super) fn in_hand(&self) -> Vec<Arc<RowInHand>> {
        lock(&self.in_hand).values().cloned().collect()
    }

    fn held(&self) -> usize {
        lock(&self.in_hand).len()
    }

    /// Reads what people have paused and the state of the breakers; whether anything changed.
    pub(super) async fn look(&self, store: &PgStore) -> Result<bool> {
        let paused = self.pauses.set(Pauses::of(setting::pauses(store).await?));
        Ok(self.breakers.look(store, &self.settings.name).await? || paused)
    }

    fn is_paused(&self) -> bool {
        self.pauses.now().stop(queue_no(&self.table.queue), RetiredRow::KIND)
    }
}

/// A worker at work.
pub(super) struct Running {
    shared: Arc<Shared>,
    tasks: TaskTracker,
    claimer: tokio::task::JoinHandle<()>,
    reopener: tokio::task::JoinHandle<()>,
}

impl Drop for Running {
    fn drop(&mut self) {
        // Dropped without `stop`: nothing may go on claiming or beating for handlers that are gone.
        self.shared.stopping.cancel();
        for row in self.shared.in_hand() {
            row.end(Cut::LeaseEnding);
        }
        self.shared.gone.cancel();
        self.claimer.abort();
        self.reopener.abort();
    }
}

impl Running {
    pub(super) async fn start(
        rowlock: Rowlock<Postgres>,
        table: Arc<AdoptedTable>,
        settings: Settings,
        handler: Handler,
        declared: Vec<(String, Breaker)>,
    ) -> Result<Running> {
        let shared = Shared::new(rowlock, table, settings, handler, &declared);
        patiently(|| shared.rowlock().check_schema()).await?;
        patiently(|| async {
            let (store, by) = (&shared.store, &shared.settings.name);
            breaker::declare(store, &declared, by).await?;
            shared.look(store).await.map(drop)
        })
        .await?;
        watch::start(shared.clone()).map_err(|e| Error::Config(format!("could not start the watch thread: {e}")))?;
        let tasks = TaskTracker::new();
        Ok(Running {
            claimer: tokio::spawn(claim(shared.clone(), tasks.clone())),
            reopener: tokio::spawn(reopen::run(shared.clone())),
            shared,
            tasks,
        })
    }

    pub(super) async fn stop(mut self) {
        self.shared.stopping.cancel();
        // A claim under way is answered first: what it took is given back below.
        let _ = (&mut self.claimer).await;
        self.tasks.close();
        if tokio::time::timeout(self.shared.settings.grace, self.tasks.wait())
            .await
            .is_err()
        {
            for row in self.shared.in_hand() {
                row.end(Cut::Stopped);
            }
            // What cannot be written any more is recovered after the lease.
            let _ = tokio::time::timeout(self.shared.timing.lease, self.tasks.wait()).await;
        }
        self.shared.gone.cancel();
        let _ = (&mut self.reopener).await;
    }
}

/// Claims whenever there is room, and hands rows out.
async fn claim(shared: Arc<Shared>, tasks: TaskTracker) {
    let slots = shared.settings.slots;
    let mut wait = WAIT_MIN;
    while !shared.stopping.is_cancelled() {
        let held = shared.held();
        if held > slots {
            // What was claimed ahead is not begun yet.
            pause(&shared, &shared.freed, shared.settings.poll).await;
            continue;
        }
        let asked = slots * 2 - held;
        let found = match ask(&shared, asked).await {
            Ok(rows) => rows,
            Err(error) => {
                tracing::warn!(table = %shared.table.queue, "could not claim rows, retrying: {}", error.cause());
                pause(&shared, &shared.woken, WAIT_ERROR).await;
                continue;
            }
        };
        let got = found.len();
        if got > 0 {
            let (queue, jobs) = (shared.table.queue.clone(), got);
            shared.emit(Event::Claimed { queue, jobs });
        }
        for (claimed, row) in found {
            lock(&shared.in_hand).insert(row.token.token, row.clone());
            tasks.spawn(hold(shared.clone(), claimed, row));
        }
        wait = match got {
            0 => (wait * 2).min(shared.settings.poll),
            _ => WAIT_MIN,
        };
        if got < asked {
            pause(&shared, &shared.woken, wait.mul_f64(0.75 + 0.5 * fastrand::f64())).await;
        }
    }
}

async fn pause(shared: &Shared, woken: &Notify, time: Duration) {
    tokio::select! {
        () = tokio::time::sleep(time) => {}
        () = woken.notified() => {}
        () = shared.stopping.cancelled() => {}
    }
}

/// A row from its claim to its end.
async fn hold(shared: Arc<Shared>, claimed: ClaimedRow, row: Arc<RowInHand>) {
    let _held = Held {
        shared: &shared,
        token: row.token.token,
    };
    attempt::attempt(&shared, claimed, &row).await;
}

/// Lets go of a row however its task ends: what stays in hand is renewed for ever.
struct Held<'a> {
    shared: &'a Shared,
    token: Uuid,
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        lock(&self.shared.in_hand).remove(&self.token);
        self.shared.freed.notify_one();
    }
}

type Found = Vec<(ClaimedRow, Arc<RowInHand>)>;

/// As many as may be claimed now: any, those that try a breaker, or none.
async fn ask(shared: &Shared, asked: usize) -> Result<Found> {
    if shared.is_paused() {
        return Ok(Vec::new());
    }
    let (store, table) = (&shared.store, &*shared.table);
    let without = shared.refused.left_out();
    let asked = Asked {
        most: i32::try_from(asked).unwrap_or(i32::MAX),
        by: &shared.settings.name,
        without: &without,
    };
    let sent = Instant::now();
    let Breakers { known, names, .. } = &shared.breakers;
    if known.admit(names) {
        let (rows, refused) = store.claim_rows(table, asked, names).await?;
        shared.refused.leave_out(&table.queue, refused);
        return Ok(in_hand(shared, rows, sent, &[]));
    }
    let Some(to_try) = known.to_try(names) else {
        return Ok(Vec::new());
    };
    let closed: Vec<String> = names.iter().filter(|name| !to_try.contains(name)).cloned().collect();
    let probed = store.probe_rows(table, asked, (&to_try, &closed)).await?;
    // It may have become half-open with this. Rows that it claimed are in hand, whether or not that can be read.
    if let Err(error) = shared.look(store).await {
        tracing::debug!(
            "could not read pauses and breakers, using the last known state: {}",
            error.cause()
        );
    }
    let Probed::Rows { rows, tried, refused } = probed else {
        return Ok(Vec::new());
    };
    shared.refused.leave_out(&table.queue, refused);
    Ok(in_hand(shared, rows, sent, &tried))
}

/// Rows just claimed, to try these versions of breakers or as any other.
fn in_hand(shared: &Shared, rows: Vec<ClaimedRow>, sent: Instant, tried: &[(String, i64)]) -> Found {
    let (table, settings) = (&shared.table, &shared.settings);
    let in_hand = |claimed: ClaimedRow| {
        let bond = shared.breakers.bond(&shared.breakers.names, tried);
        let row = RowInHand::new(table, settings, &claimed, sent, bond);
        (claimed, row)
    };
    rows.into_iter().map(in_hand).collect()
}
