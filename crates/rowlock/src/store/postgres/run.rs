//! How statements run on the engine's own connections.

use std::time::Duration;

use sqlx::{
    PgConnection, Postgres, SqlStr,
    postgres::PgArguments,
    query::{Query, QueryAs, QueryScalar},
};

use super::{
    Inner,
    conns::{Lent, timed_out},
};
use crate::{
    error::{Error, Result},
    store::{
        keys::Conflict,
        rows::{Noun, nouns},
    },
};

/// An error on a connection, without the name of the operation yet.
#[derive(Debug)]
pub enum Fault {
    /// The caller adds the name of the operation.
    Database(sqlx::Error),
    /// An error of our own, which is complete.
    Answer(Error),
}

impl From<sqlx::Error> for Fault {
    fn from(error: sqlx::Error) -> Fault {
        Fault::Database(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Fault {
        Fault::Answer(error)
    }
}

impl From<Conflict> for Fault {
    fn from(conflict: Conflict) -> Fault {
        Fault::Answer(conflict.into())
    }
}

impl Fault {
    /// The error with the name of the operation.
    pub fn doing(self, doing: &'static str) -> Error {
        match self {
            Fault::Database(source) => Error::Database { doing, source },
            Fault::Answer(error) => error,
        }
    }

    /// The same for a caller whose transaction this ran in: an error that only asks for a retry becomes
    /// `Error::TryAgain`.
    pub fn answered(self, doing: &'static str) -> Error {
        self.doing(doing).answered()
    }
}

impl Inner {
    /// How long a method may take: a silent network must not block its caller for ever.
    pub fn limit(&self) -> Duration {
        self.timing.lease.max(Duration::from_secs(10))
    }

    /// Runs statements that are one commit each, or a transaction that `work` begins, on an engine connection. The
    /// connection is used again only after `work` succeeded. After an error, or when this future is dropped, it closes.
    pub async fn run<T>(
        &self,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Fault>,
    ) -> Result<T> {
        self.run_within(self.limit(), doing, work).await
    }

    /// [`Inner::run`] with another time limit.
    pub async fn run_within<T>(
        &self,
        limit: Duration,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, Fault>,
    ) -> Result<T> {
        self.run_lent(limit, doing, async |lent| work(lent.pg()).await).await
    }

    /// [`Inner::run_within`] for work that checks which server it is on, or commits several times.
    pub async fn run_lent<T>(
        &self,
        limit: Duration,
        doing: &'static str,
        work: impl AsyncFnOnce(&mut Lent) -> Result<T, Fault>,
    ) -> Result<T> {
        let ran = tokio::time::timeout(limit, async {
            let mut lent = self.engine.acquire().await?;
            let done = work(&mut lent).await?;
            lent.end(doing).await?;
            Ok(done)
        });
        let ran: Result<T, Fault> = ran.await.unwrap_or_else(|_| Err(timed_out(doing).into()));
        ran.map_err(|fault| fault.doing(doing))
            .inspect_err(|error| self.engine.heed(error))
    }

    /// Runs one statement and reads all its rows.
    pub async fn list<N: Noun>(&self, doing: &'static str, read: Query<'_, Postgres, PgArguments>) -> Result<Vec<N>> {
        self.run(doing, async |pg| Ok(nouns(&read.fetch_all(pg).await?)?)).await
    }

    /// A statement. A connection keeps parsed statements only without a pooler.
    pub fn query<'q>(&self, text: &SqlStr) -> Query<'q, Postgres, PgArguments> {
        sqlx::query(text.clone()).persistent(self.named())
    }

    /// [`Inner::query`] for rows that are tuples.
    pub fn query_as<'q, T>(&self, text: &SqlStr) -> QueryAs<'q, Postgres, T, PgArguments>
    where
        T: for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
    {
        sqlx::query_as(text.clone()).persistent(self.named())
    }

    /// [`Inner::query`] for rows of one column.
    pub fn query_scalar<'q, T>(&self, text: &SqlStr) -> QueryScalar<'q, Postgres, T, PgArguments>
    where
        (T,): for<'r> sqlx::FromRow<'r, sqlx::postgres::PgRow>,
    {
        sqlx::query_scalar(text.clone()).persistent(self.named())
    }
}
