//! Staged handlers: look, go outside under a key that never changes, settle; no connection held in between.

use std::{sync::Arc, time::Duration};

use rowlock::{Ended, Fail, NotDone, State, atomic, staged};
use sqlx::Connection;
use tokio::sync::Barrier;
use tokio_util::sync::CancellationToken;

use super::db::{Outcome, Staged};
use super::{
    AT_ONCE, Bed, Note, Other, Running, Seen,
    effect::journal::{only, reason},
    fail, note, until, write,
};

async fn a_write_in_prepare_is_an_error_that_points_to_settle(bed: &Bed) {
    let id = bed.rowlock.enqueue_now(Note::new("x")).attempts(1).await.unwrap().id();
    let handler = |mut cx: Staged, _: Note| async move {
        let mut read = cx.prepare().await?;
        sqlx::query("insert into ledger (job, note) values (1, 'sneaky')")
            .execute(&mut *read)
            .await?;
        read.commit().await?;
        cx.done().ok()
    };
    bed.work(bed.worker().handle(staged(handler)), &[id]).await;
    let case = bed.rowlock.observe().case(id).await.unwrap().unwrap();
    assert!(
        case.reason.contains("prepare is read-only; write after `begin`"),
        "{}",
        case.reason
    );
    assert_eq!(bed.ledger().await, 0);
}

async fn prepare_reads_and_may_be_dropped_unfinished(bed: &Bed) {
    bed.run("insert into ledger (job, note) values (5, 'amount 12')").await;
    let id = bed.note("x").await;
    let handler = |mut cx: Staged, _: Note| async move {
        // Dropped in the middle: its connection is closed and not used again.
        drop(cx.prepare().await?);
        let mut read = cx.prepare().await?;
        let amount: String = sqlx::query_scalar("select note from ledger where job = $1")
            .bind(5_i64)
            .fetch_one(&mut *read)
            .await?;
        read.commit().await?;
        cx.done().result(&amount).ok()
    };
    bed.work(bed.worker().connections(1).handle(staged(handler)), &[id])
        .await;
    assert_eq!(bed.job(id).await.result, Some("amount 12".into()));
}

async fn an_effects_key_is_the_same_on_every_attempt_and_differs_per_name_and_job(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(["a", "b"].map(Note::new)).await.unwrap();
    let seen = Seen::default();
    let keys = seen.clone();
    let handler = move |cx: Staged, job: Note| {
        let keys = keys.clone();
        async move {
            for name in ["charge", "mail"] {
                let keys = keys.clone();
                let told = format!("{} {name} ", job.text);
                let attempt = cx.attempt();
                let called = cx.effect(name, async |key| {
                    keys.push(told + key.as_str());
                    if attempt < 3 { Err("no answer") } else { Ok(()) }
                });
                // A call that fails does not keep the handler from the next one.
                let _ = called.await;
            }
            if cx.attempt() < 3 {
                return fail("once more");
            }
            cx.done().ok()
        }
    };
    bed.work(bed.worker().handle(staged(handler).backoff(AT_ONCE)), &ids)
        .await;

    let mut calls = seen.all();
    assert_eq!(calls.len(), 2 * 2 * 3, "two jobs, two effects, three attempts");
    calls.sort();
    calls.dedup();
    assert_eq!(calls.len(), 4, "one line per job and effect: {calls:?}");
    let mut keys: Vec<&str> = calls.iter().map(|c| c.rsplit(' ').next().unwrap()).collect();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), 4, "no key is shared: {keys:?}");
}

async fn an_effect_name_used_twice_or_badly_becomes_a_case(bed: &Bed) {
    let twice = bed.note("charge").await;
    let badly = bed.note("no spaces, please").await;
    let handler = |cx: Staged, job: Note| async move {
        for _ in 0..2 {
            cx.effect(&job.text, |_| async { Ok::<_, Fail>(1) }).await?;
        }
        cx.done().ok()
    };
    bed.work(bed.worker().handle(staged(handler)), &[twice, badly]).await;
    let reason = async |id| bed.rowlock.observe().case(id).await.unwrap().unwrap().reason;
    let text = reason(twice).await;
    assert!(
        text.contains("effect \"charge\" was used twice in one attempt"),
        "{text}"
    );
    let text = reason(badly).await;
    assert!(text.starts_with("effect: \"no spaces, please\""), "{text}");
    assert_eq!(bed.ends(twice).await, [Ended::Retired]);
}

async fn effects_may_run_beside_each_other(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Staged, _: Note| async move {
        let meet = Barrier::new(2);
        let call = async |_| {
            meet.wait().await;
            Ok::<_, Fail>(1)
        };
        let (a, b) = tokio::try_join!(cx.effect("a", call), cx.effect("b", call))?;
        cx.done().result(&(a + b)).ok()
    };
    bed.work(bed.worker().handle(staged(handler)), &[id]).await;
    assert_eq!(bed.job(id).await.result, Some(2.into()));
}

async fn charge(cx: Staged, job: Note) -> Outcome {
    let id = cx.id();
    let receipt: String = cx
        .effect("charge", |key| async move { Ok::<_, Fail>(format!("paid {key}")) })
        .await?;
    let mut tx = cx.begin().await?;
    write(&mut tx, id, &receipt).await?;
    match job.text.as_str() {
        "fail" => fail(Fail::retire("after begin")),
        _ => tx.done().result(&receipt).then(Other { n: 1 }).ok(),
    }
}

async fn settle_commits_the_reply_the_outcome_and_the_next_link_together(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["fine", "fail"].map(Note::new))
        .await
        .unwrap();
    bed.work(bed.worker().handle(staged(charge)), &ids).await;

    let fine = bed.job(ids[0]).await;
    assert_eq!(
        (fine.state, fine.result),
        (State::Finished, Some(format!("paid {}:charge", fine.uid).into()))
    );
    assert_eq!(bed.rowlock.observe().chain(ids[0]).await.unwrap().len(), 2);
    assert_eq!(bed.rowlock.observe().chain(ids[1]).await.unwrap().len(), 1);
    assert_eq!(bed.ends(ids[1]).await, [Ended::Retired]);
    assert_eq!(
        bed.ledger().await,
        1,
        "what the failed one wrote after begin is rolled back"
    );
}

async fn an_effects_error_is_the_attempts_and_a_typed_end_stays_what_it_is(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["io", "retire"].map(Note::new))
        .await
        .unwrap();
    let handler = |cx: Staged, job: Note| async move {
        if cx.attempt() == 1 && job.text == "io" {
            cx.effect("call", |_| async {
                Err::<(), _>(std::io::Error::other("connection reset"))
            })
            .await?;
        }
        if job.text == "retire" {
            cx.effect("call", |_| async { Err::<(), _>(Fail::retire("card stolen")) })
                .await?;
        }
        cx.done().ok()
    };
    bed.work(bed.worker().handle(staged(handler).backoff(AT_ONCE)), &ids)
        .await;
    assert_eq!(bed.ends(ids[0]).await, [Ended::Retried, Ended::Done]);
    assert_eq!(bed.attempts(ids[0]).await[0].error.as_deref(), Some("connection reset"));
    assert_eq!(bed.ends(ids[1]).await, [Ended::Retired]);
}

async fn no_connection_is_held_while_handlers_are_outside(bed: &Bed) {
    let outside = bed.rowlock.enqueue_all_now((0..4).map(|n| Other { n })).await.unwrap();
    let (meet, leave) = (Arc::new(Barrier::new(5)), CancellationToken::new());
    let (met, left) = (meet.clone(), leave.clone());
    let handler = move |mut cx: Staged, _: Other| {
        let (met, left) = (met.clone(), left.clone());
        async move {
            let mut read = cx.prepare().await?;
            read.ping().await?;
            read.commit().await?;
            cx.effect("call", |_| async {
                met.wait().await;
                left.cancelled().await;
                Ok::<_, Fail>(())
            })
            .await?;
            let id = cx.id();
            let mut tx = cx.begin().await?;
            write(&mut tx, id, "back").await?;
            tx.done().ok()
        }
    };
    // One connection for all: were it held outside, the barrier would never fill.
    let worker = bed.worker().connections(1).handle(staged(handler)).handle(atomic(note));
    let running = Running::start(worker);
    tokio::time::timeout(Duration::from_secs(10), meet.wait())
        .await
        .expect("all four outside at once");
    let meanwhile = bed.note("meanwhile").await;
    until("an atomic job beside them", async || {
        bed.job(meanwhile).await.state == State::Finished
    })
    .await;
    assert_eq!(bed.ledger().await, 1);

    leave.cancel();
    for id in outside {
        until("the others to settle", async || {
            bed.job(id).await.state == State::Finished
        })
        .await;
    }
    running.stop().await;
    assert_eq!(bed.ledger().await, 5);
}

/// Charges, and then records it on an order that somebody may have cancelled meanwhile; the note says how.
async fn charge_then_record(cx: Staged, job: Note) -> Outcome {
    let (how, attempt) = (job.text.as_str(), cx.attempt());
    let calls = how != "no effect" && !(how == "before" && attempt == 2);
    if calls {
        let charged = cx.effect("charge", async |_| match how {
            "undone" => Err(Fail::from(NotDone::because("card declined"))),
            _ => Ok("ch_1".to_owned()),
        });
        let _ = charged.await;
    }
    if how == "before" && attempt == 1 {
        return fail("after the call");
    }
    let mut tx = cx.begin().await?;
    match how {
        "changed" => drop(tx.unchanged_version("order:1", 9).await?),
        "chosen" => {
            let moved = tx.transition("orders", 1, "pending", "paid").await;
            moved.map_err(|e| Fail::cancel(e.to_string()))?;
        }
        _ => tx.transition("orders", 1, "pending", "paid").await?,
    }
    tx.done().ok()
}

async fn an_effect_that_happened_for_a_change_that_was_not_to_be_is_a_case_and_never_quiet(bed: &Bed) {
    bed.run("create table orders (id bigint primary key, status text not null)")
        .await;
    bed.run("insert into orders values (1, 'cancelled')").await;
    let told = [
        ("already", r#"row 1 of orders does not have the status "pending""#),
        ("before", r#"row 1 of orders does not have the status "pending""#),
        ("changed", r#""order:1" has changed since it was read"#),
    ];
    for (how, why) in told {
        let id = bed.note(how).await;
        let counters = bed
            .work(bed.worker().handle(staged(charge_then_record).backoff(AT_ONCE)), &[id])
            .await;
        assert_eq!(bed.ends(id).await.last(), Some(&Ended::Retired), "{how}");
        let effect = only(bed, id).await;
        let reason = reason(bed, id).await;
        let wanted = format!(
            "external calls were made but are not recorded (effect {} \"charge\" replied): {why}",
            effect.no
        );
        assert!(reason.starts_with(&wanted), "{how}: {reason}");
        assert_eq!((counters.already_handled(), counters.changed()), (0, 0), "{how}");
    }
    for (how, quiet) in [("no effect", 1), ("undone", 1), ("chosen", 0)] {
        let id = bed.note(how).await;
        let counters = bed.work(bed.worker().handle(staged(charge_then_record)), &[id]).await;
        let ended = if quiet == 1 { Ended::Done } else { Ended::Cancelled };
        assert_eq!(bed.ends(id).await, [ended], "{how}");
        assert_eq!(counters.already_handled(), quiet, "{how}");
    }
}

mod tests {
    super::super::cases!(
        an_effect_that_happened_for_a_change_that_was_not_to_be_is_a_case_and_never_quiet,
        a_write_in_prepare_is_an_error_that_points_to_settle,
        prepare_reads_and_may_be_dropped_unfinished,
        an_effects_key_is_the_same_on_every_attempt_and_differs_per_name_and_job,
        an_effect_name_used_twice_or_badly_becomes_a_case,
        effects_may_run_beside_each_other,
        settle_commits_the_reply_the_outcome_and_the_next_link_together,
        an_effects_error_is_the_attempts_and_a_typed_end_stays_what_it_is,
        no_connection_is_held_while_handlers_are_outside,
    );
}
