//! The Redis pre-filter on a real redis-server, also killed, frozen and flushed; what it promises, and the windows that
//! it does not close.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]
#![allow(clippy::duplicate_mod, reason = "the same tests on two databases")]

/// The filter before `once`, on each database.
#[path = "redis"]
mod on_sqlite {
    mod db {
        pub(crate) use proof::bed::sqlite_server as servers;
        pub(crate) use rowlock::sqlite::Rowlock;
        pub(crate) type Backend = sqlx::Sqlite;
        pub(crate) const BEGIN: &str = "begin immediate";
    }

    #[path = "once.rs"]
    mod once;
}

#[path = "redis"]
mod on_postgres {
    mod db {
        pub(crate) use proof::bed::postgres_servers as servers;
        pub(crate) use rowlock::postgres::Rowlock;
        pub(crate) type Backend = sqlx::Postgres;
        pub(crate) const BEGIN: &str = "begin";
    }

    #[path = "once.rs"]
    mod once;
}

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use proof::bed::until;
use proof_redis::RedisServer;
use rowlock_redis::{Filter, Look};
use tokio::sync::Barrier;

const MINUTE: Duration = Duration::from_secs(60);

/// A server and a filter on it; the test is over before it began where there is none.
macro_rules! redis {
    () => {
        match RedisServer::start().await {
            Some(server) => server,
            None => return,
        }
    };
}

/// Patient, so that a busy machine does not turn answers into unknown ones.
async fn filter(server: &RedisServer, ttl: Duration) -> Filter {
    let filter = Filter::connect(&server.url(), ttl).await.unwrap();
    filter.timeout(Duration::from_secs(5))
}

fn is_first(look: &Look) -> bool {
    matches!(look, Look::First(_))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_fifty_that_look_at_once_one_is_first() {
    let server = redis!();
    // Two processes' worth of filters.
    let filters = [filter(&server, MINUTE).await, filter(&server, MINUTE).await];
    let together = Arc::new(Barrier::new(50));
    let mut racing = tokio::task::JoinSet::new();
    for n in 0..50 {
        let (filter, together) = (filters[n % 2].clone(), together.clone());
        racing.spawn(async move {
            together.wait().await;
            filter.first("k").await
        });
    }
    let all = racing.join_all().await;
    assert_eq!(all.iter().filter(|look| is_first(look)).count(), 1);
    assert_eq!(all.iter().filter(|look| **look == Look::Repeat).count(), 49);
    assert!(is_first(&filters[0].first("another").await));
    let apart = filters[0].clone().prefix("other-app:");
    assert!(
        is_first(&apart.first("k").await),
        "another prefix is another space of keys"
    );
}

#[tokio::test]
async fn a_key_is_remembered_for_its_time_and_no_longer() {
    let server = redis!();
    let filter = filter(&server, Duration::from_secs(1)).await;
    assert!(is_first(&filter.first("k").await));
    assert_eq!(filter.first("k").await, Look::Repeat);
    until("the key's time to be over", Duration::from_secs(10), || async {
        is_first(&filter.first("k").await).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_look_is_taken_back_only_by_its_own_mark() {
    let server = redis!();
    let filter = filter(&server, MINUTE).await;
    let Look::First(mark) = filter.first("k").await else {
        panic!("nobody was here before")
    };
    assert!(filter.forget(mark).await);
    let Look::First(late) = filter.first("k").await else {
        panic!("the key was taken back")
    };
    // Its time is over, and somebody else came: a late mark must not remove the other's key.
    server.tell(&["DEL", "rowlock:k"]).await.unwrap();
    let Look::First(theirs) = filter.first("k").await else {
        panic!("the key is gone")
    };
    assert!(!filter.forget(late).await);
    assert_eq!(filter.first("k").await, Look::Repeat);
    assert!(filter.forget(theirs).await);
}

#[tokio::test]
async fn a_killed_redis_is_unknown_and_costs_little_until_it_is_back() {
    let mut server = redis!();
    let filter = filter(&server, MINUTE).await;
    assert!(is_first(&filter.first("k").await));
    server.kill();
    let start = Instant::now();
    for _ in 0..2_000 {
        assert_eq!(filter.first("k").await, Look::Unknown);
    }
    let taken = start.elapsed();
    assert!(taken < Duration::from_secs(5), "2,000 looks at nobody took {taken:?}");
    server.again().await;
    until("the filter to find it again", Duration::from_secs(10), || async {
        (filter.first("other").await != Look::Unknown).then_some(())
    })
    .await;
    // What it stored before is gone: this is how a double gets through.
    assert!(is_first(&filter.first("k").await));
}

#[tokio::test]
async fn a_redis_that_was_never_there_is_unknown_and_no_error() {
    let mut server = redis!();
    server.kill();
    let filter = Filter::connect(&server.url(), MINUTE).await.unwrap();
    assert_eq!(filter.first("k").await, Look::Unknown);
    server.again().await;
    let filter = filter.timeout(Duration::from_secs(5));
    until("the filter to find it", Duration::from_secs(10), || async {
        is_first(&filter.first("k").await).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_frozen_redis_costs_a_look_no_more_than_its_limit() {
    let server = redis!();
    let filter = filter(&server, MINUTE).await;
    assert!(is_first(&filter.first("warm").await));
    let hasty = filter.clone().timeout(Duration::from_millis(50));
    server.freeze();
    let start = Instant::now();
    let look = hasty.first("k").await;
    let taken = start.elapsed();
    server.thaw();
    assert_eq!(look, Look::Unknown);
    assert!(
        taken < Duration::from_secs(2),
        "a look with a limit of 50 ms took {taken:?}"
    );
    // It did what it was asked, only too late: after an unknown answer the key may be set with nobody first.
    until("the late key to be there", Duration::from_secs(10), || async {
        (filter.first("k").await == Look::Repeat).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_full_redis_is_unknown_and_not_an_error() {
    let server = redis!();
    let filter = filter(&server, MINUTE).await;
    server.tell(&["CONFIG", "SET", "maxmemory", "1"]).await.unwrap();
    assert_eq!(filter.first("k").await, Look::Unknown);
    server.tell(&["CONFIG", "SET", "maxmemory", "0"]).await.unwrap();
    assert!(is_first(&filter.first("k").await), "the connection was kept");
}

/// The window in which a job is lost: nothing ties the look to the work.
#[tokio::test]
async fn without_a_ledger_a_crash_after_the_look_loses_the_job_until_the_keys_time_is_over() {
    let server = redis!();
    let filter = filter(&server, Duration::from_secs(1)).await;
    assert!(is_first(&filter.first("k").await));
    // Here its process dies, and the work was never done.
    assert_eq!(filter.first("k").await, Look::Repeat, "the redelivery is sent away");
    until("the key's time to be over", Duration::from_secs(10), || async {
        is_first(&filter.first("k").await).then_some(())
    })
    .await;
}

/// The window in which a double gets through: Redis may forget.
#[tokio::test]
async fn without_a_ledger_a_flush_lets_a_double_through() {
    let server = redis!();
    let filter = filter(&server, MINUTE).await;
    let mut work = 0;
    for _ in 0..2 {
        if is_first(&filter.first("k").await) {
            work += 1;
        }
        server.tell(&["FLUSHALL"]).await.unwrap();
    }
    assert_eq!(work, 2);
}

#[tokio::test]
async fn a_bad_url_or_time_is_refused() {
    for (url, ttl) in [
        ("http://localhost", MINUTE),
        ("redis://127.0.0.1/", Duration::ZERO),
        ("redis://127.0.0.1/", Duration::MAX),
    ] {
        assert!(Filter::connect(url, ttl).await.is_err(), "{url} {ttl:?}");
    }
}
