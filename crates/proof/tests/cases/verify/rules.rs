//! Verify: each invariant, broken by hand, is named with its job; and what is healthy never alarms.

use std::time::Duration;

use rowlock::{
    Fail, Once, State, atomic,
    observe::{CheckState, Invariant, Verification, VerifyLimits},
    staged,
};
use sqlx::Connection;

use super::db::{Ctx, Outcome, Staged, Tx};
use super::{AT_ONCE, Bed, Note, Other, Running, fail, until};

const HOUR: Duration = Duration::from_secs(3600);

/// A job in each state that has a separate history.
pub(crate) struct Jobs {
    /// Two failures, then done, under a key.
    pub(crate) done: i64,
    /// Failed once, and ready in an hour.
    pub(crate) again: i64,
    /// Retired by its first attempt.
    pub(crate) case: i64,
    /// Retired, reopened, done.
    pub(crate) reopened: i64,
    /// Ready in an hour, never claimed.
    pub(crate) fresh: i64,
    /// For `name` to be completed.
    pub(crate) waits: i64,
    /// Done, with one effect that was replied to.
    pub(crate) paid: i64,
}

async fn handler(cx: Ctx, job: Note, tx: Tx) -> Outcome {
    match (job.text.as_str(), cx.attempt(), cx.epoch()) {
        ("done", 1 | 2, _) => fail("not yet"),
        ("again", ..) => fail(Fail::retry_after(HOUR, "later")),
        ("case", ..) | ("reopened", _, 1) => fail(Fail::retire("no")),
        _ => tx.done().ok(),
    }
}

async fn pay(cx: Staged, _: Other) -> Outcome {
    cx.effect("call", |_| async { Ok::<_, Fail>(1) }).await?;
    cx.done().ok()
}

/// Made by the engine itself, and sound.
pub(crate) async fn history(bed: &Bed) -> Jobs {
    let put = |text: &str| bed.rowlock.enqueue_now(Note::new(text));
    let jobs = Jobs {
        done: put("done").key("done").await.unwrap().id(),
        again: put("again").await.unwrap().id(),
        case: put("case").await.unwrap().id(),
        reopened: put("reopened").await.unwrap().id(),
        fresh: put("fresh").after(HOUR).await.unwrap().id(),
        waits: put("waits").waits_for("name").await.unwrap().id(),
        paid: bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id(),
    };
    let worker = bed
        .worker()
        .handle(atomic(handler).backoff(AT_ONCE))
        .handle(staged(pay));
    let running = Running::start(worker);
    for id in [jobs.done, jobs.case, jobs.reopened, jobs.paid] {
        let stands = async || matches!(bed.job(id).await.state, State::Finished | State::Case);
        until("each job to stand still", stands).await;
    }
    bed.rowlock.operate().reopen(jobs.reopened, "tess").await.unwrap();
    until("the reopened one", async || {
        bed.job(jobs.reopened).await.state == State::Finished && bed.attempts(jobs.again).await.len() == 1
    })
    .await;
    running.stop().await;
    let mut conn = bed.conn().await;
    let mut tx = conn.begin().await.unwrap();
    let once = bed.rowlock.once(&mut tx, "entry").await.unwrap();
    assert!(matches!(once, Once::First(_)));
    tx.commit().await.unwrap();
    if !bed.database.is_sqlite() {
        // Beyond the first hour of the oldest day, so that what a check can judge does not depend on the time of day.
        bed.run(
            "do $$ declare day date := (now() at time zone 'utc')::date - 1; begin
               execute format('create table rowlock.outcome_%s partition of rowlock.outcome for values from (%L) to (%L)',
                 to_char(day, 'YYYYMMDD'), day::text || ' 00:00+00', (day + 1)::text || ' 00:00+00');
             end $$",
        )
        .await;
    }
    jobs
}

pub(crate) async fn verify(bed: &Bed) -> Verification {
    let limits = VerifyLimits::new();
    bed.rowlock.observe().verify(&limits).await.unwrap()
}

/// Runs the damage; then exactly these are broken, and the last one names this job and says so.
pub(crate) async fn breaks(bed: &Bed, damage: &str, broken: &[Invariant], job: Option<i64>, says: &str) {
    assert!(verify(bed).await.holds(), "{:?}", verify(bed).await);
    bed.run(damage).await;
    let seen = verify(bed).await;
    let not_held: Vec<Invariant> = (seen.checks.iter())
        .filter(|c| c.state != CheckState::Holds)
        .map(|c| c.invariant)
        .collect();
    assert_eq!(not_held, broken, "{damage}: {seen:?}");
    let check = seen
        .checks
        .iter()
        .find(|c| Some(&c.invariant) == broken.last())
        .unwrap();
    let late = check.invariant.is_a_matter_of_time();
    assert_eq!(check.state == CheckState::Late, late);
    assert!(check.broken >= 1 && check.looked >= 1, "{check:?}");
    let named = check.breaches.iter().any(|b| b.job == job && b.what.contains(says));
    assert!(named, "{says:?} of {job:?} is not in {check:?}");
}

/// What a job needs to be in another place, made from its row in this one.
fn file(table: &str, id: i64) -> String {
    format!(
        "insert into rowlock.case_file (id, epoch, attempt, attempts_max, queue_no, kind_no, priority, reason, retired_at, history)
         select t.id, t.epoch, t.attempt, t.attempts_max, t.queue_no, t.kind_no, t.priority, 'why', j.created_at, '[]'
         from rowlock.{table} t join rowlock.job j on j.id = t.id where t.id = {id}"
    )
}

/// Puts a ready job under the lease of worker 77, which has just beaten.
async fn lease(bed: &Bed, id: i64) {
    bed.run(&format!(
        "insert into rowlock.worker (id, name, lease_ms, beat, started_at)
           select 77, 'by hand', 15000, created_at, created_at from rowlock.job where id = {id};
         insert into rowlock.lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, claimed_at)
           select r.id, r.epoch + 1, 77, r.attempt + 1, r.attempts_max, r.queue_no, r.kind_no, r.alone, r.priority, j.created_at
           from rowlock.ready r join rowlock.job j on j.id = r.id where r.id = {id};
         delete from rowlock.ready where id = {id}"
    ))
    .await;
}

/// So many minutes, to be taken from a time.
fn minutes(bed: &Bed, minutes: i64) -> String {
    match bed.database.is_sqlite() {
        true => (minutes * 60_000_000).to_string(),
        false => format!("interval '{minutes} minutes'"),
    }
}

async fn a_database_that_the_engine_wrote_holds(bed: &Bed) {
    assert!(verify(bed).await.holds(), "an empty one too");
    history(bed).await;
    let seen = verify(bed).await;
    assert!(seen.holds(), "{seen:?}");
    let found: Vec<Invariant> = seen.checks.iter().map(|c| c.invariant).collect();
    assert_eq!(found, Invariant::ALL);
    let blind = [Invariant::Owners, Invariant::Leases];
    for check in seen.checks {
        assert!(check.whole && check.breaches.is_empty(), "{check:?}");
        assert_eq!(check.looked == 0, blind.contains(&check.invariant), "{check:?}");
    }
}

async fn a_migration_that_was_left_out_is_named(bed: &Bed) {
    let damage = "insert into rowlock.migration (version, name, oldest) values (3, 'later', 1)";
    breaks(bed, damage, &[Invariant::Schema], None, "migration 2 has not run").await;
}

async fn an_index_that_is_missing_or_decides_nothing_is_named(bed: &Bed) {
    let damage = "drop index rowlock.ready_order";
    let says = "ready_order is missing";
    breaks(bed, damage, &[Invariant::Indexes], None, says).await;
    let on = match bed.database.is_sqlite() {
        true => "create index rowlock_ready_order on rowlock_ready (due_at)",
        false => "create index ready_order on rowlock.ready (due_at)",
    };
    bed.run_as_it_is(on).await;
    let seen = verify(bed).await;
    let check = seen.that(CheckState::Broken).next().unwrap();
    assert!(
        check.breaches[0].what.ends_with("ready_order is not unique"),
        "{check:?}"
    );
}

async fn every_index_is_looked_at(bed: &Bed) {
    let count = match bed.database.is_sqlite() {
        true => "select count(*) from sqlite_schema where type = 'index' and tbl_name like 'rowlock%'",
        false => {
            "select count(*) from pg_index i join pg_class c on c.oid = i.indexrelid
             where c.relnamespace = 'rowlock'::regnamespace and not c.relispartition"
        }
    };
    let all: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(count))
        .fetch_one(&mut bed.conn().await)
        .await
        .unwrap();
    let seen = verify(bed).await;
    let check = seen.checks.iter().find(|c| c.invariant == Invariant::Indexes).unwrap();
    assert_eq!(
        check.looked, all,
        "the list in verify/indexes.sql is not that of the schema"
    );
}

async fn a_job_in_two_places_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    let damage = file("ready", jobs.fresh);
    let says = "stands in several places: ready, case";
    breaks(bed, &damage, &[Invariant::Places], Some(jobs.fresh), says).await;
}

async fn a_leased_job_that_waits_too_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    lease(bed, jobs.fresh).await;
    let damage = format!(
        "insert into rowlock.waiting (id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, limit_ends, since)
         select l.id, 'x', l.queue_no, l.kind_no, l.priority, l.claimed_at, 0, 0, 3, 'retired', l.claimed_at
         from rowlock.lease l where id = {}",
        jobs.fresh
    );
    let says = "several places: waiting, leased";
    breaks(bed, &damage, &[Invariant::Places], Some(jobs.fresh), says).await;
}

async fn a_job_without_its_body_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    for (id, says) in [
        (jobs.fresh, "is ready, but"),
        (jobs.waits, "is waiting"),
        (jobs.case, "is case"),
    ] {
        let damage = format!("create table kept as select * from rowlock.job; delete from rowlock.job where id = {id}");
        breaks(bed, &damage, &[Invariant::Bodies], Some(id), says).await;
        let mend = format!("insert into rowlock.job select * from kept where id = {id}; drop table kept");
        bed.run(&mend).await;
    }
}

async fn two_jobs_of_one_uid_are_named(bed: &Bed) {
    let jobs = history(bed).await;
    let (id, other) = (jobs.fresh, jobs.done);
    let damage =
        format!("update rowlock.job set uid = (select uid from rowlock.job where id = {other}) where id = {id}");
    let says = format!("with job {other}");
    breaks(bed, &damage, &[Invariant::Uids], Some(id), &says).await;
}

async fn a_lease_without_its_worker_is_named(bed: &Bed) {
    let jobs = history(bed).await;
    lease(bed, jobs.fresh).await;
    let damage = "delete from rowlock.worker where id = 77";
    let says = "is leased to worker 77, which is not registered";
    breaks(bed, damage, &[Invariant::Owners], Some(jobs.fresh), says).await;
}

async fn leases_that_nobody_recovers_are_late(bed: &Bed) {
    let jobs = history(bed).await;
    lease(bed, jobs.fresh).await;
    let damage = format!(
        "update rowlock.worker set beat = beat - {} where id = 77",
        minutes(bed, 2)
    );
    let says = "is leased to worker 77, silent for ";
    breaks(bed, &damage, &[Invariant::Leases], Some(jobs.fresh), says).await;
}

async fn waits_that_nobody_ends_are_late(bed: &Bed) {
    let jobs = history(bed).await;
    let id = jobs.waits;
    let long = minutes(bed, 16);
    bed.run(&format!(
        "update rowlock.waiting set limit_at = since - {long} where id = {id}"
    ))
    .await;
    assert!(verify(bed).await.holds(), "over when it began, a moment ago");
    let damage = format!("update rowlock.waiting set since = since - {long} where id = {id}");
    breaks(bed, &damage, &[Invariant::Waits], Some(id), "though its limit was").await;
    let mend = format!(
        "update rowlock.waiting set limit_at = null;
         insert into rowlock.completion (name, completed_at) select 'name', since + {} from rowlock.waiting",
        minutes(bed, 10)
    );
    bed.run(&mend).await;
    assert!(verify(bed).await.holds(), "completed six minutes ago");
    let damage = format!(
        "update rowlock.completion set completed_at = completed_at - {}",
        minutes(bed, 10)
    );
    let says = "waits for \"name\", which was completed at";
    breaks(bed, &damage, &[Invariant::Waits], Some(id), says).await;
}

async fn one_of_a_group_out_of_turn_is_found(bed: &Bed) {
    let put = async || bed.rowlock.enqueue_now(Note::new("x")).group("a").await.unwrap().id();
    let (first, second) = (put().await, put().await);
    assert!(verify(bed).await.holds());
    let columns = "queue_no, kind_no, priority, due_at, id, epoch, attempt, attempts_max";
    let damage = format!(
        "insert into rowlock.ready (alone, {columns}) select alone, {columns} from rowlock.waiting;
         delete from rowlock.waiting"
    );
    let says = format!("is ready, but in group \"a\" it is the turn of {first}");
    breaks(bed, &damage, &[Invariant::Groups], Some(second), &says).await;
}

/// Two of a group; the second has waited for long.
async fn two_of_a_group(bed: &Bed) -> (i64, i64) {
    let put = async || bed.rowlock.enqueue_now(Note::new("x")).group("a").await.unwrap().id();
    let ids = (put().await, put().await);
    let long = minutes(bed, 20);
    bed.run(&format!("update rowlock.waiting set since = since - {long}"))
        .await;
    ids
}

async fn a_turn_that_nobody_passes_on_is_found(bed: &Bed) {
    let (first, second) = two_of_a_group(bed).await;
    let damage = format!("delete from rowlock.ready where id = {first}; delete from rowlock.job where id = {first}");
    let says = format!("waits behind job {first}, which stands nowhere");
    breaks(bed, &damage, &[Invariant::Groups], Some(second), &says).await;
}

async fn a_group_without_its_row_is_found(bed: &Bed) {
    let (first, second) = two_of_a_group(bed).await;
    let damage = format!(
        "delete from rowlock.ready where id = {first}; delete from rowlock.job where id = {first}; delete from rowlock.job_group"
    );
    breaks(
        bed,
        &damage,
        &[Invariant::Groups],
        Some(second),
        "waits in a group that is gone",
    )
    .await;
}

mod tests {
    super::super::cases!(
        one_of_a_group_out_of_turn_is_found,
        a_turn_that_nobody_passes_on_is_found,
        a_group_without_its_row_is_found,
        a_database_that_the_engine_wrote_holds,
        a_migration_that_was_left_out_is_named,
        an_index_that_is_missing_or_decides_nothing_is_named,
        every_index_is_looked_at,
        a_job_in_two_places_is_named,
        a_leased_job_that_waits_too_is_named,
        a_job_without_its_body_is_named,
        two_jobs_of_one_uid_are_named,
        a_lease_without_its_worker_is_named,
        leases_that_nobody_recovers_are_late,
        waits_that_nobody_ends_are_late,
    );
}
