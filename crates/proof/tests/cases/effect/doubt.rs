//! Effects whose outcome is unknown: called again, parked, asked about, resolved.

use std::{future::pending, time::Duration};

use anyhow::Context;
use rowlock::{
    Ended, Error, Fail, NotDone, OnUnknown, State, Verdict,
    effect::{EffectState, Resolution},
    staged,
};
use tokio_util::sync::CancellationToken;

use super::db::{Outcome, Staged};
use super::{
    Bed, Note, Running, Seen,
    journal::{doubts, only, reason, reopen, work},
    until,
};

/// Ends its first call in every way that leaves a doubt or none, by the job's text; later calls are answered.
async fn first_call_ends(cx: Staged, job: Note, calls: Seen, on_unknown: OnUnknown) -> Outcome {
    let first = cx.attempt() == 1;
    let how = job.text.clone();
    let called = cx.effect("call", async |_| {
        calls.push(how.as_str());
        match how.as_str() {
            _ if !first => Ok(7),
            "error" => Err(anyhow::anyhow!("connection reset")),
            "time-out" => pending().await,
            "panic" => panic!("in the middle"),
            "not done" => Err(NotDone::because("connection refused").into()),
            "not done, bare" => not_done().map(|()| 7),
            "not done, with context" => not_done().map(|()| 7).context("could not charge").context("order 12"),
            other => Err(anyhow::anyhow!("no such end: {other}")),
        }
    });
    let reply = called
        .timeout(Duration::from_millis(300))
        .on_unknown(on_unknown)
        .await?;
    cx.done().result(&reply).ok()
}

/// As a client would: the answer goes through `?`.
fn not_done() -> anyhow::Result<()> {
    Err(NotDone::because(std::io::Error::other("connection refused")))?;
    Ok(())
}

const DOUBTFUL: [&str; 3] = ["error", "time-out", "panic"];

const UNDONE: [&str; 3] = ["not done", "not done, bare", "not done, with context"];

async fn a_doubt_is_called_again_under_the_same_key_unless_told_otherwise(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(DOUBTFUL.map(Note::new)).await.unwrap();
    let calls = Seen::default();
    let handler = {
        let calls = calls.clone();
        move |cx, job| first_call_ends(cx, job, calls.clone(), OnUnknown::RetryWithKey)
    };
    let counters = work(bed, handler, &ids).await;
    for id in ids {
        assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
        let effect = only(bed, id).await;
        assert_eq!((effect.state, effect.tries), (EffectState::Replied, 2));
        assert_eq!((effect.error, effect.reply), (None, Some(7.into())));
    }
    assert_eq!(calls.all().len(), 6);
    assert_eq!(counters.effects_uncertain(), 3);
}

async fn a_parked_doubt_becomes_a_case_that_names_the_way_out_and_is_never_called_again(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(DOUBTFUL.map(Note::new)).await.unwrap();
    let calls = Seen::default();
    let handler = {
        let calls = calls.clone();
        move |cx, job| first_call_ends(cx, job, calls.clone(), OnUnknown::Park)
    };
    let counters = work(bed, handler.clone(), &ids).await;
    assert_eq!(calls.all().len(), 3);
    assert_eq!(counters.effects_uncertain(), 3);
    let ends = [
        (ids[0], vec![Ended::Retired], "connection reset"),
        (
            ids[1],
            vec![Ended::Retired],
            "effect \"call\" got no reply within 300ms",
        ),
        // A panic ends the attempt; the next one finds the open intent.
        (
            ids[2],
            vec![Ended::Retried, Ended::Retired],
            "the attempt that made the call ended without a reply",
        ),
    ];
    for (id, ended, why) in ends {
        assert_eq!(bed.ends(id).await, ended);
        let effect = only(bed, id).await;
        assert_eq!((effect.state, effect.tries), (EffectState::Uncertain, 1));
        let (no, key) = (effect.no, &effect.key);
        let told = format!(
            "effect {no} \"call\" is in doubt since {:.0}: {why}; its idempotency key is {key}; find out whether the \
             call happened, then run `rowlock effect resolve {no} --happened JSON` or `rowlock effect resolve {no} \
             --not-happened`",
            effect.begun_at
        );
        assert_eq!(reason(bed, id).await, told);
        assert_eq!(*key, format!("{}:call", bed.job(id).await.uid));
        reopen(bed, id).await;
    }
    assert_eq!(doubts(bed).await.len(), 3);

    work(bed, handler, &ids).await;
    assert_eq!(calls.all().len(), 3, "reopened, but still in doubt");
    for id in ids {
        assert_eq!(bed.job(id).await.state, State::Case);
    }
}

async fn only_an_error_that_says_not_done_closes_an_intent(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(UNDONE.map(Note::new)).await.unwrap();
    let calls = Seen::default();
    let handler = {
        let calls = calls.clone();
        move |cx, job| first_call_ends(cx, job, calls.clone(), OnUnknown::Park)
    };
    let counters = work(bed, handler, &ids).await;
    let errors = [
        "the effect did not happen: connection refused",
        "the effect did not happen: connection refused",
        "order 12: could not charge: the effect did not happen: connection refused",
    ];
    for (id, error) in ids.into_iter().zip(errors) {
        assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Done]);
        assert_eq!(bed.attempts(id).await[0].error.as_deref(), Some(error));
        assert_eq!(only(bed, id).await.tries, 2);
    }
    assert_eq!(calls.all().len(), 6);
    assert_eq!(counters.effects_uncertain(), 0);
}

async fn a_typed_end_may_say_not_done_too(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Staged, _: Note| async move {
        cx.effect("charge", async |_| {
            Err::<(), _>(Fail::cancel("card declined").not_done())
        })
        .park()
        .await?;
        cx.done().ok()
    };
    work(bed, handler, &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Cancelled]);
    let effect = only(bed, id).await;
    assert_eq!(
        (effect.state, effect.error.as_deref()),
        (EffectState::Undone, Some("card declined"))
    );
}

/// Parks on its first call, whose answer is lost.
async fn park(cx: Staged, _job: Note) -> Outcome {
    let first = cx.attempt() == 1 && cx.epoch() == 1;
    let paid: i64 = cx
        .effect("charge", async |_| if first { Err("no answer") } else { Ok(1) })
        .park()
        .await?;
    cx.done().result(&paid).ok()
}

async fn a_resolved_doubt_lets_the_job_go_on_with_the_given_reply_or_a_new_call(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(["a", "b"].map(Note::new)).await.unwrap();
    work(bed, park, &ids).await;
    let operate = bed.rowlock.operate();
    let resolutions = [Resolution::Happened(12.into()), Resolution::NotHappened];
    for (id, resolution) in ids.iter().zip(resolutions) {
        let no = only(bed, *id).await.no;
        assert_eq!(operate.resolve_effect(no, resolution, "tess").await.unwrap(), *id);
        assert_eq!(only(bed, *id).await.resolved_by.as_deref(), Some("tess"));
        let again = operate.resolve_effect(no, Resolution::NotHappened, "tess").await;
        assert!(
            matches!(&again, Err(Error::Conflict(why)) if why.ends_with("not in doubt")),
            "{again:?}"
        );
        reopen(bed, *id).await;
    }
    assert!(doubts(bed).await.is_empty());
    let audited = "select count(*) from rowlock.audit where verb = 'resolve effect' and actor = 'tess'";
    assert_eq!(bed.count(audited).await, 2);

    let counters = work(bed, park, &ids).await;
    assert_eq!(counters.effects_replayed(), 1);
    assert_eq!(bed.job(ids[0]).await.result, Some(12.into()));
    assert_eq!(bed.job(ids[1]).await.result, Some(1.into()));
    assert_eq!((only(bed, ids[0]).await.tries, only(bed, ids[1]).await.tries), (1, 2));
}

async fn a_doubt_is_not_resolved_while_its_call_is_in_flight(bed: &Bed) {
    let id = bed.note("x").await;
    let (called, answer) = (CancellationToken::new(), CancellationToken::new());
    let handler = {
        let (called, answer) = (called.clone(), answer.clone());
        move |cx: Staged, _: Note| {
            let (called, answer) = (called.clone(), answer.clone());
            async move {
                cx.effect("charge", async |_| {
                    called.cancel();
                    answer.cancelled().await;
                    Ok::<_, Fail>(())
                })
                .await?;
                cx.done().ok()
            }
        }
    };
    let running = Running::start(bed.worker().handle(staged(handler)));
    called.cancelled().await;
    let effect = only(bed, id).await;
    assert_eq!(effect.state, EffectState::InFlight);
    assert!(effect.deadline_at > effect.begun_at);
    assert!(doubts(bed).await.is_empty());
    let resolved = bed
        .rowlock
        .operate()
        .resolve_effect(effect.no, Resolution::NotHappened, "t")
        .await;
    assert_eq!(
        resolved.unwrap_err().to_string(),
        format!(
            "effect {} \"charge\" of job {id} is in flight; resolve it when its attempt has ended",
            effect.no
        )
    );
    answer.cancel();
    until("the job to finish", async || bed.job(id).await.state == State::Finished).await;
    running.stop().await;
    assert_eq!(only(bed, id).await.state, EffectState::Replied);

    let missing = bed
        .rowlock
        .operate()
        .resolve_effect(999, Resolution::NotHappened, "t")
        .await;
    assert_eq!(
        missing.unwrap_err().to_string(),
        "no effect 999; `rowlock effects` lists the effects in doubt"
    );
    let large = Resolution::Happened("x".repeat(2_000_000).into());
    let large = bed.rowlock.operate().resolve_effect(effect.no, large, "t").await;
    assert!(large.unwrap_err().to_string().starts_with("reply: "));
}

async fn a_reconciler_is_asked_before_anything_is_done_about_a_doubt(bed: &Bed) {
    let verdicts = ["happened", "not happened", "unknown at first", "away at first"];
    let ids = bed.rowlock.enqueue_all_now(verdicts.map(Note::new)).await.unwrap();
    let seen = Seen::default();
    let handler = {
        let seen = seen.clone();
        move |cx: Staged, job: Note| {
            let seen = seen.clone();
            async move {
                let (attempt, text) = (cx.attempt(), job.text.as_str());
                let paid: i64 = cx
                    .effect("charge", async |_| {
                        seen.push(format!("call {text}"));
                        if attempt == 1 { Err("no answer") } else { Ok(1) }
                    })
                    .ask(async |key| {
                        seen.push(format!("ask {text}"));
                        assert!(key.as_str().ends_with(":charge"));
                        match text {
                            "happened" => Ok(Verdict::Happened(2)),
                            "not happened" => Ok(Verdict::NotHappened),
                            "unknown at first" if attempt == 2 => Ok(Verdict::Unknown),
                            "away at first" if attempt == 2 => Err(std::io::Error::other("away")),
                            _ => Ok(Verdict::Happened(3)),
                        }
                    })
                    .await?;
                cx.done().result(&paid).ok()
            }
        }
    };
    work(bed, handler, &ids).await;
    let (retried, done) = (Ended::Retried, Ended::Done);
    let expected = [
        (2, vec![retried, done]),
        (1, vec![retried, done]),
        (3, vec![retried, retried, done]),
        (3, vec![retried, retried, done]),
    ];
    for (id, (result, ends)) in ids.iter().zip(expected) {
        assert_eq!(bed.job(*id).await.result, Some(result.into()));
        assert_eq!(bed.ends(*id).await, ends);
        assert_eq!(only(bed, *id).await.policy, "ask");
    }
    let unknown = bed.attempts(ids[2]).await[1].error.clone().unwrap();
    assert!(
        unknown.contains("the reconciler does not know whether the call happened"),
        "{unknown}"
    );
    let count = |line: &str| seen.all().iter().filter(|l| *l == line).count();
    for (verdict, calls, asks) in [
        ("happened", 1, 1),
        ("not happened", 2, 1),
        ("unknown at first", 1, 2),
        ("away at first", 1, 2),
    ] {
        let found = (count(&format!("call {verdict}")), count(&format!("ask {verdict}")));
        assert_eq!(found, (calls, asks), "{verdict}");
    }
}

/// That the second call did not happen says nothing of the first one.
async fn a_later_call_that_was_not_done_does_not_answer_an_earlier_doubt(bed: &Bed) {
    let ids = bed.rowlock.enqueue_all_now(["stays", "other request"].map(Note::new));
    let ids = ids.attempts(3).await.unwrap();
    let calls = Seen::default();
    let handler = {
        let calls = calls.clone();
        move |cx: Staged, job: Note| {
            let calls = calls.clone();
            async move {
                let attempt = cx.attempt();
                let called = cx.effect("call", async |_| {
                    calls.push(job.text.as_str());
                    match attempt {
                        1 => Err::<i32, _>(anyhow::anyhow!("no answer")),
                        _ => Err(NotDone::because("connection refused").into()),
                    }
                });
                let asked = (job.text == "other request" && attempt == 3) as i32;
                let reply = called.request(&asked).await?;
                cx.done().result(&reply).ok()
            }
        }
    };
    work(bed, handler, &ids).await;
    for id in &ids {
        assert_eq!(only(bed, *id).await.state, EffectState::Uncertain);
        assert_eq!(bed.job(*id).await.state, State::Case);
    }
    assert_eq!(doubts(bed).await.len(), 2, "both are there to be looked into");
    let told = reason(bed, ids[1]).await;
    assert!(told.contains("was begun with a different request"), "{told}");
    assert_eq!(calls.all().len(), 5, "the other request was not called");

    // Once somebody has found out, a call that is not done closes the intent again.
    let no = only(bed, ids[0]).await.no;
    let operate = bed.rowlock.operate();
    operate
        .resolve_effect(no, Resolution::NotHappened, "tess")
        .await
        .unwrap();
    reopen(bed, ids[0]).await;
    let handler = |cx: Staged, _: Note| async move {
        let called = cx.effect("call", async |_| {
            Err::<i32, anyhow::Error>(NotDone::because("refused").into())
        });
        called.request(&0).await?;
        cx.done().ok()
    };
    work(bed, handler, &ids[..1]).await;
    assert_eq!(only(bed, ids[0]).await.state, EffectState::Undone);
}

async fn an_effect_given_up_by_its_handler_is_in_doubt_when_the_attempt_is_over(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Staged, _: Note| async move {
        let called = cx.effect("call", |_| pending::<Result<(), Fail>>()).into_future();
        let given_up = tokio::time::timeout(Duration::from_millis(300), called).await;
        assert!(given_up.is_err());
        cx.done().ok()
    };
    work(bed, handler, &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Done]);
    assert_eq!(only(bed, id).await.state, EffectState::Uncertain);
    assert_eq!(doubts(bed).await.len(), 1);
}

mod tests {
    super::super::cases!(
        a_doubt_is_called_again_under_the_same_key_unless_told_otherwise,
        a_parked_doubt_becomes_a_case_that_names_the_way_out_and_is_never_called_again,
        only_an_error_that_says_not_done_closes_an_intent,
        a_typed_end_may_say_not_done_too,
        a_resolved_doubt_lets_the_job_go_on_with_the_given_reply_or_a_new_call,
        a_doubt_is_not_resolved_while_its_call_is_in_flight,
        a_reconciler_is_asked_before_anything_is_done_about_a_doubt,
        a_later_call_that_was_not_done_does_not_answer_an_earlier_doubt,
        an_effect_given_up_by_its_handler_is_in_doubt_when_the_attempt_is_over,
    );
}
