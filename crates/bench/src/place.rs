//! Where a program works: a database made fresh for one run, with the business tables, and the check of what it left
//! there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{AssertSqlSafe, Connection, Executor};

use crate::programs::Kind;
use crate::server::{self, Counters, Server};

const ACCOUNTS: u32 = 10_000;
const TABLES: &str = "create table bench_account (id bigint primary key, total bigint not null);
create table bench_entry (job bigint not null, account bigint not null);";

/// One database of a run.
#[derive(Debug)]
pub(crate) enum Place {
    Postgres { name: String, url: String },
    Sqlite { file: PathBuf },
}

impl Place {
    /// Makes the database and its business tables.
    pub(crate) async fn make(kind: Kind, server: &Server, dir: &Path, number: usize) -> Result<Place> {
        match kind {
            Kind::Postgres => {
                let (name, url) = server.make_database().await?;
                let mut connection = server::open(&url).await?;
                let rows = format!(
                    "insert into bench_account select id, 0 from generate_series(0, {}) id",
                    ACCOUNTS - 1
                );
                server::execute(&mut connection, &format!("{TABLES} {rows}")).await?;
                server::execute(&mut connection, "vacuum analyze bench_account").await?;
                connection.close().await.context("could not leave the database")?;
                Ok(Place::Postgres { name, url })
            }
            Kind::Sqlite => {
                let file = dir.join(format!("bench_{number}.db"));
                let mut connection = open_file(&file).await?;
                let rows = format!(
                    "with recursive n (id) as (select 0 union all select id + 1 from n where id < {})
                     insert into bench_account select id, 0 from n",
                    ACCOUNTS - 1
                );
                connection.execute(AssertSqlSafe(format!("{TABLES} {rows}"))).await?;
                connection.close().await.context("could not leave the database")?;
                Ok(Place::Sqlite { file })
            }
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Place::Postgres { url, .. } => url.clone(),
            Place::Sqlite { file } => format!("sqlite:{}", file.display()),
        }
    }

    /// What the server has counted here so far; SQLite counts nothing.
    pub(crate) async fn counters(&self, server: &Server) -> Result<Option<Counters>> {
        match self {
            Place::Postgres { name, .. } => server.counters(name).await.map(Some),
            Place::Sqlite { .. } => Ok(None),
        }
    }

    /// What is wrong with the business tables after `jobs` jobs; `whole` when all of them were to be done.
    pub(crate) async fn check_book(&self, jobs: usize, whole: bool) -> Result<Option<String>> {
        let sql = "select count(*), count(distinct job), (select cast(sum(total) as bigint) from bench_account) \
                   from bench_entry";
        let row: (i64, i64, i64) = match self {
            Place::Postgres { url, .. } => {
                let mut connection = server::open(url).await?;
                let row = sqlx::query_as(sql).fetch_one(&mut connection).await?;
                connection.close().await?;
                row
            }
            Place::Sqlite { file } => {
                let mut connection = open_file(file).await?;
                let row = sqlx::query_as(sql).fetch_one(&mut connection).await?;
                connection.close().await?;
                row
            }
        };
        Ok(judge_book(row, jobs as i64, whole))
    }

    pub(crate) async fn remove(self, server: &Server) {
        match self {
            Place::Postgres { name, .. } => server.drop_database(&name).await,
            Place::Sqlite { file } => {
                for end in ["", "-wal", "-shm", "-journal"] {
                    let mut name = file.clone().into_os_string();
                    name.push(end);
                    // What is left goes with the folder of the run.
                    let _ = std::fs::remove_file(name);
                }
            }
        }
    }
}

/// Each job must have left one entry and one unit on its account.
fn judge_book((entries, distinct, total): (i64, i64, i64), jobs: i64, whole: bool) -> Option<String> {
    if entries != distinct {
        return Some(format!(
            "{} effects were doubled ({entries} entries of {distinct} jobs)",
            entries - distinct
        ));
    }
    if total != entries {
        return Some(format!(
            "{entries} entries but {total} on the accounts: a transaction was torn"
        ));
    }
    if whole && entries < jobs {
        return Some(format!("{} of {jobs} effects were lost", jobs - entries));
    }
    if entries > jobs {
        return Some(format!("{entries} effects of {jobs} jobs"));
    }
    None
}

async fn open_file(file: &Path) -> Result<SqliteConnection> {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    SqliteConnection::connect_with(&options)
        .await
        .with_context(|| format!("could not open {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_doubled_and_torn_effects_are_told_apart() {
        assert_eq!(judge_book((100, 100, 100), 100, true), None);
        assert!(
            judge_book((99, 99, 99), 100, true)
                .unwrap()
                .contains("1 of 100 effects were lost")
        );
        assert_eq!(judge_book((99, 99, 99), 100, false), None);
        assert!(judge_book((101, 100, 101), 100, true).unwrap().contains("doubled"));
        assert!(judge_book((100, 100, 99), 100, true).unwrap().contains("torn"));
        assert!(judge_book((101, 101, 101), 100, true).unwrap().contains("101 effects"));
    }

    #[tokio::test]
    async fn an_untouched_sqlite_file_has_lost_everything() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bench.db");
        let mut connection = open_file(&file).await.unwrap();
        let rows = "insert into bench_account values (0, 0)";
        connection
            .execute(AssertSqlSafe(format!("{TABLES} {rows}")))
            .await
            .unwrap();
        connection.close().await.unwrap();
        let place = Place::Sqlite { file };
        assert!(place.check_book(5, true).await.unwrap().unwrap().contains("5 of 5"));
    }
}
