//! A worker whose COMMITs are cut: it looks up what happened, and every job happens once.

use std::time::Duration;

use proof::proxy::{Carrier, Commit, CommitCut, CommitCuts, Kind};
use rowlock::Ended;

use super::site::{FOR_EVER, HANDLER, LEASE, Running, Site, Stopped, until};

/// Jobs per case; the first ones lose their commit's answer.
const JOBS: usize = 8;
const CUTS: usize = 3;

/// Runs jobs in line or one by one, cuts the first COMMITs of their handlers, and checks that the worker, the proxy and
/// the database tell the same story. `certain` is what becomes of a COMMIT that is cut like this.
async fn each_once(site: &Site, cut: CommitCut, carrier: Carrier, certain: bool) {
    let worker = match carrier {
        Carrier::Among => site.in_line(JOBS),
        _ => site.one_by_one(),
    };
    let ids = site.enqueue(JOBS).await;
    site.proxy.cut_commits(Some(HANDLER), cut, CUTS);
    let running = site.work(worker, &ids).await;
    let Stopped { counters, resolved } = running.stop().await;

    let commits: Vec<Commit> = site.proxy.events().iter().filter_map(|event| event.commit).collect();
    assert_eq!(commits.len(), CUTS);
    assert!(commits.iter().all(|commit| commit.carrier == carrier), "{commits:?}");
    let committed = if certain { CUTS } else { 0 };
    let wanted = CommitCuts {
        committed,
        not_committed: CUTS - committed,
        unknown: 0,
    };
    assert_eq!(site.until_cut(CUTS).await, wanted);
    assert_eq!(resolved.len(), CUTS);
    assert!(
        resolved.iter().all(|(_, committed)| *committed == certain),
        "{resolved:?}"
    );

    site.each_happened_once(&ids).await;
    for id in ids {
        let cut_off = resolved.iter().any(|(resolved, _)| *resolved == id);
        let wanted: &[Ended] = match (cut_off, certain) {
            (true, false) => &[Ended::Retried, Ended::Done],
            _ => &[Ended::Done],
        };
        assert_eq!(site.ends(id).await, wanted);
    }
    assert_eq!(counters.lease_lost(), 0);
}

async fn a_commit_cut_before_it_was_sent_is_tried_again(site: &Site) {
    each_once(site, CommitCut::BeforeSent, Carrier::Alone, false).await;
}

async fn a_commit_cut_before_it_was_sent_is_tried_again_in_line(site: &Site) {
    each_once(site, CommitCut::BeforeSent, Carrier::Among, false).await;
}

async fn a_commit_whose_answer_is_lost_is_found(site: &Site) {
    each_once(site, CommitCut::Unanswered, Carrier::Alone, true).await;
}

async fn a_commit_whose_answer_is_lost_is_found_in_line(site: &Site) {
    each_once(site, CommitCut::Unanswered, Carrier::Among, true).await;
}

async fn a_commit_cut_in_the_middle_of_its_answer_is_found(site: &Site) {
    each_once(site, CommitCut::MidFrame, Carrier::Alone, true).await;
}

async fn a_commit_cut_in_the_middle_of_its_answer_is_found_in_line(site: &Site) {
    each_once(site, CommitCut::MidFrame, Carrier::Among, true).await;
}

async fn a_commit_cut_behind_its_answer_is_found(site: &Site) {
    each_once(site, CommitCut::AfterComplete, Carrier::Alone, true).await;
}

async fn a_commit_cut_behind_its_answer_is_found_in_line(site: &Site) {
    each_once(site, CommitCut::AfterComplete, Carrier::Among, true).await;
}

async fn a_commit_cut_before_the_server_is_ready_again_is_found(site: &Site) {
    each_once(site, CommitCut::BeforeReady, Carrier::Alone, true).await;
}

async fn a_commit_cut_before_the_server_is_ready_again_is_found_in_line(site: &Site) {
    each_once(site, CommitCut::BeforeReady, Carrier::Among, true).await;
}

/// Alone, the settle before the COMMIT holds the lease's row, so the look-up waits for the COMMIT, however slow it is.
async fn a_commit_under_way_is_waited_for_and_found(site: &Site) {
    each_once(site, CommitCut::AfterSent, Carrier::Alone, true).await;
}

/// With the settle in the same message nothing is locked before it comes. So the worker ends its connection first, in
/// time or not, and the look-up finds what it came to.
async fn a_commit_under_way_in_line_happens_or_is_tried_again_and_never_both(site: &Site) {
    let ids = site.enqueue(JOBS).await;
    site.proxy.cut_commits(Some(HANDLER), CommitCut::AfterSent, CUTS);
    let running = site.work(site.in_line(JOBS), &ids).await;
    let Stopped { counters, resolved } = running.stop().await;
    let cuts = site.until_cut(CUTS).await;
    assert_eq!((resolved.len(), cuts.committed + cuts.not_committed), (CUTS, CUTS));
    let found = resolved.iter().filter(|(_, committed)| *committed).count();
    assert_eq!((found, counters.lease_lost()), (cuts.committed, 0));
    assert_eq!(site.tried_again().await, cuts.not_committed as i64);
    site.each_happened_once(&ids).await;
}

/// The worker gives up waiting at the end of a lease that it keeps renewing, and looks up what happened.
async fn delayed_past_the_lease(site: &Site, carrier: Carrier) {
    let worker = match carrier {
        Carrier::Among => site.in_line(JOBS),
        _ => site.one_by_one(),
    };
    let ids = site.enqueue(JOBS).await;
    site.proxy
        .cut_commits(Some(HANDLER), CommitCut::DelayedReply(FOR_EVER), 1);
    let running = site.work(worker.lease(LEASE), &ids).await;
    let commit = site.proxy.events()[0].commit.unwrap();
    assert_eq!((commit.carrier, commit.sent), (carrier, true));
    assert_eq!(site.happened(Kind::DelayedReply), 1);
    site.proxy.calm();
    assert_eq!(running.stop().await.resolved, [(ids[0], true)]);
    assert_eq!(site.ends(ids[0]).await, [Ended::Done]);
    site.each_happened_once(&ids).await;
}

async fn a_reply_delayed_past_the_lease_doubles_nothing(site: &Site) {
    delayed_past_the_lease(site, Carrier::Alone).await;
}

async fn a_reply_delayed_past_the_lease_doubles_nothing_in_line(site: &Site) {
    delayed_past_the_lease(site, Carrier::Among).await;
}

async fn a_reply_that_is_only_slow_is_waited_for(site: &Site) {
    let slow = CommitCut::DelayedReply(Duration::from_millis(300));
    let ids = site.enqueue(JOBS).await;
    site.proxy.cut_commits(Some(HANDLER), slow, CUTS);
    let stopped = site.work(site.in_line(JOBS), &ids).await.stop().await;
    assert_eq!(site.happened(Kind::DelayedReply), CUTS);
    assert_eq!((stopped.resolved.len(), site.tried_again().await), (0, 0));
    site.each_happened_once(&ids).await;
}

/// Claims, settlements and look-ups have separate COMMITs.
async fn a_look_up_that_is_cut_itself_is_repeated(site: &Site) {
    let ids = site.enqueue(JOBS).await;
    site.proxy.cut_commits(Some(HANDLER), CommitCut::Unanswered, CUTS);
    site.proxy.cut_commits(Some("rowlock engine"), CommitCut::Unanswered, 2);
    site.proxy.cut_commits(Some("rowlock engine"), CommitCut::BeforeSent, 2);
    let running = site.work(site.in_line(JOBS), &ids).await;
    until("every cut", async || site.happened(Kind::BeforeSent) == 2).await;
    assert_eq!(running.stop().await.resolved.len(), CUTS);
    site.each_happened_once(&ids).await;
}

/// The look-up cannot be made, the worker gets the signal to stop, and its last write finds no lease: its commit had
/// happened.
async fn a_commit_that_happened_is_no_lost_lease_when_the_worker_stops_before_it_knows(site: &Site) {
    let ids = site.enqueue(1).await;
    site.proxy
        .cut_commits(Some(HANDLER), CommitCut::DelayedReply(FOR_EVER), 1);
    let running = Running::start(site.one_by_one().grace(Duration::from_millis(50)));
    let done = "select count(*) from rowlock.outcome where outcome = 'done'";
    until("the commit", async || site.count(done).await == 1).await;
    let mut other = site.direct().await;
    let lock = "begin; lock table rowlock.lease in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
    site.proxy.reset();
    let stopping = tokio::spawn(running.stop());
    let settling = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' \
                    and query like '-- Records how attempts ended%'";
    until("the stopped attempt's end to be written", async || {
        site.count(settling).await > 0
    })
    .await;
    sqlx::raw_sql("rollback").execute(&mut other).await.unwrap();
    let Stopped { counters, resolved } = stopping.await.unwrap();
    assert_eq!(resolved, [(ids[0], true)]);
    assert_eq!((counters.lease_lost(), counters.settled(Ended::Done)), (0, 1));
    assert_eq!(site.ends(ids[0]).await, [Ended::Done]);
    site.each_happened_once(&ids).await;
}

mod tests {
    crate::proxy::site::cases!(migrated:
        a_commit_that_happened_is_no_lost_lease_when_the_worker_stops_before_it_knows,
        a_commit_cut_before_it_was_sent_is_tried_again,
        a_commit_cut_before_it_was_sent_is_tried_again_in_line,
        a_commit_whose_answer_is_lost_is_found,
        a_commit_whose_answer_is_lost_is_found_in_line,
        a_commit_cut_in_the_middle_of_its_answer_is_found,
        a_commit_cut_in_the_middle_of_its_answer_is_found_in_line,
        a_commit_cut_behind_its_answer_is_found,
        a_commit_cut_behind_its_answer_is_found_in_line,
        a_commit_cut_before_the_server_is_ready_again_is_found,
        a_commit_cut_before_the_server_is_ready_again_is_found_in_line,
        a_commit_under_way_is_waited_for_and_found,
        a_commit_under_way_in_line_happens_or_is_tried_again_and_never_both,
        a_reply_delayed_past_the_lease_doubles_nothing,
        a_reply_delayed_past_the_lease_doubles_nothing_in_line,
        a_reply_that_is_only_slow_is_waited_for,
        a_look_up_that_is_cut_itself_is_repeated,
    );
}
