//! The interface for tools: opens either database by its URL, without types.

mod named;

use std::sync::Arc;

use uuid::Uuid;

pub use self::named::NamedJob;
use crate::{
    complete::{self, Completed},
    error::{Error, Result},
    id::JobId,
    job::{Draft, Due, Limits, check_payload},
    key::{Enqueued, Hold, Keyed},
    observe::Observe,
    operate::Operate,
    root::{self, Backend},
    store::{Clock, Store},
    trace,
    trigger::{self, Triggered},
};

/// A database's jobs as a tool sees them: migrate, read, operate, enqueue by kind and JSON. Cheap to clone.
#[derive(Clone)]
pub struct Admin {
    store: Arc<dyn Store>,
    speaks: i32,
    sql: String,
}

crate::debug::debug_fields!([] Admin, "Admin", speaks);

impl Admin {
    /// Names the database by its URL: `postgres://…` or `sqlite:…`. The schema applies to PostgreSQL only. No I/O yet.
    /// Several PostgreSQL hosts are named as in [`Rowlock::open`](crate::Rowlock::open).
    ///
    /// # Errors
    /// [`Error::Config`] when the URL cannot be parsed or names a database that this build does not support.
    pub fn open(url: &str, schema: &str) -> Result<Admin> {
        #[cfg(feature = "postgres")]
        if url.starts_with("postgres") {
            return Ok(Admin {
                store: Arc::new(<sqlx::Postgres as Backend>::open(url, schema, Clock::default())?),
                speaks: <sqlx::Postgres as Backend>::SCHEMA,
                sql: crate::store::postgres::migration_sql(schema),
            });
        }
        #[cfg(feature = "sqlite")]
        if url.starts_with("sqlite:") {
            return Ok(Admin {
                store: Arc::new(<sqlx::Sqlite as Backend>::open(url, schema, Clock::default())?),
                speaks: <sqlx::Sqlite as Backend>::SCHEMA,
                sql: crate::store::sqlite::migration_sql(),
            });
        }
        // Without a colon there is no scheme: the text may be anything, even a secret, so it is not printed.
        let problem = match url.split_once(':') {
            Some((scheme, _)) => format!("cannot use a {scheme:?} URL; use postgres://… or sqlite:PATH"),
            None => "not a database URL; use postgres://… or sqlite:PATH".to_owned(),
        };
        Err(Error::Config(problem))
    }

    /// The commands that read.
    pub fn observe(&self) -> Observe {
        Observe {
            store: self.store.clone(),
        }
    }

    /// The operator commands.
    pub fn operate(&self) -> Operate {
        Operate {
            store: self.store.clone(),
        }
    }

    /// Creates the schema, or applies the missing migrations; returns the names of what was applied.
    ///
    /// # Errors
    /// [`Error::SchemaUnknown`] or [`Error::Database`]; then nothing was applied. Cancel-safe: all of it is one
    /// transaction.
    pub async fn migrate(&self) -> Result<Vec<String>> {
        self.store.migrate(&[]).await
    }

    /// The whole schema as SQL, for people who run their own migrations.
    pub fn migration_sql(&self) -> &str {
        &self.sql
    }

    /// Refuses with one sentence when this binary and the database's schema do not fit.
    ///
    /// # Errors
    /// [`Error::SchemaBehind`], [`Error::SchemaAhead`], [`Error::FunctionsBehind`], [`Error::SchemaUnknown`], or
    /// [`Error::Database`]. Cancel-safe.
    pub async fn check_schema(&self) -> Result<()> {
        root::check(self.store.schema().await?, self.speaks)
    }

    /// Completes a name that jobs wait for, in a separate commit, with a JSON answer or none.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the name or the JSON is refused. After a database error it may or may not have happened;
    /// a repeat then says [`Completed::Already`]. Cancel-safe in the same way.
    pub async fn complete(&self, name: &str, answer: Option<&str>) -> Result<Completed> {
        let text = answer.unwrap_or("null");
        complete::check(name, text, &Limits::default())?;
        serde_json::from_str::<serde_json::Value>(text)
            .map_err(|e| Error::invalid("answer", format!("not valid JSON: {e}")))?;
        Ok(Completed::of(self.store.complete(name, answer).await?))
    }

    /// Makes untriggered jobs due now, as [`Rowlock::trigger`](crate::Rowlock::trigger) does.
    ///
    /// # Errors
    /// As there. Cancel-safe in the same way.
    pub async fn trigger(&self, pointers: &[(JobId, Uuid)]) -> Result<Vec<Triggered>> {
        trigger::trigger(&*self.store, pointers).await
    }

    /// Enqueues a job by its kind and JSON payload in a separate commit. The version is 1 unless set.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the JSON or a name is refused, [`Error::KeyConflict`] when another request holds the
    /// key, [`Error::TryAgain`] when another transaction was in the way. After a database error the job may or may not
    /// exist. Cancel safety: dropped half-way, the job may or may not exist.
    pub async fn enqueue(&self, job: NamedJob) -> Result<Enqueued> {
        let limits = Limits::default();
        check_payload(&job.payload, &limits)?;
        serde_json::from_str::<serde_json::Value>(&job.payload)
            .map_err(|e| Error::invalid("payload", format!("not valid JSON: {e}")))?;
        let key = match &job.key {
            Some(key) => Some(Keyed::new(key, job.hold, &job.kind, &job.payload)?),
            None if job.hold != Hold::default() => {
                return Err(Error::invalid("hold", "set without a key; give a key too"));
            }
            None => None,
        };
        let draft = Draft {
            uid: Uuid::now_v7(),
            kind: job.kind,
            version: job.version,
            queue: job.queue,
            priority: job.priority,
            attempts_max: job.attempts_max,
            payload: job.payload,
            tags: None,
            due: match job.on_trigger {
                true => Due::OnTrigger,
                false => Due::In(job.delay),
            },
            expires_at: None,
            chain: None,
            position: 0,
            if_retired: None,
            trace: trace::current(),
            wait: None,
            group: job.group,
            key,
        };
        let mut put = self.store.enqueue(&[draft.checked(&limits)?]).await?;
        put.pop()
            .ok_or_else(|| Error::NotFound("the new job was not returned by the database; report this as a bug".into()))
    }
}
