//! Groups: one after the other within, beside each other without; whatever becomes of the head.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use rowlock::{Batch, Enqueued, Error, Group, JobOptions, State, atomic, observe::JobFilter, staged};
use sqlx::Connection;
use tokio::sync::Semaphore;

use super::db::{Ctx, Staged, Tx};
use super::{Bed, Note, Other, Running, Seen, note, until};

pub(crate) async fn put(bed: &Bed, group: impl Into<Group>, text: &str) -> i64 {
    let id = bed.rowlock.enqueue_now(Note::new(text)).group(group).await;
    id.unwrap().id()
}

pub(crate) async fn puts(bed: &Bed, group: &str, texts: &[&str]) -> Vec<i64> {
    let mut ids = Vec::new();
    for text in texts {
        ids.push(put(bed, group, text).await);
    }
    ids
}

/// The notes in the order in which their jobs were done.
pub(crate) async fn written(bed: &Bed) -> Vec<String> {
    let all = "select l.note from ledger l join rowlock.outcome o on o.id = l.job and o.outcome = 'done' \
               order by o.ended_at, l.job";
    let all = sqlx::query_scalar(super::sql(all));
    all.fetch_all(&mut bed.conn().await).await.unwrap()
}

async fn no_groups_are_left(bed: &Bed) {
    until("the rows of empty groups to go", async || {
        bed.count("select count(*) from rowlock.job_group").await == 0
    })
    .await;
}

/// How many of each group are under way, and what has ended, in order.
#[derive(Clone, Default)]
struct Watched {
    under_way: Arc<Mutex<HashMap<String, usize>>>,
    most_at_once: Arc<AtomicUsize>,
    ended: Seen,
}

impl Watched {
    /// The group is the text's first letter.
    async fn run(&self, text: &str, work: impl Future<Output = ()>) {
        let group = text[..1].to_owned();
        {
            let mut under_way = self.under_way.lock().unwrap();
            let here = under_way.entry(group.clone()).or_default();
            *here += 1;
            assert_eq!(*here, 1, "two of group {group} at once");
            let all: usize = under_way.values().sum();
            self.most_at_once.fetch_max(all, Ordering::SeqCst);
        }
        work.await;
        *self.under_way.lock().unwrap().get_mut(&group).unwrap() -= 1;
        self.ended.push(text);
    }

    fn of(&self, group: &str) -> Vec<String> {
        let all = self.ended.all().into_iter();
        all.filter(|text| text.starts_with(group)).collect()
    }
}

async fn jobs_of_a_group_run_in_order_and_never_two_at_once(bed: &Bed) {
    let mut ids = Vec::new();
    let mut expected: HashMap<&str, Vec<String>> = HashMap::new();
    for n in 0..8 {
        for group in ["a", "b", "c"] {
            let text = format!("{group}{n}");
            // Priorities do not count within a group.
            let job = bed.rowlock.enqueue_now(Note::new(&text)).group(group);
            ids.push(job.priority(5 - (n % 5) as i16).await.unwrap().id());
            expected.entry(group).or_default().push(text);
        }
    }
    let watched = Watched::default();
    let worker = || {
        let watched = watched.clone();
        bed.worker().handle(staged(move |cx: Staged, job: Note| {
            let watched = watched.clone();
            async move {
                let work = tokio::time::sleep(Duration::from_millis(3));
                watched.run(&job.text, work).await;
                cx.done().ok()
            }
        }))
    };
    let second = Running::start(worker());
    bed.work(worker(), &ids).await;
    second.stop().await;
    for (group, texts) in expected {
        assert_eq!(watched.of(group), texts);
    }
    assert!(
        watched.most_at_once.load(Ordering::SeqCst) > 1,
        "groups run beside each other"
    );
}

async fn in_transactions_of_handlers_too(bed: &Bed) {
    let ids = puts(bed, "a", &["1", "2", "3", "4"]).await;
    bed.work(bed.worker().handle(atomic(note)), &ids).await;
    assert_eq!(written(bed).await, ["1", "2", "3", "4"]);
    no_groups_are_left_with_a_worker(bed).await;
}

async fn no_groups_are_left_with_a_worker(bed: &Bed) {
    let running = Running::start(bed.worker().handle(atomic(note)));
    no_groups_are_left(bed).await;
    running.stop().await;
}

async fn a_group_that_is_held_up_holds_nobody_else(bed: &Bed) {
    let (go_on, seen) = (Arc::new(Semaphore::new(0)), Seen::default());
    let held = puts(bed, "slow", &["slow 1", "slow 2"]).await;
    let mut others = puts(bed, "fast", &["fast 1", "fast 2"]).await;
    others.push(bed.note("of no group").await);
    let (gate, told) = (go_on.clone(), seen.clone());
    let running = Running::start(bed.worker().handle(staged(move |cx: Staged, job: Note| {
        let (gate, told) = (gate.clone(), told.clone());
        async move {
            if job.text.starts_with("slow") {
                let _permit = gate.acquire().await;
            }
            told.push(&job.text);
            cx.done().ok()
        }
    })));
    for id in others {
        until("the others to be done", async || {
            bed.job(id).await.state == State::Finished
        })
        .await;
    }
    let places = [bed.job(held[0]).await.state, bed.job(held[1]).await.state];
    assert_eq!(places, [State::Leased, State::Waiting]);
    go_on.add_permits(2);
    until("the rest", async || bed.job(held[1]).await.state == State::Finished).await;
    running.stop().await;
    assert_eq!(seen.all()[3..], ["slow 1", "slow 2"]);
}

/// A worker that is lost while it holds the head.
async fn many_in_one_transaction_keep_their_order_and_a_rollback_leaves_no_group(bed: &Bed) {
    let mut conn = bed.conn().await;
    for commit in [false, true] {
        let mut tx = conn.begin().await.unwrap();
        let notes = ["a1", "b1", "a2", "b2", "a3"].map(Note::new);
        let all = bed
            .rowlock
            .enqueue_all(&mut tx, notes)
            .group_by(|n| n.text[..1].to_owned());
        let ids = all.await.unwrap();
        if !commit {
            tx.rollback().await.unwrap();
            assert_eq!(bed.count("select count(*) from rowlock.job_group").await, 0);
            continue;
        }
        tx.commit().await.unwrap();
        let mut states = Vec::new();
        for id in &ids {
            states.push(bed.job(*id).await.state);
        }
        assert_eq!(
            states,
            [
                State::Ready,
                State::Ready,
                State::Waiting,
                State::Waiting,
                State::Waiting
            ]
        );
        bed.work(bed.worker().handle(atomic(note)), &ids).await;
    }
    let all = written(bed).await;
    let of = |group: &str| all.iter().filter(|n| n.starts_with(group)).cloned().collect::<Vec<_>>();
    assert_eq!(
        (of("a"), of("b")),
        (
            vec!["a1".into(), "a2".into(), "a3".into()],
            vec!["b1".into(), "b2".into()]
        )
    );
}

async fn a_next_link_takes_its_place_in_the_group(bed: &Bed) {
    let first = bed.rowlock.enqueue_now(Other { n: 1 }).group("a").await.unwrap().id();
    let second = put(bed, "a", "second").await;
    let links = |_: Ctx, _: Other, tx: Tx| async move {
        tx.done()
            .then_with(Note::new("link"), JobOptions::new().group("a"))
            .ok()
    };
    let running = Running::start(bed.worker().handle(atomic(links)).handle(atomic(note)));
    until("all of them", async || bed.ledger().await == 2).await;
    running.stop().await;
    assert_eq!(bed.job(first).await.state, State::Finished);
    assert_eq!(bed.job(second).await.state, State::Finished);
    assert_eq!(written(bed).await, ["second", "link"]);
}

async fn batches_take_one_of_each_group(bed: &Bed) {
    let mut ids = Vec::new();
    for n in 0..6 {
        for group in ["a", "b", "c", "d"] {
            ids.push(put(bed, group, &format!("{group}{n}")).await);
        }
    }
    bed.work(bed.worker().handle(atomic(note).batch(Batch::up_to(10))), &ids)
        .await;
    let all = written(bed).await;
    for group in ["a", "b", "c", "d"] {
        let of: Vec<&String> = all.iter().filter(|n| n.starts_with(group)).collect();
        let expected: Vec<String> = (0..6).map(|n| format!("{group}{n}")).collect();
        assert_eq!(of, expected.iter().collect::<Vec<_>>());
    }
}

async fn a_key_that_is_held_puts_no_second_job_into_the_group(bed: &Bed) {
    let keyed = async || {
        bed.rowlock
            .enqueue_now(Note::new("x"))
            .group("a")
            .key("once")
            .await
            .unwrap()
    };
    let first = keyed().await;
    let again = keyed().await;
    assert!(
        matches!(first, Enqueued::New(_)) && matches!(again, Enqueued::Existing(_)),
        "{again:?}"
    );
    assert_eq!(first.id(), again.id());
    let other = put(bed, "a", "y").await;
    bed.work(bed.worker().handle(atomic(note)), &[first.id(), other]).await;
    assert_eq!(written(bed).await, ["x", "y"]);
}

async fn people_see_the_group_and_who_waits_in_it(bed: &Bed) {
    let ids = puts(bed, "account:42", &["1", "2"]).await;
    let other = bed.note("of no group").await;
    let filter = JobFilter::new().group("account:42");
    let listed = bed.rowlock.observe().jobs(&filter).await.unwrap();
    assert_eq!(listed.iter().map(|j| j.id).collect::<Vec<_>>(), [ids[1], ids[0]]);
    assert!(listed.iter().all(|j| j.group.as_deref() == Some("account:42")));
    assert_eq!(bed.job(other).await.group, None);
    let status = bed.rowlock.observe().status().await.unwrap();
    assert_eq!((status.lanes[0].due, status.lanes[0].waiting), (2, 1));
}

async fn bad_input_is_refused_before_any_sql(bed: &Bed) {
    let both = bed.rowlock.enqueue_now(Note::new("x")).group("a").waits_for("approval");
    let said = both.await.unwrap_err();
    assert!(
        matches!(&said, Error::Invalid { field, .. } if field == "group"),
        "{said}"
    );
    assert!(said.to_string().contains("cannot also wait for a name"), "{said}");
    for bad in ["", "no spaces", &"x".repeat(101)] {
        let said = bed.rowlock.enqueue_now(Note::new("x")).group(bad).await.unwrap_err();
        assert!(
            matches!(&said, Error::Invalid { field, .. } if field == "group"),
            "{said}"
        );
    }
    assert_eq!(bed.count("select count(*) from rowlock.job").await, 0);
}

/// The recipe of docs/groups.md, for a rule that is static: a second one is refused, not queued.
async fn a_partial_unique_index_admits_one_open_job_per_thing(bed: &Bed) {
    bed.run("create table payout (account bigint not null, state text not null)")
        .await;
    bed.run("create unique index one_open_payout on payout (account) where state = 'open'")
        .await;
    let ask = async |account: i64| {
        let mut conn = bed.conn().await;
        let mut tx = conn.begin().await.unwrap();
        let open = sqlx::query("insert into payout (account, state) values ($1, 'open')").bind(account);
        open.execute(&mut *tx).await?;
        let id = bed.rowlock.enqueue(&mut tx, Other { n: account }).await.unwrap().id();
        tx.commit().await?;
        Ok::<i64, sqlx::Error>(id)
    };
    let (first, other) = (ask(1).await.unwrap(), ask(2).await.unwrap());
    assert!(ask(1).await.is_err(), "one is open");
    assert_eq!(
        bed.count("select count(*) from rowlock.job").await,
        2,
        "its enqueue went with it"
    );
    let pays = |_: Ctx, job: Other, mut tx: Tx| async move {
        let close = sqlx::query("update payout set state = 'paid' where account = $1 and state = 'open'");
        close.bind(job.n).execute(&mut *tx).await?;
        tx.done().ok()
    };
    bed.work(bed.worker().handle(atomic(pays)), &[first, other]).await;
    let again = ask(1).await.unwrap();
    assert_eq!(bed.job(again).await.state, State::Ready);
}

mod tests {
    super::super::cases!(
        a_partial_unique_index_admits_one_open_job_per_thing,
        jobs_of_a_group_run_in_order_and_never_two_at_once,
        in_transactions_of_handlers_too,
        a_group_that_is_held_up_holds_nobody_else,
        many_in_one_transaction_keep_their_order_and_a_rollback_leaves_no_group,
        a_next_link_takes_its_place_in_the_group,
        batches_take_one_of_each_group,
        a_key_that_is_held_puts_no_second_job_into_the_group,
        people_see_the_group_and_who_waits_in_it,
        bad_input_is_refused_before_any_sql,
    );
}
