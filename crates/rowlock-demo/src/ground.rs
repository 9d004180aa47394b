//! The application's side of the database: the scene's tables beside the library's, and what can be counted in them.

use anyhow::Result;
use rowlock::{
    Ended, Rowlock, State,
    observe::{JobFilter, JobView, Observe},
};
use sqlx::Connection;

use super::{
    own::{Site, Tables},
    record::Faults,
};

/// The application's side of the database.
pub(crate) struct Ground<DB: Tables> {
    pub(crate) rowlock: Rowlock<DB>,
    pub(crate) observe: Observe,
    pub(crate) conn: DB::Connection,
    prefix: String,
    /// The library's view of all jobs.
    jobs_view: String,
}

impl<DB: Tables> Ground<DB> {
    /// Makes the tables: the library's and the scene's.
    pub(crate) async fn open(site: &Site, schema: &str) -> Result<Ground<DB>> {
        let rowlock = Rowlock::<DB>::open_in(&site.url, &site.schema)?;
        rowlock.migrate().await?;
        let mut conn = <DB::Connection as Connection>::connect(&site.url).await?;
        let prefix = site.prefix("demo");
        let jobs_view = match site.is_postgres() {
            true => format!("{}.jobs", site.schema),
            false => "rowlock_jobs".to_owned(),
        };
        DB::script(&mut conn, schema.replace("demo_", &prefix)).await?;
        Ok(Ground {
            observe: rowlock.observe(),
            rowlock,
            conn,
            prefix,
            jobs_view,
        })
    }

    /// A statement with the tables' real names.
    pub(crate) fn sql(&self, sql: &str) -> String {
        sql.replace("demo_", &self.prefix).replace("JOBS_VIEW", &self.jobs_view)
    }

    /// Two numbers per row.
    pub(crate) async fn pairs(&mut self, sql: &str) -> Result<Vec<(i64, i64)>> {
        let sql = self.sql(sql);
        Ok(DB::pairs(&mut self.conn, sql).await?)
    }

    /// The two numbers of the only row.
    pub(crate) async fn pair(&mut self, sql: &str) -> Result<(i64, i64)> {
        match self.pairs(sql).await?.pop() {
            Some(pair) => Ok(pair),
            None => anyhow::bail!("the demo's tables cannot be counted"),
        }
    }

    /// Counts rows that are there twice, and finished jobs without their row. `marks` names each kind and the table in
    /// which a job of that kind leaves one row per order.
    pub(crate) async fn faults(&mut self, marks: &[(&str, &str)]) -> Result<Faults> {
        let (mut twice, mut missing) = (Vec::new(), Vec::new());
        for (kind, table) in marks {
            twice.push(format!(
                "select order_id from {table} group by order_id having count(*) > 1"
            ));
            // One statement sees one state of the database: a job and its row are committed together.
            missing.push(format!(
                "select (select count(*) from JOBS_VIEW where kind = '{kind}' and state = 'finished'),
                        (select count(distinct order_id) from {table})"
            ));
        }
        let twice = twice.join(" union ");
        let twice = format!("select count(*), count(*) from ({twice}) as twice");
        let (doubled_rows, _) = self.pair(&twice).await?;
        let missing = self.pairs(&missing.join(" union all ")).await?;
        Ok(Faults {
            doubled_rows,
            missing_rows: missing
                .iter()
                .map(|(finished, marked)| (finished - marked).max(0))
                .sum(),
        })
    }

    /// Every job there is.
    pub(crate) async fn jobs(&self) -> Result<Vec<JobView>> {
        let (mut jobs, mut filter) = (Vec::new(), JobFilter::new().limit(1000));
        loop {
            let page = self.observe.jobs(&filter).await?;
            let Some(last) = page.last() else { return Ok(jobs) };
            filter = filter.below(last.id);
            jobs.extend(page);
        }
    }

    /// Attempts of these jobs that ended with their worker.
    pub(crate) async fn cut_short(&self, jobs: &[JobView]) -> Result<i64> {
        let mut cut_short = 0;
        for job in jobs {
            if job.epoch > 1 || job.state != State::Finished {
                let attempts = self.observe.attempts(job.id).await?;
                cut_short += attempts.iter().filter(|a| a.outcome == Ended::Lost).count() as i64;
            }
        }
        Ok(cut_short)
    }
}
