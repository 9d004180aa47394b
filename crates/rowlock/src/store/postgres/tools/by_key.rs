//! Reads by key only, in a serializable transaction of the caller.
//!
//! By default, the planner reads a small table completely. In a serializable transaction this counts as reading every
//! row. Two transactions that each look up and write a different row would then conflict.

use sqlx::{PgConnection, Row};

use crate::store::postgres::Inner;

/// The planner settings to restore; none if nothing was set.
#[must_use = "give the caller's settings back"]
pub struct ByKey {
    names: Vec<String>,
    before: Vec<String>,
}

impl ByKey {
    /// From here on the transaction reads by key, if it is serializable.
    pub async fn begin(inner: &Inner, pg: &mut PgConnection) -> sqlx::Result<ByKey> {
        let set = inner.query(&inner.sql.plan_by_key);
        let set = set.fetch_all(pg).await?;
        let texts = |column| set.iter().map(|row| row.try_get(column)).collect::<sqlx::Result<_>>();
        Ok(ByKey {
            names: texts("name")?,
            before: texts("before")?,
        })
    }

    /// Restores the caller's planner settings. After an error there is nothing to restore: the transaction is over.
    pub async fn end(self, inner: &Inner, pg: &mut PgConnection) -> sqlx::Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let reset = inner.query(&inner.sql.plan_as_before);
        let reset = reset.bind(self.names).bind(self.before);
        reset.execute(pg).await.map(drop)
    }
}
