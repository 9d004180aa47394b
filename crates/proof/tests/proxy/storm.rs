//! Faults drawn by a seed, until each kind of them has happened: the suites that last longer are made of this.

use std::time::Duration;

use proof::proxy::{CommitCut, Kind, Trouble, Way};
use rowlock::JobId;

use super::site::{HANDLER, LEASE, Running, Site, until};

/// A fourth of all COMMITs is cut, half of them before they happen. What the worker found out, what the server said and
/// what the database has agree to the last one.
async fn of_hundreds_of_cut_commits_none_is_resolved_wrongly(site: &Site) {
    site.proxy.cut_rates(
        Some(HANDLER),
        &[
            (CommitCut::BeforeSent, 0.125),
            (CommitCut::Unanswered, 0.045),
            (CommitCut::AfterComplete, 0.03),
            (CommitCut::BeforeReady, 0.03),
            (CommitCut::MidFrame, 0.02),
        ],
    );
    let ids = site.enqueue(1000).await;
    // One slot after another in one half, so that COMMITs travel alone as well.
    let (line, lone) = (site.worker(&site.url(), 2, 50, 1), site.worker(&site.url(), 2, 0, 1));
    let (line, lone) = (Running::start(line), Running::start(lone));
    site.until_finished(&ids).await;
    site.proxy.calm();
    let stopped = [line.stop().await, lone.stop().await];
    let resolved = stopped.iter().flat_map(|worker| &worker.resolved);
    let resolved: Vec<&(JobId, bool)> = resolved.collect();

    let found = resolved.iter().filter(|(_, committed)| *committed).count();
    let cuts = site.proxy.commit_cuts(Some(HANDLER));
    println!("{cuts:?}");
    assert_eq!(
        (cuts.committed, cuts.not_committed, cuts.unknown),
        (found, resolved.len() - found, 0)
    );
    assert!(cuts.committed >= 60 && cuts.not_committed >= 60, "{cuts:?}");
    assert_eq!(site.tried_again().await, cuts.not_committed as i64);
    assert_eq!(
        stopped.iter().map(|worker| worker.counters.lease_lost()).sum::<u64>(),
        0
    );
    site.each_happened_once(&ids).await;
}

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// To COMMITs of every connection.
const CUTS: [(CommitCut, f64); 8] = [
    (CommitCut::BeforeSent, 0.04),
    (CommitCut::AfterSent, 0.04),
    (CommitCut::Unanswered, 0.02),
    (CommitCut::Late(ms(20)), 0.02),
    (CommitCut::AfterComplete, 0.02),
    (CommitCut::BeforeReady, 0.02),
    (CommitCut::MidFrame, 0.02),
    (CommitCut::DelayedReply(ms(100)), 0.02),
];

/// One after the other, each with a round of jobs.
const TROUBLES: [Trouble; 5] = [
    Trouble::Latency {
        base: ms(2),
        jitter: ms(10),
    },
    Trouble::Blackhole(Way::Up),
    Trouble::Blackhole(Way::Down),
    Trouble::OneByte,
    Trouble::Refuse,
];

async fn every_job_happens_once_in_a_storm_of_every_fault_there_is(site: &Site) {
    let (line, lone) = (site.worker(&site.url(), 2, 20, 1), site.worker(&site.url(), 2, 0, 1));
    let workers = [Running::start(line.lease(LEASE)), Running::start(lone.lease(LEASE))];
    let mut ids = site.enqueue(50).await;
    site.until_finished(&ids).await;
    site.proxy.cut_rates(None, &CUTS);
    let open = "select (select count(*) from rowlock.ready) + (select count(*) from rowlock.lease)";
    let mut rounds = 0;
    while Kind::ALL.iter().any(|kind| site.happened(*kind) < 2) {
        site.proxy.begin_for(TROUBLES[rounds % TROUBLES.len()], ms(300));
        ids.extend(site.enqueue(50).await);
        until("few jobs to be left", async || site.count(open).await < 25).await;
        site.proxy.reset();
        rounds += 1;
        assert!(rounds < 400, "not every fault has happened: {:?}", site.proxy.counts());
    }
    site.proxy.calm();
    println!("{} jobs, {:?}", ids.len(), site.proxy.counts());
    site.until_finished(&ids).await;
    for worker in workers {
        worker.stop().await;
    }
    site.each_happened_once(&ids).await;
}

mod tests {
    crate::proxy::site::cases!(migrated:
        of_hundreds_of_cut_commits_none_is_resolved_wrongly,
        every_job_happens_once_in_a_storm_of_every_fault_there_is,
    );
}
