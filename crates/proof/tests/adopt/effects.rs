//! Outside calls of rows: the same key on every attempt, an intent before and a reply after.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use rowlock::{
    Ended, Fail, NotDone, Retention,
    adopt::{self, Adopted},
    observe::CaseFilter,
    staged,
};

use super::{
    bed::{columns, fill, opened, stand},
    worker::{Snooze, runs_until, soon, worked_off},
};
use crate::steps::{catalog::script, session::Bed};

/// Every call, with its key, and what to answer by its number.
#[derive(Clone)]
struct World {
    calls: Arc<Mutex<Vec<String>>>,
    answer: fn(usize) -> Result<String, Fail>,
}

impl World {
    fn new(answer: fn(usize) -> Result<String, Fail>) -> World {
        World {
            calls: Arc::default(),
            answer,
        }
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().unwrap().clone()
    }

    fn call(&self, key: String) -> Result<String, Fail> {
        let mut calls = self.calls.lock().unwrap();
        calls.push(key);
        (self.answer)(calls.len())
    }
}

async fn mail(cx: adopt::Staged<World>, _row: Snooze) -> adopt::Outcome {
    let world = cx.state().clone();
    let receipt: String = cx.effect("mail", |key| async move { world.call(key.into()) }).await?;
    assert_eq!(receipt, "receipt");
    cx.done().ok()
}

async fn mail_once(cx: adopt::Staged<World>, _row: Snooze) -> adopt::Outcome {
    let world = cx.state().clone();
    let _: String = cx
        .effect("mail", |key| async move { world.call(key.into()) })
        .park()
        .await?;
    cx.done().ok()
}

async fn a_call_is_made_again_under_the_same_key(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|n| match n {
        1 => Err(Fail::retry("no answer")),
        2 => Err(NotDone::because("refused").into()),
        _ => Ok("receipt".into()),
    });
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .state(world.clone())
        .handle(soon(staged(mail)));
    let counters = worked_off(worker, 1).await;
    let calls = world.calls();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|key| *key == calls[0]), "{calls:?}");
    assert_eq!(counters.effects_uncertain(), 2);
    // Another table, or the same one opened anew, has the same name for it or none.
    let again = opened(&bed.rowlock).await;
    assert_eq!(again.queue(), "email_snoozes");
}

async fn a_call_that_did_not_happen_leaves_no_doubt(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|n| match n {
        1 => Err(NotDone::because("refused").into()),
        _ => Ok("receipt".into()),
    });
    // In doubt it would be parked.
    let adopted = opened(&bed.rowlock).await;
    let worker = adopted.worker().state(world.clone()).handle(soon(staged(mail_once)));
    let counters = worked_off(worker, 1).await;
    assert_eq!((world.calls().len(), counters.effects_uncertain()), (2, 0));
}

async fn a_reply_that_is_stored_is_not_asked_for_again(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|_| Ok("receipt".into()));
    let fails_after = |cx: adopt::Staged<World>, _row: Snooze| async move {
        let world = cx.state().clone();
        let receipt: String = cx.effect("mail", |key| async move { world.call(key.into()) }).await?;
        assert_eq!(receipt, "receipt");
        match cx.attempt() {
            1 | 2 => Err(Fail::retry("after the call")),
            _ => cx.done().ok(),
        }
    };
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .state(world.clone())
        .handle(soon(staged(fails_after)));
    let counters = worked_off(worker, 1).await;
    assert_eq!((world.calls().len(), counters.effects_replayed()), (1, 2));
}

async fn a_parked_doubt_is_a_case_and_reopening_it_says_that_it_did_not_happen(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|n| match n {
        1 => Err(Fail::retry("no answer")),
        _ => Ok("receipt".into()),
    });
    let adopted = opened(&bed.rowlock).await;
    let worker = adopted.worker().state(world.clone()).handle(soon(staged(mail_once)));
    runs_until(worker, "the doubt to be parked", |c| c.settled(Ended::Retired) == 1).await;
    assert_eq!(world.calls().len(), 1, "it is not called again while nobody knows");
    let said = stand(&mut bed.eye, 1).await.last_error.unwrap();
    let key = &world.calls()[0];
    assert_eq!(
        said,
        format!(
            "it is unknown whether effect \"mail\" happened: no answer; its idempotency key is {key}; reopen the case if \
             it did not, close the case if it did"
        )
    );
    let case = bed.rowlock.observe().cases(&CaseFilter::new().limit(10)).await.unwrap()[0].id;
    bed.rowlock.operate().reopen(case, "me").await.unwrap();
    worked_off(adopted.worker().state(world.clone()).handle(soon(staged(mail_once))), 1).await;
    let calls = world.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(calls[0], calls[1]);
}

async fn a_parked_doubt_outlives_every_retention(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    let world = World::new(|n| match n {
        1 => Err(Fail::retry("no answer")),
        _ => Ok("receipt".into()),
    });
    let handler = |cx: adopt::Staged<World>, row: Snooze| async move {
        match row.id {
            1 => mail_once(cx, row).await,
            _ => Err(Fail::retire("nothing to ask about")),
        }
    };
    let adopted = opened(&bed.rowlock).await;
    let worker = adopted.worker().state(world.clone()).handle(soon(staged(handler)));
    runs_until(worker, "both to be retired", |c| c.settled(Ended::Retired) == 2).await;
    let years = "update rowlock.case_file set retired_at = retired_at - interval '4 years';
        update rowlock.ledger set made_at = made_at - interval '4 years'";
    script(&mut bed.eye, years).await.unwrap();
    let operate = bed.rowlock.operate();
    let removed = operate.prune(&Retention::new(), "me", |_| {}).await.unwrap();
    assert_eq!(removed.cases, 1, "the one without a doubt");
    let cases = bed.rowlock.observe().cases(&CaseFilter::new().limit(10)).await.unwrap();
    assert!(
        cases[0]
            .reason
            .starts_with("it is unknown whether effect \"mail\" happened")
    );
    let intents = "select count(*) from rowlock.ledger where key like 'row effect %'";
    assert_eq!((cases.len(), bed.count(intents).await), (1, 1));

    operate.reopen(cases[0].id, "me").await.unwrap();
    worked_off(adopted.worker().state(world.clone()).handle(soon(staged(mail_once))), 1).await;
    let calls = world.calls();
    assert_eq!((calls.len(), calls[0] == calls[1]), (2, true));
    // With its reply it is kept as long as keys are, from then on.
    operate.prune(&Retention::new(), "me", |_| {}).await.unwrap();
    assert_eq!(bed.count(intents).await, 1);
    script(&mut bed.eye, years).await.unwrap();
    operate.prune(&Retention::new(), "me", |_| {}).await.unwrap();
    assert_eq!(bed.count(intents).await, 0);
}

async fn an_answer_that_comes_late_is_kept_from_then_on(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|n| match n {
        1 => Err(Fail::defer(Duration::from_secs(600))),
        _ => Ok("receipt".into()),
    });
    let adopted = opened(&bed.rowlock).await;
    let worker = adopted.worker().state(world.clone()).handle(soon(staged(mail)));
    runs_until(worker, "the first call", |c| c.settled(Ended::Deferred) == 1).await;
    let later = "update email_snoozes set remind_at = now();
        update rowlock.ledger set made_at = made_at - interval '4 years' where key like 'row effect %'";
    script(&mut bed.eye, later).await.unwrap();
    let operate = bed.rowlock.operate();
    operate.prune(&Retention::new(), "me", |_| {}).await.unwrap();
    let counters = worked_off(adopted.worker().state(world.clone()).handle(soon(staged(mail))), 1).await;
    assert_eq!(counters.effects_uncertain(), 1, "the intent is still known");
    operate.prune(&Retention::new(), "me", |_| {}).await.unwrap();
    let replies = "select count(*) from rowlock.ledger where key like 'row effect %' and answer is not null";
    assert_eq!(bed.count(replies).await, 1);
}

async fn a_table_that_is_renamed_with_its_entry_keeps_its_keys(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|n| match n {
        1 => Err(Fail::defer(Duration::from_secs(600))),
        _ => Ok("receipt".into()),
    });
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .state(world.clone())
        .handle(soon(staged(mail)));
    runs_until(worker, "the first call", |c| c.settled(Ended::Deferred) == 1).await;
    let rename = "begin;
        alter table email_snoozes rename to snoozes;
        update rowlock.ledger set key = 'adopted table public.snoozes' where key = 'adopted table public.email_snoozes';
        commit;
        update snoozes set remind_at = now()";
    script(&mut bed.eye, rename).await.unwrap();
    let renamed = Adopted::open(&bed.rowlock, "snoozes", columns()).await.unwrap();
    let counters = worked_off(renamed.worker().state(world.clone()).handle(soon(staged(mail))), 1).await;
    let calls = world.calls();
    assert_eq!((calls.len(), counters.effects_uncertain()), (2, 1));
    assert_eq!(calls[0], calls[1]);
}

async fn an_effect_needs_a_name_of_its_own(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let twice = |cx: adopt::Staged, _row: Snooze| async move {
        for _ in 0..2 {
            cx.effect("mail", |_| async { Ok::<_, Fail>(()) }).await?;
        }
        cx.done().ok()
    };
    let worker = opened(&bed.rowlock).await.worker().handle(soon(staged(twice)));
    runs_until(worker, "it to be retired", |c| c.settled(Ended::Retired) == 1).await;
    let said = stand(&mut bed.eye, 1).await.last_error.unwrap();
    assert_eq!(
        said,
        "effect \"mail\" was used twice in one attempt; give each call its own name"
    );
}

async fn work_found_done_after_a_call_is_a_case_and_not_a_quiet_success(mut bed: Bed) {
    fill(&mut bed.eye, 2).await;
    let world = World::new(|_| Ok("receipt".into()));
    let handler = |cx: adopt::Staged<World>, row: Snooze| async move {
        let world = cx.state().clone();
        if row.id == 1 {
            let _: String = cx.effect("mail", |key| async move { world.call(key.into()) }).await?;
        }
        Err(rowlock::AlreadyHandled.into())
    };
    let worker = opened(&bed.rowlock)
        .await
        .worker()
        .state(world.clone())
        .handle(staged(handler));
    let counters = runs_until(worker, "both to end", |c| {
        (c.settled(Ended::Retired), c.settled(Ended::Done)) == (1, 1)
    })
    .await;
    assert_eq!((world.calls().len(), counters.already_handled()), (1, 1));
    let said = stand(&mut bed.eye, 1).await.last_error.unwrap();
    assert!(
        said.starts_with("external calls were made but are not recorded (effect \"mail\"): "),
        "{said}"
    );
    assert!(stand(&mut bed.eye, 2).await.inactive);
}

async fn work_found_done_after_a_call_of_an_earlier_attempt_is_a_case(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|_| Ok("receipt".into()));
    let handler = |cx: adopt::Staged<World>, _row: Snooze| async move {
        if cx.attempt() > 1 {
            return Err(rowlock::AlreadyHandled.into());
        }
        let world = cx.state().clone();
        let _: String = cx.effect("mail", |key| async move { world.call(key.into()) }).await?;
        Err(Fail::retry("after the call"))
    };
    let worker = opened(&bed.rowlock).await.worker().state(world.clone());
    let worker = worker.handle(soon(staged(handler)));
    let counters = runs_until(worker, "it to end", |c| {
        c.settled(Ended::Retired) + c.settled(Ended::Done) == 1
    })
    .await;
    assert_eq!((counters.settled(Ended::Retired), counters.already_handled()), (1, 0));
    let said = stand(&mut bed.eye, 1).await.last_error.unwrap();
    assert!(
        said.starts_with("external calls were made but are not recorded (effect \"mail\"): "),
        "{said}"
    );
}

async fn calls_of_an_occasion_that_is_over_do_not_make_a_case_of_a_later_one(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|_| Ok("receipt".into()));
    let handler = |cx: adopt::Staged<World>, _row: Snooze| async move {
        let world = cx.state().clone();
        if world.calls().is_empty() {
            let _: String = cx.effect("mail-1", |key| async move { world.call(key.into()) }).await?;
            return cx.begin().await?.keep().ok();
        }
        match cx.attempt() {
            1 => Err(Fail::retry("the second occasion fails once")),
            _ => Err(rowlock::AlreadyHandled.into()),
        }
    };
    let worker = opened(&bed.rowlock).await.worker().state(world.clone());
    let worker = worker.handle(soon(staged(handler)));
    let counters = runs_until(worker, "it to end", |c| {
        c.settled(Ended::Retired) == 1 || c.settled(Ended::Done) == 2
    })
    .await;
    assert_eq!((counters.settled(Ended::Retired), counters.already_handled()), (0, 1));
    assert_eq!(world.calls().len(), 1);
}

async fn a_reconciler_answers_the_doubt_of_a_row(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|_| Err(Fail::retry("no answer")));
    let handler = |cx: adopt::Staged<World>, _row: Snooze| async move {
        let world = cx.state().clone();
        let receipt: String = cx
            .effect("mail", |key| async move { world.call(key.into()) })
            .ask(|_| async { Ok::<_, Fail>(rowlock::Verdict::Happened("receipt".to_owned())) })
            .await?;
        assert_eq!(receipt, "receipt");
        cx.done().ok()
    };
    let worker = opened(&bed.rowlock).await.worker().state(world.clone());
    worked_off(worker.handle(soon(staged(handler))), 1).await;
    assert_eq!(world.calls().len(), 1, "what the reconciler says is final");
}

async fn a_row_that_asks_for_something_else_under_the_same_name_is_a_case(mut bed: Bed) {
    fill(&mut bed.eye, 1).await;
    let world = World::new(|_| Err(Fail::retry("no answer")));
    let handler = |cx: adopt::Staged<World>, _row: Snooze| async move {
        let (world, amount) = (cx.state().clone(), cx.attempt());
        let call = cx.effect("mail", |key| async move { world.call(key.into()) });
        let _: String = call.request(&amount).await?;
        cx.done().ok()
    };
    let worker = opened(&bed.rowlock).await.worker().state(world.clone());
    let worker = worker.handle(soon(staged(handler)));
    runs_until(worker, "it to be retired", |c| c.settled(Ended::Retired) == 1).await;
    let said = stand(&mut bed.eye, 1).await.last_error.unwrap();
    assert!(said.contains("was begun with a different request"), "{said}");
    assert_eq!(world.calls().len(), 1);
}

on_postgresql!(
    work_found_done_after_a_call_of_an_earlier_attempt_is_a_case,
    calls_of_an_occasion_that_is_over_do_not_make_a_case_of_a_later_one,
    a_reconciler_answers_the_doubt_of_a_row,
    a_row_that_asks_for_something_else_under_the_same_name_is_a_case,
    work_found_done_after_a_call_is_a_case_and_not_a_quiet_success,
    a_call_is_made_again_under_the_same_key,
    a_call_that_did_not_happen_leaves_no_doubt,
    a_reply_that_is_stored_is_not_asked_for_again,
    a_parked_doubt_is_a_case_and_reopening_it_says_that_it_did_not_happen,
    a_parked_doubt_outlives_every_retention,
    an_answer_that_comes_late_is_kept_from_then_on,
    a_table_that_is_renamed_with_its_entry_keeps_its_keys,
    an_effect_needs_a_name_of_its_own,
);
