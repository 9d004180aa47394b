//! Searches a model to its end, and says what was found.

use std::{
    num::NonZero,
    thread,
    time::{Duration, Instant},
};

use stateright::{Checker, Model, Path};

use crate::{
    protocol::{Protocol, REACHED},
    rule::Rule,
    step::Step,
    world::World,
};

/// What a whole search has shown.
#[derive(Clone, Debug)]
pub struct Found {
    /// Different states.
    pub states: usize,
    /// How long it took.
    pub took: Duration,
    /// Every state that can be reached was visited.
    pub closed: bool,
    /// The rules that were broken, each with a path to a breach.
    pub broken: Vec<(Rule, Vec<String>)>,
    /// What of [`REACHED`] was not.
    pub missed: Vec<&'static str>,
}

impl Found {
    /// Everything was visited, nothing was broken, and everything in [`REACHED`] was reached.
    pub fn is_sound(&self) -> bool {
        self.closed && self.broken.is_empty() && self.missed.is_empty()
    }
}

/// Visits every state, on all cores.
pub fn search(protocol: Protocol) -> Found {
    let began = Instant::now();
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let checker = protocol.checker().threads(threads).spawn_bfs().join();
    let reached = checker.discoveries();
    Found {
        states: checker.unique_state_count(),
        took: began.elapsed(),
        // It stops early only when there is nothing left to find, and then every rule is broken.
        closed: checker.is_done(),
        broken: broken(&checker),
        missed: REACHED.into_iter().filter(|name| !reached.contains_key(name)).collect(),
    }
}

/// The shortest way to break a rule, and every rule that is broken after so many steps; `None` when there is no way.
pub fn shortest(protocol: Protocol) -> Option<(Vec<Rule>, Vec<String>)> {
    for depth in 2.. {
        // On one thread, or a state could be met on a detour first and be cut off.
        let checker = protocol.checker().target_max_depth(depth).spawn_bfs().join();
        let broken = broken(&checker);
        let rules = broken.iter().map(|(rule, _)| *rule).collect();
        if let Some((_, path)) = broken.into_iter().next() {
            return Some((rules, path));
        }
        if checker.max_depth() < depth {
            return None;
        }
    }
    None
}

fn broken(checker: &impl Checker<Protocol>) -> Vec<(Rule, Vec<String>)> {
    let mut paths = checker.discoveries();
    let found = |rule: Rule| Some((rule, told(paths.remove(rule.name())?)));
    Rule::ALL.into_iter().filter_map(found).collect()
}

/// A path in words; an attempt is known by its job and epoch.
fn told(path: Path<World, Step>) -> Vec<String> {
    let steps = path
        .into_vec()
        .into_iter()
        .filter_map(|(world, step)| Some((world, step?)));
    let words = |(world, step): (World, Step)| match step.run().and_then(|run| world.runs.get(run)) {
        Some(run) => format!("{step:?}, job {} epoch {}", run.job, run.token.epoch),
        None => format!("{step:?}"),
    };
    steps.map(words).collect()
}
