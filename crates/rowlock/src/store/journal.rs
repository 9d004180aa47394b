//! The journal of outside calls: intents before them, replies after them, and what people found out about the rest.
//!
//! Every write of an attempt carries its token and holds the lease while it commits, so that recovery cannot end the
//! lease in between. Sent again after an error, a write finds its own first try and leaves it at that.

use super::Fut;
use crate::effect::{Begun, CallEnd, EffectFilter, EffectView, Intent, Noted, Resolution};

/// The engine's verbs for effects, on connections of the store's own.
pub trait Journal: Send + Sync {
    /// Commits an intent, unless what is known of the effect speaks against a call.
    fn effect_begin<'a>(&'a self, intent: &'a Intent) -> Fut<'a, Begun>;
    /// Commits how a call ended.
    fn effect_end<'a>(&'a self, end: &'a CallEnd) -> Fut<'a, Noted>;

    fn effect(&self, no: i64) -> Fut<'_, Option<EffectView>>;
    fn effects<'a>(&'a self, filter: &'a EffectFilter) -> Fut<'a, Vec<EffectView>>;
    /// Records what a person found out, with an audit row: the effect's job, or `None` when the effect is not in doubt
    /// or its call is under way.
    fn effect_resolve<'a>(&'a self, no: i64, resolution: &'a Resolution, actor: &'a str) -> Fut<'a, Option<i64>>;
}
