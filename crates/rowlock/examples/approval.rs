//! A job that waits for an approval: it is in `waiting` until somebody completes the name in another transaction. One
//! request is approved. Nobody answers the other one: it ends at its time limit, with its compensation.

use std::time::Duration;

use rowlock::{
    Completed, Job, atomic,
    observe::Awaited,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::oneshot;

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "pay-out")]
struct PayOut {
    request: i64,
}

#[derive(Serialize, Deserialize, Job)]
#[job(kind = "decline")]
struct Decline {
    request: i64,
}

#[derive(Serialize, Deserialize)]
struct Approval {
    by: String,
}

async fn pay_out(_cx: Ctx, job: PayOut, mut tx: Tx) -> Outcome {
    // There: the job never runs before the name is completed.
    let by = tx.answer::<Approval>().await?.map(|approval| approval.by);
    let update = sqlx::query("update requests set state = 'paid', by = $1 where id = $2");
    update.bind(&by).bind(job.request).execute(&mut *tx).await?;
    tx.done()
        .result(&format!("paid, approved by {}", by.unwrap_or_default()))
        .ok()
}

async fn decline(_cx: Ctx, job: Decline, mut tx: Tx) -> Outcome {
    let update = sqlx::query("update requests set state = 'declined' where id = $1");
    update.bind(job.request).execute(&mut *tx).await?;
    tx.done().ok()
}

/// What the approver's page does: its own write and the completion are one commit.
async fn approve(rowlock: &Rowlock, db: &mut SqliteConnection, request: i64, by: &str) -> anyhow::Result<Completed> {
    let mut tx = db.begin_with("begin immediate").await?;
    let update = sqlx::query("update requests set state = 'approved' where id = $1 and state = 'open'");
    update.bind(request).execute(&mut *tx).await?;
    let approval = Approval { by: by.into() };
    let completed = rowlock
        .complete(&mut tx, &format!("approval:{request}"), &approval)
        .await?;
    tx.commit().await?;
    Ok(completed)
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("approval.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let mut db = SqliteConnection::connect(&url).await?;
    let tables = "create table requests (id integer primary key, state text not null, by text);
                  insert into requests values (1, 'open', null), (2, 'open', null)";
    sqlx::raw_sql(tables).execute(&mut db).await?;

    let approved = rowlock
        .enqueue_now(PayOut { request: 1 })
        .waits_for("approval:1")
        .await?
        .id();
    let forgotten = rowlock
        .enqueue_now(PayOut { request: 2 })
        .waits_for("approval:2")
        .wait_limit(Duration::from_millis(300))
        .if_retired(Decline { request: 2 })
        .await?
        .id();
    let job = rowlock.observe().job(approved).await?;
    println!("job {approved} is {}", job.map_or("?", |job| job.state.as_str()));

    let (stop, stopped) = oneshot::channel::<()>();
    let worker = Worker::new(&rowlock)
        .queue("default", 4)
        .handle(atomic(pay_out))
        .handle(atomic(decline));
    let running = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));
    println!("{:?}", approve(&rowlock, &mut db, 1, "Ada").await?);
    let second = approve(&rowlock, &mut db, 1, "Bob").await?;
    println!("{second:?}: the first answer stays");
    for id in [approved, forgotten] {
        match rowlock.wait(id).timeout(Duration::from_secs(30)).await? {
            Awaited::Done(result) => println!("job {id} is done: {}", result.unwrap_or_default()),
            Awaited::Retired(reason) => println!("job {id} is a case: {reason}"),
            other => println!("job {id}: {other:?}"),
        }
    }
    // The compensation is a link of the forgotten job's chain.
    let links = rowlock.observe().chain(forgotten).await?;
    for link in links.iter().skip(1) {
        let _ = rowlock.wait(link.id).timeout(Duration::from_secs(30)).await?;
    }
    let _ = stop.send(());
    running.await??;
    let states: Vec<(i64, String)> = sqlx::query_as("select id, state from requests order by id")
        .fetch_all(&mut db)
        .await?;
    for (id, state) in states {
        println!("request {id} is {state}");
    }
    Ok(())
}
