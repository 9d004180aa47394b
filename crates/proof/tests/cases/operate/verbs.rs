//! What people do to single jobs: delay, run now, cancel, each noted in the audit.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use rowlock::{
    Ended, Error, Fail, JobId, State, atomic,
    observe::{AuditFilter, AuditView},
    operate::Target,
    staged,
};
use tokio::sync::Notify;

use super::db::{Ctx, Staged, Tx, Worker};
use super::{Bed, LEASE, Note, Running, fail, note, sql, until};

const HOUR: Duration = Duration::from_secs(3600);

async fn later(bed: &Bed, text: &str) -> JobId {
    bed.rowlock.enqueue_now(Note::new(text)).after(HOUR).await.unwrap().id()
}

/// What the audit says of this job, oldest first: actor, verb, before, after.
async fn noted(bed: &Bed, id: JobId) -> Vec<(String, String, String, String)> {
    let all = format!("select actor, verb, before, after from rowlock.audit where id = {id} order by no");
    let all = sqlx::query_as(sql(&all));
    all.fetch_all(&mut bed.conn().await).await.unwrap()
}

async fn a_scheduled_job_runs_now_and_a_due_one_later(bed: &Bed) {
    let operate = bed.rowlock.operate();
    let (soon, due) = (later(bed, "soon").await, bed.note("due").await);
    let until = Timestamp::now() + HOUR;
    operate.run_now(soon, "tess").await.unwrap();
    operate.delay(due, until, "tess").await.unwrap();
    bed.work(bed.worker().handle(atomic(note)), &[soon]).await;
    let job = bed.job(due).await;
    assert_eq!((job.state, job.attempt), (State::Ready, 0));
    let off = job.due_at.unwrap().duration_since(until).as_micros().abs();
    assert!(off < 2, "due {off} us beside what was asked for");
    let says = noted(bed, soon).await;
    assert_eq!((says[0].0.as_str(), says[0].1.as_str()), ("tess", "run now"));
    assert_eq!(noted(bed, due).await[0].1, "delay");
    operate.delay(due, Timestamp::UNIX_EPOCH, "tess").await.unwrap();
    bed.work(bed.worker().handle(atomic(note)), &[due]).await;
    assert_eq!(bed.ledger().await, 2, "a time in the past means now");
}

async fn what_people_did_is_read_newest_first(bed: &Bed) {
    let (operate, observe) = (bed.rowlock.operate(), bed.rowlock.observe());
    let (first, second) = (bed.note("1").await, bed.note("2").await);
    let until = "2100-01-01T00:00:00Z".parse().unwrap();
    operate.delay(first, until, "tess").await.unwrap();
    operate.cancel(second, Some("a mistake"), "ann").await.unwrap();
    operate.pause(&Target::queue("mail"), "tess").await.unwrap();
    let read = async |filter: AuditFilter| {
        let all = observe.audit(&filter).await.unwrap();
        let line = |one: AuditView| format!("{} {} {:?} {}", one.actor, one.verb, one.job.map(i64::from), one.jobs);
        all.into_iter().map(line).collect::<Vec<_>>()
    };
    let (delay, cancel, pause) = (
        format!("tess delay Some({first}) 1"),
        format!("ann cancel Some({second}) 1"),
        "tess pause None 1".to_owned(),
    );
    assert_eq!(
        read(AuditFilter::new()).await,
        [pause.clone(), cancel.clone(), delay.clone()]
    );
    assert_eq!(read(AuditFilter::new().job(second)).await, [cancel]);
    let by_tess = AuditFilter::new().actor("tess");
    assert_eq!(read(by_tess.clone()).await, [pause, delay.clone()]);
    let all = observe.audit(&by_tess.clone().limit(1)).await.unwrap();
    assert_eq!(all.len(), 1);
    let below = Some(all[0].no);
    assert_eq!(read(by_tess.below(below)).await, [delay]);
    let delayed = &observe.audit(&AuditFilter::new().job(first)).await.unwrap()[0];
    let [before, after] =
        [&delayed.before, &delayed.after].map(|at| at.as_deref().unwrap().parse::<Timestamp>().unwrap());
    assert!(before <= delayed.at && after == until, "{delayed:?}");
}

async fn a_job_that_waits_for_its_turn_may_be_delayed_too(bed: &Bed) {
    let put = async |text: &str| bed.rowlock.enqueue_now(Note::new(text)).group("a").await.unwrap().id();
    let (first, second) = (put("1").await, put("2").await);
    bed.rowlock
        .operate()
        .delay(second, Timestamp::now() + HOUR, "tess")
        .await
        .unwrap();
    bed.work(bed.worker().handle(atomic(note)), &[first]).await;
    let job = bed.job(second).await;
    assert_eq!(job.state, State::Ready, "its turn it is");
    assert!(job.due_at.unwrap() > Timestamp::now() + HOUR / 2);
}

async fn one_that_has_not_started_is_cancelled_at_once(bed: &Bed) {
    let operate = bed.rowlock.operate();
    let waits = bed
        .rowlock
        .enqueue_now(Note::new("x"))
        .waits_for("approval")
        .await
        .unwrap()
        .id();
    for (id, was) in [(bed.note("x").await, "ready"), (waits, "waiting")] {
        operate.cancel(id, Some("a mistake"), "tess").await.unwrap();
        assert_eq!(bed.job(id).await.state, State::Finished);
        let ends = bed.attempts(id).await;
        assert_eq!((ends.len(), ends[0].outcome), (1, Ended::Cancelled));
        assert_eq!(ends[0].error.as_deref(), Some("cancelled by tess: a mistake"));
        let expected = ["tess", "cancel", was, "finished"].map(str::to_owned);
        assert_eq!(noted(bed, id).await, [expected.into()]);
        let again = operate.cancel(id, None, "tess").await.unwrap_err();
        assert!(matches!(again, Error::Conflict(_)), "{again:?}");
    }
    let other = bed.note("other").await;
    bed.work(bed.worker().handle(atomic(note)), &[other]).await;
    assert_eq!(bed.ledger().await, 1, "neither ran");
    assert!(bed.rowlock.observe().verify(&Default::default()).await.unwrap().holds());
}

/// Tells when it is dropped.
struct Told(Arc<Notify>);

impl Drop for Told {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

async fn one_that_runs_is_stopped(bed: &Bed) {
    let (begun, stopped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, gone) = (begun.clone(), stopped.clone());
    let handler = move |cx: Staged, _: Note| {
        let (at, told) = (at.clone(), Told(gone.clone()));
        async move {
            at.notify_one();
            std::future::pending::<()>().await;
            drop(told);
            cx.done().ok()
        }
    };
    let id = bed.note("x").await;
    let worker = Worker::new(&bed.rowlock).queue("default", 1).lease(LEASE).prefetch(0);
    let running = Running::start(worker.handle(staged(handler)));
    begun.notified().await;
    bed.rowlock.operate().cancel(id, None, "tess").await.unwrap();
    tokio::time::timeout(2 * LEASE, stopped.notified()).await.unwrap();
    until("it to be told", async || running.counters.lease_lost() == 1).await;
    running.stop().await;
    assert_eq!(bed.ends(id).await, [Ended::Cancelled]);
}

async fn a_staged_job_that_was_cancelled_cannot_settle(bed: &Bed) {
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (at, gate) = (begun.clone(), go_on.clone());
    let handler = move |cx: Staged, _: Note| {
        let (at, gate) = (at.clone(), gate.clone());
        async move {
            at.notify_one();
            gate.notified().await;
            cx.done().ok()
        }
    };
    let id = bed.note("x").await;
    let running = Running::start(bed.worker().handle(staged(handler)));
    begun.notified().await;
    bed.rowlock.operate().cancel(id, Some("late"), "tess").await.unwrap();
    go_on.notify_one();
    until("it to be told", async || running.counters.lease_lost() == 1).await;
    running.stop().await;
    assert_eq!(bed.ends(id).await, [Ended::Cancelled]);
    assert_eq!(noted(bed, id).await[0].2, "leased");
}

async fn a_cancelled_head_passes_the_turn_on(bed: &Bed) {
    let put = async |text: &str| bed.rowlock.enqueue_now(Note::new(text)).group("a").await.unwrap().id();
    let ids = [put("1").await, put("2").await, put("3").await];
    let operate = bed.rowlock.operate();
    operate.cancel(ids[1], None, "tess").await.unwrap();
    assert_eq!(bed.job(ids[0]).await.state, State::Ready, "it was not its turn");
    operate.cancel(ids[0], None, "tess").await.unwrap();
    assert_eq!(bed.job(ids[2]).await.state, State::Ready);
    bed.work(bed.worker().handle(atomic(note)), &[ids[2]]).await;
    assert_eq!(bed.ledger().await, 1);
}

async fn what_is_over_or_not_there_is_refused_with_a_sentence(bed: &Bed) {
    let done = bed.note("done").await;
    bed.work(bed.worker().handle(atomic(note)), &[done]).await;
    let case = bed.note("case").await;
    let retires = |_: Ctx, _: Note, _: Tx| async move { fail(Fail::retire("no")) };
    bed.work(bed.worker().handle(atomic(retires)), &[case]).await;
    let operate = bed.rowlock.operate();
    for (id, state) in [(done, "finished"), (case, "case")] {
        let said = operate.cancel(id, None, "tess").await.unwrap_err();
        assert_eq!(
            said.to_string(),
            format!("job {id} is {state}, and cannot be cancelled")
        );
        let said = operate.delay(id, Timestamp::now(), "tess").await.unwrap_err();
        assert_eq!(said.to_string(), format!("job {id} is {state}, and cannot be delayed"));
        let said = operate.run_now(id, "tess").await.unwrap_err();
        assert!(matches!(&said, Error::Conflict(_)), "{said:?}");
    }
    let said = operate.cancel(999_999, None, "tess").await.unwrap_err();
    assert!(matches!(&said, Error::NotFound(_)), "{said:?}");
    assert_eq!(said.to_string(), "no job 999999");
    assert_eq!(
        bed.count("select count(*) from rowlock.audit").await,
        0,
        "nothing was done"
    );
}

/// The same from any language: docs/sql.md.
async fn plain_sql_does_the_same_and_is_noted(bed: &Bed) {
    let (delayed, cancelled) = (bed.note("x").await, bed.note("y").await);
    let (delay, cancel, refused) = match bed.database.is_sqlite() {
        true => (
            format!(
                "insert into rowlock_verb (verb, id, actor, at) values ('delay', {delayed}, 'ann', 4102444800000000)"
            ),
            format!(
                "insert into rowlock_verb (verb, id, actor, reason) values ('cancel', {cancelled}, 'ann', 'twice')"
            ),
            "insert into rowlock_verb (verb, id, actor) values ('cancel', 999999, 'ann')".to_owned(),
        ),
        false => (
            format!("select rowlock.delay({delayed}, '2100-01-01T00:00:00Z', 'ann')"),
            format!("select rowlock.cancel({cancelled}, 'twice', 'ann')"),
            "select rowlock.cancel(999999, null, 'ann')".to_owned(),
        ),
    };
    bed.run_as_it_is(&delay).await;
    bed.run_as_it_is(&cancel).await;
    let due: Timestamp = "2100-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(bed.job(delayed).await.due_at, Some(due));
    assert_eq!(bed.ends(cancelled).await, [Ended::Cancelled]);
    assert_eq!(noted(bed, delayed).await[0].1, "delay");
    assert_eq!(noted(bed, cancelled).await[0].0, "ann");
    let said = sqlx::raw_sql(sqlx::AssertSqlSafe(refused))
        .execute(&mut bed.conn().await)
        .await;
    let said = said.unwrap_err().to_string();
    assert!(said.contains("no job 999999") || said.contains("no such job"), "{said}");
}

mod tests {
    super::super::cases!(
        a_scheduled_job_runs_now_and_a_due_one_later,
        a_job_that_waits_for_its_turn_may_be_delayed_too,
        what_people_did_is_read_newest_first,
        one_that_has_not_started_is_cancelled_at_once,
        one_that_runs_is_stopped,
        a_staged_job_that_was_cancelled_cannot_settle,
        a_cancelled_head_passes_the_turn_on,
        what_is_over_or_not_there_is_refused_with_a_sentence,
        plain_sql_does_the_same_and_is_noted,
    );
}
