//! The parts of the contract that are one function each.

use jiff::Timestamp;
use uuid::Uuid;

use super::{PgStore, body_lock, breaker, cases, journal, setting, triggers, verify, vitals, waits};
use crate::{
    breaker::{Breaker, BreakerChange, BreakerView, Force, Note},
    case::CaseErrorView,
    effect::{Begun, CallEnd, EffectFilter, EffectView, Intent, Noted, Resolution},
    lease::Token,
    observe::{CheckView, Finding, RolloutView, Standing, Untaken, VerifyLimits},
    pause::{PauseView, Target},
    store::{
        ClaimAsk, Fut, Store,
        body_lock::{BodyLocks, Take},
        breaker::{Breakers, ProbeReply},
        cases::{Cases, Deed},
        journal::Journal,
        setting::Settings,
        triggers::{Pulled, Triggers},
        verify::Verify,
        vitals::Vitals,
        waits::{Stand, Swept, Waits},
    },
};

impl BodyLocks for PgStore {
    fn take_slot<'a>(&'a self, token: Token, key: &'a str, slots: i32) -> Fut<'a, Take> {
        Box::pin(body_lock::take(&self.0, token, key, slots))
    }

    fn free_slot<'a>(&'a self, token: Token, key: &'a str, slot: i32) -> Fut<'a, bool> {
        Box::pin(body_lock::free(&self.0, token, key, slot))
    }
}

impl Breakers for PgStore {
    fn declare_breakers<'a>(&'a self, breakers: &'a [(String, Breaker)], by: &'a str) -> Fut<'a, ()> {
        Box::pin(breaker::declare(&self.0, breakers, by))
    }

    fn breakers<'a>(&'a self, names: Option<&'a [String]>) -> Fut<'a, Vec<BreakerView>> {
        Box::pin(breaker::list(&self.0, names))
    }

    fn breaker_log<'a>(&'a self, name: &'a str, max: i64) -> Fut<'a, Vec<BreakerChange>> {
        Box::pin(breaker::log(&self.0, name, max))
    }

    fn note_breaker<'a>(&'a self, note: &'a Note) -> Fut<'a, Option<BreakerView>> {
        Box::pin(breaker::note(&self.0, note))
    }

    fn force_breaker<'a>(&'a self, name: &'a str, force: Force, actor: &'a str) -> Fut<'a, Option<bool>> {
        Box::pin(breaker::force(&self.0, name, force, actor))
    }

    fn claim_probe<'a>(&'a self, names: &'a [String], ask: &'a ClaimAsk, by: &'a str) -> Fut<'a, ProbeReply> {
        Box::pin(breaker::claim_probe(&self.0, names, ask, by))
    }
}

impl Cases for PgStore {
    fn name_cases(&self, max: i32) -> Fut<'_, usize> {
        Box::pin(cases::name(&self.0, max))
    }

    fn case_errors(&self, max: i64) -> Fut<'_, Vec<CaseErrorView>> {
        Box::pin(cases::errors(&self.0, max))
    }

    fn cases_of(&self, error: i64, until: Timestamp, max: i64) -> Fut<'_, Vec<i64>> {
        Box::pin(cases::of_error(&self.0, error, until, max))
    }

    fn case_again(&self, error: i64, after: Timestamp) -> Fut<'_, Option<i64>> {
        Box::pin(cases::again(&self.0, error, after))
    }

    fn newest_case(&self) -> Fut<'_, Option<Timestamp>> {
        Box::pin(cases::newest(&self.0))
    }

    fn outcomes_since<'a>(&'a self, jobs: &'a [i64], after: Timestamp) -> Fut<'a, Vec<(i64, Option<String>)>> {
        Box::pin(cases::outcomes_since(&self.0, jobs, after))
    }

    fn note_case<'a>(
        &'a self,
        id: i64,
        owner: Option<&'a str>,
        note: Option<&'a str>,
        actor: &'a str,
    ) -> Fut<'a, bool> {
        Box::pin(cases::note(&self.0, id, owner, note, actor))
    }

    fn edit_case<'a>(&'a self, id: i64, payload: &'a str, actor: &'a str) -> Fut<'a, bool> {
        Box::pin(cases::edit(&self.0, id, payload, actor))
    }

    fn note_deed<'a>(&'a self, deed: Deed<'a>) -> Fut<'a, ()> {
        Box::pin(cases::note_deed(&self.0, deed))
    }
}

impl Journal for PgStore {
    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun> {
        Box::pin(journal::begin(&self.0, intent))
    }

    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted> {
        Box::pin(journal::end(&self.0, end))
    }

    fn effect(&self, no: i64) -> Fut<'_, Option<EffectView>> {
        Box::pin(journal::one(&self.0, no))
    }

    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> Fut<'a, Vec<EffectView>> {
        Box::pin(journal::list(&self.0, filter))
    }

    fn effect_resolve<'a>(&'a self, no: i64, resolution: &'a Resolution, actor: &'a str) -> Fut<'a, Option<i64>> {
        Box::pin(journal::resolve(&self.0, no, resolution, actor))
    }
}

impl Settings for PgStore {
    fn rollouts(&self) -> Fut<'_, Vec<RolloutView>> {
        Box::pin(setting::rollouts(&self.0))
    }

    fn set_rollout<'a>(&'a self, name: &'a str, percent: u8, actor: &'a str) -> Fut<'a, ()> {
        Box::pin(setting::set_rollout(&self.0, name, percent, actor))
    }

    fn pauses(&self) -> Fut<'_, Vec<PauseView>> {
        Box::pin(setting::pauses(&self.0))
    }

    fn set_pause<'a>(&'a self, target: &'a Target, paused: bool, actor: &'a str) -> Fut<'a, bool> {
        Box::pin(setting::set_pause(&self.0, target, paused, actor))
    }
}

impl Triggers for PgStore {
    fn trigger<'a>(&'a self, pointers: &'a [(i64, Uuid)]) -> Fut<'a, Vec<Pulled>> {
        Box::pin(triggers::trigger(&self.0, pointers))
    }

    fn standing<'a>(&'a self, ids: &'a [i64]) -> Fut<'a, Vec<Standing>> {
        Box::pin(triggers::standing(&self.0, ids))
    }

    fn untaken<'a>(&'a self, which: &'a Untaken) -> Fut<'a, Vec<Standing>> {
        Box::pin(triggers::untaken(&self.0, which))
    }
}

impl Verify for PgStore {
    fn verify(&self, limits: VerifyLimits) -> Fut<'_, Vec<CheckView>> {
        self.within(verify::limit(limits), verify::DOING, verify::all(&self.0, limits))
    }
}

impl Vitals for PgStore {
    fn vitals(&self, lease_ms: Option<i64>) -> Fut<'_, Vec<Finding>> {
        Box::pin(vitals::findings(&self.0, lease_ms))
    }
}

impl Waits for PgStore {
    fn complete<'a>(&'a self, name: &'a str, answer: Option<&'a str>) -> Fut<'a, Option<i64>> {
        Box::pin(waits::complete(&self.0, name, answer))
    }

    fn sweep_waits(&self, max: i32, names: bool) -> Fut<'_, Swept> {
        Box::pin(async move {
            let (swept, woken) = waits::sweep(&self.0, max, names).await?;
            self.wake(&woken);
            Ok(swept)
        })
    }

    fn stands(&self, id: i64, chain: bool) -> Fut<'_, Vec<Stand>> {
        Box::pin(waits::stands(&self.0, id, chain))
    }
}
