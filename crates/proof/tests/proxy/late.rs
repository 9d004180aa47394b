//! A COMMIT that is still on its way when its client has long given up on it. Nobody can call it back, so whatever is
//! decided meanwhile must hold against it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use proof::proxy::{Carrier, Commit, CommitCut, Proxy, Trouble, Way};
use rowlock::{
    Ended, Event, atomic,
    postgres::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use tokio::runtime::Handle;

use super::site::{AT_ONCE, FOR_EVER, HANDLER, LEASE, Note, Running, Site, Stopped, count, until, write};

fn only_commit(site: &Site) -> Commit {
    let commits: Vec<Commit> = site.proxy.events().iter().filter_map(|event| event.commit).collect();
    assert_eq!(commits.len(), 1);
    commits[0]
}

/// Waits for the server's word on the one COMMIT that was cut.
async fn word(site: &Site) -> bool {
    until("the server's word", async || only_commit(site).committed.is_some()).await;
    only_commit(site).committed.unwrap()
}

async fn a_late_commit_is_waited_for_by_the_look_up(site: &Site) {
    let ids = site.enqueue(1).await;
    site.proxy.cut_commits(Some(HANDLER), CommitCut::Late(FOR_EVER), 1);
    let running = Running::start(site.one_by_one());
    let waits = "select count(*) from pg_stat_activity where datname = current_database() \
                 and application_name = 'rowlock engine' and wait_event_type = 'Lock'";
    until("the look-up to wait", async || site.count(waits).await == 1).await;
    site.proxy.calm();
    site.until_finished(&ids).await;
    assert!(word(site).await);
    assert_eq!(running.stop().await.resolved, [(ids[0], true)]);
    assert_eq!(site.ends(ids[0]).await, [Ended::Done]);
    site.each_happened_once(&ids).await;
}

async fn a_commit_that_never_arrives_holds_its_job_no_longer_than_half_a_lease(site: &Site) {
    let ids = site.enqueue(1).await;
    site.proxy.cut_commits(Some(HANDLER), CommitCut::Late(FOR_EVER), 1);
    let running = Running::start(site.one_by_one().lease(LEASE));
    site.until_finished(&ids).await;
    assert!(!word(site).await, "the server had enough of the silence");
    assert!(!only_commit(site).sent);
    assert_eq!(running.stop().await.resolved, [(ids[0], false)]);
    site.each_happened_once(&ids).await;
}

async fn a_late_commit_in_line_finds_its_connection_ended(site: &Site) {
    let ids = site.enqueue(3).await;
    site.proxy.cut_commits(Some(HANDLER), CommitCut::Late(FOR_EVER), 1);
    let open = Arc::new(Mutex::new(Vec::new()));
    let (kept, url) = (open.clone(), site.database.url.clone());
    let worker = site.in_line(3).on_event(move |event| {
        if let Event::CommitResolved { .. } = event {
            let open = format!("select count(*) from pg_stat_activity where datname = current_database() and application_name = '{HANDLER}'");
            let open = tokio::task::block_in_place(|| Handle::current().block_on(count(&url, &open)));
            kept.lock().unwrap().push(open);
        }
    });
    let running = site.work(worker, &ids).await;
    let commit = only_commit(site);
    assert_eq!((commit.carrier, commit.sent), (Carrier::Among, false));
    assert!(!word(site).await);
    assert_eq!(*open.lock().unwrap(), [0], "the worker ended it before it looked");
    assert_eq!(running.stop().await.resolved, [(ids[0], false)]);
    assert_eq!(site.ends(ids[0]).await, [Ended::Retried, Ended::Done]);
    site.each_happened_once(&ids).await;
}

async fn a_late_commit_in_line_finds_its_job_done_by_the_next_attempt(site: &Site) {
    let ids = site.enqueue(3).await;
    site.proxy.cut_commits(Some(HANDLER), CommitCut::Late(FOR_EVER), 1);
    let running = site.work(site.in_line_under_another_name(3), &ids).await;
    site.proxy.calm();
    assert!(!word(site).await, "its token holds no longer");
    assert!(only_commit(site).sent);
    assert_eq!(running.stop().await.resolved, [(ids[0], false)]);
    assert_eq!(site.ends(ids[0]).await, [Ended::Retried, Ended::Done]);
    site.each_happened_once(&ids).await;
}

/// The narrowest window there is: the look-up finds the lease, and the COMMIT arrives before the retry is written. The
/// COMMIT holds, and the retry changes nothing.
async fn a_late_commit_in_line_that_overtakes_the_retry_stands(site: &Site) {
    let ids = site.enqueue(3).await;
    site.proxy.cut_commits(Some(HANDLER), CommitCut::Late(FOR_EVER), 1);
    let proxy = Arc::downgrade(&site.proxy);
    let worker = site.in_line_under_another_name(3).on_event(move |event| {
        let (Event::CommitResolved { .. }, Some(proxy)) = (event, proxy.upgrade()) else {
            return;
        };
        proxy.calm();
        let heard = async || {
            let events = proxy.events();
            events.iter().any(|e| e.commit.is_some_and(|c| c.committed.is_some()))
        };
        // The retry is written when this is over.
        tokio::task::block_in_place(|| Handle::current().block_on(until("the server's word", heard)));
    });
    let running = site.work(worker, &ids).await;
    assert!(word(site).await);
    let stopped = running.stop().await;
    assert_eq!(stopped.resolved, [(ids[0], false)], "it was looked for too early");
    assert_eq!(stopped.counters.lease_lost(), 1);
    assert_eq!(site.ends(ids[0]).await, [Ended::Done]);
    site.each_happened_once(&ids).await;
}

/// The orders of a handler that is to be cut off from everything.
struct Told {
    proxy: Option<Arc<Proxy>>,
    way: Way,
    cut_off: AtomicBool,
}

/// From its first write on, nothing gets through in one direction.
async fn into_a_hole(cx: Ctx<Told>, _: Note, mut tx: Tx) -> Outcome {
    write(&mut tx, cx.id()).await?;
    let told = cx.state();
    if let Some(proxy) = &told.proxy
        && !told.cut_off.swap(true, Ordering::Relaxed)
    {
        proxy.begin(Trouble::Blackhole(told.way));
    }
    tx.done().ok()
}

/// A worker loses the network around its COMMIT, and then its lease; another one takes over, and the network comes
/// back.
async fn taken_over(site: &Site, way: Way) {
    let worker = |url: &str, proxy| {
        Worker::new(&Rowlock::open(url).unwrap())
            .queue("default", 1)
            .prefetch(3)
            .lease(LEASE)
            .state(Told {
                proxy,
                way,
                cut_off: AtomicBool::new(false),
            })
            .handle(atomic(into_a_hole).backoff(AT_ONCE))
    };
    let mut ids = site.enqueue(3).await;
    let cut_off = Running::start(worker(&site.url(), Some(site.proxy.clone())));
    until("the COMMIT or its reply to be kept back", async || {
        let events = site.proxy.events();
        events
            .iter()
            .any(|event| event.commit.is_some() && event.name == HANDLER)
    })
    .await;
    let other = Running::start(worker(&site.database.url, None));
    site.until_finished(&ids).await;
    assert!(other.stop().await.counters.expired() >= 1, "the other one took over");

    site.proxy.calm();
    let more = site.enqueue(2).await;
    site.until_finished(&more).await;
    ids.extend(more);
    let Stopped { counters, resolved } = cut_off.stop().await;
    assert!(counters.cut_off() >= 1, "it had stopped its handlers");
    assert!(counters.lease_lost() >= 1, "it was told that others took over");
    site.each_happened_once(&ids).await;
    let committed = way == Way::Down;
    // None if the answer came after all, before the worker had given up on it.
    assert!(
        resolved.iter().all(|found| *found == (ids[0], committed)),
        "{resolved:?}"
    );
    let wanted: &[Ended] = match committed {
        true => &[Ended::Done],
        false => &[Ended::Lost, Ended::Done],
    };
    assert_eq!(site.ends(ids[0]).await, wanted);
}

async fn a_commit_kept_back_past_the_lease_is_lost_and_done_by_another(site: &Site) {
    taken_over(site, Way::Up).await;
}

async fn a_reply_kept_back_past_the_lease_leaves_the_job_done(site: &Site) {
    taken_over(site, Way::Down).await;
}

mod tests {
    crate::proxy::site::cases!(migrated:
        a_late_commit_is_waited_for_by_the_look_up,
        a_commit_that_never_arrives_holds_its_job_no_longer_than_half_a_lease,
        a_late_commit_in_line_finds_its_connection_ended,
        a_late_commit_in_line_finds_its_job_done_by_the_next_attempt,
        a_late_commit_in_line_that_overtakes_the_retry_stands,
        a_commit_kept_back_past_the_lease_is_lost_and_done_by_another,
        a_reply_kept_back_past_the_lease_leaves_the_job_done,
    );
}
