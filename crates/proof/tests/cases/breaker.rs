//! Breakers: after so many failures of a dependency in a row nobody claims what is bound to it, no attempt is burned
//! meanwhile, a few probes find out, and a person may decide.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use rowlock::{
    Backoff, Breaker, Ended, Error, Event, Fail, State, atomic,
    breaker::{BreakerState, BreakerView, Force},
    staged,
};
use tokio::sync::Notify;

use super::db::{Ctx, Staged, Tx, Worker};
use super::{Bed, LEASE, Note, Other, Running, claim::pause::unstarted_come_back, until, vanish};

/// What is promised, from a change to the last worker that hears of it.
const WITHIN: Duration = Duration::from_secs(1);

/// The shortest cooldown there is.
const COOLDOWN: Duration = Duration::from_secs(1);

/// Longer than a breaker takes to open, so that a job has no second attempt meanwhile.
const SOON: Backoff = Backoff::new()
    .base(Duration::from_millis(300))
    .max(Duration::from_millis(300));

/// What the handlers depend on.
#[derive(Clone, Default)]
struct Till {
    down: Arc<AtomicBool>,
    /// How often somebody called.
    calls: Arc<AtomicUsize>,
    /// How many calls run at the same time now, and at most.
    calling: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Till {
    fn set_down(&self, down: bool) {
        self.down.store(down, Ordering::SeqCst);
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }

    async fn call(&self) -> Result<(), Fail> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let now = self.calling.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(now, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(30)).await;
        self.calling.fetch_sub(1, Ordering::SeqCst);
        match self.down.load(Ordering::SeqCst) {
            true => Err(Fail::dependency("till", "the till is down")),
            false => Ok(()),
        }
    }
}

/// Notes go to the till, the others do not.
fn worker(bed: &Bed, till: &Till, breaker: Breaker) -> Worker {
    let till = till.clone();
    let note = move |cx: Staged, _: Note| {
        let till = till.clone();
        async move {
            till.call().await?;
            cx.done().ok()
        }
    };
    let other = |_: Ctx, _: Other, tx: Tx| async move { tx.done().ok() };
    Worker::new(&bed.rowlock)
        .lease(LEASE)
        .queue("default", 4)
        .handle(staged(note).backoff(SOON).breaker("till", breaker))
        .handle(atomic(other))
}

/// Its current state, once a worker has reported the breaker.
async fn the_till(bed: &Bed) -> BreakerView {
    let observe = bed.rowlock.observe();
    until("a worker to have started", async || {
        !observe.breakers().await.unwrap().is_empty()
    })
    .await;
    let mut found = observe.breakers().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

async fn stands(bed: &Bed, state: BreakerState) {
    until("the breaker to get there", async || the_till(bed).await.state == state).await;
}

async fn notes(bed: &Bed, count: usize) -> Vec<i64> {
    let notes = (0..count).map(|_| Note::new("x"));
    bed.rowlock.enqueue_all_now(notes).await.unwrap()
}

async fn are_done(bed: &Bed, ids: &[i64]) {
    for id in ids {
        until("it to be done", async || bed.job(*id).await.state == State::Finished).await;
    }
}

async fn force(bed: &Bed, force: Force) -> bool {
    bed.rowlock
        .operate()
        .force_breaker("till", force, "tess")
        .await
        .unwrap()
}

async fn changes(bed: &Bed) -> Vec<BreakerState> {
    let log = bed.rowlock.observe().breaker_log("till", 100).await.unwrap();
    log.iter().rev().map(|change| change.to).collect()
}

async fn it_opens_for_the_whole_fleet_and_closes_when_a_probe_succeeds(bed: &Bed) {
    let till = Till::default();
    till.set_down(true);
    let opened = Arc::new(AtomicUsize::new(0));
    let start = |name: &str| {
        let opened = opened.clone();
        let worker = worker(bed, &till, Breaker::after(3).cooldown(COOLDOWN)).name(name);
        Running::start(worker.on_event(move |event| {
            if matches!(
                event,
                Event::BreakerChanged {
                    state: BreakerState::Open,
                    ..
                }
            ) {
                opened.fetch_add(1, Ordering::SeqCst);
            }
        }))
    };
    let running = [start("one"), start("two")];
    let ids = notes(bed, 20).await;
    stands(bed, BreakerState::Open).await;
    let open = the_till(bed).await;
    assert_eq!((open.forced, open.reason.as_deref()), (false, Some("the till is down")));
    assert!(open.open_until.is_some_and(|until| until > open.changed_at));

    // What is not bound to it goes on.
    let other = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
    are_done(bed, &[other]).await;

    till.set_down(false);
    are_done(bed, &ids).await;
    stands(bed, BreakerState::Closed).await;
    let closed = the_till(bed).await;
    assert_eq!((closed.trips, closed.failures, closed.open_until), (0, 0, None));
    let changes = changes(bed).await;
    assert_eq!(changes.first(), Some(&BreakerState::Open));
    assert_eq!(
        &changes[changes.len() - 2..],
        [BreakerState::HalfOpen, BreakerState::Closed]
    );
    let mut counted = 0;
    for running in running {
        counted += running.stop().await.breakers_opened();
    }
    let opens = changes.iter().filter(|state| **state == BreakerState::Open).count();
    assert_eq!(opened.load(Ordering::SeqCst), opens, "each is told once, by who did it");
    assert_eq!(counted, opens as u64);
}

async fn nobody_claims_while_it_is_open_and_no_attempt_is_burned(bed: &Bed) {
    let till = Till::default();
    let running = [1, 2].map(|_| Running::start(worker(bed, &till, Breaker::after(3))));
    are_done(bed, &notes(bed, 2).await).await;
    assert!(force(bed, Force::Open).await);
    let before = till.calls();
    let ids = notes(bed, 5).await;
    // The rest goes on, and is looked for as often as this.
    let until_then = Instant::now() + WITHIN * 2;
    while Instant::now() < until_then {
        let other = bed.rowlock.enqueue_now(Other { n: 1 }).await.unwrap().id();
        are_done(bed, &[other]).await;
    }
    for id in &ids {
        let job = bed.job(*id).await;
        assert_eq!((job.state, job.attempt, job.epoch), (State::Ready, 0, 0));
    }
    assert_eq!(till.calls(), before);
    assert!(force(bed, Force::Auto).await);
    are_done(bed, &ids).await;
    for running in running {
        running.stop().await;
    }
}

async fn what_was_claimed_and_not_started_comes_back_with_its_attempt(bed: &Bed) {
    let running = unstarted_come_back(
        bed,
        |handler| handler.breaker("till", Breaker::after(3)),
        async || assert!(force(bed, Force::Open).await),
        "its breaker opened before it started",
    )
    .await;
    assert!(force(bed, Force::Auto).await);
    running.all_done(bed).await;
}

async fn bad_data_opens_nothing(bed: &Bed) {
    let handler = |_: Staged, _: Note| async move { super::fail(Fail::retry("no such customer")) };
    let id = notes(bed, 1).await[0];
    let worker = Worker::new(&bed.rowlock).queue("default", 1);
    let handler = staged(handler).backoff(SOON).breaker("till", Breaker::after(1));
    let running = Running::start(worker.handle(handler));
    until("it to be given up on", async || bed.job(id).await.state == State::Case).await;
    let breaker = the_till(bed).await;
    assert_eq!(
        (breaker.state, breaker.failures, breaker.version),
        (BreakerState::Closed, 0, 1)
    );
    running.stop().await;
}

async fn a_success_in_between_starts_the_count_anew(bed: &Bed) {
    let till = Till::default();
    let running = Running::start(worker(bed, &till, Breaker::after(3)));
    for _ in 0..2 {
        till.set_down(true);
        let id = bed.rowlock.enqueue_now(Note::new("x")).attempts(2).await.unwrap().id();
        until("it to fail twice", async || bed.job(id).await.state == State::Case).await;
        until("both to count", async || the_till(bed).await.failures == 2).await;
        till.set_down(false);
        are_done(bed, &notes(bed, 1).await).await;
        until("it to be taken back", async || the_till(bed).await.failures == 0).await;
    }
    assert_eq!(changes(bed).await, []);
    running.stop().await;
}

async fn a_failed_probe_gets_its_attempt_back_and_the_cooldown_grows(bed: &Bed) {
    let till = Till::default();
    till.set_down(true);
    let running = Running::start(worker(bed, &till, Breaker::after(1).cooldown(COOLDOWN)));
    let id = bed.rowlock.enqueue_now(Note::new("x")).attempts(3).await.unwrap().id();
    until("two probes to fail", async || the_till(bed).await.trips >= 3).await;
    let job = bed.job(id).await;
    assert_eq!((job.state, job.attempt), (State::Ready, 1), "{:?}", bed.ends(id).await);
    let log = bed.rowlock.observe().breaker_log("till", 100).await.unwrap();
    let at = |to: BreakerState| log.iter().rev().filter(move |c| c.to == to).map(|c| c.at);
    let waits: Vec<i64> = at(BreakerState::Open)
        .zip(at(BreakerState::HalfOpen))
        .map(|(open, half)| half.as_millisecond() - open.as_millisecond())
        .collect();
    assert!(waits[0] >= 1000 && waits[1] >= 2000, "{waits:?}");
    till.set_down(false);
    are_done(bed, &[id]).await;
    let mut ends = bed.ends(id).await;
    assert_eq!((ends.remove(0), ends.pop()), (Ended::Retried, Some(Ended::Done)));
    assert!(ends.iter().all(|end| *end == Ended::Deferred), "{ends:?}");
    running.stop().await;
}

async fn no_more_probes_than_may_are_under_way_in_the_whole_fleet(bed: &Bed) {
    let till = Till::default();
    till.set_down(true);
    let breaker = Breaker::after(1).cooldown(COOLDOWN).cooldown_max(COOLDOWN).probes(2);
    let running = [1, 2, 3].map(|_| Running::start(worker(bed, &till, breaker)));
    let ids = notes(bed, 40).await;
    stands(bed, BreakerState::Open).await;
    until("what had started to be over", async || {
        bed.count("select count(*) from rowlock.lease").await == 0
    })
    .await;
    till.most.store(0, Ordering::SeqCst);
    until("it to be tried", async || the_till(bed).await.trips >= 4).await;
    assert!(
        till.most.load(Ordering::SeqCst) <= 2,
        "{till_most}",
        till_most = till.most.load(Ordering::SeqCst)
    );
    till.set_down(false);
    are_done(bed, &ids).await;
    for running in running {
        running.stop().await;
    }
}

async fn the_place_of_a_probe_that_died_comes_back_with_its_lease(bed: &Bed) {
    let till = Till::default();
    till.set_down(true);
    let breaker = Breaker::after(1).cooldown(COOLDOWN).probes(1);
    let first = Running::start(worker(bed, &till, breaker));
    let ids = notes(bed, 3).await;
    stands(bed, BreakerState::Open).await;
    first.stop().await;

    let begun = Arc::new(Notify::new());
    let at = begun.clone();
    let stuck = move |_: Staged, _: Note| {
        let at = at.clone();
        async move {
            at.notify_one();
            std::future::pending().await
        }
    };
    let dying = Worker::new(&bed.rowlock)
        .lease(LEASE)
        .queue("default", 1)
        .handle(staged(stuck).breaker("till", breaker));
    vanish(dying, async move { begun.notified().await }).await;
    let left = the_till(bed).await;
    assert_eq!((left.state, left.probing), (BreakerState::HalfOpen, 1));
    till.set_down(false);
    let second = Running::start(worker(bed, &till, breaker));
    are_done(bed, &ids).await;
    assert_eq!(the_till(bed).await.state, BreakerState::Closed);
    second.stop().await;
}

async fn what_a_person_forces_stays_and_is_noted(bed: &Bed) {
    let unknown = bed.rowlock.operate().force_breaker("till", Force::Open, "tess").await;
    assert!(matches!(unknown, Err(Error::NotFound(_))), "{unknown:?}");
    let till = Till::default();
    let running = Running::start(worker(bed, &till, Breaker::after(1).cooldown(COOLDOWN)));
    are_done(bed, &notes(bed, 1).await).await;

    assert!(force(bed, Force::Closed).await);
    assert!(!force(bed, Force::Closed).await);
    till.set_down(true);
    let id = bed.rowlock.enqueue_now(Note::new("x")).attempts(3).await.unwrap().id();
    until("it to be given up on", async || bed.job(id).await.state == State::Case).await;
    assert_eq!(bed.ends(id).await, [Ended::Retried, Ended::Retried, Ended::Retired]);
    let closed = the_till(bed).await;
    assert_eq!((closed.state, closed.forced), (BreakerState::Closed, true));

    assert!(force(bed, Force::Open).await && !force(bed, Force::Open).await);
    till.set_down(false);
    let calls = till.calls();
    let waiting = notes(bed, 1).await;
    tokio::time::sleep(COOLDOWN * 2).await;
    let open = the_till(bed).await;
    assert_eq!(
        (open.state, open.forced, till.calls()),
        (BreakerState::Open, true, calls)
    );
    assert!(force(bed, Force::Auto).await && !force(bed, Force::Auto).await);
    are_done(bed, &waiting).await;
    running.stop().await;

    let noted = "select count(*) from rowlock.audit where verb = 'breaker' and actor = 'tess'";
    assert_eq!(bed.count(noted).await, 3);
    let log = bed.rowlock.observe().breaker_log("till", 2).await.unwrap();
    let last: Vec<_> = log.iter().map(|c| (c.to, c.forced, c.by.as_str())).collect();
    assert_eq!(
        last,
        [
            (BreakerState::Closed, false, "tess"),
            (BreakerState::Open, true, "tess")
        ]
    );
}

async fn a_kind_bound_to_two_that_are_both_open_tries_both_at_once(bed: &Bed) {
    let down = Arc::new(AtomicBool::new(true));
    let is_down = down.clone();
    let note = move |cx: Staged, job: Note| {
        let down = is_down.load(Ordering::SeqCst);
        async move {
            tokio::time::sleep(Duration::from_millis(50)).await;
            match down {
                true => super::fail(Fail::dependency(job.text, "it is down")),
                false => cx.done().ok(),
            }
        }
    };
    let breaker = Breaker::after(1).cooldown(COOLDOWN);
    let handler = staged(note)
        .backoff(SOON)
        .breaker("till", breaker)
        .breaker("bank", breaker);
    let worker = Worker::new(&bed.rowlock).queue("default", 2).handle(handler);
    let jobs = ["till", "bank"].map(Note::new);
    let ids = bed.rowlock.enqueue_all_now(jobs).await.unwrap();
    let running = Running::start(worker);
    let all = async |state: BreakerState| {
        let found = bed.rowlock.observe().breakers().await.unwrap();
        found.len() == 2 && found.iter().all(|breaker| breaker.state == state)
    };
    until("both to open", || all(BreakerState::Open)).await;
    down.store(false, Ordering::SeqCst);
    are_done(bed, &ids).await;
    until("both to close", || all(BreakerState::Closed)).await;
    running.stop().await;
}

async fn one_that_was_removed_by_hand_comes_back_and_goes_on_behind_its_log(bed: &Bed) {
    let till = Till::default();
    let running = Running::start(worker(bed, &till, Breaker::after(1).cooldown(COOLDOWN)));
    are_done(bed, &notes(bed, 1).await).await;
    assert!(force(bed, Force::Open).await && force(bed, Force::Auto).await);
    bed.run("delete from rowlock.breaker").await;
    assert_eq!(the_till(bed).await.version, 4);
    till.set_down(true);
    let ids = notes(bed, 1).await;
    stands(bed, BreakerState::Open).await;
    till.set_down(false);
    are_done(bed, &ids).await;
    running.stop().await;
}

async fn contradictions_are_refused_at_the_start(bed: &Bed) {
    let other = |_: Ctx, _: Other, tx: Tx| async move { tx.done().ok() };
    let note = |_: Ctx, _: Note, tx: Tx| async move { tx.done().ok() };
    let base = || Worker::new(&bed.rowlock).queue("default", 1);
    let bad = [
        (
            base().handle(atomic(note).breaker("till", Breaker::after(0))),
            "after(0)",
        ),
        (base().handle(atomic(note).breaker("", Breaker::after(1))), "breaker"),
        (
            base()
                .handle(atomic(note).breaker("till", Breaker::after(1)))
                .handle(atomic(other).breaker("till", Breaker::after(2))),
            "two different settings",
        ),
    ];
    for (worker, said) in bad {
        let refused = worker.run_until(std::future::ready(())).await.unwrap_err().to_string();
        assert!(refused.contains(said), "{refused}");
    }
    assert_eq!(bed.rowlock.observe().breakers().await.unwrap(), []);
}

mod tests {
    super::super::cases!(
        it_opens_for_the_whole_fleet_and_closes_when_a_probe_succeeds,
        nobody_claims_while_it_is_open_and_no_attempt_is_burned,
        what_was_claimed_and_not_started_comes_back_with_its_attempt,
        bad_data_opens_nothing,
        a_success_in_between_starts_the_count_anew,
        a_failed_probe_gets_its_attempt_back_and_the_cooldown_grows,
        no_more_probes_than_may_are_under_way_in_the_whole_fleet,
        the_place_of_a_probe_that_died_comes_back_with_its_lease,
        what_a_person_forces_stays_and_is_noted,
        a_kind_bound_to_two_that_are_both_open_tries_both_at_once,
        one_that_was_removed_by_hand_comes_back_and_goes_on_behind_its_log,
        contradictions_are_refused_at_the_start,
    );
}
