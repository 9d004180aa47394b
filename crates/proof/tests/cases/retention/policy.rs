//! Retention: what is over goes by policy and not before, and a policy that would forget a key too early is refused.

use std::time::Duration;

use jiff::Timestamp;
use rowlock::{Enqueued, Error, Fail, Hold, Retention, State, atomic, key::Existing};
use sqlx::AssertSqlSafe;

use super::db::{Ctx, TestRig, Tx};
use super::{AT_ONCE, Bed, Note, Other, fail, note};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 3600);

/// A rig and its tables; as `new`, with a plain handler for notes, and one for others that gives up on them.
pub(crate) struct Rigged {
    pub(crate) rig: TestRig,
    pub(crate) tables: String,
}

impl Rigged {
    pub(crate) async fn empty(bed: &Bed) -> Rigged {
        let (rig, tables) = super::db::rig(&bed.database.url).await;
        Rigged { rig, tables }
    }

    pub(crate) async fn new(bed: &Bed) -> Rigged {
        let Rigged { rig, tables } = Rigged::empty(bed).await;
        let done = |_: Ctx, job: Note, tx: Tx| async move { tx.done().result(&job.text).ok() };
        let retired = |_: Ctx, _: Other, _: Tx| async move { fail(Fail::retire("no")) };
        Rigged {
            rig: rig.handle(atomic(done)).handle(atomic(retired)),
            tables,
        }
    }

    async fn put(&self, text: &str, hold: Hold) -> Enqueued {
        let enqueue = self.rig.rowlock().enqueue_now(Note::new(text)).key(text).hold(hold);
        enqueue.await.unwrap()
    }

    /// A note under its own key, and its run.
    async fn finished(&self, text: &str, hold: Hold) -> i64 {
        let id = self.put(text, hold).await.id();
        self.rig.run_once().await.unwrap().expect_done();
        id
    }

    async fn existing(&self, text: &str, hold: Hold) -> Existing {
        super::key::held::existing(self.put(text, hold).await)
    }

    pub(crate) async fn run(&self, text: &str) {
        let text = AssertSqlSafe(text.replace("rowlock.", &self.tables));
        sqlx::raw_sql(text)
            .execute(&mut self.rig.connect().await.unwrap())
            .await
            .unwrap();
    }

    pub(crate) async fn count(&self, text: &str) -> i64 {
        let text = AssertSqlSafe(text.replace("rowlock.", &self.tables));
        sqlx::query_scalar(text)
            .fetch_one(&mut self.rig.connect().await.unwrap())
            .await
            .unwrap()
    }

    /// A time as the database's tables hold it.
    fn at(&self, at: Timestamp) -> String {
        match self.tables.ends_with('_') {
            true => at.as_microsecond().to_string(),
            false => format!("timestamptz '{at}'"),
        }
    }

    pub(crate) fn now(&self) -> String {
        self.at(self.rig.now())
    }

    pub(crate) async fn state(&self, id: i64) -> Option<State> {
        let job = self.rig.rowlock().observe().job(id).await.unwrap();
        job.map(|job| job.state)
    }

    /// How many cases upkeep removed after this time.
    pub(crate) async fn pass(&self, time: Duration, retention: Retention) -> u64 {
        self.rig.advance(time);
        self.rig.upkeep(&retention).await.unwrap()
    }

    /// An intent of this job's, in this state.
    async fn effect(&self, id: i64, name: &str, state: &str) {
        let now = self.now();
        self.run(&format!(
            "insert into rowlock.effect (id, name, key, state, policy, tries, epoch, worker, begun_at, deadline_at) \
             values ({id}, '{name}', 'key', '{state}', 'park', 1, 1, 1, {now}, {now})"
        ))
        .await;
    }
}

const FOR_EVER: Retention = Retention::new()
    .history(Duration::from_secs(14 * 24 * 3600))
    .cases_for_ever()
    .keys_for_ever()
    .audit_for_ever();

async fn a_key_held_by_policy_goes_with_its_time_and_never_while_its_job_is_open(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let keep = FOR_EVER.keys(180 * DAY);
    let over = rigged.finished("over", Hold::Policy).await;
    let ever = rigged.finished("ever", Hold::ForEver).await;
    let case = rigged
        .rig
        .rowlock()
        .enqueue_now(Other { n: 1 })
        .key("case")
        .await
        .unwrap()
        .id();
    rigged.rig.run_once().await.unwrap();
    let later = rigged
        .rig
        .rowlock()
        .enqueue_now(Note::new("later"))
        .key("later")
        .after(400 * DAY);
    let later = later.await.unwrap().id();

    rigged.pass(179 * DAY, keep).await;
    let pruned = rigged.existing("over", Hold::Policy).await;
    assert_eq!(
        (pruned.id, pruned.is_pruned()),
        (over, true),
        "the history is gone, the key is not"
    );
    rigged.pass(2 * DAY, keep).await;
    assert!(
        rigged.put("over", Hold::Policy).await.is_new(),
        "the key's time is over"
    );
    assert_eq!(rigged.existing("ever", Hold::ForEver).await.id, ever);
    assert_eq!(rigged.existing("later", Hold::Policy).await.id, later);
    let put = rigged
        .rig
        .rowlock()
        .enqueue_now(Other { n: 1 })
        .key("case")
        .await
        .unwrap();
    let held = super::key::held::existing(put);
    assert_eq!(
        (held.id, held.state),
        (case, Some(State::Case)),
        "a case may be reopened"
    );

    // Nothing goes by policy where keys are kept for ever.
    rigged.rig.run_once().await.unwrap().expect_done();
    rigged.finished("kept", Hold::Policy).await;
    rigged.pass(2000 * DAY, FOR_EVER).await;
    assert!(rigged.existing("kept", Hold::Policy).await.is_pruned());
    rigged.rig.close().await.unwrap();
}

/// What the sweep removes is what an enqueue would take over: `hold_is_over` decides both.
async fn the_sweep_removes_exactly_the_keys_that_an_enqueue_could_take_over(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let (open, day) = (Hold::WhileOpen, Hold::For(DAY));
    rigged.finished("open, finished", open).await;
    rigged.finished("period, finished", day).await;
    for (key, hold) in [("open, case", open), ("period, case", day)] {
        let put = rigged.rig.rowlock().enqueue_now(Other { n: 1 }).key(key).hold(hold);
        let _ = put.await.unwrap();
        rigged.rig.run_once().await.unwrap();
    }
    for (key, hold) in [("open, ready", open), ("period, ready", day)] {
        rigged.put(key, hold).await.is_new();
    }
    let left = async || {
        let mut conn = rigged.rig.connect().await.unwrap();
        let sql = format!("select key from {}job_key order by key", rigged.tables);
        sqlx::query_scalar::<_, String>(AssertSqlSafe(sql))
            .fetch_all(&mut conn)
            .await
            .unwrap()
    };
    rigged.pass(DAY / 2, FOR_EVER).await;
    let held = [
        "open, case",
        "open, ready",
        "period, case",
        "period, finished",
        "period, ready",
    ];
    assert_eq!(left().await, held);
    rigged.pass(DAY, FOR_EVER).await;
    assert_eq!(
        left().await,
        ["open, case", "open, ready", "period, case", "period, ready"]
    );
    rigged.rig.close().await.unwrap();
}

async fn the_sweep_goes_through_any_number_of_keys(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let all = rigged
        .rig
        .rowlock()
        .enqueue_all_now((0..3500).map(|n| Note::new(&n.to_string())));
    let all = all.key_by(|job| job.text.clone()).hold(Hold::WhileOpen).await.unwrap();
    assert_eq!(all.len(), 3500);
    // Every seventh is still to be done; they are spread over every page.
    rigged.run("delete from rowlock.ready where id % 7 <> 0").await;
    let open = rigged.count("select count(*) from rowlock.ready").await;
    rigged.pass(DAY, FOR_EVER).await;
    assert_eq!(rigged.count("select count(*) from rowlock.job_key").await, open);
    let kept = "select count(*) from rowlock.job_key k join rowlock.ready r on r.id = k.id";
    assert_eq!(rigged.count(kept).await, open);
    rigged.rig.close().await.unwrap();
}

async fn a_case_that_nobody_decides_on_goes_with_its_body_and_effects_unless_in_doubt(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let keep = Retention::new();
    let mut cases = Vec::new();
    for n in 0..3 {
        cases.push(
            rigged
                .rig
                .rowlock()
                .enqueue_now(Other { n })
                .key(n.to_string())
                .await
                .unwrap()
                .id(),
        );
        rigged.rig.run_once().await.unwrap();
    }
    rigged.effect(cases[0], "done", "replied").await;
    rigged.effect(cases[1], "doubt", "uncertain").await;
    rigged.effect(cases[2], "open", "open").await;
    let open = async || {
        let cases = rigged.rig.rowlock().observe().cases(10).await.unwrap();
        cases.iter().map(|c| c.id).collect::<Vec<_>>()
    };
    assert_eq!(rigged.pass(89 * DAY, keep).await, 0);
    assert_eq!(open().await.len(), 3);
    assert_eq!(rigged.pass(2 * DAY, keep).await, 1);
    let mut left = open().await;
    left.sort_unstable();
    assert_eq!(left, cases[1..], "those with an effect in doubt stay");
    assert!(rigged.rig.rowlock().observe().job(cases[0]).await.unwrap().is_none());
    assert_eq!(rigged.count("select count(*) from rowlock.effect").await, 2);
    // The key goes by its own time: a repeat is still one.
    let put = rigged.rig.rowlock().enqueue_now(Other { n: 0 }).key("0").await.unwrap();
    assert_eq!((put.is_new(), put.id()), (false, cases[0]));

    rigged.run("update rowlock.effect set state = 'undone'").await;
    rigged.pass(DAY, keep.cases_for_ever().keys_for_ever()).await;
    assert_eq!(open().await.len(), 2, "kept where cases are kept");
    rigged.pass(DAY, keep).await;
    assert_eq!(open().await.len(), 0);
    assert_eq!(rigged.count("select count(*) from rowlock.effect").await, 0);
    assert_eq!(rigged.count("select count(*) from rowlock.job").await, 0);
    rigged.rig.close().await.unwrap();
}

async fn the_history_of_a_job_in_doubt_stays_until_the_doubt_is_over(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let doubt = rigged.finished("doubt", Hold::Policy).await;
    let plain = rigged.finished("plain", Hold::Policy).await;
    rigged.effect(doubt, "charge", "uncertain").await;
    rigged.effect(doubt, "mail", "replied").await;
    rigged.effect(plain, "mail", "replied").await;
    rigged.pass(15 * DAY, FOR_EVER).await;
    let look = rigged.rig.rowlock().observe();
    assert!(look.job(doubt).await.unwrap().is_some() && look.job(plain).await.unwrap().is_none());
    assert_eq!(rigged.count("select count(*) from rowlock.effect").await, 2);

    rigged.run("update rowlock.effect set state = 'replied'").await;
    rigged.pass(DAY, FOR_EVER).await;
    assert!(look.job(doubt).await.unwrap().is_none());
    assert_eq!(rigged.count("select count(*) from rowlock.effect").await, 0);
    rigged.rig.close().await.unwrap();
}

async fn what_people_did_goes_with_its_time_and_not_before_its_job(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let open = rigged.put("open", Hold::Policy).await.id();
    let gone = 999_999;
    let day = |days: u32| rigged.at(rigged.rig.now() - days * DAY);
    for (id, at) in [(open, day(800)), (0, day(800)), (gone, day(800)), (gone, day(700))] {
        rigged
            .run(&format!(
                "insert into rowlock.audit (at, actor, verb, id) values ({at}, 'tess', 'cancel', {id})"
            ))
            .await;
    }
    rigged.pass(Duration::ZERO, FOR_EVER).await;
    assert_eq!(
        rigged.count("select count(*) from rowlock.audit").await,
        4,
        "kept for ever"
    );
    let keep = |days: u32| FOR_EVER.audit(days * DAY);
    rigged.pass(Duration::ZERO, keep(730)).await;
    let left = format!("select count(*) from rowlock.audit where id in ({open}, {gone})");
    assert_eq!(
        rigged.count(&left).await,
        2,
        "one is too young, and one about a job that is there"
    );
    assert_eq!(rigged.count("select count(*) from rowlock.audit").await, 2);
    rigged.pass(Duration::ZERO, keep(600)).await;
    assert_eq!(rigged.count("select count(*) from rowlock.audit").await, 1);
    rigged.rig.close().await.unwrap();
}

async fn the_body_of_a_waiting_job_is_never_history(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let id = rigged.put("waits", Hold::WhileOpen).await.id();
    let now = rigged.now();
    rigged
        .run(&format!(
            "insert into rowlock.waiting (id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, \
             limit_ends, since) select id, 'approval', queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, \
             'retired', {now} from rowlock.ready; delete from rowlock.ready"
        ))
        .await;
    rigged.pass(400 * DAY, Retention::new()).await;
    assert_eq!(rigged.count("select count(*) from rowlock.job").await, 1);
    assert_eq!(
        rigged
            .count(&format!("select count(*) from rowlock.job_key where id = {id}"))
            .await,
        1
    );
    rigged.rig.close().await.unwrap();
}

async fn ledger_entries_completions_and_locks_of_the_dead_go_by_policy(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let keep = Retention::new();
    let waits = rigged.put("waits", Hold::Policy).await.id();
    let (now, soon) = (rigged.now(), rigged.at(rigged.rig.now() + DAY));
    let rows = format!(
        "insert into rowlock.ledger (key, hold, expires_at, made_at) values \
           ('policy', 'policy', null, {now}), ('period', 'period', {soon}, {now}), ('ever', 'ever', null, {now});
         insert into rowlock.completion (name, completed_at) values ('awaited', {now}), ('alone', {now});
         insert into rowlock.waiting (id, name, queue_no, kind_no, priority, due_at, epoch, attempt, attempts_max, \
           limit_ends, since) values ({waits}, 'awaited', 1, 1, 3, {now}, 0, 0, 1, 'retired', {now});
         insert into rowlock.lease (id, epoch, worker, attempt, attempts_max, queue_no, kind_no, alone, priority, \
           claimed_at) select {waits}, 5, 7, 1, 1, 1, 1, alone, 3, {now} from rowlock.ready;
         insert into rowlock.body_lock (key, slot, id, epoch, worker, taken_at) values \
           ('a', 0, {waits}, 5, 7, {now}), ('a', 1, {waits}, 4, 7, {now}), ('b', 0, 99, 5, 7, {now})"
    );
    rigged.run(&rows).await;
    let left = async || {
        let count = |table: &str| format!("select count(*) from rowlock.{table}");
        let ledger = rigged.count(&count("ledger")).await;
        (
            ledger,
            rigged.count(&count("completion")).await,
            rigged.count(&count("body_lock")).await,
        )
    };
    rigged.pass(DAY / 2, keep).await;
    assert_eq!(left().await, (3, 2, 1), "a lock goes with its lease, at once");
    rigged.pass(DAY, keep).await;
    assert_eq!(left().await, (2, 2, 1), "the period is over");
    rigged.pass(180 * DAY, keep).await;
    assert_eq!(
        left().await,
        (1, 1, 1),
        "what is held for ever, and what somebody waits for, stays"
    );
    rigged.rig.close().await.unwrap();
}

async fn a_worker_that_would_forget_keys_too_early_refuses_to_start_with_the_numbers(bed: &Bed) {
    let refusal = async |keep: Retention| {
        let worker = bed.worker().handle(atomic(note).backoff(AT_ONCE)).retention(keep);
        match worker.run_until(std::future::pending()).await {
            Err(Error::Config(problem)) => problem,
            other => panic!("it started: {other:?}"),
        }
    };
    let keys = |keys: Duration| Retention::new().keys(keys);
    // Three attempts of ten minutes and two delays of 2 ms at most.
    assert_eq!(
        refusal(keys(90 * DAY)).await,
        "retention: keys are kept for 90 d, but a job of kind note can take 30 min 1 s (3 attempts) and its case is \
         kept for 90 d; keep keys for at least 90 d 30 min 1 s, or for ever"
    );
    let cases_for_ever = Retention::new().cases_for_ever();
    assert!(
        refusal(cases_for_ever)
            .await
            .starts_with("retention: cases are kept for ever, but keys only for 180 d")
    );
    let hour = Duration::from_secs(3600);
    let short = Retention::new().cases(hour / 2);
    assert_eq!(
        refusal(short).await,
        "retention: cases must be kept for at least an hour"
    );
    assert_eq!(
        bed.count("select count(*) from rowlock.worker").await,
        0,
        "none of them began"
    );

    let id = bed.note("x").await;
    let enough = keys(90 * DAY + hour / 2 + Duration::from_secs(1));
    bed.work(
        bed.worker().handle(atomic(note).backoff(AT_ONCE)).retention(enough),
        &[id],
    )
    .await;
    assert_eq!(bed.ledger().await, 1);
}

async fn changes_of_breakers_go_with_history(bed: &Bed) {
    let rigged = Rigged::new(bed).await;
    let (old, now) = (rigged.at(rigged.rig.now() - 20 * DAY), rigged.now());
    let change = |version: i64, at: &str| {
        format!(
            "insert into rowlock.breaker_log (name, version, from_state, to_state, forced, changed_at, changed_by) \
             select 'till', {version}, 'closed', 'open', 1 = 1, {at}, 'tess'"
        )
    };
    rigged.run(&format!("{}; {}", change(1, &old), change(2, &now))).await;
    rigged.pass(DAY, Retention::new()).await;
    assert_eq!(rigged.count("select min(version) from rowlock.breaker_log").await, 2);
    rigged.pass(20 * DAY, Retention::new()).await;
    assert_eq!(rigged.count("select count(*) from rowlock.breaker_log").await, 0);
}

mod tests {
    // A rig brings its own tables.
    super::super::cases!(bare:
        a_key_held_by_policy_goes_with_its_time_and_never_while_its_job_is_open,
        the_sweep_removes_exactly_the_keys_that_an_enqueue_could_take_over,
        the_sweep_goes_through_any_number_of_keys,
        a_case_that_nobody_decides_on_goes_with_its_body_and_effects_unless_in_doubt,
        the_history_of_a_job_in_doubt_stays_until_the_doubt_is_over,
        the_body_of_a_waiting_job_is_never_history,
        ledger_entries_completions_and_locks_of_the_dead_go_by_policy,
        changes_of_breakers_go_with_history,
        what_people_did_goes_with_its_time_and_not_before_its_job,
    );
    super::super::cases!(a_worker_that_would_forget_keys_too_early_refuses_to_start_with_the_numbers);
}
