//! Metrics of a worker on a table of the user's own.

use anyhow::Result;
use proof::{
    base::Base,
    bed::{Database, postgres_servers, until},
    victim::PATIENCE,
};
use rowlock::{
    Ended, Fail,
    adopt::{self, Adopted, Columns},
    atomic,
    postgres::Rowlock,
};
use sqlx::{FromRow, Row, postgres::PgRow};
use tokio_util::sync::CancellationToken;

const TABLE: &str = "
create table email_snoozes (
  id bigserial primary key, remind_at timestamptz not null,
  claimed_at timestamptz, claimed_by text, claim_token uuid,
  attempts int not null default 0, max_attempts int not null default 5, inactive boolean not null default false,
  last_error text, last_error_at timestamptz
);
create index due on email_snoozes (inactive, claimed_at, remind_at);
create index claimed on email_snoozes (claimed_at) where claimed_at is not null;
insert into email_snoozes (remind_at) select now() - interval '1 minute' from generate_series(1, 5)";

struct Snooze {
    id: i64,
}

impl FromRow<'_, PgRow> for Snooze {
    fn from_row(row: &PgRow) -> sqlx::Result<Snooze> {
        Ok(Snooze { id: row.try_get("id")? })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn metrics_have_the_names_of_any_worker_and_the_tables_name_as_their_queue() -> Result<()> {
    for server in postgres_servers() {
        let database = Database::fresh(&server, "telemetry::metrics_of_an_adopted_table").await?;
        let rowlock = Rowlock::open(&database.url)?;
        rowlock.migrate().await?;
        let mut base = Base::connect(&database.url).await?;
        base.run(TABLE).await?;
        base.close().await?;
        let page = rowlock_otel::prometheus::Prometheus::new()?;
        let fails = |_cx: adopt::Ctx, row: Snooze, tx: adopt::Tx| async move {
            match row.id {
                5 => Err(Fail::retire("no luck")),
                _ => tx.done().ok(),
            }
        };
        let adopted = Adopted::open(&rowlock, "email_snoozes", Columns::due("remind_at")).await?;
        let counted = page.telemetry().listener();
        let worker = adopted.worker().on_event(counted).handle(atomic(fails));
        let (counters, stop) = (worker.counters(), CancellationToken::new());
        let stopped = stop.clone();
        let running = tokio::spawn(worker.run_until(async move { stopped.cancelled().await }));
        until("every row to end", PATIENCE, || async {
            let over = counters.settled(Ended::Done) == 4 && counters.settled(Ended::Retired) == 1;
            over.then_some(())
        })
        .await;
        stop.cancel();
        running.await??;
        let text = page.text()?;
        let counted = |metric: &str| -> f64 {
            let of = |line: &&str| line.starts_with(metric) && line.contains("queue=\"email_snoozes\"");
            let line = text
                .lines()
                .find(of)
                .unwrap_or_else(|| panic!("no {metric} in\n{text}"));
            line.rsplit(' ')
                .next()
                .and_then(|n| n.parse().ok())
                .expect("a number ends the line")
        };
        let metrics = [
            "queue_claimed_total",
            "queue_processed_total",
            "queue_failed_total",
            "queue_retired_total",
        ];
        assert_eq!(metrics.map(counted), [5.0, 4.0, 1.0, 1.0]);
        assert_eq!(counted("queue_job_duration_ms_count"), 5.0);
        database.remove().await?;
    }
    Ok(())
}
