//! The journal of external calls: the intent before, the reply after, and replies instead of calls.

use std::sync::Arc;

use rowlock::{
    Ended, Fail,
    effect::{EffectFilter, EffectState, EffectView, Resolution},
    staged,
};
use serde::{Deserialize, Serialize};

use super::db::{Outcome, Staged};
use super::{AT_ONCE, Bed, Note, Running, Seen, fail, until, write};

pub(crate) async fn effects(bed: &Bed, id: i64) -> Vec<EffectView> {
    let filter = EffectFilter::new().job(id);
    bed.rowlock.observe().effects(&filter).await.unwrap()
}

pub(crate) async fn only(bed: &Bed, id: i64) -> EffectView {
    let mut all = effects(bed, id).await;
    assert_eq!(all.len(), 1, "{all:?}");
    all.remove(0)
}

pub(crate) async fn doubts(bed: &Bed) -> Vec<i64> {
    let filter = EffectFilter::new().doubtful();
    let found = bed.rowlock.observe().effects(&filter).await.unwrap();
    found.iter().map(|effect| effect.no).collect()
}

pub(crate) async fn reason(bed: &Bed, id: i64) -> String {
    bed.rowlock.observe().case(id).await.unwrap().unwrap().reason
}

/// Runs jobs with this handler, with next to no wait between attempts.
pub(crate) async fn work<F, Fut>(bed: &Bed, handler: F, ids: &[i64]) -> Arc<rowlock::Counters>
where
    F: Fn(Staged, Note) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    bed.work(bed.worker().handle(staged(handler).backoff(AT_ONCE)), ids)
        .await
}

pub(crate) async fn reopen(bed: &Bed, id: i64) {
    bed.rowlock.operate().reopen(id, "tess").await.unwrap();
}

async fn a_later_attempt_gets_the_stored_reply_without_a_call(bed: &Bed) {
    let id = bed.note("x").await;
    let seen = Seen::default();
    let calls = seen.clone();
    let handler = move |cx: Staged, _: Note| {
        let calls = calls.clone();
        async move {
            let receipt: String = cx
                .effect("charge", async |key| {
                    calls.push(key.to_string());
                    Ok::<_, Fail>("paid".to_owned())
                })
                .await?;
            if cx.attempt() < 3 {
                return fail("after the call");
            }
            cx.done().result(&receipt).ok()
        }
    };
    let counters = work(bed, handler, &[id]).await;
    let job = bed.job(id).await;
    assert_eq!(job.result, Some("paid".into()));
    // What was fixed at enqueue and the name, and nothing of the attempt.
    assert_eq!(seen.all(), [format!("{}:charge", job.uid)]);
    assert_eq!((counters.effects_replayed(), counters.effects_uncertain()), (2, 0));

    let effect = only(bed, id).await;
    assert_eq!(
        (effect.state, effect.tries, effect.reply),
        (EffectState::Replied, 1, Some("paid".into()))
    );
    assert_eq!((effect.name.as_str(), effect.policy.as_str()), ("charge", "retry"));
    assert_eq!(effect.kind.as_deref(), Some("note"));
    assert!(doubts(bed).await.is_empty());
}

async fn effects_in_a_loop_and_beside_each_other_are_each_called_once(bed: &Bed) {
    let id = bed.note("x").await;
    let seen = Seen::default();
    let handler = {
        let seen = seen.clone();
        move |cx: Staged, _: Note| {
            let seen = seen.clone();
            async move {
                let attempt = cx.attempt();
                let mut sum = 0;
                for i in 0..3 {
                    sum += cx
                        .effect(&format!("mail-{i}"), async |key| {
                            seen.push(key.to_string());
                            // The last one's answer is lost on the first attempt.
                            if i == 2 && attempt == 1 {
                                Err("no answer")
                            } else {
                                Ok(i)
                            }
                        })
                        .await?;
                }
                let call = async |key: rowlock::EffectKey| {
                    seen.push(key.to_string());
                    Ok::<i64, Fail>(10)
                };
                let (a, b) = tokio::join!(cx.effect("a", call), cx.effect("b", call));
                let (id, total) = (cx.id(), sum + a? + b?);
                if attempt == 2 {
                    return fail("once more");
                }
                let mut tx = cx.begin().await?;
                write(&mut tx, id, &total.to_string()).await?;
                tx.done().result(&total).ok()
            }
        }
    };
    let counters = work(bed, handler, &[id]).await;
    assert_eq!(bed.job(id).await.result, Some(23.into()));
    let mut calls = seen.all();
    assert_eq!(calls.len(), 6, "one was repeated: {calls:?}");
    calls.sort();
    calls.dedup();
    assert_eq!(calls.len(), 5);
    assert_eq!(effects(bed, id).await.len(), 5);
    assert_eq!(counters.effects_replayed(), 2 + 5);
}

async fn another_request_under_the_same_name_becomes_a_case_and_is_not_called(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["replied", "in doubt"].map(Note::new))
        .await
        .unwrap();
    let seen = Seen::default();
    let handler = {
        let seen = seen.clone();
        move |cx: Staged, job: Note| {
            let seen = seen.clone();
            async move {
                let (attempt, doubt) = (cx.attempt(), job.text == "in doubt");
                cx.effect("charge", async |_| {
                    seen.push("call");
                    if doubt { Err("no answer") } else { Ok(1) }
                })
                .request(&serde_json::json!({ "cents": 100 * attempt }))
                .await?;
                fail("after the call")
            }
        }
    };
    work(bed, handler.clone(), &ids).await;
    assert_eq!(seen.all().len(), 2);
    for id in &ids {
        let (no, told) = (only(bed, *id).await.no, reason(bed, *id).await);
        let begins = format!("effect {no} \"charge\" was begun with a different request (stored: ");
        assert!(told.starts_with(&begins) && told.contains("; given: "), "{told}");
        assert_eq!(bed.ends(*id).await, [Ended::Retried, Ended::Retired]);
    }
    // What did not happen holds no request: the way out of a doubt.
    let no = only(bed, ids[1]).await.no;
    let operate = bed.rowlock.operate();
    operate
        .resolve_effect(no, Resolution::NotHappened, "tess")
        .await
        .unwrap();
    reopen(bed, ids[1]).await;
    bed.work_attempts(bed.worker().handle(staged(handler)), ids[1], 3).await;
    assert_eq!(seen.all().len(), 3);
}

async fn a_reply_that_cannot_be_stored_leaves_a_doubt_and_a_case_that_says_so(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["large", "nul"].map(Note::new))
        .await
        .unwrap();
    let handler = |cx: Staged, job: Note| async move {
        let reply = match job.text.as_str() {
            "large" => "x".repeat(2_000_000),
            _ => "a\0b".to_owned(),
        };
        let short: String = cx.effect("call", |_| async { Ok::<_, Fail>(reply) }).await?;
        cx.done().result(&short).ok()
    };
    work(bed, handler, &ids).await;
    for (id, why) in ids
        .iter()
        .zip(["2000002 bytes, at most", "a string contains a NUL character"])
    {
        let told = reason(bed, *id).await;
        assert!(
            told.contains("the call returned, but its reply cannot be stored: reply: ") && told.contains(why),
            "{told}"
        );
        let effect = only(bed, *id).await;
        assert_eq!(effect.state, EffectState::Uncertain);
        assert!(effect.error.unwrap().contains(why));
        let resolution = Resolution::Happened("cut short".into());
        bed.rowlock
            .operate()
            .resolve_effect(effect.no, resolution, "tess")
            .await
            .unwrap();
        reopen(bed, *id).await;
    }
    work(bed, handler, &ids).await;
    assert_eq!(bed.job(ids[0]).await.result, Some("cut short".into()));
}

async fn a_stored_reply_that_no_longer_reads_becomes_a_case_and_is_kept(bed: &Bed) {
    #[derive(Serialize, Deserialize)]
    struct Receipt {
        receipt: String,
    }
    let id = bed.note("x").await;
    let older = |cx: Staged, _: Note| async move {
        cx.effect("charge", |_| async { Ok::<_, Fail>(12) }).await?;
        fail(Fail::retire("after the call"))
    };
    work(bed, older, &[id]).await;
    reopen(bed, id).await;
    let newer = |cx: Staged, _: Note| async move {
        let paid = cx
            .effect("charge", |_| async { Err::<Receipt, _>("must not be called") })
            .await?;
        cx.done().result(&paid.receipt).ok()
    };
    work(bed, newer, &[id]).await;
    let told = reason(bed, id).await;
    assert!(
        told.starts_with("the stored reply of effect ") && told.contains("cannot be read: invalid type: integer `12`"),
        "{told}"
    );
    assert_eq!(only(bed, id).await.reply, Some(12.into()));
}

async fn a_reopened_job_keeps_its_replies(bed: &Bed) {
    let id = bed.note("x").await;
    let seen = Seen::default();
    let handler = {
        let seen = seen.clone();
        move |cx: Staged, _: Note| {
            let seen = seen.clone();
            async move {
                cx.effect("charge", async |_| {
                    seen.push("call");
                    Ok::<_, Fail>(())
                })
                .await?;
                if cx.epoch() == 1 {
                    return fail(Fail::retire("for a person to look"));
                }
                cx.done().ok()
            }
        }
    };
    work(bed, handler.clone(), &[id]).await;
    reopen(bed, id).await;
    work(bed, handler, &[id]).await;
    assert_eq!(bed.ends(id).await, [Ended::Retired, Ended::Done]);
    assert_eq!(seen.all(), ["call"]);
}

async fn a_lease_lost_at_the_intent_or_at_the_reply_ends_the_attempt_unrecorded(bed: &Bed) {
    let ids = bed
        .rowlock
        .enqueue_all_now(["intent", "reply"].map(Note::new))
        .await
        .unwrap();
    let seen = Seen::default();
    let handler = {
        let (seen, url) = (seen.clone(), bed.database.url.clone());
        move |cx: Staged, job: Note| {
            let (seen, url) = (seen.clone(), url.clone());
            async move {
                let (id, at) = (cx.id(), job.text.as_str());
                if at == "intent" {
                    lose(&url, id).await;
                }
                cx.effect("call", async |_| {
                    seen.push(at);
                    if at == "reply" {
                        lose(&url, id).await;
                    }
                    Ok::<_, Fail>(())
                })
                .await?;
                seen.push("went on");
                cx.done().ok()
            }
        }
    };
    let running = Running::start(bed.worker().handle(staged(handler)));
    until("both to be lost", async || running.counters.lease_lost() == 2).await;
    running.stop().await;
    assert_eq!(seen.all(), ["reply"]);
    assert_eq!(effects(bed, ids[0]).await.len(), 0);
    assert_eq!(only(bed, ids[1]).await.state, EffectState::Uncertain);
    for id in ids {
        assert_eq!(bed.ends(id).await, []);
    }
}

/// Takes a job out of its worker's hands, as recovery would.
async fn lose(url: &str, id: i64) {
    use sqlx::Connection;
    let mut conn = super::db::Conn::connect(url).await.unwrap();
    sqlx::query(super::sql("delete from rowlock.lease where id = $1"))
        .bind(id)
        .execute(&mut conn)
        .await
        .unwrap();
}

async fn a_request_that_cannot_be_written_becomes_a_case(bed: &Bed) {
    let id = bed.note("x").await;
    let handler = |cx: Staged, _: Note| async move {
        let unwritable = std::collections::HashMap::from([((1, 2), 3)]);
        cx.effect("call", |_| async { Ok::<_, Fail>(()) })
            .request(&unwritable)
            .await?;
        cx.done().ok()
    };
    work(bed, handler, &[id]).await;
    let told = reason(bed, id).await;
    assert!(
        told.starts_with("effect \"call\": request: cannot be written as JSON"),
        "{told}"
    );
}

mod tests {
    super::super::cases!(
        a_later_attempt_gets_the_stored_reply_without_a_call,
        effects_in_a_loop_and_beside_each_other_are_each_called_once,
        another_request_under_the_same_name_becomes_a_case_and_is_not_called,
        a_reply_that_cannot_be_stored_leaves_a_doubt_and_a_case_that_says_so,
        a_stored_reply_that_no_longer_reads_becomes_a_case_and_is_kept,
        a_reopened_job_keeps_its_replies,
        a_lease_lost_at_the_intent_or_at_the_reply_ends_the_attempt_unrecorded,
        a_request_that_cannot_be_written_becomes_a_case,
    );
}
