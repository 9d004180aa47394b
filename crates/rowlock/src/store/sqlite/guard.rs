//! Guards: the write lock stands for every one of them, since whoever holds it is alone.

use sqlx::SqliteConnection;

use super::{SqliteStore, now_us, refused, sql};
use crate::{
    error::{Doing, Error, Result},
    store::{Fut, guard::Guarding},
};

impl SqliteStore {
    /// The answer of a verb in the caller's transaction: a file in use names itself, and may simply be tried again.
    fn told<T>(&self, answer: sqlx::Result<T>, doing: &'static str) -> Result<T> {
        answer
            .map_err(|e| refused::explained(e, &self.inner.opening.name()))
            .doing(doing)
            .map_err(Error::answered)
    }
}

impl Guarding<SqliteConnection> for SqliteStore {
    fn guard_lock<'a>(&'a self, conn: &'a mut SqliteConnection, _keys: &'a [&'a str]) -> Fut<'a, ()> {
        Box::pin(async move {
            let locked = sqlx::query(sql::GUARD_LOCK).execute(conn).await;
            self.told(locked, "guard").map(|_| ())
        })
    }

    fn guard_version<'a>(&'a self, conn: &'a mut SqliteConnection, key: &'a str) -> Fut<'a, i64> {
        Box::pin(async move {
            let found = sqlx::query_scalar(sql::GUARD_VERSION)
                .bind(key)
                .fetch_optional(conn)
                .await;
            Ok(self.told(found, "read version")?.unwrap_or(0))
        })
    }

    fn guard_raise<'a>(
        &'a self,
        conn: &'a mut SqliteConnection,
        key: &'a str,
        seen: Option<i64>,
    ) -> Fut<'a, Option<i64>> {
        Box::pin(async move {
            let raised = sqlx::query_scalar(sql::GUARD_RAISE)
                .bind(key)
                .bind(seen)
                .bind(now_us(&self.inner.clock))
                .fetch_optional(conn)
                .await;
            self.told(raised, "raise version")
        })
    }
}
