//! Two fresh databases, and what their tables hold in a form that can be compared.

use std::time::{Duration, Instant};

use proof::bed::{Database, Server, postgres_servers, until};
use rowlock::{
    Fail, Job, atomic,
    postgres::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool, Row};
use tokio::task::JoinHandle;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// What its handler does with it is its text.
#[derive(Clone, Debug, Serialize, Deserialize, Job)]
#[job(kind = "note")]
pub(crate) struct Note {
    pub(crate) text: String,
}

impl Note {
    pub(crate) fn new(text: &str) -> Note {
        Note { text: text.to_owned() }
    }
}

/// One side of the stage.
pub(crate) struct Side {
    pub(crate) rowlock: Rowlock,
    pub(crate) pg: PgConnection,
    database: Database,
}

impl Side {
    pub(crate) async fn new(server: &Server, case: &str) -> Side {
        let database = Database::fresh(server, &format!("protocol::{case}")).await.unwrap();
        let rowlock = Rowlock::open(&database.url).unwrap();
        Side {
            rowlock,
            pg: PgConnection::connect(&database.url).await.unwrap(),
            database,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.database.url.clone()
    }

    /// Runs statements as they are.
    pub(crate) async fn run(&mut self, sql: &str) {
        let said = self.pg.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        said.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// The first column of the first row.
    pub(crate) async fn text(&mut self, sql: &str) -> String {
        let row = sqlx::query(AssertSqlSafe(sql.to_owned())).fetch_one(&mut self.pg).await;
        let row = row.unwrap_or_else(|error| panic!("{sql}: {error}"));
        row.try_get::<Option<String>, _>(0).unwrap().unwrap_or_default()
    }

    /// The SQLSTATE and the text of a refusal.
    pub(crate) async fn refused(&mut self, sql: &str) -> (String, String) {
        let said = self.pg.execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))).await;
        let error = said.expect_err(sql).into_database_error().unwrap();
        (
            error.code().unwrap_or_default().into_owned(),
            error.message().to_owned(),
        )
    }

    /// Runs a query on a separate connection, and returns when it waits for what this side holds.
    pub(crate) async fn held_up(&mut self, sql: &str) -> JoinHandle<sqlx::Result<String>> {
        let mut other = PgConnection::connect(&self.url()).await.unwrap();
        let pid: i32 = sqlx::query_scalar("select pg_backend_pid()")
            .fetch_one(&mut other)
            .await
            .unwrap();
        let query = sqlx::query_scalar(AssertSqlSafe(sql.to_owned()));
        let waits = tokio::spawn(async move { query.fetch_one(&mut other).await });
        let blocked = format!("select (pg_backend_pid() = any(pg_blocking_pids({pid})))::text");
        let start = Instant::now();
        while self.text(&blocked).await != "true" {
            assert!(start.elapsed() < Duration::from_secs(30), "nothing waits: {sql}");
            tokio::task::yield_now().await;
        }
        waits
    }

    /// A worker of the library that does what each note says, until that many attempts have ended.
    pub(crate) async fn work(&mut self, attempts: i64) {
        let worker = Worker::new(&self.rowlock).queue("default", 4).handle(atomic(as_told));
        let ended = number(self.url(), "select count(*) from rowlock.outcome", attempts);
        worker.run_until(ended).await.unwrap();
    }

    /// A worker by the functions.
    pub(crate) async fn join(&mut self) -> String {
        self.text("select rowlock.join_v1('any')::text").await
    }

    /// The token of the next job that a worker of the functions claims.
    pub(crate) async fn claim(&mut self, worker: &str) -> String {
        let claim = format!("select token from rowlock.claim_v1({worker}, 'default', '{{note}}')");
        self.text(&claim).await
    }

    /// What every table holds, without what no two runs share.
    async fn held(&mut self) -> String {
        self.text(HELD).await
    }
}

/// Waits until a count is that, on a separate connection.
pub(crate) async fn number(url: String, sql: &'static str, wanted: i64) {
    let pool = PgPool::connect(&url).await.unwrap();
    until(sql, Duration::from_secs(30), || {
        let pool = pool.clone();
        async move {
            let count: i64 = sqlx::query_scalar(sql).fetch_one(&pool).await.unwrap();
            (count == wanted).then_some(())
        }
    })
    .await;
    pool.close().await;
}

async fn as_told(_: Ctx, note: Note, tx: Tx) -> Outcome {
    match note.text.as_str() {
        "retry" => Err(Fail::retry_after(HOUR, "bad")),
        "retire" => Err(Fail::retire("bad")),
        "defer" => Err(Fail::defer(HOUR)),
        "cancel" => Err(Fail::cancel("bad")),
        "next" => tx.done().then(Note::new("followed")).ok(),
        "result" => tx.done().result(&serde_json::json!({"ok": true})).ok(),
        _ => tx.done().ok(),
    }
}

/// Plays a scene on both sides and compares.
pub(crate) async fn same(case: &str, library: impl AsyncFn(&mut Side), functions: impl AsyncFn(&mut Side)) {
    for server in postgres_servers() {
        let mut left = Side::new(&server, case).await;
        let mut right = Side::new(&server, case).await;
        library(&mut left).await;
        functions(&mut right).await;
        let (by_library, by_functions) = (left.held().await, right.held().await);
        assert!(by_library.lines().count() > 1, "nothing happened: {by_library}");
        assert_eq!(by_library, by_functions, "library and functions differ");
        for side in [left, right] {
            let report = side.rowlock.observe().verify(&Default::default()).await.unwrap();
            assert!(report.holds(), "{report:?}");
            end(side).await;
        }
    }
}

/// Plays a scene of the functions alone.
pub(crate) async fn alone(case: &str, functions: impl AsyncFn(&mut Side)) {
    for server in postgres_servers() {
        let mut side = Side::new(&server, case).await;
        functions(&mut side).await;
        end(side).await;
    }
}

pub(crate) async fn end(side: Side) {
    side.pg.close().await.unwrap();
    drop(side.rowlock);
    side.database.remove().await.unwrap();
}

/// Jobs by their rank, due times as soon or later, workers as some or none, and no times or uids.
const HELD: &str = "
with rank as (select id, row_number() over (order by id) as no from rowlock.job),
line (part, no, text) as (
  select 1, r.no, format('job %s %s@%s %s p%s of %s %s tags %s chain %s.%s expires %s compensates %s waits %s group %s %s %s was %s trace %s',
    r.no, j.kind, j.version, j.queue, j.priority, j.attempts_max, j.payload, j.tags, (select c.no from rank c where c.id = j.chain),
    j.position, j.expires_at, j.if_retired::jsonb - 'uid', j.waits_for, j.in_group, j.group_no, j.group_stops, j.was_done, j.trace)
  from rowlock.job j join rank r on r.id = j.id
  union all
  select 2, k.no, format('ready %s %s/%s alone %s p%s %s epoch %s attempt %s of %s', k.no, r.queue_no, r.kind_no, r.alone, r.priority,
    case when r.due_at > '9998-12-31' then r.due_at::text when r.due_at > clock_timestamp() + interval '1 minute' then 'later' else 'soon' end, r.epoch, r.attempt, r.attempts_max)
  from rowlock.ready r join rank k on k.id = r.id
  union all
  select 3, k.no, format('waiting %s %s/%s for %s group %s alone %s p%s %s epoch %s attempt %s of %s limit %s ends %s', k.no, w.queue_no,
    w.kind_no, w.name, w.group_no, w.alone, w.priority,
    case when w.due_at > clock_timestamp() + interval '1 minute' then 'later' else 'soon' end, w.epoch, w.attempt, w.attempts_max,
    w.limit_at is not null, w.limit_ends)
  from rowlock.waiting w join rank k on k.id = w.id
  union all
  select 4, k.no, format('lease %s %s/%s alone %s p%s epoch %s attempt %s of %s', k.no, l.queue_no, l.kind_no, l.alone, l.priority,
    l.epoch, l.attempt, l.attempts_max)
  from rowlock.lease l join rank k on k.id = l.id
  union all
  select 5, k.no, format('case %s %s/%s p%s epoch %s attempt %s of %s: %s, history %s', k.no, c.queue_no, c.kind_no, c.priority, c.epoch,
    c.attempt, c.attempts_max, c.reason, (
      select string_agg(format('%s %s %s %s', h ->> 'epoch', h ->> 'attempt', h ->> 'outcome', h ->> 'error'), '; ')
      from jsonb_array_elements(c.history) h))
  from rowlock.case_file c join rank k on k.id = c.id
  union all
  select 6, k.no * 1000 + o.epoch, format('outcome %s epoch %s by %s attempt %s %s: %s %s', k.no, o.epoch,
    case when o.worker = 0 then 'nobody' else 'somebody' end, o.attempt, o.outcome, o.error, o.result::jsonb)
  from rowlock.outcome o join rank k on k.id = o.id
  union all
  select 7, row_number() over (order by x.key), format('key %s of %s %s %s until %s', x.key, k.no, encode(x.fingerprint, 'hex'), x.hold,
    x.expires_at is not null)
  from rowlock.job_key x left join rank k on k.id = x.id
  union all
  select 8, row_number() over (order by l.key), format('once %s %s %s %s until %s', l.key, encode(l.fingerprint, 'hex'), l.answer, l.hold,
    l.expires_at is not null)
  from rowlock.ledger l
  union all
  select 9, row_number() over (order by g.no), format('group %s head %s paused %s', g.no, k.no, g.paused)
  from rowlock.job_group g left join rank k on k.id = g.head
  where g.head is not null or g.paused or exists (select from rowlock.waiting w where w.group_no = g.no)
)
select string_agg(text, e'\\n' order by part, no) from line";
