//! Plans as the engine's own connections get them: prepared, generic, under its planner settings.

use serde_json::Value;
use sqlx::{AssertSqlSafe, PgConnection};

/// The planner settings of the engine's connections; `plans.rs` checks that they are.
pub(crate) const PLANNER: [&str; 5] = [
    "set plan_cache_mode = force_generic_plan",
    "set enable_seqscan = off",
    "set enable_hashjoin = off",
    "set enable_mergejoin = off",
    "set jit = off",
];

/// One plan, as PostgreSQL's JSON.
#[derive(Debug)]
pub(crate) struct Plan(Value);

/// One node of a plan.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a>(&'a Value);

/// Applies the engine's planner settings to a connection.
pub(crate) async fn as_engine(pg: &mut PgConnection) {
    for setting in PLANNER {
        sqlx::raw_sql(setting).execute(&mut *pg).await.unwrap();
    }
}

/// The generic plan of a statement for these argument texts; `analyze` also runs it, and takes that back.
pub(crate) async fn explain(pg: &mut PgConnection, text: &str, args: &str, analyze: bool) -> Plan {
    let run = async |pg: &mut PgConnection, sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(pg).await.unwrap();
    };
    run(pg, format!("prepare explained as {text}")).await;
    run(pg, "begin".into()).await;
    let options = if analyze { "analyze, buffers, timing off, " } else { "" };
    let execute = if args.is_empty() {
        String::new()
    } else {
        format!("({args})")
    };
    let explain = format!("explain ({options}costs off, format json) execute explained {execute}");
    let row = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *pg).await.unwrap();
    run(pg, "rollback; deallocate explained".into()).await;
    let text: String = sqlx::Row::try_get_unchecked(&row, 0).unwrap();
    Plan(serde_json::from_str(&text).unwrap())
}

/// How a statement reads a table: how often from end to end, and how many rows by an index. Functions that it calls
/// count too, although their plans are not shown. The statement is rolled back.
pub(crate) async fn reads(pg: &mut PgConnection, text: &str, args: &str, table: &str) -> (i64, i64) {
    let counted = async |pg: &mut PgConnection| -> (i64, i64) {
        let sum =
            "select seq_scan, coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relid = $1::regclass";
        let sum = sqlx::query_as(sum).bind(format!("rowlock.{table}"));
        sum.persistent(false).fetch_one(pg).await.unwrap()
    };
    let run = async |pg: &mut PgConnection, sql: String| {
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(pg).await.unwrap();
    };
    run(pg, format!("prepare counted as {text}; begin")).await;
    // What was counted before may not have been handed on yet.
    let before = counted(pg).await;
    run(pg, format!("execute counted ({args})")).await;
    let after = counted(pg).await;
    run(pg, "rollback; deallocate counted".into()).await;
    (after.0 - before.0, after.1 - before.1)
}

impl Plan {
    /// Every node, parents first.
    pub(crate) fn nodes(&self) -> Vec<Node<'_>> {
        fn walk<'a>(node: &'a Value, into: &mut Vec<Node<'a>>) {
            into.push(Node(node));
            for child in node["Plans"].as_array().into_iter().flatten() {
                walk(child, into);
            }
        }
        let mut nodes = Vec::new();
        walk(&self.0[0]["Plan"], &mut nodes);
        nodes
    }

    /// The scans of a table.
    pub(crate) fn scans(&self, table: &str) -> Vec<Node<'_>> {
        let reads = |node: &Node<'_>| node.text("Relation Name") == table && node.kind().ends_with("Scan");
        self.nodes().into_iter().filter(reads).collect()
    }

    /// Buffers touched by the whole statement.
    pub(crate) fn buffers(&self) -> i64 {
        Node(&self.0[0]["Plan"]).buffers()
    }

    /// One line per node, for the message of a failed assertion.
    pub(crate) fn shown(&self) -> String {
        let line = |node: Node<'_>| {
            let [kind, table, index, cond] =
                ["Node Type", "Relation Name", "Index Name", "Index Cond"].map(|f| node.text(f));
            format!(
                "\n{kind} {table} {index} {cond} loops={} buffers={}",
                node.loops(),
                node.buffers()
            )
        };
        self.nodes().into_iter().map(line).collect()
    }
}

impl<'a> Node<'a> {
    pub(crate) fn text(&self, field: &str) -> &'a str {
        self.0[field].as_str().unwrap_or_default()
    }

    pub(crate) fn kind(&self) -> &'a str {
        self.text("Node Type")
    }

    pub(crate) fn index(&self) -> &'a str {
        self.text("Index Name")
    }

    pub(crate) fn cond(&self) -> &'a str {
        self.text("Index Cond")
    }

    pub(crate) fn buffers(&self) -> i64 {
        let of = |field: &str| self.0[field].as_i64().unwrap_or_default();
        of("Shared Hit Blocks") + of("Shared Read Blocks")
    }

    /// Rows that it made and threw away.
    pub(crate) fn removed(&self) -> i64 {
        let of = |field: &str| self.0[field].as_i64().unwrap_or_default();
        of("Rows Removed by Join Filter") + of("Rows Removed by Filter")
    }

    /// How often it ran; zero when pruned at run time.
    pub(crate) fn loops(&self) -> i64 {
        self.0["Actual Loops"].as_i64().unwrap_or_default()
    }
}
