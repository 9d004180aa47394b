//! The network fails as a whole, for longer than a lease. The same worker goes on when it is back, and nothing happened
//! twice.

use std::time::Duration;

use proof::proxy::{Kind, Trouble, Way};

use super::site::{LEASE, Running, Site, until};

/// Jobs before the trouble, in it, and after it.
const JOBS: usize = 20;

/// These troubles come while jobs are done, and last until the worker's lease is over.
async fn survives(site: &Site, troubles: &[Trouble], kinds: &[Kind]) {
    let mut ids = site.enqueue(JOBS).await;
    let running = Running::start(site.worker(&site.url(), 2, JOBS, 1).lease(LEASE));
    site.until_finished(&ids).await;

    let more = site.enqueue(JOBS).await;
    until("work to be under way", async || {
        site.count("select count(*) from ledger").await > JOBS as i64
    })
    .await;
    for trouble in troubles {
        site.proxy.begin(*trouble);
    }
    if troubles.contains(&Trouble::Refuse) {
        site.proxy.reset();
    }
    ids.extend(more);
    ids.extend(site.enqueue(JOBS).await);
    let lease_s = LEASE.as_secs();
    let alive = format!("select count(*) from rowlock.worker where beat > clock_timestamp() - interval '{lease_s} s'");
    until("the lease to be over", async || {
        kinds.iter().all(|kind| site.happened(*kind) >= 1) && site.count(&alive).await == 0
    })
    .await;
    site.proxy.calm();
    ids.extend(site.enqueue(JOBS).await);
    site.until_finished(&ids).await;
    let cut_off = running.stop().await.counters.cut_off();
    assert!(cut_off >= 1, "it had stopped its handlers");
    site.each_happened_once(&ids).await;
}

async fn a_worker_goes_on_after_nothing_reached_the_server_for_longer_than_a_lease(site: &Site) {
    survives(site, &[Trouble::Blackhole(Way::Up)], &[Kind::HoleUp]).await;
}

async fn a_worker_goes_on_after_nothing_came_back_for_longer_than_a_lease(site: &Site) {
    survives(site, &[Trouble::Blackhole(Way::Down)], &[Kind::HoleDown]).await;
}

async fn a_worker_goes_on_after_silence_both_ways_for_longer_than_a_lease(site: &Site) {
    let silence = [Trouble::Blackhole(Way::Up), Trouble::Blackhole(Way::Down)];
    survives(site, &silence, &[Kind::HoleUp]).await;
}

async fn a_worker_goes_on_after_being_turned_away_for_longer_than_a_lease(site: &Site) {
    survives(site, &[Trouble::Refuse], &[Kind::Refused, Kind::Reset]).await;
}

async fn resets_in_the_middle_of_everything_double_nothing(site: &Site) {
    const RESETS: i64 = 40;
    let ids = site.enqueue(RESETS as usize * 5).await;
    let running = Running::start(site.worker(&site.url(), 2, 20, 1));
    for reset in 1..=RESETS {
        until("a few more jobs to be done", async || {
            site.count("select count(*) from ledger").await >= reset * 4
        })
        .await;
        // On a busy machine the worker may have no connection yet after the reset before.
        until("a connection to reset", async || {
            site.proxy.reset();
            site.happened(Kind::Reset) >= reset as usize
        })
        .await;
    }
    site.until_finished(&ids).await;
    running.stop().await;
    site.each_happened_once(&ids).await;
}

async fn a_slow_network_that_writes_byte_by_byte_costs_nothing_but_time(site: &Site) {
    site.proxy.begin(Trouble::OneByte);
    site.proxy.begin(Trouble::Latency {
        base: Duration::from_millis(2),
        jitter: Duration::from_millis(5),
    });
    let ids = site.enqueue(JOBS).await;
    let running = site.work(site.in_line(JOBS), &ids).await;
    assert!(site.happened(Kind::OneByte) >= 2 && site.happened(Kind::Latency) >= 2);
    assert_eq!((running.stop().await.resolved.len(), site.tried_again().await), (0, 0));
    site.each_happened_once(&ids).await;
}

mod tests {
    crate::proxy::site::cases!(migrated:
        a_worker_goes_on_after_nothing_reached_the_server_for_longer_than_a_lease,
        a_worker_goes_on_after_nothing_came_back_for_longer_than_a_lease,
        a_worker_goes_on_after_silence_both_ways_for_longer_than_a_lease,
        a_worker_goes_on_after_being_turned_away_for_longer_than_a_lease,
        resets_in_the_middle_of_everything_double_nothing,
        a_slow_network_that_writes_byte_by_byte_costs_nothing_but_time,
    );
}
