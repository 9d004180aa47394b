//! What the cases call a PostgreSQL database under test.

pub(crate) use rowlock::postgres::{Ctx, Handler, Outcome, Rowlock, Staged, TestRig, Tx, Worker};

pub(crate) type Conn = sqlx::PgConnection;
pub(crate) type Backend = sqlx::Postgres;
/// How the engine's tables begin here.
pub(crate) const TABLES: &str = "rowlock.";

/// A rig in this database, and how its tables begin.
pub(crate) async fn rig(url: &str) -> (TestRig, String) {
    let rig = TestRig::postgres(url).await.unwrap();
    let schema = "select nspname::text from pg_namespace where nspname like 'rig%'";
    let schema: String = sqlx::query_scalar(schema)
        .fetch_one(&mut rig.connect().await.unwrap())
        .await
        .unwrap();
    (rig, format!("{schema}."))
}
