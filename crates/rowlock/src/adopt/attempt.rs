//! One attempt at a row: wait for a slot, read the row, run the user's code, end the claim.
//!
//! Whatever happens in the handler, exactly one of these follows: the row's end committed with the handler's own writes; the
//! engine wrote it; the token no longer held; or nobody could write it in time, and recovery does.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use sqlx::Postgres;
use tracing::{Instrument, Span};

use super::{
    breaker,
    hand::{RowInHand, Why, lock},
    handle::{self, Handler, HeldTx, Outcome, RowAttempt, RowOutcome, RowTx, Slot},
    run::Shared,
};
use crate::{
    error::Error,
    event::{Event, Skipped},
    fault::point,
    handle::{Fail, Fragile, How, clean, panic_text},
    job::Job,
    state::Ended,
    store::{
        Room, Store,
        postgres::adopt::{ClaimedRow, Ending, RowEnd, Settled, refused},
    },
    table::RetiredRow,
    trace,
    worker::COMMITTED,
};

/// No delay is longer: a due time must stay a time that the database can store.
const DELAY_MAX: Duration = Duration::from_secs(10 * 366 * 24 * 3600);

/// How an attempt is to end.
struct Verdict {
    end: RowEnd,
    ended: Ended,
    skipped: Option<Skipped>,
    blamed: Option<String>,
}

impl Verdict {
    fn done(end: RowEnd) -> Verdict {
        Verdict {
            end,
            ended: Ended::Done,
            skipped: None,
            blamed: None,
        }
    }

    fn retired(error: impl Into<String>) -> Verdict {
        let (error, doubts) = (clean(error.into()), Vec::new());
        Verdict {
            end: RowEnd::Retired { error, doubts },
            ended: Ended::Retired,
            skipped: None,
            blamed: None,
        }
    }

    fn back(ended: Ended, delay: Duration, error: Option<String>) -> Verdict {
        let (counted, delay) = (!ended.gives_attempt_back(), delay.min(DELAY_MAX));
        Verdict {
            end: RowEnd::Back { counted, delay, error },
            ended,
            skipped: None,
            blamed: None,
        }
    }

    /// What a handler's `Fail` becomes; `None` when the token is known to be lost.
    fn of(shared: &Shared, row: &RowInHand, fail: Fail) -> Option<Verdict> {
        let skipped = fail.skipped();
        let attempt = i32::try_from(row.attempt).unwrap_or(i32::MAX);
        let backoff = || shared.settings.backoff.jittered(attempt);
        let text = fail.text;
        let again = match row.probe && fail.dependency.is_some() {
            // What a probe is there to find out costs its row nothing.
            true => Ended::Deferred,
            false => Ended::Retried,
        };
        let verdict = match fail.how {
            How::LeaseLost => return None,
            How::Retry => Verdict::back(again, backoff(), Some(text)),
            How::RetryAfter(delay) => Verdict::back(again, delay, Some(text)),
            // Another transaction was in the way; there is no column to count such attempts in, so this is one.
            How::RetrySoon => Verdict::back(
                again,
                Duration::from_millis(20).mul_f64(1.0 + fastrand::f64()),
                Some(text),
            ),
            How::Defer(delay) => Verdict::back(Ended::Deferred, delay, None),
            How::Retire => Verdict {
                end: RowEnd::Retired {
                    error: text,
                    doubts: std::mem::take(&mut *lock(&row.doubts)),
                },
                ..Verdict::retired("")
            },
            How::Cancel => Verdict {
                end: RowEnd::Cancelled { error: text },
                ended: Ended::Cancelled,
                skipped: None,
                blamed: None,
            },
            How::Already | How::Changed => Verdict {
                skipped,
                ..Verdict::done(RowEnd::Done)
            },
        };
        Some(Verdict {
            blamed: fail.dependency,
            ..verdict
        })
    }

    fn error(&self) -> Option<&str> {
        match &self.end {
            RowEnd::Done | RowEnd::Kept | RowEnd::Deleted => None,
            RowEnd::Back { error, .. } => error.as_deref(),
            RowEnd::Retired { error, .. } | RowEnd::Cancelled { error } => Some(error),
        }
    }
}

/// How it ended.
enum Finished {
    Settled {
        verdict: Verdict,
        retired: bool,
    },
    Lost,
    /// Nobody here can write it any more; recovery will.
    Dropped,
}

/// A row that is in hand, until it is not.
pub(super) async fn attempt(shared: &Arc<Shared>, claimed: ClaimedRow, row: &Arc<RowInHand>) {
    let permit = tokio::select! {
        biased;
        () = row.cut.cancelled() => None,
        () = shared.stopping.cancelled() => None,
        permit = shared.slots.clone().acquire_owned() => permit.ok(),
    };
    // Held until the breakers have heard of it: the next row begins with what this one found out.
    let Some(_permit) = permit else {
        return tell(shared, row, unbegun(shared, row).await, None).await;
    };
    let number = i32::try_from(row.attempt).unwrap_or(i32::MAX);
    let names = (&*shared.table.queue, shared.settings.name.as_str());
    let span = trace::attempt(names, row.marker, RetiredRow::KIND, number, None);
    let finished = run(shared, &claimed, row, &span).await;
    tell(shared, row, finished, Some(span)).await;
}

/// Hands a row back that was not begun.
async fn unbegun(shared: &Shared, row: &RowInHand) -> Finished {
    match row.why() {
        Some(Why::Lost) => Finished::Lost,
        Some(Why::LeaseEnding) => Finished::Dropped,
        _ => settle_alone(shared, row, Verdict::back(Ended::Released, Duration::ZERO, None)).await,
    }
}

/// Tells everybody, after the commit.
async fn tell(shared: &Shared, row: &RowInHand, finished: Finished, span: Option<Span>) {
    let (id, queue) = (row.marker.id, shared.table.queue.clone());
    let kind = RetiredRow::KIND.to_owned();
    let attempt = i32::try_from(row.attempt).unwrap_or(i32::MAX);
    let (epoch, took) = (0, row.began.get().map(Instant::elapsed).unwrap_or_default());
    let (verdict, retired) = match finished {
        Finished::Settled { verdict, retired } => (verdict, retired),
        Finished::Lost => {
            trace::ended(span, "lease lost", true, None);
            return shared.emit(&Event::LeaseLost {
                id,
                queue,
                kind,
                attempt,
                epoch,
            });
        }
        Finished::Dropped => return trace::ended(span, Ended::Lost.as_str(), true, None),
    };
    let ended = if retired { Ended::Retired } else { verdict.ended };
    let failed = matches!(ended, Ended::Retried | Ended::Retired);
    trace::ended(span, ended.as_str(), failed, verdict.error());
    shared.emit(&Event::Settled {
        id,
        queue,
        kind,
        attempt,
        epoch,
        ended,
        skipped: verdict.skipped,
        waited: row.waited,
        took,
        error: verdict.error().map(str::to_owned),
    });
    let good = ended == Ended::Done && verdict.skipped.is_none();
    breaker::heard(shared, row, verdict.blamed.as_deref(), good, verdict.error()).await;
}

async fn run(shared: &Arc<Shared>, claimed: &ClaimedRow, row: &Arc<RowInHand>, span: &Span) -> Finished {
    if claimed.attempts >= claimed.max_attempts {
        // Set so by hand, or left so by another program: what nobody would ever claim is told instead.
        let problem = format!(
            "{} of {} attempts are already used; lower the row's attempts to run it again",
            claimed.attempts, claimed.max_attempts
        );
        return settle_alone(shared, row, Verdict::retired(problem)).await;
    }
    if !row.probe && !shared.known.admit(&shared.bound) {
        return settle_alone(shared, row, Verdict::back(Ended::Released, Duration::ZERO, None)).await;
    }
    let attempt = RowAttempt {
        row: row.clone(),
        shared: shared.clone(),
    };
    let slot = Slot::default();
    let running: Result<Outcome, String> = match &shared.handler {
        Handler::Staged(decode) => guard(|| decode(&claimed.row, attempt)).map(|decoded| decoded(slot.clone())),
        Handler::Atomic(decode) => match guard(|| decode(&claimed.row, attempt)) {
            Err(problem) => Err(problem),
            Ok(decoded) => match begin(shared, row).await {
                Ok(held) => Ok(decoded(RowTx::new(held, slot.clone()))),
                Err(finished) => return *finished,
            },
        },
    };
    let running = match running {
        Ok(running) => running,
        Err(problem) => return settle_alone(shared, row, Verdict::retired(problem)).await,
    };
    let _ = row.began.set(Instant::now());
    point!("before-handler");
    let outcome = tokio::select! {
        biased;
        () = row.cut.cancelled() => None,
        outcome = Fragile::new(running).caught().instrument(span.clone()) => Some(outcome),
    };
    match outcome {
        Some(Ok(outcome)) => conclude(shared, row, outcome, slot).await,
        Some(Err(panic)) => {
            let fail = Fail::retry(format!("handler panicked: {panic}"));
            conclude(shared, row, Err(fail), slot).await
        }
        None => cut(shared, row, slot).await,
    }
}

/// Runs user code that may panic.
fn guard<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    match catch_unwind(AssertUnwindSafe(decode)) {
        Ok(decoded) => decoded,
        Err(panic) => Err(format!("reading the row panicked: {}", panic_text(&*panic))),
    }
}

async fn begin(shared: &Shared, row: &RowInHand) -> Result<HeldTx, Box<Finished>> {
    let begun = tokio::select! {
        begun = handle::begin(&shared.store, &row.marker, shared.timing) => begun,
        () = row.cut.cancelled() => return Err(Box::new(unbegun(shared, row).await)),
    };
    match begun {
        Ok(held) => {
            row.holder.store(Postgres::holder(&held), Ordering::Relaxed);
            Ok(held)
        }
        Err(error) => {
            // Not at once again: the server may be out of connections, and must not be hammered for one.
            tracing::warn!(
                "could not begin the transaction of a row, releasing the row: {}",
                error.cause()
            );
            let delay = Duration::from_secs(1).mul_f64(0.5 + fastrand::f64());
            Err(Box::new(
                settle_alone(shared, row, Verdict::back(Ended::Released, delay, None)).await,
            ))
        }
    }
}

/// The handler was stopped from outside.
async fn cut(shared: &Shared, row: &RowInHand, slot: Slot) -> Finished {
    let holder = row.holder.load(Ordering::Relaxed);
    let mut committed = false;
    if holder != 0 {
        match shared.store.cut(holder).await {
            Ok(ended) => committed = ended,
            Err(error) => {
                tracing::debug!(
                    "could not end a handler's connection, the server ends it at its idle limit: {}",
                    error.cause()
                )
            }
        }
    }
    drop(slot.take());
    if committed && row.why() != Some(Why::Lost) {
        // What it wrote may stand, so it is not tried again.
        let verdict = Verdict::retired(format!("{COMMITTED}; then: it was stopped"));
        return settle_alone(shared, row, verdict).await;
    }
    let fail = match row.why() {
        Some(Why::Lost) => return Finished::Lost,
        Some(Why::TimeLimit) => Fail::retry(format!("handler ran longer than {:?}", shared.settings.time_limit)),
        Some(Why::Stopped) => Fail::retry("worker stopped before the handler finished"),
        Some(Why::LeaseEnding) | None => return Finished::Dropped,
    };
    match Verdict::of(shared, row, fail) {
        Some(verdict) => settle_alone(shared, row, verdict).await,
        None => Finished::Lost,
    }
}

/// Ends the claim of a handler that returned.
async fn conclude(shared: &Shared, row: &RowInHand, outcome: RowOutcome, slot: Slot) -> Finished {
    let (verdict, held) = match outcome {
        Ok(done) => {
            drop(slot.take());
            (Verdict::done(done.end), done.held)
        }
        Err(fail) => {
            let Some(verdict) = Verdict::of(shared, row, fail) else {
                drop(slot.take());
                return Finished::Lost;
            };
            let Some(mut held) = slot.take() else {
                return settle_alone(shared, row, verdict).await;
            };
            match Postgres::back(&shared.store, &mut held).await {
                Ok(true) => (verdict, Some(held)),
                Ok(false) => return by_hand(shared, row, held).await,
                Err(_) => {
                    // Closed, it is rolled back, and its locks are waited for.
                    drop(held);
                    return settle_alone(shared, row, verdict).await;
                }
            }
        }
    };
    match held {
        Some(held) => close(shared, row, verdict, held).await,
        None => settle_alone(shared, row, verdict).await,
    }
}

/// User code ended the transaction it was given; what it wrote may stand.
async fn by_hand(shared: &Shared, row: &RowInHand, held: HeldTx) -> Finished {
    drop(held);
    settle_alone(shared, row, Verdict::retired(COMMITTED)).await
}

/// Ends the claim in the handler's transaction and commits it.
async fn close(shared: &Shared, row: &RowInHand, verdict: Verdict, mut held: HeldTx) -> Finished {
    let marker = row.marker.to_string();
    let ending = Ending {
        row: &row.token,
        end: &verdict.end,
        marker: Some(&marker),
    };
    point!("before-settle");
    let (store, limit) = (&shared.store, shared.timing.lease);
    let settling = store.settle_row_in(&shared.table, Postgres::conn(&mut held), ending);
    let settled = tokio::time::timeout(limit, settling).await;
    let retired = match settled {
        Ok(Ok(Settled::Applied { retired })) => retired,
        Ok(Ok(Settled::Lost)) => return Finished::Lost,
        Ok(Ok(Settled::NotOurs)) => return by_hand(shared, row, held).await,
        // No commit was sent, so the transaction is over or will be; the engine's write waits for its locks.
        Ok(Err(error)) => return not_committed(shared, row, verdict, held, error).await,
        Err(_) => return not_committed(shared, row, verdict, held, silent()).await,
    };
    point!("before-commit");
    let committed = tokio::time::timeout(limit, Postgres::commit(store, held)).await;
    point!("after-commit");
    let error = match committed {
        Ok(Ok(())) => return Finished::Settled { verdict, retired },
        Ok(Err(error)) => error,
        Err(_) => silent(),
    };
    match look(shared, row, &verdict.end).await {
        None => Finished::Dropped,
        Some(Some(Settled::Applied { retired })) => Finished::Settled { verdict, retired },
        Some(Some(_)) => Finished::Lost,
        Some(None) => again(shared, row, verdict, error).await,
    }
}

fn silent() -> Error {
    Error::Database {
        doing: "commit",
        source: sqlx::Error::Io(std::io::ErrorKind::TimedOut.into()),
    }
}

async fn not_committed(shared: &Shared, row: &RowInHand, verdict: Verdict, held: HeldTx, error: Error) -> Finished {
    drop(held);
    again(shared, row, verdict, error).await
}

/// Nothing of the handler's is left: a success failed with what the database said, anything else is written once more.
async fn again(shared: &Shared, row: &RowInHand, verdict: Verdict, error: Error) -> Finished {
    let verdict = match verdict.ended {
        Ended::Done => match Verdict::of(shared, row, error.into()) {
            Some(failed) => failed,
            None => return Finished::Lost,
        },
        _ => verdict,
    };
    settle_alone(shared, row, verdict).await
}

/// What became of a commit, asked until it is known; `None` when the claim is over before.
async fn look(shared: &Shared, row: &RowInHand, end: &RowEnd) -> Option<Option<Settled>> {
    while row.renewed().elapsed() < shared.timing.lease {
        match shared.store.look_at_row(&shared.table, &row.token, end).await {
            Ok(found) => {
                let committed = matches!(found, Some(Settled::Applied { .. }));
                shared.emit(&Event::CommitResolved {
                    id: row.marker.id,
                    epoch: 0,
                    committed,
                });
                return Some(found);
            }
            Err(error) => {
                tracing::debug!(
                    "the outcome of a commit is not known yet, asking again: {}",
                    error.cause()
                );
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    None
}

/// Ends the claim on a connection of the engine's, until that is done or the claim is over.
async fn settle_alone(shared: &Shared, row: &RowInHand, verdict: Verdict) -> Finished {
    let mut unsure = false;
    loop {
        match shared.store.settle_row(&shared.table, &row.token, &verdict.end).await {
            Ok(Settled::Applied { retired }) => return Finished::Settled { verdict, retired },
            Ok(_) if unsure => {
                return match look(shared, row, &verdict.end).await {
                    Some(Some(Settled::Applied { retired })) => Finished::Settled { verdict, retired },
                    _ => Finished::Lost,
                };
            }
            Ok(_) => return Finished::Lost,
            // It would be refused again, by recovery too perhaps; until somebody mends it the claim stands.
            Err(error) if refused(&error) => {
                shared.refused.tell(&shared.table.queue, &row.token.id, &error);
                return Finished::Dropped;
            }
            Err(error) => {
                unsure = true;
                if row.renewed().elapsed() >= shared.timing.lease {
                    tracing::warn!(
                        id = row.token.id,
                        "could not settle a row, leaving it to recovery: {}",
                        error.cause()
                    );
                    return Finished::Dropped;
                }
                tracing::debug!("could not settle a row, retrying: {}", error.cause());
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
