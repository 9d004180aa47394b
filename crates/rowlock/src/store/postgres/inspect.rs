//! What operators read.

use super::{PgStore, breaker, cases, journal, migrate, triggers, verify, views, vitals, waits};
use crate::{
    breaker::{BreakerChange, BreakerView},
    case::{CaseErrorView, CaseView},
    effect::EffectView,
    observe::{AttemptView, AuditFilter, AuditView, CheckView, Finding, JobView, Standing, Status, VerifyLimits},
    store::{
        Fut, Inspect,
        cases::{CaseQuery, ErrorSince},
        journal::EffectQuery,
        schema::SchemaFound,
        setting::{SettingSort, SettingView},
        triggers::StandingQuery,
        views::JobQuery,
        waits::Stand,
    },
};

use jiff::Timestamp;

impl Inspect for PgStore {
    fn schema(&self) -> Fut<'_, SchemaFound> {
        Box::pin(migrate::found(&self.0))
    }

    fn status(&self) -> Fut<'_, Status> {
        Box::pin(views::status(&self.0))
    }

    fn jobs<'a>(&'a self, which: JobQuery<'a>) -> Fut<'a, Vec<JobView>> {
        Box::pin(views::jobs(&self.0, which))
    }

    fn attempts(&self, id: i64) -> Fut<'_, Vec<AttemptView>> {
        Box::pin(views::attempts(&self.0, id))
    }

    fn stands(&self, id: i64, chain: bool) -> Fut<'_, Vec<Stand>> {
        Box::pin(waits::stands(&self.0, id, chain))
    }

    fn standing<'a>(&'a self, which: StandingQuery<'a>) -> Fut<'a, Vec<Standing>> {
        Box::pin(triggers::standing(&self.0, which))
    }

    fn cases(&self, which: CaseQuery) -> Fut<'_, Vec<CaseView>> {
        Box::pin(cases::list(&self.0, which))
    }

    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>> {
        Box::pin(cases::errors(&self.0, max))
    }

    fn error_since<'a>(&'a self, error: i64, jobs: &'a [i64], after: Timestamp) -> Fut<'a, ErrorSince> {
        Box::pin(cases::error_since(&self.0, error, jobs, after))
    }

    fn effects<'a>(&'a self, which: EffectQuery<'a>) -> Fut<'a, Vec<EffectView>> {
        Box::pin(journal::list(&self.0, which))
    }

    fn settings(&self, of: SettingSort) -> Fut<'_, Vec<SettingView>> {
        Box::pin(views::settings(&self.0, of))
    }

    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>> {
        Box::pin(breaker::list(&self.0, names))
    }

    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>> {
        Box::pin(breaker::log(&self.0, name, max))
    }

    fn audit<'a>(&'a self, filter: &'a AuditFilter) -> Fut<'a, Vec<AuditView>> {
        Box::pin(views::audit(&self.0, filter))
    }

    fn verify(&self, limits: VerifyLimits) -> Fut<'_, Vec<CheckView>> {
        self.within(verify::limit(limits), verify::DOING, verify::all(&self.0, limits))
    }

    fn vitals(&self, lease_ms: Option<i64>) -> Fut<'_, Vec<Finding>> {
        Box::pin(vitals::findings(&self.0, lease_ms))
    }
}
