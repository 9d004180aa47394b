//! A database with the documented grants, and statements run under its roles.

use std::sync::atomic::{AtomicU32, Ordering};

use proof::bed::{Database, Server};
use rowlock::postgres::Rowlock;
use sqlx::{Connection, PgConnection};

use crate::steps::catalog::script;

const GRANTS: &str = include_str!("../../../../docs/grants.sql");

pub(crate) const PRODUCER: &str = "rowlock_producer";
pub(crate) const WORKER: &str = "rowlock_worker";
pub(crate) const OPERATOR: &str = "rowlock_operator";

/// A database migrated by an owner without any other right, with the documented grants.
pub(crate) struct Granted {
    database: Database,
    /// Roles are the server's, so they do not go with the database.
    logins: Vec<String>,
    pub(crate) root: PgConnection,
}

impl Granted {
    pub(crate) async fn new(server: &Server, case: &str) -> Granted {
        let database = Database::bare(server, &format!("grants::{case}")).await.unwrap();
        let mut granted = Granted {
            root: PgConnection::connect(&database.url).await.unwrap(),
            database,
            logins: Vec::new(),
        };
        let owner = granted.login(None).await;
        let name = granted.database.url.rsplit('/').next().unwrap();
        let create = format!("grant create on database {name} to {owner}");
        script(&mut granted.root, &create).await.unwrap();
        let owner = granted.url(&owner);
        Rowlock::open(&owner).unwrap().migrate().await.unwrap();
        // Twice: as a role that may create roles, then as the owner, who may not.
        script(&mut granted.root, GRANTS).await.unwrap();
        let mut owner = PgConnection::connect(&owner).await.unwrap();
        script(&mut owner, GRANTS).await.unwrap();
        granted
    }

    /// The same database under another role.
    fn url(&self, role: &str) -> String {
        let (scheme, rest) = self.database.url.split_once("://").unwrap();
        let (_, host) = rest.split_once('@').unwrap();
        format!("{scheme}://{role}@{host}")
    }

    /// A new role that may log in and is a member of one other at most.
    pub(crate) async fn login(&mut self, member_of: Option<&str>) -> String {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("login_{}_{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let within = member_of.map(|role| format!("in role {role}")).unwrap_or_default();
        script(&mut self.root, &format!("create role {name} login {within}"))
            .await
            .unwrap();
        self.logins.push(name.clone());
        name
    }

    /// A handle and a connection of a new login that is a member of `role` and nothing else.
    pub(crate) async fn member(&mut self, role: &str) -> (Rowlock, PgConnection) {
        let login = self.login(Some(role)).await;
        let url = self.url(&login);
        let rowlock = Rowlock::connect(&url).await.unwrap();
        (rowlock, PgConnection::connect(&url).await.unwrap())
    }

    pub(crate) async fn end(self, server: &Server) {
        self.database.remove().await.unwrap();
        let mut root = PgConnection::connect(&server.url).await.unwrap();
        script(&mut root, &format!("drop role {}", self.logins.join(", ")))
            .await
            .unwrap();
    }
}

/// A sequence's right is asked for when it is used, not when a plan is made.
pub(crate) const NEXT_ID: &str = "explain analyze select nextval('rowlock.job_id')";

/// Whether a statement is only planned, which checks the rights on every table, or run.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Run {
    Explain,
    Really,
}

/// One statement under a role, taken back whatever it did.
pub(crate) async fn as_role(root: &mut PgConnection, role: &str, text: &str, run: Run) -> Result<(), sqlx::Error> {
    // The caller may have a transaction open; this one is then a savepoint in it.
    let mut tx = root.begin().await.unwrap();
    script(&mut tx, &format!("set local role {role}")).await.unwrap();
    // A function's rights are asked for inside of it.
    let said = if run == Run::Really || text == NEXT_ID || text.starts_with("do ") {
        script(&mut tx, text).await
    } else {
        explain(&mut tx, text).await
    };
    tx.rollback().await.unwrap();
    said
}

async fn explain(pg: &mut PgConnection, text: &str) -> Result<(), sqlx::Error> {
    script(pg, "set local plan_cache_mode = force_generic_plan").await?;
    // A prepared statement outlives its transaction, so each has another name.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let part = format!("part_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    script(pg, &format!("prepare {part} as {text}")).await?;
    let count = "select cardinality(parameter_types) from pg_prepared_statements where name = $1";
    let count: i32 = sqlx::query_scalar(count).bind(&part).fetch_one(&mut *pg).await?;
    let nulls = vec!["null"; count as usize].join(", ");
    let args = if nulls.is_empty() { nulls } else { format!("({nulls})") };
    script(pg, &format!("explain execute {part} {args}")).await
}

/// Refused because a right is missing, and for no other reason.
pub(crate) fn refused(said: &Result<(), sqlx::Error>) -> bool {
    let code = said
        .as_ref()
        .err()
        .and_then(|e| e.as_database_error())
        .and_then(|e| e.code());
    code.as_deref() == Some("42501")
}
