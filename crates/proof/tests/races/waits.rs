//! Waits: enqueue, completion and the sweep in transactions that are open at the same time.

use std::time::{Duration, Instant};

use proof::bed::until;
use rowlock::{BegunByHand, Completed, Error, Job, JobId, State, atomic, postgres::Worker};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, Row};
use tokio_util::sync::CancellationToken;

use crate::steps::{
    reopen,
    session::{Bed, Session},
    sql,
};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "approved", attempts = 3)]
struct Approved {}

type Time = Option<jiff_sqlx::Timestamp>;

async fn enqueue(bed: &Bed, pg: &mut PgConnection, limit_ms: u64) -> JobId {
    let mut tx = BegunByHand::new(pg);
    let job = bed.rowlock.enqueue(&mut tx, Approved {}).waits_for("approval");
    let limit = Duration::from_millis(limit_ms);
    job.wait_limit(limit).await.unwrap().id()
}

async fn complete(bed: &Bed, pg: &mut PgConnection) -> Completed {
    bed.rowlock
        .complete(&mut BegunByHand::new(pg), "approval", &"yes")
        .await
        .unwrap()
}

/// First half of a sweep: moves what is completed.
async fn move_completed(pg: &mut PgConnection) -> usize {
    let moved = sqlx::query(sql!("wait/completed")).bind(500i32).bind(None as Time);
    moved.fetch_all(pg).await.unwrap().len()
}

/// Second half: ends what is past its limit.
async fn end_over(pg: &mut PgConnection) -> Vec<JobId> {
    let over = sqlx::query(sql!("wait/over")).bind(500i32).bind(None as Time);
    let over = over.bind("not completed: ").bind("expired: ");
    let rows = over.fetch_all(pg).await.unwrap();
    rows.iter().map(|row| row.get("id")).collect()
}

async fn state(bed: &Bed, id: JobId) -> State {
    bed.rowlock.observe().job(id).await.unwrap().unwrap().state
}

/// In exactly one place, or finished.
async fn stands(bed: &mut Bed, id: JobId) -> (State, i64) {
    let places = "select (select count(*) from rowlock.waiting where id = $1)
      + (select count(*) from rowlock.ready where id = $1) + (select count(*) from rowlock.lease where id = $1)
      + (select count(*) from rowlock.case_file where id = $1)";
    let places = sqlx::query_scalar(places).bind(id).fetch_one(&mut bed.eye).await;
    (state(bed, id).await, places.unwrap())
}

/// Both transactions are open when the other acts, so neither sees the other, whichever commits first.
async fn an_enqueue_and_a_completion_that_did_not_see_each_other_meet_in_the_next_sweep(mut bed: Bed) {
    for completion_first in [true, false] {
        sqlx::raw_sql("delete from rowlock.completion")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        let (mut producer, mut approver) = (bed.session().await, bed.session().await);
        producer.begin().await;
        approver.begin().await;
        let id = enqueue(&bed, &mut producer.pg, 60_000).await;
        assert_eq!(complete(&bed, &mut approver.pg).await, Completed::Now(0));
        let (first, second) = match completion_first {
            true => (&mut approver, &mut producer),
            false => (&mut producer, &mut approver),
        };
        first.commit().await;
        second.commit().await;
        assert_eq!(stands(&mut bed, id).await, (State::Waiting, 1), "neither saw the other");

        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let worker = Worker::new(&bed.rowlock).queue("default", 1).handle(atomic(
            |_: rowlock::postgres::Ctx, _: Approved, tx: rowlock::postgres::Tx| async move { tx.done().ok() },
        ));
        let began = Instant::now();
        let running = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
        until("the sweep", Duration::from_secs(20), async || {
            (state(&bed, id).await == State::Finished).then_some(())
        })
        .await;
        println!("found and done {:?} after the worker's start", began.elapsed());
        stop.cancel();
        running.await.unwrap().unwrap();
    }
}

async fn a_completion_waits_for_its_twin_and_then_answers(mut bed: Bed) {
    for (commits, answer) in [(false, Completed::Now(1)), (true, Completed::Already)] {
        let mut other = bed.session().await;
        sqlx::raw_sql("delete from rowlock.completion")
            .execute(&mut other.pg)
            .await
            .unwrap();
        let id = enqueue(&bed, &mut other.pg, 60_000).await;
        other.begin().await;
        assert_eq!(complete(&bed, &mut other.pg).await, Completed::Now(1));
        let waits = bed.session().await;
        let (pid, rowlock) = (waits.pid, bed.rowlock.clone());
        let waits = waits.start(async move |pg| {
            rowlock
                .complete(&mut BegunByHand::new(pg), "approval", &"no")
                .await
                .unwrap()
        });
        bed.blocked(pid).await;
        match commits {
            true => other.commit().await,
            false => other.rollback().await,
        }
        let (_session, said) = waits.await.unwrap();
        assert_eq!(said, answer);
        assert_eq!(stands(&mut bed, id).await, (State::Ready, 1));
        sqlx::raw_sql("delete from rowlock.ready")
            .execute(&mut bed.eye)
            .await
            .unwrap();
    }
}

/// A completion holds the job when its limit passes: the sweep leaves it alone until it is known how that ends.
async fn a_limit_does_not_end_what_a_completion_is_moving(mut bed: Bed) {
    for commits in [true, false] {
        let mut approver = bed.session().await;
        let id = enqueue(&bed, &mut approver.pg, 0).await;
        approver.begin().await;
        assert_eq!(complete(&bed, &mut approver.pg).await, Completed::Now(1));
        assert_eq!(end_over(&mut bed.eye).await, [], "held by the completion");
        match commits {
            true => approver.commit().await,
            false => approver.rollback().await,
        }
        let over = end_over(&mut bed.eye).await;
        match commits {
            true => assert_eq!(
                (over.as_slice(), stands(&mut bed, id).await),
                (&[][..], (State::Ready, 1))
            ),
            false => assert_eq!(
                (over.as_slice(), stands(&mut bed, id).await),
                (&[id][..], (State::Case, 1))
            ),
        }
        sqlx::raw_sql("delete from rowlock.completion")
            .execute(&mut bed.eye)
            .await
            .unwrap();
    }
}

/// The other way round: the sweep holds the job, the completion waits for it and finds it gone.
async fn a_completion_does_not_move_what_a_limit_has_ended(mut bed: Bed) {
    let mut sweeper = bed.session().await;
    let id = enqueue(&bed, &mut sweeper.pg, 0).await;
    sweeper.begin().await;
    assert_eq!(end_over(&mut sweeper.pg).await, [id]);
    let approver = bed.session().await;
    let (pid, rowlock) = (approver.pid, bed.rowlock.clone());
    let approver = approver.start(async move |pg| {
        rowlock
            .complete(&mut BegunByHand::new(pg), "approval", &"late")
            .await
            .unwrap()
    });
    bed.blocked(pid).await;
    sweeper.commit().await;
    let (_session, said) = approver.await.unwrap();
    assert_eq!(
        (said, stands(&mut bed, id).await),
        (Completed::Now(0), (State::Case, 1))
    );
    assert!(reopen(&mut bed.eye, id.into()).await.unwrap());
    assert_eq!(
        stands(&mut bed, id).await,
        (State::Ready, 1),
        "what it waited for has come meanwhile"
    );
}

async fn two_sweeps_at_once_move_and_end_each_job_once(mut bed: Bed) {
    let mut producer = bed.session().await;
    let over = enqueue(&bed, &mut producer.pg, 0).await;
    let (mut one, mut other) = (bed.session().await, bed.session().await);
    one.begin().await;
    assert_eq!(end_over(&mut one.pg).await, [over]);
    assert_eq!(end_over(&mut other.pg).await, [], "skipped, not waited for");
    one.commit().await;
    assert_eq!(bed.outcomes(over).await, ["retired"]);

    producer.begin().await;
    let moved = enqueue(&bed, &mut producer.pg, 60_000).await;
    assert_eq!(complete(&bed, &mut bed.session().await.pg).await, Completed::Now(0));
    producer.commit().await;
    one.begin().await;
    assert_eq!(move_completed(&mut one.pg).await, 1);
    assert_eq!(move_completed(&mut other.pg).await, 0, "skipped, not waited for");
    one.commit().await;
    assert_eq!(stands(&mut bed, moved).await, (State::Ready, 1));
}

/// A reopen and a completion that do not see each other leave the job waiting, for the sweep to find.
async fn a_reopen_and_a_completion_that_did_not_see_each_other_meet_in_the_sweep(mut bed: Bed) {
    let id = enqueue(&bed, &mut bed.session().await.pg, 0).await;
    assert_eq!(end_over(&mut bed.eye).await, [id]);
    let (mut person, mut approver) = (bed.session().await, bed.session().await);
    person.begin().await;
    approver.begin().await;
    assert!(reopen(&mut person.pg, id.into()).await.unwrap());
    assert_eq!(complete(&bed, &mut approver.pg).await, Completed::Now(0));
    person.commit().await;
    approver.commit().await;
    assert_eq!(stands(&mut bed, id).await, (State::Waiting, 1));
    assert_eq!(move_completed(&mut bed.eye).await, 1);
    assert_eq!(stands(&mut bed, id).await, (State::Ready, 1));
}

/// With a stale snapshot the completion cannot see the job; the sweep does. A concurrent
/// completion that came first asks for another try.
async fn a_completion_in_a_stricter_transaction_loses_nothing(mut bed: Bed) {
    for level in ["repeatable read", "serializable"] {
        sqlx::raw_sql("delete from rowlock.completion")
            .execute(&mut bed.eye)
            .await
            .unwrap();
        let begin = async |session: &mut Session| match level {
            "serializable" => session.run("begin isolation level serializable; select 1").await,
            _ => session.run("begin isolation level repeatable read; select 1").await,
        };
        let (mut strict, mut twin) = (bed.session().await, bed.session().await);
        begin(&mut strict).await;
        begin(&mut twin).await;
        let id = enqueue(&bed, &mut bed.session().await.pg, 60_000).await;
        assert_eq!(
            complete(&bed, &mut strict.pg).await,
            Completed::Now(0),
            "{level}: its snapshot is older"
        );
        strict.commit().await;
        let said = bed
            .rowlock
            .complete(&mut BegunByHand::new(&mut twin.pg), "approval", &"no")
            .await
            .unwrap_err();
        assert!(
            matches!(said, Error::TryAgain { .. }) && said.is_retryable(),
            "{level}: {said:?}"
        );
        twin.rollback().await;
        assert_eq!(
            complete(&bed, &mut twin.pg).await,
            Completed::Already,
            "{level}: tried again"
        );
        assert_eq!(stands(&mut bed, id).await, (State::Waiting, 1));
        assert_eq!(move_completed(&mut bed.eye).await, 1, "{level}");
        assert_eq!(stands(&mut bed, id).await, (State::Ready, 1));
    }
}

async fn the_body_of_a_waiting_job_is_kept_however_old_it_is(mut bed: Bed) {
    let id = enqueue(&bed, &mut bed.session().await.pg, 60_000).await;
    let old = "update rowlock.job set created_at = now() - interval '400 days'";
    sqlx::raw_sql(old).execute(&mut bed.eye).await.unwrap();
    let prune = sqlx::query_scalar::<_, i64>(sql!("job/prune"))
        .bind(jiff_sqlx::ToSqlx::to_sqlx(jiff::Timestamp::now()))
        .bind(5000i64);
    assert_eq!(prune.fetch_one(&mut bed.eye).await.unwrap(), 0);
    assert_eq!(stands(&mut bed, id).await, (State::Waiting, 1));
}

/// The notification is sent with the commit of the completion, and dropped with its rollback.
async fn a_completion_that_rolls_back_leaves_not_even_a_wake(mut bed: Bed) {
    let mut heard = sqlx::postgres::PgListener::connect(&bed.url).await.unwrap();
    let mut approver = bed.session().await;
    for queue in ["never", "kept"] {
        let mut tx = BegunByHand::new(&mut approver.pg);
        let job = bed.rowlock.enqueue(&mut tx, Approved {}).queue(queue);
        let _ = job.waits_for(queue).await.unwrap();
    }
    heard.listen("rowlock_wake").await.unwrap();
    for (name, commits) in [("never", false), ("kept", true)] {
        approver.begin().await;
        let said = bed
            .rowlock
            .complete(&mut BegunByHand::new(&mut approver.pg), name, &1)
            .await
            .unwrap();
        assert_eq!(said, Completed::Now(1));
        match commits {
            true => approver.commit().await,
            false => approver.rollback().await,
        }
    }
    let kept = bed.count("select queue_no from rowlock.ready").await.to_string();
    let first = tokio::time::timeout(Duration::from_secs(5), heard.recv()).await;
    assert_eq!(
        first.unwrap().unwrap().payload(),
        kept,
        "the first wake heard is that of the commit"
    );
}

races!(
    an_enqueue_and_a_completion_that_did_not_see_each_other_meet_in_the_next_sweep,
    a_completion_waits_for_its_twin_and_then_answers,
    a_completion_that_rolls_back_leaves_not_even_a_wake,
    a_limit_does_not_end_what_a_completion_is_moving,
    a_completion_does_not_move_what_a_limit_has_ended,
    two_sweeps_at_once_move_and_end_each_job_once,
    a_reopen_and_a_completion_that_did_not_see_each_other_meet_in_the_sweep,
    a_completion_in_a_stricter_transaction_loses_nothing,
    the_body_of_a_waiting_job_is_kept_however_old_it_is,
);
