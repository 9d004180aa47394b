//! Rollout gates: off until set, stable by key, effective within a second on every worker without a restart.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use rowlock::{Error, Job, JobOptions, atomic};
use serde::{Deserialize, Serialize};

use super::db::{Ctx, Outcome, Rowlock, Tx, Worker};
use super::{Bed, Running, until};

/// The keys that take the new way.
async fn inside(rowlock: &Rowlock, name: &str) -> BTreeSet<String> {
    let mut inside = BTreeSet::new();
    for n in 0..500 {
        let key = format!("entity:{n}");
        if rowlock.rollout(name, &key).await.unwrap() {
            inside.insert(key);
        }
    }
    inside
}

/// A handle that has looked at nothing yet.
fn anew(bed: &Bed) -> Rowlock {
    Rowlock::open(&bed.database.queue_url).unwrap()
}

async fn set(bed: &Bed, name: &str, percent: u8) {
    bed.rowlock.operate().set_rollout(name, percent, "tess").await.unwrap();
}

async fn a_rollout_is_off_until_it_is_set_and_growing_never_drops_anyone(bed: &Bed) {
    let mut before = inside(&anew(bed), "guard").await;
    assert!(before.is_empty(), "0 % unless set: {before:?}");
    for percent in [0, 1, 10, 11, 50, 99, 100] {
        set(bed, "guard", percent).await;
        let now = inside(&anew(bed), "guard").await;
        assert!(now.is_superset(&before), "{percent} %: {:?}", before.difference(&now));
        assert_eq!(now, inside(&anew(bed), "guard").await, "the same in every process");
        let expected = 5 * usize::from(percent);
        // 500 keys: five standard deviations are 56 at most.
        assert!(now.len().abs_diff(expected) <= 56, "{percent} %: {} of 500", now.len());
        before = now;
    }
    assert_eq!(before.len(), 500, "100 % is everyone");
    set(bed, "guard", 0).await;
    assert!(inside(&anew(bed), "guard").await.is_empty(), "and 0 % nobody");
    assert!(inside(&anew(bed), "other").await.is_empty(), "each rollout is its own");
}

async fn both_sides_are_counted_by_name(bed: &Bed) {
    set(bed, "half", 50).await;
    let rowlock = anew(bed);
    let on = inside(&rowlock, "half").await.len() as u64;
    inside(&rowlock.clone(), "never").await;
    let later = rowlock.rollout_counter();
    assert_eq!(later(), rowlock.rollout_counts());
    let counts: Vec<_> = rowlock
        .rollout_counts()
        .into_iter()
        .map(|c| (c.name, c.on, c.off))
        .collect();
    assert_eq!(
        counts,
        [("half".to_owned(), on, 500 - on), ("never".to_owned(), 0, 500)]
    );
    drop(rowlock);
    assert_eq!(later(), [], "it keeps nothing of the handle");
}

async fn who_set_a_rollout_is_kept_and_a_bad_one_is_refused(bed: &Bed) {
    let operate = bed.rowlock.operate();
    for (name, percent) in [("guard", 101), ("", 5), ("no spaces", 5)] {
        let refused = operate.set_rollout(name, percent, "tess").await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
    }
    for (name, key) in [("", "k"), ("no spaces", "k"), ("guard", ""), ("guard", "a\0b")] {
        let refused = bed.rowlock.rollout(name, key).await.unwrap_err();
        assert!(matches!(refused, Error::Invalid { .. }), "{refused:?}");
    }
    operate.set_rollout("guard", 5, "tess").await.unwrap();
    operate.set_rollout("guard", 25, "joe").await.unwrap();
    let [view] = <[_; 1]>::try_from(bed.rowlock.observe().rollouts().await.unwrap()).unwrap();
    assert_eq!(
        (view.name.as_str(), view.percent, view.changed_by.as_str()),
        ("guard", 25, "joe")
    );
    let noted = "select count(*) from rowlock.audit where verb = 'rollout' and
                 ((actor = 'tess' and detail = 'guard 5') or (actor = 'joe' and detail = 'guard 25'))";
    assert_eq!(bed.count(noted).await, 2);
    // Whatever somebody writes there by hand, the old way is the safe one.
    for value in ["250", "-1", "many", ""] {
        bed.run(&format!("update rowlock.setting set value = '{value}'")).await;
        assert!(!anew(bed).rollout("guard", "k").await.unwrap(), "{value:?}");
    }
}

async fn while_rollouts_cannot_be_read_the_last_known_percentage_counts(bed: &Bed) {
    set(bed, "guard", 100).await;
    let rowlock = anew(bed);
    assert!(rowlock.rollout("guard", "k").await.unwrap());
    bed.run("alter table rowlock.setting rename to gone").await;
    let known = Instant::now();
    until("what is known to be old", async || {
        assert!(rowlock.rollout("guard", "k").await.unwrap());
        known.elapsed() > Duration::from_millis(600)
    })
    .await;
    let never = anew(bed).rollout("guard", "k").await.unwrap_err();
    assert!(
        matches!(never, Error::Database { .. }),
        "nothing is known, so nothing is guessed: {never:?}"
    );

    let gone = if bed.database.is_sqlite() {
        "gone"
    } else {
        "rowlock.gone"
    };
    let back = if bed.database.is_sqlite() {
        "rowlock_setting"
    } else {
        "setting"
    };
    bed.run_as_it_is(&format!("alter table {gone} rename to {back}")).await;
    set(bed, "guard", 0).await;
    until("the new percentage", async || {
        !rowlock.rollout("guard", "k").await.unwrap()
    })
    .await;
}

#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "act", attempts = 3)]
struct Act {}

/// Who asked when, and was sent which way.
#[derive(Clone, Default)]
struct Ways(Arc<Mutex<Vec<(String, Instant, bool)>>>);

impl Ways {
    fn since(&self, at: Instant) -> Vec<(String, bool)> {
        let all = self.0.lock().unwrap();
        let later = all.iter().filter(|(_, asked, _)| *asked > at);
        later.map(|(queue, _, new)| (queue.clone(), *new)).collect()
    }
}

/// Asks, notes the answer, and goes on for ever.
async fn act(cx: Ctx<Ways>, job: Act, tx: Tx) -> Outcome {
    let asked = Instant::now();
    let new = cx.rowlock().rollout("guard", "entity:7").await?;
    cx.state().0.lock().unwrap().push((cx.queue().to_owned(), asked, new));
    let again = JobOptions::new().queue(cx.queue()).after(Duration::from_millis(5));
    tx.done().then_with(job, again).ok()
}

async fn a_change_counts_within_a_second_on_two_workers_without_a_restart(bed: &Bed) {
    let ways = Ways::default();
    let rowlocks = [anew(bed), anew(bed)];
    let mut running = Vec::new();
    for (queue, rowlock) in ["a", "b"].into_iter().zip(&rowlocks) {
        // A queue and a handle each, so that both are busy and neither knows what the other knows.
        let _ = rowlock.enqueue_now(Act {}).queue(queue).await.unwrap();
        let worker = Worker::new(rowlock)
            .queue(queue, 1)
            .state(ways.clone())
            .handle(atomic(act));
        running.push(Running::start(worker));
    }
    for (percent, new) in [(0, false), (100, true), (0, false)] {
        set(bed, "guard", percent).await;
        let a_second_later = Instant::now() + Duration::from_secs(1);
        until("both workers to have asked later than that", async || {
            let asked = ways.since(a_second_later);
            ["a", "b"]
                .iter()
                .all(|worker| asked.iter().filter(|(queue, _)| queue == worker).count() >= 5)
        })
        .await;
        let answers = ways.since(a_second_later);
        assert!(answers.iter().all(|(_, way)| *way == new), "{percent} %: {answers:?}");
    }
    for worker in running {
        worker.stop().await;
    }
    for rowlock in &rowlocks {
        let [count] = <[_; 1]>::try_from(rowlock.rollout_counts()).unwrap();
        assert!(
            count.on > 0 && count.off > 0,
            "both sides are counted per process: {count:?}"
        );
    }
}

mod tests {
    super::super::cases!(
        a_rollout_is_off_until_it_is_set_and_growing_never_drops_anyone,
        both_sides_are_counted_by_name,
        who_set_a_rollout_is_kept_and_a_bad_one_is_refused,
        while_rollouts_cannot_be_read_the_last_known_percentage_counts,
        a_change_counts_within_a_second_on_two_workers_without_a_restart,
    );
}
