//! The same scene with each driver: an order and its job in one transaction, rolled back and committed; a repeat; a
//! conflict; bad input. A worker of the library runs what was enqueued.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use proof::bed::{Database, postgres_servers, until};
use rowlock::{
    Job, atomic,
    postgres::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use rowlock_drivers::{Enqueue, Error, Hold, Put};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "charge", queue = "billing", attempts = 3)]
struct Charge {
    order: i64,
}

/// What every driver enqueues.
fn charge(order: i64) -> Enqueue {
    Enqueue::new(&Charge { order })
        .key("charge:1")
        .hold(Hold::ForEver)
        .priority(2)
        .tag("vip")
}

/// What every driver is refused.
fn nonsense() -> Enqueue {
    Enqueue::new(&Charge { order: 1 }).priority(9)
}

/// What each driver's steps must come to.
struct Seen<E> {
    rolled_back: Put,
    first: Put,
    again: Put,
    conflict: Error<E>,
    invalid: Error<E>,
}

impl<E: std::fmt::Debug + std::fmt::Display> Seen<E> {
    fn check(&self) -> Result<()> {
        ensure!(self.rolled_back.is_new && self.first.is_new && !self.again.is_new);
        ensure!(self.again.id == self.first.id, "{:?} {:?}", self.again, self.first);
        ensure!(matches!(self.conflict, Error::KeyConflict(_)), "{:?}", self.conflict);
        ensure!(
            self.conflict.to_string().contains("is already used by job"),
            "{}",
            self.conflict
        );
        ensure!(matches!(self.invalid, Error::Invalid(_)), "{:?}", self.invalid);
        ensure!(
            self.invalid.to_string() == "priority: 9 is not a whole number from 1 to 5",
            "{}",
            self.invalid
        );
        Ok(())
    }
}

async fn paid(_: Ctx, job: Charge, mut tx: Tx) -> Outcome {
    let pay = sqlx::query("update orders set paid = true where id = $1").bind(job.order);
    pay.execute(&mut *tx).await?;
    tx.done().ok()
}

/// A fresh database, the driver's steps on it, then a worker.
async fn on_each_server<E, F>(case: &str, steps: impl Fn(String) -> F) -> Result<()>
where
    E: std::fmt::Debug + std::fmt::Display,
    F: Future<Output = Result<Seen<E>>>,
{
    for server in postgres_servers() {
        let database = Database::fresh(&server, &format!("drivers::{case}")).await?;
        let rowlock = Rowlock::open(&database.url)?;
        rowlock.migrate().await?;
        let pool = sqlx::PgPool::connect(&database.url).await?;
        sqlx::query("create table orders (id bigint primary key, paid boolean not null default false)")
            .execute(&pool)
            .await?;
        let seen = steps(database.url.clone()).await?;
        seen.check()?;
        let orders: i64 = sqlx::query_scalar("select count(*) from orders")
            .fetch_one(&pool)
            .await?;
        ensure!(orders == 1, "{orders} orders: what was rolled back is there");
        let jobs = rowlock.observe().jobs(&Default::default()).await?;
        ensure!(jobs.len() == 1, "{} jobs", jobs.len());
        let job = &jobs[0];
        ensure!(
            (job.queue.as_str(), job.priority, job.attempts_max) == ("billing", 2, 3),
            "{job:?}"
        );
        let looks = pool.clone();
        let done = until("the order to be paid", Duration::from_secs(30), move || {
            let pool = looks.clone();
            async move {
                let paid = sqlx::query_scalar("select paid from orders").fetch_one(&pool).await;
                paid.unwrap_or(false).then_some(())
            }
        });
        Worker::new(&rowlock)
            .queue("billing", 1)
            .handle(atomic(paid))
            .run_until(done)
            .await?;
        pool.close().await;
        database.remove().await?;
    }
    Ok(())
}

const ORDER: &str = "insert into orders (id) values (1)";

#[tokio::test]
async fn with_tokio_postgres() -> Result<()> {
    on_each_server("with_tokio_postgres", async |url| {
        let (mut client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await?;
        let driver = tokio::spawn(connection);
        let tx = client.transaction().await?;
        tx.execute(ORDER, &[]).await?;
        let rolled_back = charge(1).on_tokio_postgres(&tx).await?;
        tx.rollback().await?;
        let tx = client.transaction().await?;
        tx.execute(ORDER, &[]).await?;
        let first = charge(1).on_tokio_postgres(&tx).await?;
        tx.commit().await?;
        let again = charge(1).on_tokio_postgres(&client).await?;
        let conflict = charge(2).on_tokio_postgres(&client).await.err().context("a conflict")?;
        let invalid = nonsense().on_tokio_postgres(&client).await.err().context("a refusal")?;
        drop(client);
        driver.await??;
        Ok(Seen {
            rolled_back,
            first,
            again,
            conflict,
            invalid,
        })
    })
    .await
}

#[tokio::test]
async fn with_diesel_async() -> Result<()> {
    use diesel_async::{AsyncConnection, AsyncPgConnection, SimpleAsyncConnection};
    on_each_server("with_diesel_async", async |url| {
        let mut conn = AsyncPgConnection::establish(&url).await?;
        conn.batch_execute("begin").await?;
        conn.batch_execute(ORDER).await?;
        let rolled_back = charge(1).on_diesel(&mut conn).await?;
        conn.batch_execute("rollback; begin").await?;
        conn.batch_execute(ORDER).await?;
        let first = charge(1).on_diesel(&mut conn).await?;
        conn.batch_execute("commit").await?;
        let again = charge(1).on_diesel(&mut conn).await?;
        let conflict = charge(2).on_diesel(&mut conn).await.err().context("a conflict")?;
        let invalid = nonsense().on_diesel(&mut conn).await.err().context("a refusal")?;
        Ok(Seen {
            rolled_back,
            first,
            again,
            conflict,
            invalid,
        })
    })
    .await
}

#[tokio::test]
async fn with_sea_orm() -> Result<()> {
    use sea_orm::{ConnectionTrait, Database, TransactionTrait};
    on_each_server("with_sea_orm", async |url| {
        let conn = Database::connect(url).await?;
        let tx = conn.begin().await?;
        tx.execute_unprepared(ORDER).await?;
        let rolled_back = charge(1).on_sea_orm(&tx).await?;
        tx.rollback().await?;
        let tx = conn.begin().await?;
        tx.execute_unprepared(ORDER).await?;
        let first = charge(1).on_sea_orm(&tx).await?;
        tx.commit().await?;
        let again = charge(1).on_sea_orm(&conn).await?;
        let conflict = charge(2).on_sea_orm(&conn).await.err().context("a conflict")?;
        let invalid = nonsense().on_sea_orm(&conn).await.err().context("a refusal")?;
        conn.close().await?;
        Ok(Seen {
            rolled_back,
            first,
            again,
            conflict,
            invalid,
        })
    })
    .await
}

/// Options are the same for every driver, so one is enough to see each of them arrive.
#[tokio::test]
async fn every_option_arrives() -> Result<()> {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const HOUR: Duration = Duration::from_secs(3600);
    let far = "2100-01-01T00:00:00Z".parse()?;
    let new = |order| Enqueue::new(&Charge { order });
    for server in postgres_servers() {
        let database = Database::fresh(&server, "drivers::every_option_arrives").await?;
        Rowlock::open(&database.url)?.migrate().await?;
        let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await?;
        let driver = tokio::spawn(connection);
        let all = [
            new(1)
                .queue("mail")
                .attempts(7)
                .tag("a")
                .tag("b")
                .after(HOUR)
                .expires(far)
                .trace(TRACE),
            new(2)
                .at(far)
                .key("k")
                .hold(Hold::For(HOUR))
                .if_retired(&Charge { order: 20 }),
            new(3)
                .waits_for("approval")
                .wait_limit(HOUR)
                .key("open")
                .hold(Hold::WhileOpen),
            new(4).group("account").stop_group_when_retired(),
            new(5).on_trigger(),
        ];
        for enqueue in all {
            ensure!(enqueue.on_tokio_postgres(&client).await?.is_new);
        }
        let seen = "select string_agg(concat_ws(' ', j.payload ->> 'order', j.kind, j.version, j.queue, j.priority, j.attempts_max, j.tags,
                case when r.due_at > '9998-12-31' then 'untriggered'
                  when r.due_at > clock_timestamp() + interval '1 day' then 'far'
                  when r.due_at > clock_timestamp() + interval '1 minute' then 'later' when r.due_at is not null then 'soon' end,
                to_char(j.expires_at at time zone 'utc', 'YYYY'), j.trace, j.if_retired::jsonb ->> 'kind', (j.if_retired::jsonb ->> 'payload')::jsonb ->> 'order',
                k.hold, j.waits_for, w.limit_at is not null, j.in_group, j.group_stops), e'\\n' order by j.id)
            from rowlock.job j left join rowlock.ready r on r.id = j.id left join rowlock.waiting w on w.id = j.id
            left join rowlock.job_key k on k.id = j.id";
        let seen: String = client.query_one(seen, &[]).await?.get(0);
        let expected = [
            format!("1 charge 1 mail 3 7 [\"a\", \"b\"] later 2100 {TRACE} f"),
            "2 charge 1 billing 3 3 far charge 20 period f".into(),
            "3 charge 1 billing 3 3 open approval t".into(),
            "4 charge 1 billing 3 3 soon f account t".into(),
            "5 charge 1 billing 3 3 untriggered f".into(),
        ];
        ensure!(seen == expected.join("\n"), "{seen}");
        let elsewhere = new(6).schema("no\"where").on_tokio_postgres(&client).await;
        let Err(Error::Driver(error)) = elsewhere else {
            anyhow::bail!("{elsewhere:?}");
        };
        ensure!(error.code().is_some_and(|code| code.code() == "3F000"), "{error}");
        drop(client);
        driver.await??;
        database.remove().await?;
    }
    Ok(())
}
