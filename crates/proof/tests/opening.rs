//! How a handle reaches its database: by the driver's own options, or by a callback that is asked for each connection.

use std::{
    str::FromStr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::Result;
use proof::{bed::until, cluster::Cluster};
use rowlock::{Error, Job, postgres, sqlite};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, PgConnection, postgres::PgConnectOptions, sqlite::SqliteConnectOptions};

#[derive(Serialize, Deserialize, Job)]
struct Ping {}

async fn run(pg: &mut PgConnection, sql: &str) {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pg).await.unwrap();
}

/// A role that is asked for its password; everybody else is trusted.
async fn role_with_a_password(admin: &mut PgConnection) {
    run(
        admin,
        "create role app login password 'one'; grant create on database postgres to app",
    )
    .await;
    let rules: String = sqlx::query_scalar("show hba_file")
        .fetch_one(&mut *admin)
        .await
        .unwrap();
    let trusted = std::fs::read_to_string(&rules).unwrap();
    std::fs::write(&rules, format!("host all app 127.0.0.1/32 scram-sha-256\n{trusted}")).unwrap();
    run(admin, "select pg_reload_conf()").await;
}

#[tokio::test]
async fn a_password_that_changes_is_asked_for_with_each_new_connection() -> Result<()> {
    if proof::bed::postgres_servers().is_empty() {
        return Ok(());
    }
    let cluster = Cluster::start().await?;
    let url = cluster.server().url;
    let mut admin = PgConnection::connect(&url).await?;
    role_with_a_password(&mut admin).await;
    let known = PgConnectOptions::from_str(&url)?.username("app");
    until("a wrong password to be refused", Duration::from_secs(20), async || {
        let wrong = known.clone().password("none");
        PgConnection::connect_with(&wrong).await.is_err().then_some(())
    })
    .await;

    let password = Arc::new(Mutex::new("one"));
    let asked = Arc::new(AtomicUsize::new(0));
    let (of_now, count) = (password.clone(), asked.clone());
    let rowlock = postgres::Rowlock::open_by(move || {
        count.fetch_add(1, Ordering::SeqCst);
        let options = known.clone().password(*of_now.lock().unwrap());
        async move { Ok::<_, std::io::Error>(options) }
    })?;
    rowlock.migrate().await?;
    let _ = rowlock.enqueue_now(Ping {}).await?;

    let before = asked.load(Ordering::SeqCst);
    run(&mut admin, "alter role app password 'two'").await;
    run(
        &mut admin,
        "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'app'",
    )
    .await;
    let refused = until(
        "the old password to be refused",
        Duration::from_secs(20),
        async || match rowlock.enqueue_now(Ping {}).await {
            Err(Error::Database { source, .. }) => source.to_string().contains("password").then(|| source.to_string()),
            _ => None,
        },
    )
    .await;
    assert!(refused.contains("authentication failed"), "{refused}");

    *password.lock().unwrap() = "two";
    // A connection that was sent away may still be handed out once before it is found to be closed.
    until("the new password to be taken", Duration::from_secs(20), async || {
        rowlock.enqueue_now(Ping {}).await.ok().filter(|put| put.is_new())
    })
    .await;
    assert!(
        asked.load(Ordering::SeqCst) > before,
        "nobody was asked for the new password"
    );
    Ok(())
}

#[tokio::test]
async fn the_options_of_a_pool_open_its_database() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let options = SqliteConnectOptions::new()
        .filename(folder.path().join("what?.db"))
        .create_if_missing(true);
    let pool = sqlx::SqlitePool::connect_lazy_with(options);
    let rowlock = sqlite::Rowlock::open_with((*pool.connect_options()).clone())?;
    rowlock.migrate().await?;
    let mut tx = pool.begin().await?;
    let put = rowlock.enqueue(&mut tx, Ping {}).await?;
    tx.commit().await?;
    let job = rowlock.observe().job(put.id()).await?;
    assert_eq!(job.map(|job| job.kind), Some("ping".to_owned()));
    Ok(())
}

#[test]
fn options_of_a_database_in_memory_are_refused() {
    for options in [
        SqliteConnectOptions::new(),
        SqliteConnectOptions::from_str("sqlite::memory:").unwrap(),
    ] {
        match sqlite::Rowlock::open_with(options) {
            Err(Error::Config(said)) => assert!(said.starts_with("in-memory SQLite is not supported"), "{said}"),
            other => panic!("not refused: {other:?}"),
        }
    }
}
