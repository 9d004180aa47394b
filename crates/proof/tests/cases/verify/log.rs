//! Verify, on what is left of attempts: the outcome log, effects, keys and the ledger, each broken by hand.

use rowlock::{JobId, observe::Invariant};

use super::{
    Bed,
    rules::{breaks, history, verify},
};

async fn an_attempt_with_two_outcomes_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    // SQLite has a unique index in the way, and its absence is noticed too.
    let (way, broken): (_, &[_]) = match bed.database.is_sqlite() {
        true => (
            "drop index rowlock.outcome_id;",
            &[Invariant::Indexes, Invariant::Outcomes],
        ),
        false => ("", &[Invariant::Outcomes]),
    };
    let id = jobs.done;
    let damage =
        format!("{way} insert into rowlock.outcome select * from rowlock.outcome where id = {id} and epoch = 2");
    breaks(
        bed,
        &damage,
        broken,
        Some(id),
        "the attempt of epoch 2 has two outcomes",
    )
    .await;
}

async fn an_attempt_without_an_outcome_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let damage = format!("delete from rowlock.outcome where id = {} and epoch = 2", jobs.done);
    let says = "no outcome between those of epoch 1 and 3";
    breaks(bed, &damage, &[Invariant::Outcomes], Some(jobs.done), says).await;
}

async fn an_outcome_that_nobody_knows_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let way = match bed.database.is_sqlite() {
        true => "pragma ignore_check_constraints = on;",
        false => "",
    };
    let id = jobs.done;
    let damage = format!("{way} update rowlock.outcome set outcome = 'won' where id = {id} and epoch = 2");
    let says = "an outcome that nobody knows: won";
    breaks(bed, &damage, &[Invariant::Outcomes], Some(id), says).await;
}

async fn attempts_that_were_miscounted_are_named(bed: &Bed) {
    let jobs = history(bed).await;
    let id = jobs.done;
    for (damage, mend, says) in [
        (
            format!("update rowlock.outcome set attempt = 1 where id = {id} and epoch = 2"),
            format!("update rowlock.outcome set attempt = 2 where id = {id} and epoch = 2"),
            "the attempt of epoch 2 was number 1, but 2 by the outcome before it",
        ),
        (
            format!("update rowlock.outcome set outcome = 'deferred' where id = {id} and epoch = 2"),
            format!("update rowlock.outcome set outcome = 'retried' where id = {id} and epoch = 2"),
            "the attempt of epoch 3 was number 3, but 2 by the outcome before it",
        ),
        (
            format!("update rowlock.job set attempts_max = 2 where id = {id}"),
            format!("update rowlock.job set attempts_max = 3 where id = {id}"),
            "attempt 3 of 2 ended",
        ),
    ] {
        breaks(bed, &damage, &[Invariant::Attempts], Some(id), says).await;
        bed.run(&mend).await;
    }
    let damage = format!(
        "update rowlock.ready set attempt = attempts_max where id = {}",
        jobs.again
    );
    let says = "is ready after 3 attempts of 3";
    breaks(bed, &damage, &[Invariant::Attempts], Some(jobs.again), says).await;
}

async fn what_follows_the_end_of_a_job_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let id = jobs.paid;
    let again = |id: JobId| {
        format!(
            "insert into rowlock.outcome (id, epoch, worker, attempt, outcome, started_at, ended_at)
             select id, epoch + 1, worker, 1, outcome, started_at, ended_at from rowlock.outcome where id = {id}"
        )
    };
    let says = "is done since epoch 1, and has an outcome of epoch 2";
    breaks(bed, &again(id), &[Invariant::Endings], Some(id), says).await;
    bed.run(&format!("delete from rowlock.outcome where id = {id} and epoch = 2"))
        .await;

    let id = jobs.case;
    let damage = format!("{}; update rowlock.case_file set epoch = 2 where id = {id}", again(id));
    let says = "was retired 1 times and went on, but was reopened 0 times";
    breaks(bed, &damage, &[Invariant::Endings], Some(id), says).await;
}

async fn a_reopening_that_nobody_noted_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let damage = format!("delete from rowlock.audit where id = {}", jobs.reopened);
    let says = "was retired 1 times and went on, but was reopened 0 times";
    breaks(bed, &damage, &[Invariant::Endings], Some(jobs.reopened), says).await;
}

async fn a_job_that_stands_where_no_outcome_led_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let ready = |id: JobId, epoch: i64| {
        format!(
            "insert into rowlock.ready (queue_no, kind_no, alone, priority, due_at, id, epoch, attempt, attempts_max)
             select queue_no, kind_no, alone, priority, due_at, {id}, {epoch}, 0, attempts_max
             from rowlock.ready where id = {}",
            jobs.fresh
        )
    };
    let from_case = format!(
        "{}; delete from rowlock.case_file where id = {}",
        ready(jobs.case, 1),
        jobs.case
    );
    for (damage, id, says) in [
        (
            ready(jobs.done, 3),
            jobs.done,
            "is ready, but its last attempt ended as done",
        ),
        (from_case, jobs.case, "is ready, but its last attempt ended as retired"),
    ] {
        breaks(bed, &damage, &[Invariant::Stands], Some(id), says).await;
        let mend = format!("update rowlock.outcome set outcome = 'deferred', attempt = 1 where id = {id}");
        bed.run(&mend).await;
    }
    let to_case = format!(
        "insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
         select r.id, r.epoch, r.attempt, r.attempts_max, r.queue_no, r.kind_no, r.priority, 'why', r.due_at, '[]'
         from rowlock.ready r where id = {0}; delete from rowlock.ready where id = {0}",
        jobs.again
    );
    let says = "is case, but its last attempt ended as retried";
    breaks(bed, &to_case, &[Invariant::Stands], Some(jobs.again), says).await;
}

async fn a_job_whose_epoch_was_never_reached_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let (again, fresh) = (jobs.again, jobs.fresh);
    let damage = format!("update rowlock.ready set epoch = 5 where id = {again}");
    let says = "is ready under epoch 5, but its last outcome is of epoch 1";
    breaks(bed, &damage, &[Invariant::Stands], Some(again), says).await;
    let mend = format!("update rowlock.ready set epoch = 1 where id = {again}");
    bed.run(&mend).await;
    let damage = format!("update rowlock.ready set epoch = 2 where id = {fresh}");
    let says = "is ready under epoch 2, but no attempt of it ended";
    breaks(bed, &damage, &[Invariant::Stands], Some(fresh), says).await;
}

async fn a_job_that_is_nowhere_without_an_end_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let fresh = format!("delete from rowlock.ready where id = {}", jobs.fresh);
    let says = "stands nowhere, and no attempt of it ended";
    breaks(bed, &fresh, &[Invariant::Finished], Some(jobs.fresh), says).await;
    bed.run(&format!("delete from rowlock.job where id = {}", jobs.fresh))
        .await;
    let again = format!("delete from rowlock.ready where id = {}", jobs.again);
    let says = "stands nowhere, but its last attempt ended as retried";
    breaks(bed, &again, &[Invariant::Finished], Some(jobs.again), says).await;
}

async fn what_is_wrong_with_an_effect_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let id = jobs.paid;
    for (damage, says) in [
        (
            "set key = 'another:call'",
            "\"call\" has another key than its job gives it",
        ),
        ("set reply = null", "is replied, and its reply says otherwise"),
        ("set state = 'undone'", "is undone, and its reply says otherwise"),
        ("set ended_at = null", "is replied, and its time says otherwise"),
        ("set epoch = 2", "is of epoch 2, which its job has not come to"),
    ] {
        bed.run("create table kept as select * from rowlock.effect").await;
        let damage = format!("update rowlock.effect {damage}");
        breaks(bed, &damage, &[Invariant::Effects], Some(id), says).await;
        let mend = "update rowlock.effect set (key, reply, state, ended_at, epoch) =
            (select key, reply, state, ended_at, epoch from kept); drop table kept";
        bed.run(mend).await;
    }
    let damage = format!("delete from rowlock.job where id = {id}");
    breaks(bed, &damage, &[Invariant::Effects], Some(id), "\"call\" has no job").await;
}

async fn an_effect_that_is_there_twice_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let damage = match bed.database.is_sqlite() {
        // A table's own constraint goes only with the table.
        true => {
            "drop view rowlock.effects; alter table rowlock.effect rename to kept;
             create table rowlock.effect as select * from kept; drop table kept;
             insert into rowlock.effect select * from rowlock.effect"
        }
        false => {
            "alter table rowlock.effect drop constraint effect_id_name_key;
             insert into rowlock.effect (id, name, key, state, policy, tries, epoch, worker, begun_at, deadline_at, ended_at, reply)
             select id, name, key, state, policy, tries, epoch, worker, begun_at, deadline_at, ended_at, reply from rowlock.effect"
        }
    };
    let broken = [Invariant::Indexes, Invariant::Effects];
    breaks(bed, damage, &broken, Some(jobs.paid), "\"call\" is there twice").await;
}

async fn what_is_wrong_with_a_key_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let id = jobs.done;
    let another = "insert into rowlock.job_key (key, id, fingerprint, hold, made_at)
        select 'another', id, fingerprint, hold, made_at from rowlock.job_key";
    let says = "key \"another\" is one of several of its job";
    breaks(bed, another, &[Invariant::Keys], Some(id), says).await;
    bed.run("delete from rowlock.job_key where key = 'another'").await;

    let period = "update rowlock.job_key set hold = 'period'";
    let says = "key \"done\" is held by period, and its end says otherwise";
    breaks(bed, period, &[Invariant::Keys], Some(id), says).await;
    bed.run("update rowlock.job_key set hold = 'ever'").await;

    let pruned = format!("delete from rowlock.job where id = {id}");
    bed.run(&pruned).await;
    assert!(
        verify(bed).await.holds(),
        "the body of a case may go before its log does"
    );
    let damage = format!("delete from rowlock.outcome where id = {id}");
    let says = "key \"done\" names a job that was never enqueued";
    breaks(bed, &damage, &[Invariant::Keys], Some(id), says).await;
}

async fn an_entry_without_its_end_is_named(bed: &Bed) {
    history(bed).await;
    let damage = "update rowlock.ledger set hold = 'period'";
    let says = "entry \"entry\" is held by period, and its end says otherwise";
    breaks(bed, damage, &[Invariant::Ledger], None, says).await;
}

mod tests {
    super::super::cases!(
        an_attempt_with_two_outcomes_is_named,
        an_attempt_without_an_outcome_is_named,
        an_outcome_that_nobody_knows_is_named,
        attempts_that_were_miscounted_are_named,
        what_follows_the_end_of_a_job_is_named,
        a_reopening_that_nobody_noted_is_named,
        a_job_that_stands_where_no_outcome_led_is_named,
        a_job_whose_epoch_was_never_reached_is_named,
        a_job_that_is_nowhere_without_an_end_is_named,
        what_is_wrong_with_an_effect_is_named,
        an_effect_that_is_there_twice_is_named,
        what_is_wrong_with_a_key_is_named,
        an_entry_without_its_end_is_named,
    );
}
