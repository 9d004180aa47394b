//! The filter as a first look before the ledger: whatever happens to Redis, each event has one effect and one answer.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use proof::bed::{Database, until};
use proof_redis::RedisServer;
use rowlock::Once;
use rowlock_redis::{Filter, Look};
use sqlx::{Pool, pool::PoolOptions};
use tokio_util::sync::CancellationToken;

use super::db::{BEGIN, Backend, Rowlock, servers};

const EVENTS: i64 = 60;
const CONSUMERS: usize = 6;

/// What one process has: the filter, the handle, a pool, and what it counted.
#[derive(Clone)]
struct Consumer {
    filter: Filter,
    rowlock: Rowlock,
    pool: Pool<Backend>,
    /// Looks by answer: first, repeat, unknown.
    looks: Arc<[AtomicU64; 3]>,
    /// The keys that Redis said nobody had come with.
    firsts: Arc<Mutex<Vec<String>>>,
    /// Repeats that were answered without a transaction.
    spared: Arc<AtomicU64>,
}

impl Consumer {
    async fn new(server: &RedisServer, database: &Database) -> Consumer {
        let rowlock = Rowlock::open(&database.url).unwrap();
        rowlock.migrate().await.unwrap();
        let pool = PoolOptions::new()
            .max_connections(8)
            .connect(&database.url)
            .await
            .unwrap();
        sqlx::raw_sql("create table effect (event bigint not null)")
            .execute(&pool)
            .await
            .unwrap();
        let filter = Filter::connect(&server.url(), Duration::from_secs(60)).await.unwrap();
        Consumer {
            // Patient, so that a busy machine does not turn answers into unknown ones.
            filter: filter.timeout(Duration::from_secs(5)),
            rowlock,
            pool,
            looks: Arc::default(),
            firsts: Arc::default(),
            spared: Arc::default(),
        }
    }

    async fn look(&self, key: &str) -> Look {
        let look = self.filter.first(key).await;
        let place = match look {
            Look::First(_) => {
                self.firsts.lock().unwrap().push(key.to_owned());
                0
            }
            Look::Repeat => 1,
            Look::Unknown => 2,
        };
        self.looks[place].fetch_add(1, Ordering::Relaxed);
        look
    }

    /// One delivery, as the documentation shows it; the answer.
    async fn deliver(&self, event: i64) -> rowlock::Result<i64> {
        let key = format!("event:{event}");
        if let Look::Repeat = self.look(&key).await {
            let mut conn = self.pool.acquire().await.unwrap();
            if let Some(answer) = self.rowlock.seen(&mut conn, &key).request(&event).await? {
                self.spared.fetch_add(1, Ordering::Relaxed);
                return answer.get();
            }
        }
        let mut tx = self.pool.begin_with(BEGIN).await.unwrap();
        let answer = match self.rowlock.once(&mut tx, &key).request(&event).await? {
            Once::Seen(answer) => answer.get()?,
            Once::First(slot) => {
                let insert = sqlx::query("insert into effect (event) values ($1)").bind(event);
                insert.execute(&mut *tx).await.unwrap();
                slot.store(&mut tx, &(event * 10)).await?;
                event * 10
            }
        };
        tx.commit().await.unwrap();
        Ok(answer)
    }

    async fn effects(&self) -> (i64, i64) {
        let counted = sqlx::query_as("select count(*), count(distinct event) from effect");
        counted.fetch_one(&self.pool).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_redis_killed_and_flushed_in_the_middle_loses_and_doubles_nothing() {
    for on in servers() {
        let Some(mut server) = RedisServer::start().await else {
            return;
        };
        let case = "redis::a_redis_killed_and_flushed_in_the_middle_loses_and_doubles_nothing";
        let database = Database::fresh(&on, case).await.unwrap();
        let consumer = Consumer::new(&server, &database).await;
        let (sent, over) = (Arc::new(AtomicU64::new(0)), CancellationToken::new());
        let mut consumers = tokio::task::JoinSet::new();
        for _ in 0..CONSUMERS {
            let (consumer, sent, over) = (consumer.clone(), sent.clone(), over.clone());
            consumers.spawn(async move {
                // Every event comes again and again, until all the trouble is over and then once more.
                for last in [false, true] {
                    while last || !over.is_cancelled() {
                        for event in 0..EVENTS {
                            assert_eq!(consumer.deliver(event).await.unwrap(), event * 10);
                            sent.fetch_add(1, Ordering::Relaxed);
                        }
                        if last {
                            break;
                        }
                    }
                }
            });
        }
        for trouble in ["flush", "kill", "flush", "kill"] {
            let due = sent.load(Ordering::Relaxed) + 200;
            until("deliveries to have come", Duration::from_secs(60), || async {
                (sent.load(Ordering::Relaxed) >= due).then_some(())
            })
            .await;
            let seen = |place: usize| consumer.looks[place].load(Ordering::Relaxed);
            let [first, _, unknown] = [0, 1, 2].map(seen);
            match trouble {
                "flush" => drop(server.tell(&["FLUSHALL"]).await.unwrap()),
                _ => {
                    server.kill();
                    let away = || async { (seen(2) > unknown).then_some(()) };
                    until("looks to go unanswered", Duration::from_secs(60), away).await;
                    server.again().await;
                }
            }
            let forgotten = || async { (seen(0) > first).then_some(()) };
            until("somebody to be first again", Duration::from_secs(60), forgotten).await;
        }
        over.cancel();
        consumers.join_all().await;

        assert_eq!(consumer.effects().await, (EVENTS, EVENTS), "one effect per event");
        let [first, repeat, unknown] = [0, 1, 2].map(|n: usize| consumer.looks[n].load(Ordering::Relaxed));
        let spared = consumer.spared.load(Ordering::Relaxed);
        println!(
            "{}: {first} first, {repeat} repeats ({spared} without a transaction), {unknown} unknown",
            on.label
        );
        let mut firsts = consumer.firsts.lock().unwrap().clone();
        firsts.sort_unstable();
        firsts.dedup();
        assert!(firsts.len() < first as usize, "Redis forgot, so some were first twice");
        assert!(unknown > 0 && spared > 0);
        consumer.pool.close().await;
        database.remove().await.unwrap();
    }
}

/// The look said first, and its process died before it wrote anything.
#[tokio::test]
async fn a_repeat_whose_first_died_is_still_done() {
    for on in servers() {
        let Some(server) = RedisServer::start().await else {
            return;
        };
        let case = "redis::a_repeat_whose_first_died_is_still_done";
        let database = Database::fresh(&on, case).await.unwrap();
        let consumer = Consumer::new(&server, &database).await;
        assert!(matches!(consumer.look("event:7").await, Look::First(_)));

        assert_eq!(consumer.deliver(7).await.unwrap(), 70);
        assert_eq!(consumer.deliver(7).await.unwrap(), 70);
        assert_eq!(consumer.effects().await, (1, 1));
        assert_eq!(
            consumer.looks[1].load(Ordering::Relaxed),
            2,
            "both were told that somebody was here"
        );
        assert_eq!(
            consumer.spared.load(Ordering::Relaxed),
            1,
            "the second found the answer"
        );
        consumer.pool.close().await;
        database.remove().await.unwrap();
    }
}
