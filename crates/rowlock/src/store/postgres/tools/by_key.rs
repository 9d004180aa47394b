//! Reads by key alone, in a serializable transaction of the caller's.
//!
//! A planner left to itself reads a small table whole. In a serializable transaction that counts as having read all of
//! it, and two transactions that each look up a row of their own and write one would be in conflict.

use sqlx::{PgConnection, Row};

use crate::store::postgres::Inner;

/// The planner settings to give back; none where nothing was set.
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

    /// The planner is the caller's again. After an error there is nothing to give back: the transaction is over.
    pub async fn end(self, inner: &Inner, pg: &mut PgConnection) -> sqlx::Result<()> {
        if self.names.is_empty() {
            return Ok(());
        }
        let reset = inner.query(&inner.sql.plan_as_before);
        let reset = reset.bind(self.names).bind(self.before);
        reset.execute(pg).await.map(drop)
    }
}
