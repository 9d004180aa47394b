//! What operators read.

use jiff::Timestamp;

use super::{SqliteStore, breaker, cases, journal, migrate, rows, sql, triggers, verify, views, vitals};
use crate::{
    breaker::{BreakerChange, BreakerView},
    case::{CaseErrorView, CaseView},
    effect::EffectView,
    observe::{AttemptView, AuditFilter, AuditView, CheckView, Finding, JobView, Standing, Status, VerifyLimits},
    store::{
        Fut, Inspect,
        cases::{CaseQuery, ErrorSince},
        journal::EffectQuery,
        rows::nouns,
        schema::SchemaFound,
        setting::{SettingSort, SettingView},
        triggers::StandingQuery,
        views::JobQuery,
        waits::Stand,
    },
};

impl Inspect for SqliteStore {
    fn schema(&self) -> Fut<'_, SchemaFound> {
        Box::pin(self.read("schema check", async |db, _| migrate::found(db).await))
    }

    fn status(&self) -> Fut<'_, Status> {
        Box::pin(self.read("status", async |db, now| views::status(db, now).await))
    }

    fn jobs<'a>(&'a self, which: JobQuery<'a>) -> Fut<'a, Vec<JobView>> {
        let doing = match which {
            JobQuery::One(_) => "read job",
            JobQuery::Chain(_) => "read chain",
            JobQuery::Filter(_) => "list jobs",
        };
        Box::pin(self.read(doing, async move |db, _| views::jobs(db, which).await))
    }

    fn attempts(&self, id: i64) -> Fut<'_, Vec<AttemptView>> {
        let read = sqlx::query(sql::ATTEMPTS).bind(id);
        Box::pin(self.read("read attempts", async |db, _| nouns(&read.fetch_all(db).await?)))
    }

    fn stands(&self, id: i64, chain: bool) -> Fut<'_, Vec<Stand>> {
        let read = sqlx::query(if chain { sql::STAND_CHAIN } else { sql::STAND }).bind(id);
        Box::pin(self.read("wait", async |db, _| nouns(&read.fetch_all(db).await?)))
    }

    fn standing<'a>(&'a self, which: StandingQuery<'a>) -> Fut<'a, Vec<Standing>> {
        let doing = match which {
            StandingQuery::Of(_) => "read job states",
            StandingQuery::Untaken(_) => "find untaken jobs",
        };
        Box::pin(self.read(doing, async move |db, now| triggers::standing(db, now, which).await))
    }

    fn cases(&self, which: CaseQuery) -> Fut<'_, Vec<CaseView>> {
        Box::pin(self.read("list cases", async move |db, _| cases::list(db, which).await))
    }

    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>> {
        let read = sqlx::query(sql::CASE_ERRORS).bind(max.max(0));
        Box::pin(self.read("list errors of cases", async |db, _| nouns(&read.fetch_all(db).await?)))
    }

    fn error_since<'a>(&'a self, error: i64, jobs: &'a [i64], after: Timestamp) -> Fut<'a, ErrorSince> {
        Box::pin(self.read("find the error", async move |db, _| {
            let ended = sqlx::query_as(sql::OUTCOMES_SINCE).bind(rows::array(jobs)?);
            let retired = sqlx::query_scalar(sql::CASE_AGAIN).bind(error);
            Ok(ErrorSince {
                ended: ended.bind(after.as_microsecond()).fetch_all(&mut *db).await?,
                retired: retired.bind(after.as_microsecond()).fetch_optional(db).await?,
            })
        }))
    }

    fn effects<'a>(&'a self, which: EffectQuery<'a>) -> Fut<'a, Vec<EffectView>> {
        let doing = match which {
            EffectQuery::One(_) => "read effect",
            EffectQuery::Filter(_) => "list effects",
        };
        Box::pin(self.read(doing, async move |db, _| journal::list(db, which).await))
    }

    fn settings(&self, of: SettingSort) -> Fut<'_, Vec<SettingView>> {
        let (doing, text) = match of {
            SettingSort::Rollouts => ("read rollouts", sql::ROLLOUTS),
            SettingSort::Pauses => ("read pauses", sql::PAUSES),
        };
        Box::pin(self.read(doing, async move |db, _| nouns(&sqlx::query(text).fetch_all(db).await?)))
    }

    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>> {
        Box::pin(self.read("read breakers", async move |db, now| {
            breaker::list(db, now, names).await
        }))
    }

    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>> {
        let read = sqlx::query(sql::BREAKER_LOG).bind(name).bind(max);
        Box::pin(self.read("read breaker log", async |db, _| nouns(&read.fetch_all(db).await?)))
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditView>> {
        let read = sqlx::query(sql::AUDIT_READ).bind(filter.job).bind(&filter.actor);
        let read = read.bind(filter.below).bind(i64::from(filter.limit));
        Box::pin(self.read("read the audit", async |db, _| nouns(&read.fetch_all(db).await?)))
    }

    fn verify(&self, limits: VerifyLimits) -> Fut<'_, Vec<CheckView>> {
        Box::pin(verify::all(self, limits))
    }

    fn vitals(&self, _lease_ms: Option<i64>) -> Fut<'_, Vec<Finding>> {
        Box::pin(self.read("check the file", async |db, _| vitals::findings(db).await))
    }
}
