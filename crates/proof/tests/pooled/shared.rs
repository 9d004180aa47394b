//! What a pooler changes: servers are shared, transaction by transaction, and may be other ones the next time.

use std::{future::pending, sync::Arc, time::Duration};

use proof::{bed::Database, cluster::Cluster, pooler::Pooler};
use rowlock::{BegunByHand, Completed, Ended, Job, State, atomic, staged};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, postgres::PgListener};
use tokio::sync::Notify;

use super::{
    cases::{AT_ONCE, Bed, Note, Running, until, write},
    db::{Ctx, Rowlock, Staged, Tx, Worker},
};

/// The bed's pooler lends so few that everybody meets everybody's leftovers.
fn narrow(bed: &Bed, servers: usize) -> &Pooler {
    let pooler = bed.database.pooler.as_ref().unwrap();
    pooler.point_at(&bed.database.url, servers).unwrap();
    pooler
}

/// The driver gives its statements the same names on every connection, so on shared servers they would meet.
async fn statements_of_handlers_on_shared_servers_do_not_meet(bed: &Bed) {
    narrow(bed, 3);
    let ids = bed
        .rowlock
        .enqueue_all_now((0..200).map(|n| Note::new(&n.to_string())))
        .await
        .unwrap();
    // All of one shape, so that one taken for another would go unnoticed but for its answer.
    let handler = |cx: Ctx, job: Note, mut tx: Tx| async move {
        let n: i64 = job.text.parse().unwrap_or(-1);
        for step in 0..3 {
            let text = format!("select $1::bigint * 10 + {}", (n + step) % 7);
            let got: i64 = sqlx::query_scalar(sqlx::AssertSqlSafe(text))
                .bind(n)
                .fetch_one(&mut *tx)
                .await?;
            assert_eq!(got, n * 10 + (n + step) % 7);
        }
        write(&mut tx, cx.id(), &job.text).await?;
        tx.done().ok()
    };
    bed.work(bed.worker().handle(atomic(handler)), &ids).await;
    for id in ids {
        assert_eq!(bed.ends(id).await, [Ended::Done]);
    }
    assert_eq!(bed.ledger().await, 200);
}

/// Two clients that take turns on one server: neither finds there what it parsed before, unless it is in a transaction.
async fn a_callers_connection_may_be_in_a_transaction_or_in_none(bed: &Bed) {
    let pooler = narrow(bed, 1);
    let url = &bed.database.url;
    let (mut one, mut two) = (pooler.connect(url).await.unwrap(), pooler.connect(url).await.unwrap());
    for round in 0..10 {
        for conn in [&mut one, &mut two] {
            let _ = bed
                .rowlock
                .enqueue(&mut BegunByHand::new(conn), Note::new("bare"))
                .await
                .unwrap();
        }
        let mut tx = one.begin().await.unwrap();
        let _ = bed.rowlock.enqueue(&mut tx, Note::new("kept")).await.unwrap();
        tx.commit().await.unwrap();
        let mut tx = two.begin().await.unwrap();
        let _ = bed.rowlock.enqueue(&mut tx, Note::new("never")).await.unwrap();
        tx.rollback().await.unwrap();
        let name = format!("name {round}");
        let answered = bed
            .rowlock
            .complete(&mut BegunByHand::new(&mut one), &name, &1)
            .await
            .unwrap();
        assert_eq!(answered, Completed::Now(0));
        let twice = bed
            .rowlock
            .complete(&mut BegunByHand::new(&mut two), &name, &1)
            .await
            .unwrap();
        assert!(!matches!(twice, Completed::Now(_)), "{twice:?}");
    }
    let kept = "select count(*) from rowlock.job where payload::text like '%kept%'";
    let never = "select count(*) from rowlock.job where payload::text like '%never%'";
    let all = "select count(*) from rowlock.ready";
    let found = (bed.count(kept).await, bed.count(never).await, bed.count(all).await);
    assert_eq!(found, (10, 0, 30));
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "brief", time_limit = "400ms", attempts = 1)]
struct Brief {}

/// A server that was a hung handler's may be anybody's by the time that the handler is cut off.
async fn cutting_a_handler_off_ends_nobody_elses_transaction(bed: &Bed) {
    narrow(bed, 2);
    let (gone, begun) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (left, cut) = (gone.clone(), begun.clone());
    let hang = move |_: Ctx, _: Brief, mut tx: Tx| {
        let gone = left.clone();
        async move {
            sqlx::raw_sql("commit").execute(&mut *tx).await?;
            gone.notify_one();
            pending::<()>().await;
            tx.done().ok()
        }
    };
    let long = move |cx: Ctx, job: Note, mut tx: Tx| {
        let begun = cut.clone();
        async move {
            write(&mut tx, cx.id(), &job.text).await?;
            begun.notify_one();
            // Longer than the other one may take.
            tokio::time::sleep(Duration::from_secs(2)).await;
            write(&mut tx, cx.id(), &job.text).await?;
            tx.done().ok()
        }
    };
    let running = Running::start(bed.worker().handle(atomic(hang)).handle(atomic(long)));
    let hung = bed.rowlock.enqueue_now(Brief {}).await.unwrap().id();
    gone.notified().await;
    let other = bed.note("x").await;
    begun.notified().await;
    until("both to stand still", async || {
        bed.job(hung).await.state == State::Case && bed.job(other).await.state == State::Finished
    })
    .await;
    running.stop().await;
    assert_eq!(bed.ends(other).await, [Ended::Done]);
    assert_eq!(bed.ledger().await, 2);
}

/// A URL that does not say so mixes up sessions; most poolers refuse what the driver sends then.
async fn a_url_that_does_not_name_its_pooler_is_told_what_to_add(bed: &Bed) {
    let url = bed.database.queue_url.trim_end_matches("?pgbouncer=true");
    let said = Rowlock::connect(url).await.map(drop).unwrap_err();
    let mut text = said.to_string();
    let mut source = std::error::Error::source(&said);
    while let Some(error) = source {
        text += &format!(": {error}");
        source = error.source();
    }
    assert!(text.contains("add pgbouncer=true to the URL"), "{text}");
}

/// A transaction that only reads is no server that takes no writes.
async fn a_list_of_hosts_and_transactions_that_read_go_together(bed: &Bed) {
    let url = &bed.database.queue_url;
    let (user, rest) = url.split_once('@').unwrap();
    let (host, rest) = rest.split_once('/').unwrap();
    let rowlock = Rowlock::open(&format!("{user}@{host},{host}/{rest}")).unwrap();
    let handler = |mut cx: Staged, _: Note| async move {
        let mut prepare = cx.prepare().await?;
        let one: i64 = sqlx::query_scalar("select 1::bigint").fetch_one(&mut *prepare).await?;
        assert_eq!(one, 1);
        prepare.commit().await?;
        cx.done().ok()
    };
    let id = bed.note("x").await;
    bed.work(Worker::new(&rowlock).queue("default", 2).handle(staged(handler)), &[id])
        .await;
    assert_eq!(bed.ends(id).await, [Ended::Done]);
}

/// Nobody listens through a pooler, but those who are connected directly hear what is enqueued through one.
async fn a_wake_sent_through_a_pooler_is_heard_by_those_who_listen(bed: &Bed) {
    let mut listener = PgListener::connect(&bed.database.url).await.unwrap();
    listener.listen("rowlock_wake").await.unwrap();
    let _ = bed.note("x").await;
    let heard = tokio::time::timeout(Duration::from_secs(10), listener.recv()).await;
    let queue_no = bed.count("select queue_no from rowlock.ready").await;
    assert_eq!(heard.unwrap().unwrap().payload(), queue_no.to_string());
}

/// Its clients are cut off, and so are the servers; nobody has to start the worker again.
async fn a_worker_outlives_its_pooler(mut database: Database) {
    let rowlock = Rowlock::open(&database.queue_url).unwrap();
    rowlock.migrate().await.unwrap();
    let handler = |_: Ctx, _: Note, tx: Tx| async move { tx.done().ok() };
    let worker = Worker::new(&rowlock).queue("default", 4).handle(atomic(handler));
    let running = Running::start(worker);
    let done = async |note: &str| {
        let id = rowlock.enqueue_now(Note::new(note)).await.unwrap().id();
        until("it to be done", async || {
            let job = rowlock.observe().job(id).await;
            job.is_ok_and(|job| job.is_some_and(|job| job.state == State::Finished))
        })
        .await;
    };
    done("before").await;
    let (url, pooler) = (database.url.clone(), database.pooler.as_mut().unwrap());
    pooler.kill();
    pooler.again(&url).await.unwrap();
    until("the way to be free again", async || {
        rowlock.observe().status().await.is_ok()
    })
    .await;
    done("after").await;
    running.stop().await;
    database.remove().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn outlives_its_pooler() {
    for server in super::db::servers() {
        let database = Database::fresh(&server, "shared::a_worker_outlives_its_pooler").await;
        a_worker_outlives_its_pooler(database.unwrap()).await;
    }
}

/// Behind a pooler a client may be on another server without having noticed. There the same ids and epochs may be given
/// out a second time, so nothing is claimed under the id that the worker had before.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_worker_that_is_sent_to_another_server_takes_another_id() {
    if proof::pooler::program().is_none() {
        return;
    }
    let [one, two] = [Cluster::start().await.unwrap(), Cluster::start().await.unwrap()];
    for cluster in [&one, &two] {
        let rowlock = Rowlock::open(&cluster.server().url).unwrap();
        rowlock.migrate().await.unwrap();
    }
    let pooler = Pooler::before(&one.server().url, 6).await.unwrap().unwrap();
    let rowlock = Rowlock::open(&pooler.url(&one.server().url).unwrap()).unwrap();
    let handler = |_: Ctx, _: Note, tx: Tx| async move { tx.done().ok() };
    let running = Running::start(
        Worker::new(&rowlock)
            .queue("default", 4)
            .handle(atomic(handler).backoff(AT_ONCE))
            .lease(Duration::from_secs(2)),
    );
    let mut workers = Vec::new();
    for cluster in [&one, &two] {
        pooler.point_at(&cluster.server().url, 6).unwrap();
        let there = Rowlock::open(&cluster.server().url).unwrap();
        let id = there.enqueue_now(Note::new("x")).await.unwrap().id();
        until("it to be done there", async || {
            there.observe().job(id).await.unwrap().unwrap().state == State::Finished
        })
        .await;
        workers.push(there.observe().attempts(id).await.unwrap().pop().unwrap().worker);
    }
    running.stop().await;
    assert_ne!(workers[0], workers[1]);
}

mod tests {
    super::super::cases!(
        statements_of_handlers_on_shared_servers_do_not_meet,
        a_callers_connection_may_be_in_a_transaction_or_in_none,
        cutting_a_handler_off_ends_nobody_elses_transaction,
        a_url_that_does_not_name_its_pooler_is_told_what_to_add,
        a_list_of_hosts_and_transactions_that_read_go_together,
        a_wake_sent_through_a_pooler_is_heard_by_those_who_listen,
    );
}
