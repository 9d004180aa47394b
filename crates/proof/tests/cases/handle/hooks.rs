//! After-commit hooks: after a successful commit only, in order, and never part of its result.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use rowlock::{Ended, Event, Fail, State, atomic, staged};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{AT_ONCE, Bed, Note, Running, Seen, fail, until, write};

/// A hook that notes this.
fn told(seen: &Seen, text: &str) -> impl Future<Output = Result<(), Fail>> + Send + 'static {
    let (seen, text) = (seen.clone(), text.to_owned());
    async move {
        seen.push(text);
        Ok(())
    }
}

async fn hooks_run_after_the_commit_in_the_order_given(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(["a", "b"].map(Note::new)).await.unwrap();
    let seen = Seen::default();
    let (kept, url) = (seen.clone(), bed.database.url.clone());
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let (seen, url) = (kept.clone(), url.clone());
        async move {
            let id = cx.id();
            write(&mut tx, id, &job.text).await?;
            let (first, look) = (seen.clone(), url.clone());
            // By another connection's word: the commit is there when the first hook looks.
            tx.after_commit(async move {
                use sqlx::Connection;
                let mut conn = super::db::Conn::connect(&look).await?;
                let rows: i64 = sqlx::query_scalar("select count(*) from ledger where job = $1")
                    .bind(id)
                    .fetch_one(&mut conn)
                    .await?;
                first.push(format!("{id} 1 sees {rows}"));
                Ok::<(), sqlx::Error>(())
            });
            tx.after_commit(told(&seen, &format!("{id} 2")));
            tx.done().after_commit(told(&seen, &format!("{id} 3"))).ok()
        }
    };
    let running = Running::start(bed.worker().handle(atomic(handler)));
    until("six hooks", async || seen.all().len() == 6).await;
    running.stop().await;
    for id in ids {
        let of_job = seen.all().into_iter().filter(|s| s.starts_with(&format!("{id} ")));
        let wanted = [format!("{id} 1 sees 1"), format!("{id} 2"), format!("{id} 3")];
        assert_eq!(of_job.collect::<Vec<_>>(), wanted);
    }
}

async fn hooks_of_staged_handlers_run_too(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["batched", "settled"].map(Note::new))
        .await
        .unwrap();
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |cx: Staged, job: Note| {
        let seen = kept.clone();
        async move {
            if job.text == "batched" {
                return cx.done().after_commit(told(&seen, "batched")).ok();
            }
            let id = cx.id();
            let mut tx = cx.begin().await?;
            write(&mut tx, id, "x").await?;
            tx.after_commit(told(&seen, "settled"));
            tx.done().ok()
        }
    };
    bed.work(bed.worker().handle(staged(handler)), &ids).await;
    let mut all = seen.all();
    all.sort();
    assert_eq!(all, ["batched", "settled"], "the stop has waited for them");
}

async fn hooks_are_dropped_with_whatever_does_not_commit(bed: &Bed) {
    let texts = ["retry", "retire", "cancel", "panic", "refused", "commit fails"];
    let ids = bed.rowlock.enqueue_all_now(texts.map(Note::new)).await.unwrap();
    if !bed.database.is_sqlite() {
        bed.run(
            "create table checked (n int);
             create function no() returns trigger language plpgsql as $$begin raise exception 'at commit'; end$$;
             create constraint trigger at_commit after insert on checked deferrable initially deferred
             for each row execute function no()",
        )
        .await;
    } else {
        bed.run(
            "create table parent (id integer primary key);
             create table checked (n integer references parent (id) deferrable initially deferred)",
        )
        .await;
    }
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let seen = kept.clone();
        async move {
            tx.after_commit(told(&seen, &format!("{} {}", job.text, cx.attempt())));
            if cx.attempt() > 1 {
                return tx.done().ok();
            }
            match job.text.as_str() {
                "retry" => fail("once more"),
                "retire" => fail(Fail::retire("no")),
                "cancel" => fail(Fail::cancel("no")),
                "panic" => panic!("in the handler"),
                // A result that is refused fails the attempt when the handler ends.
                "refused" => tx.done().result(&"a\0b").ok(),
                _ => {
                    sqlx::query("insert into checked (n) values (1)")
                        .execute(&mut *tx)
                        .await?;
                    tx.done().ok()
                }
            }
        }
    };
    let worker = bed.worker().handle(atomic(handler).backoff(AT_ONCE));
    bed.work(worker, &ids).await;
    let mut all = seen.all();
    all.sort();
    assert_eq!(all, ["commit fails 2", "panic 2", "refused 2", "retry 2"]);
    assert_eq!(bed.ends(ids[5]).await, [Ended::Retried, Ended::Done]);
}

async fn a_hook_that_fails_or_panics_is_counted_and_changes_nothing(bed: &Bed) {
    let id = bed.note("x").await;
    let seen = Seen::default();
    let kept = seen.clone();
    let handler = move |cx: Ctx, job: Note, mut tx: Tx| {
        let seen = kept.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            tx.after_commit(async { Err::<(), _>(std::io::Error::other("cache is away")) });
            tx.after_commit(async { panic!("in a hook") as Result<(), Fail> });
            let broken = std::panic::AssertUnwindSafe(DropsBadly);
            tx.after_commit(async move {
                let _broken = broken;
                Ok::<(), Fail>(())
            });
            tx.after_commit(told(&seen, "the last one runs all the same"));
            tx.done().result(&1).ok()
        }
    };
    let failed = Seen::default();
    let errors = failed.clone();
    let worker = bed.worker().handle(atomic(handler)).on_event(move |event| {
        if let Event::HookFailed { id, kind, error, .. } = event {
            errors.push(format!("{id} {kind}: {error}"));
        }
    });
    let counters = bed.work(worker, &[id]).await;
    assert_eq!(seen.all(), ["the last one runs all the same"]);
    let wanted = ["cache is away", "panicked: in a hook", "panicked: on the way out"];
    assert_eq!(failed.all(), wanted.map(|error| format!("{id} note: {error}")));
    assert_eq!(counters.hooks_failed(), 3);
    assert_eq!((bed.ends(id).await, bed.ledger().await), (vec![Ended::Done], 1));
    assert_eq!(bed.job(id).await.result, Some(1.into()));
}

/// Panics when it is dropped.
struct DropsBadly;

impl Drop for DropsBadly {
    fn drop(&mut self) {
        panic!("on the way out");
    }
}

async fn the_stop_waits_for_hooks_within_the_grace_period_and_no_longer(bed: &Bed) {
    for (hook, grace, ran) in [(300, 10_000, 1), (60_000, 500, 0)] {
        let id = bed.note("x").await;
        let (seen, started) = (Seen::default(), Arc::new(Notify::new()));
        let (kept, begun) = (seen.clone(), started.clone());
        let handler = move |_: Ctx, _: Note, mut tx: Tx| {
            let (seen, begun) = (kept.clone(), begun.clone());
            async move {
                tx.after_commit(async move {
                    begun.notify_one();
                    tokio::time::sleep(Duration::from_millis(hook)).await;
                    seen.push("ran");
                    Ok::<(), Fail>(())
                });
                tx.done().ok() as Outcome
            }
        };
        let worker = bed.worker().grace(Duration::from_millis(grace)).handle(atomic(handler));
        let running = Running::start(worker);
        started.notified().await;
        assert_eq!(
            bed.job(id).await.state,
            State::Finished,
            "the job does not wait for its hooks"
        );
        let stop = Instant::now();
        let counters = running.stop().await;
        assert_eq!(seen.all().len(), ran, "hook of {hook} ms, grace of {grace} ms");
        assert!(stop.elapsed() < Duration::from_secs(8), "{:?}", stop.elapsed());
        assert_eq!(counters.hooks_failed(), 0, "dropped is not failed");
    }
}

async fn hooks_of_a_thousand_jobs_run_at_once_and_more_are_dropped_and_counted(bed: &Bed) {
    let notes = (0..1003).map(|n| Note::new(&n.to_string()));
    let ids = bed.rowlock.enqueue_all_now(notes).await.unwrap();
    let (seen, go) = (Seen::default(), CancellationToken::new());
    let (kept, wait) = (seen.clone(), go.clone());
    let handler = move |cx: Staged, _: Note| {
        let (seen, go) = (kept.clone(), wait.clone());
        async move {
            let done = cx.done().after_commit(async move {
                go.cancelled().await;
                seen.push("ran");
                Ok::<(), Fail>(())
            });
            done.after_commit(async { Ok::<(), Fail>(()) }).ok()
        }
    };
    let failed = Seen::default();
    let errors = failed.clone();
    let worker = bed.worker().handle(staged(handler)).on_event(move |event| {
        if let Event::HookFailed { error, .. } = event {
            errors.push(error.clone());
        }
    });
    let running = Running::start(worker);
    until("every job to be done", async || {
        running.counters.settled(Ended::Done) == 1003
    })
    .await;
    until("three to be dropped", async || running.counters.hooks_failed() >= 3).await;
    let said = "its 2 hooks were dropped: the hooks of 1000 other jobs are still running";
    assert_eq!(failed.all(), [said; 3]);
    go.cancel();
    let counters = running.stop().await;
    assert_eq!((seen.all().len(), counters.hooks_failed()), (1000, 3));
    assert_eq!(bed.ends(ids[1002]).await, [Ended::Done]);
}

mod tests {
    super::super::cases!(
        hooks_run_after_the_commit_in_the_order_given,
        hooks_of_staged_handlers_run_too,
        hooks_are_dropped_with_whatever_does_not_commit,
        a_hook_that_fails_or_panics_is_counted_and_changes_nothing,
        the_stop_waits_for_hooks_within_the_grace_period_and_no_longer,
        hooks_of_a_thousand_jobs_run_at_once_and_more_are_dropped_and_counted,
    );
}
