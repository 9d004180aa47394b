//! A guard: three evaluations of the same entity look at the same time, take their time outside, and one of them opens
//! the incident. The others find that what they saw has changed and are done quietly. A version counter also notices
//! what was opened and closed again.

use std::{sync::Arc, time::Duration};

use rowlock::{
    Ended, Error, Guard, Job,
    sqlite::{Outcome, Rowlock, Staged, Worker},
    staged,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, Sqlite, SqliteConnection};
use tokio::sync::Barrier;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "evaluate")]
struct Evaluate {
    entity: i64,
}

/// What a decision about an entity rests on.
struct OpenIncidents(i64);

impl Guard<Sqlite> for OpenIncidents {
    type Seen = Vec<i64>;

    fn key(&self) -> String {
        format!("incidents:{}", self.0)
    }

    async fn look(&self, conn: &mut SqliteConnection) -> sqlx::Result<Vec<i64>> {
        let open = sqlx::query_scalar("select id from incident where entity = $1 and state = 'open' order by id");
        open.bind(self.0).fetch_all(conn).await
    }
}

async fn evaluate(mut cx: Staged<Arc<Barrier>>, job: Evaluate) -> Outcome {
    let guard = OpenIncidents(job.entity);
    let mut read = cx.prepare().await?;
    let seen = guard.look(&mut read).await?;
    read.commit().await?;

    cx.state().wait().await; // the slow evaluation; no connection is held here
    if !seen.is_empty() {
        return cx.done().ok();
    }
    let mut tx = cx.begin().await?;
    tx.unchanged(&guard, &seen).await?; // lock, look again, compare: or done quietly, and counted
    let insert = sqlx::query("insert into incident (entity, state) values ($1, 'open')");
    insert.bind(job.entity).execute(&mut *tx).await?;
    tx.done().ok()
}

/// Closes what is open, as an operator would, in a transaction of the application's own.
async fn close(rowlock: &Rowlock, db: &mut SqliteConnection, entity: i64) -> anyhow::Result<()> {
    let mut tx = db.begin().await?;
    rowlock.raise_version(&mut tx, &OpenIncidents(entity).key()).await?;
    let update = sqlx::query("update incident set state = 'closed' where entity = $1");
    update.bind(entity).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("guard.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let table = "create table incident (id integer primary key, entity integer not null, state text not null)";
    sqlx::raw_sql(table).execute(&mut db).await?;

    rowlock
        .enqueue_all_now([7, 7, 7].map(|entity| Evaluate { entity }))
        .await?;
    let worker = Worker::new(&rowlock)
        .queue("default", 3)
        .state(Arc::new(Barrier::new(3)));
    let worker = worker.handle(staged(evaluate));
    let counters = worker.counters();
    let all_done = async {
        while counters.settled(Ended::Done) < 3 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    worker.run_until(all_done).await?;
    let open = OpenIncidents(7).look(&mut db).await?;
    println!(
        "3 evaluations, {} open incident, {} found it changed",
        open.len(),
        counters.changed()
    );

    let key = OpenIncidents(8).key();
    // First the counter, then what it protects: a change between the two is noticed, not hidden.
    let version = rowlock.version(&mut db, &key).await?;
    let seen = OpenIncidents(8).look(&mut db).await?;
    sqlx::raw_sql("insert into incident (entity, state) values (8, 'open')")
        .execute(&mut db)
        .await?;
    close(&rowlock, &mut db, 8).await?;
    let mut tx = db.begin().await?;
    rowlock.unchanged(&mut tx, &OpenIncidents(8), &seen).await?;
    println!("opened and closed again: what is open looks unchanged");
    match rowlock.unchanged_version(&mut tx, &key, version).await {
        Err(Error::Changed { key, .. }) => println!("the counter of {key} says changed"),
        other => println!("{other:?}"),
    }
    Ok(())
}
