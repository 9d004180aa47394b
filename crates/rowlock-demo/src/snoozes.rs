//! The fourth scene: an existing application table. Reminders are in `email_snoozes`, which has no columns for jobs.
//! Workers adopt the table, send each reminder once, and are killed all the time.
//!
//! A mail is an effect outside the database, so the provider counts what was sent. The provider is a separate process
//! that honours idempotency keys as good mail providers do: a reminder requested twice with one key is one mail.

mod report;
mod work;

use std::time::{Duration, Instant};

use anyhow::Result;
use rowlock::{
    adopt::{Adopted, Columns},
    observe::Observe,
    postgres::Rowlock,
};
use sqlx::{AssertSqlSafe, Connection, PgConnection};

pub(crate) use self::work::{Role, work};
use super::{
    crew::Crew,
    own::Tables,
    provider::{Moods, Provider},
    show::{Scene, Show},
};
use crate::output::Advice;

/// The table, with its own columns, as an application has it before anybody adopts it.
const TABLE: &str = "
create table SCHEMA.email_snoozes (
  id bigserial primary key,
  user_email text not null,
  message_id text not null,
  subject text,
  sender_email text,
  remind_at timestamptz not null,
  snooze_duration_hours int,
  claimed_at timestamptz,
  claimed_by text,
  claim_token uuid,
  attempts int not null default 0,
  max_attempts int not null default 5,
  inactive boolean not null default false,
  last_error text,
  last_error_at timestamptz,
  created_at timestamptz not null default now(),
  updated_at timestamptz not null default now()
);
create index idx_email_snoozes_due on SCHEMA.email_snoozes (inactive, claimed_at, remind_at);
create index idx_email_snoozes_claimed on SCHEMA.email_snoozes (claimed_at) where claimed_at is not null;
";

/// One row in a hundred is poison: half of those have no address, half cannot even be read.
const FILL: &str = "
insert into SCHEMA.email_snoozes (user_email, message_id, subject, sender_email, remind_at, snooze_duration_hours)
select
  case when n % 200 = 7 then 'nobody' else format('user-%s@example.org', n) end, format('message-%s', n),
  case when n % 200 = 107 then null else format('Reminder %s', n) end, 'sender@example.org',
  now() - make_interval(secs => COUNT - n), 24
from generate_series(1, COUNT) n
";

/// The poison of so many rows.
fn poison(rows: i64) -> i64 {
    (1..=rows).filter(|n| n % 200 == 7 || n % 200 == 107).count() as i64
}

/// How often the database is looked at, and how long a kill waits for its moment.
const LOOK_EVERY: Duration = Duration::from_millis(100);
const AIM_MAX: Duration = Duration::from_secs(1);

#[derive(clap::Args)]
#[command(after_help = super::after_help("rows, sent, lost, doubled, retired, kills, seconds"))]
pub(crate) struct Args {
    /// How many reminders
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    rows: u32,
    /// How many worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// How many times to kill a worker with SIGKILL; a new one starts each time
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    kills: u32,
}

impl Args {
    /// The scene needs a server: rows are locked one by one.
    pub(super) fn check(&self, database: Option<&str>) -> Result<()> {
        match database.is_some_and(|url| url.starts_with("postgres")) {
            true => Ok(()),
            false => Err(Advice::usage(
                "demo snoozes needs PostgreSQL, and --database does not name one",
                "rowlock demo snoozes --database postgres://user@host/name",
            )),
        }
    }
}

/// What was found after all workers had ended.
pub(crate) struct Found {
    rows: i64,
    poison: i64,
    /// Rows for which the provider has mails.
    sent: i64,
    /// Rows that have neither a mail nor a reason for it.
    lost: Vec<i64>,
    doubled: Vec<i64>,
    retired: i64,
    /// Retired rows whose `last_error` says nothing, or that have no case.
    unexplained: i64,
    /// Rows that are still active.
    active: i64,
    repeats: i64,
    kills: i64,
    struck: i64,
    workers: u32,
    seconds: f64,
}

struct Ground {
    conn: PgConnection,
    schema: String,
    observe: Observe,
}

impl Ground {
    async fn open(show: &Show, rows: u32) -> Result<Ground> {
        let schema = show.site.schema.clone();
        let rowlock = Rowlock::open_in(&show.site.url, &schema)?;
        rowlock.migrate().await?;
        show.step("creating and filling the table email_snoozes");
        let mut ground = Ground {
            conn: PgConnection::connect(&show.site.url).await?,
            observe: rowlock.observe(),
            schema,
        };
        ground.script(TABLE).await?;
        ground.script(&FILL.replace("COUNT", &rows.to_string())).await?;
        ground.script("analyze SCHEMA.email_snoozes").await?;
        // No migration is needed: the table has the columns of a claim and the indexes already.
        Adopted::open(&rowlock, &work::table(&ground.schema), Columns::due("remind_at")).await?;
        Ok(ground)
    }

    fn sql(&self, sql: &str) -> AssertSqlSafe<String> {
        AssertSqlSafe(sql.replace("SCHEMA", &self.schema))
    }

    async fn script(&mut self, sql: &str) -> Result<()> {
        let sql = self.sql(sql);
        sqlx::raw_sql(sql).execute(&mut self.conn).await?;
        Ok(())
    }

    async fn count(&mut self, of: &str) -> Result<i64> {
        let sql = self.sql(&format!("select count(*) from SCHEMA.email_snoozes where {of}"));
        Ok(sqlx::query_scalar(sql).fetch_one(&mut self.conn).await?)
    }
}

impl Scene for Args {
    type Ended = Found;
    const NAME: &'static str = "snoozes";

    fn intro(&self, show: &Show) -> String {
        let Args { rows, workers, kills } = self;
        format!(
            "Sending {rows} reminders from an existing application table on {},\n\
             with {workers} worker processes and {kills} kills (SIGKILL)",
            show.database()
        )
    }

    fn size(&self) -> (&'static str, i64) {
        ("rows", self.rows.into())
    }

    async fn play<DB: Tables>(&self, show: &Show, crew: &mut Option<Crew>) -> Result<Found> {
        show.step("creating and filling the table email_snoozes");
        let mut ground = Ground::open(show, self.rows).await?;
        let moods = Moods {
            drops: 2,
            misses: 1,
            refuses: 1,
            slow: 0,
        };
        show.step("starting the mail provider");
        let mut provider = Provider::start(show, moods).await?;
        let role = ["snoozes", "--provider", &provider.address.to_string()].map(str::to_owned);
        show.step(&format!("starting {} workers", self.workers));
        let crew = crew.insert(Crew::new(show, role.into())?);
        crew.hire(self.workers as usize)?;
        show.step("sending reminders and killing workers");
        let start = Instant::now();
        let struck = self.run(show, &mut ground, crew, &mut provider).await?;
        let seconds = start.elapsed().as_secs_f64();
        // No worker may run during the count.
        crew.dismiss(Duration::from_secs(5)).await;
        show.step("counting rows and mails");
        let mut found = self.count(&mut ground, provider).await?;
        found.kills = crew.kills as i64;
        (found.struck, found.seconds) = (struck, seconds);
        Ok(found)
    }
}

impl Args {
    /// Runs until every row is inactive and all kills are done. Returns how many workers died right after their mail
    /// was sent.
    async fn run(&self, show: &Show, ground: &mut Ground, crew: &mut Crew, provider: &mut Provider) -> Result<i64> {
        let (start, rows, kills) = (Instant::now(), i64::from(self.rows), self.kills as usize);
        let mut rng = fastrand::Rng::with_seed(show.seed);
        let (mut struck, mut aimed_at) = (0, None::<Instant>);
        // A limit for the size that nobody chose; more rows take longer.
        let limit = show.limit * (1 + self.rows / 2000);
        while start.elapsed() < limit {
            tokio::select! {
                biased;
                Some(pid) = provider.strike() => {
                    let before = crew.kills;
                    crew.kill_pid(pid).await?;
                    provider.go_on(crew.kills > before).await?;
                    struck += (crew.kills - before) as i64;
                    aimed_at = None;
                }
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            crew.look_after()?;
            let active = ground.count("not inactive").await?;
            show.tape.sample(rows - active, None);
            // One worker is killed after each part of the work, so that every part sees a kill; the last ones in any
            // case.
            let wave = (rows - active) * (self.kills as i64 + 1) / rows.max(1);
            if crew.kills >= kills {
                if active == 0 {
                    break;
                }
            } else if aimed_at.is_some_and(|at| at.elapsed() > AIM_MAX) || (aimed_at.is_none() && active == 0) {
                provider.aim(false).await?;
                crew.kill(rng.usize(..crew.len())).await?;
                aimed_at = None;
            } else if aimed_at.is_none() && wave > crew.kills as i64 {
                match rng.bool() {
                    true => {
                        provider.aim(true).await?;
                        aimed_at = Some(Instant::now());
                    }
                    false => crew.kill(rng.usize(..crew.len())).await?,
                }
            }
        }
        Ok(struck)
    }

    /// Compares the provider's log with the table.
    async fn count(&self, ground: &mut Ground, provider: Provider) -> Result<Found> {
        let tally = provider.tally().await?;
        let poisoned = |id: &i64| id % 200 == 7 || id % 200 == 107;
        let ids = 1..=i64::from(self.rows);
        let lost = ids
            .filter(|id| !poisoned(id) && !tally.mails.contains_key(id))
            .collect();
        let mut doubled: Vec<i64> = tally
            .mails
            .iter()
            .filter(|(_, mails)| **mails > 1)
            .map(|(id, _)| *id)
            .collect();
        doubled.sort_unstable();
        let retired = ground.count("inactive and last_error is not null").await?;
        let silent = ground
            .count("inactive and last_error is not null and length(last_error) < 10")
            .await?;
        let cases: i64 = ground.observe.status().await?.lanes.iter().map(|lane| lane.cases).sum();
        Ok(Found {
            rows: i64::from(self.rows),
            poison: poison(i64::from(self.rows)),
            sent: tally.mails.len() as i64,
            lost,
            doubled,
            unexplained: silent + (retired - cases).abs(),
            active: ground.count("not inactive").await?,
            retired,
            repeats: tally.repeats,
            workers: self.workers,
            kills: 0,
            struck: 0,
            seconds: 0.0,
        })
    }
}
