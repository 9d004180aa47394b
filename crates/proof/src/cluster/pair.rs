//! Two servers for one test: a primary, and a standby that follows it over the wire until the test cuts it off.
//!
//! Both are made from one `initdb`, so no more than the server itself is needed. What an operator does in a failover is
//! done here step by step: cut the standby off, fence the primary, promote.

use std::{
    fs::File,
    io::Write,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

use super::{Cluster, START_LIMIT};
use crate::bed::until;

/// Whether the primary waits for the standby with each commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replication {
    /// What was acknowledged is on both.
    Synchronous,
    /// What was acknowledged may be on the primary only.
    Asynchronous,
}

/// A primary and its standby.
pub struct Pair {
    /// The primary, until the other one is promoted.
    pub primary: Cluster,
    /// The standby, until it is promoted.
    pub standby: Cluster,
    /// A connection to the primary that no fence shuts out.
    keeper: PgConnection,
}

impl Pair {
    /// Makes both, and waits until the one follows the other.
    ///
    /// # Errors
    /// No server was found, or one does not start.
    ///
    /// # Panics
    /// When the standby does not follow.
    pub async fn start(replication: Replication) -> Result<Pair> {
        let (mut primary, mut standby) = (Cluster::new()?, Cluster::new()?);
        primary.initdb()?;
        standby.follow(&primary)?;
        primary.resume().await?;
        let mut keeper = PgConnection::connect(&primary.server().url).await?;
        run(&mut keeper, "create role replicator replication login").await?;
        standby.resume().await?;
        let mut follows = "streaming";
        if replication == Replication::Synchronous {
            run(&mut keeper, "alter system set synchronous_standby_names = '*'").await?;
            run(&mut keeper, "select pg_reload_conf()").await?;
            follows = "sync";
        }
        let seen = format!("select exists (select from pg_stat_replication where '{follows}' in (state, sync_state))");
        until_so(&mut keeper, &seen).await;
        Ok(Pair {
            primary,
            standby,
            keeper,
        })
    }

    /// Cuts the standby off: nothing that commits from here on gets there.
    ///
    /// # Errors
    /// The primary's.
    ///
    /// # Panics
    /// When the standby goes on following.
    pub async fn cut_off_standby(&mut self) -> Result<()> {
        run(&mut self.keeper, "alter role replicator nologin").await?;
        run(
            &mut self.keeper,
            "select pg_terminate_backend(pid) from pg_stat_replication",
        )
        .await?;
        until_so(&mut self.keeper, "select count(*) = 0 from pg_stat_replication").await;
        Ok(())
    }

    /// Fences the primary, which stays up: no new connection is let in, and open ones are ended, except for backends
    /// that are stopped as a process. A commit that waits for the standby ends as well: it is kept here, and its
    /// client gets no answer.
    ///
    /// # Errors
    /// The primary's.
    ///
    /// # Panics
    /// When somebody stays in.
    pub async fn fence_primary(&mut self, stopped: &[i32]) -> Result<()> {
        self.admit("reject").await?;
        let url = self.primary.server().url;
        until("the primary to let nobody in", START_LIMIT, async || {
            PgConnection::connect(&url).await.is_err().then_some(())
        })
        .await;
        let others = "backend_type = 'client backend' and pid <> pg_backend_pid()";
        run(
            &mut self.keeper,
            &format!("select pg_terminate_backend(pid) from pg_stat_activity where {others}"),
        )
        .await?;
        let stopped: Vec<String> = stopped.iter().map(i32::to_string).collect();
        let left = format!(
            "select count(*) = 0 from pg_stat_activity where {others} and pid <> all ('{{{}}}')",
            stopped.join(",")
        );
        until_so(&mut self.keeper, &left).await;
        Ok(())
    }

    /// Lifts the fence, for a look at what was left behind it.
    ///
    /// # Errors
    /// The primary's.
    ///
    /// # Panics
    /// When it lets nobody in.
    pub async fn open_primary(&mut self) -> Result<()> {
        self.admit("trust").await?;
        let url = self.primary.server().url;
        until("the primary to let somebody in", START_LIMIT, async || {
            PgConnection::connect(&url).await.ok().map(drop)
        })
        .await;
        Ok(())
    }

    async fn admit(&mut self, whom: &str) -> Result<()> {
        let rules = self.primary.data().join("pg_hba.conf");
        std::fs::write(rules, format!("host all all 127.0.0.1/32 {whom}\n"))?;
        run(&mut self.keeper, "select pg_reload_conf()").await
    }

    /// Makes the standby a primary, and returns when it takes writes.
    ///
    /// # Errors
    /// It does not.
    pub async fn promote_standby(&self) -> Result<()> {
        let mut conn = PgConnection::connect(&self.standby.server().url).await?;
        let promoted: bool = sqlx::query_scalar("select pg_promote(true, 60)")
            .fetch_one(&mut conn)
            .await?;
        ensure!(promoted, "the standby was not promoted");
        Ok(conn.close().await?)
    }

    /// Runs a statement on the primary, whatever the fence says; `synchronous_commit` does not hold it up.
    ///
    /// # Errors
    /// The primary's.
    pub async fn run_on_primary(&mut self, sql: &str) -> Result<()> {
        run(&mut self.keeper, "set synchronous_commit = local").await?;
        run(&mut self.keeper, sql).await
    }

    /// Waits until a query on the primary gives this number at least.
    ///
    /// # Panics
    /// When it does not in time.
    pub async fn until_on_primary(&mut self, sql: &str, least: i64) {
        until_so(&mut self.keeper, &format!("select ({sql}) >= {least}")).await;
    }
}

impl Cluster {
    /// Makes this one, which has no files yet, a standby of one that has not been started yet.
    fn follow(&self, primary: &Cluster) -> Result<()> {
        self.make_data()?;
        let from = primary.data().join(".");
        done(self.command("cp".as_ref()).arg("-a").arg(from).arg(self.data()))?;
        done(self.command("touch".as_ref()).arg(self.data().join("standby.signal")))?;
        let mut conf = File::options().append(true).open(self.data().join("postgresql.conf"))?;
        writeln!(
            conf,
            "primary_conninfo = 'host=127.0.0.1 port={} user=replicator'\nwal_retrieve_retry_interval = '100ms'",
            primary.port
        )?;
        Ok(())
    }
}

fn done(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("could not run {command:?}"))?;
    ensure!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

async fn run(conn: &mut PgConnection, sql: &str) -> Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await?;
    Ok(())
}

/// Waits until a question is answered with yes.
async fn until_so(conn: &mut PgConnection, question: &str) {
    let start = Instant::now();
    loop {
        let answer = sqlx::query_scalar(AssertSqlSafe(question)).fetch_one(&mut *conn).await;
        if matches!(answer, Ok(true)) {
            return;
        }
        assert!(
            start.elapsed() < START_LIMIT,
            "waited {START_LIMIT:?} for: {question}; last seen: {answer:?}"
        );
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
