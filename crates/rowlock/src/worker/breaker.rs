//! A worker's part in the breakers: reads their state, and reports how attempts ended, after their commit.

use std::{sync::Arc, time::Duration};

use tokio::sync::mpsc::UnboundedReceiver;

use super::{
    shared::{Claims, Shared},
    watch::read_again,
};
use crate::{
    attempt::{Bond, hand::InHand},
    breaker::{Breaker, BreakerState, KnownBreakers, Note},
    error::Result,
    event::{Event, Skipped},
    state::Ended,
    store::{
        Store,
        breaker::{BreakerMove, declare},
    },
};

/// How often the database may refuse a note, for whatever reason, before it is dropped.
const REFUSED_MAX: u32 = 10;

/// The breakers that a worker's kinds are bound to.
pub(crate) struct Breakers {
    pub(crate) known: KnownBreakers,
    pub(crate) declared: Vec<(String, Breaker)>,
    pub(crate) names: Vec<String>,
}

/// How one attempt ended, for one dependency.
pub(crate) struct BreakerNews {
    name: String,
    version: i64,
    /// What it failed with; `None` if it did not fail.
    failed: Option<String>,
    probe: bool,
}

impl Breakers {
    pub(crate) fn new(declared: Vec<(String, Breaker)>) -> Breakers {
        let names = declared.iter().map(|(name, _)| name.clone()).collect();
        Breakers {
            known: KnownBreakers::default(),
            declared,
            names,
        }
    }

    /// Makes sure that they exist, and reads their state; returns whether the claimer should know about a change.
    pub(crate) async fn refresh(&self, store: &dyn Store, by: &str) -> Result<bool> {
        if self.names.is_empty() {
            return Ok(false);
        }
        let mut found = store.breakers(Some(&self.names)).await?;
        let exists = |name: &String| found.iter().any(|breaker| breaker.name == *name);
        if !self.names.iter().all(exists) {
            declare(store, &self.declared, by).await?;
            found = store.breakers(Some(&self.names)).await?;
        }
        Ok(self.known.set(&found))
    }

    /// For a job just claimed: as a probe of these breaker versions, or as an ordinary job.
    pub(crate) fn bond(&self, names: &[String], tried: &[(String, i64)]) -> Bond {
        let version = |name: &String| match tried.iter().find(|(probed, _)| probed == name) {
            Some((_, version)) => Some(*version),
            None => self.known.of(name).map(|standing| standing.version),
        };
        let seen = names.iter().filter_map(|name| Some((name.clone(), version(name)?)));
        Bond::new(seen.collect(), tried.iter().map(|(name, _)| name.clone()).collect())
    }

    /// What an attempt's end, which has committed, says about its dependencies.
    pub(crate) fn news(
        &self,
        job: &InHand,
        ended: Ended,
        skipped: Option<Skipped>,
        error: Option<&str>,
    ) -> Vec<BreakerNews> {
        let bond = &job.bond;
        let news = |name: &str, version: i64, failed: Option<String>| BreakerNews {
            probe: bond.tries.iter().any(|tried| tried == name),
            name: name.to_owned(),
            version,
            failed,
        };
        if let Some(name) = bond.blamed() {
            let seen = bond.seen.iter().find(|(bound, _)| *bound == name);
            let seen = seen.map(|(_, version)| *version);
            let Some(version) = seen.or_else(|| self.known.of(&name).map(|standing| standing.version)) else {
                tracing::warn!(
                    dependency = name,
                    kind = job.names.kind,
                    "a handler reported a dependency that this worker has no breaker for; add .breaker(…) to the \
                     handler"
                );
                return Vec::new();
            };
            return vec![news(&name, version, Some(error.unwrap_or_default().to_owned()))];
        }
        if ended != Ended::Done || skipped.is_some() {
            return Vec::new();
        }
        let worth_telling =
            |(name, version): &&(String, i64)| bond.tries.contains(name) || !self.known.keep_good(name, *version);
        let seen = bond.seen.iter().filter(worth_telling);
        seen.map(|(name, version)| news(name, *version, None)).collect()
    }
}

/// Reads the breakers periodically, and notifies the claimer after a change.
pub(crate) async fn watch_breakers<C: Claims>(shared: &Shared<C>, store: &dyn Store) {
    if shared.breakers.names.is_empty() {
        return std::future::pending().await;
    }
    // A claim checks the breakers itself; only claimed jobs depend on the last known state.
    let complaint = "could not read breakers, using the last known state";
    read_again(&shared.woken, complaint, async || {
        shared.breakers.refresh(store, &shared.settings.name).await
    })
    .await
}

/// Reports what arrives until the senders or the worker are gone.
pub(crate) async fn report_all<C: Claims>(shared: Arc<Shared<C>>, mut incoming: UnboundedReceiver<BreakerNews>) {
    let mut news = Vec::new();
    loop {
        tokio::select! {
            biased;
            some = incoming.recv_many(&mut news, 1000) => if some == 0 { return },
            () = shared.gone.cancelled() => return,
        }
        report(&shared, news.drain(..)).await;
    }
}

/// Returns when the database has all of it, or the worker is gone.
pub(crate) async fn report<C: Claims>(shared: &Shared<C>, news: impl IntoIterator<Item = BreakerNews>) {
    for note in folded(news.into_iter(), &shared.breakers.known, &shared.settings.name) {
        tokio::select! {
            () = put(shared, &note) => {}
            () = shared.gone.cancelled() => return,
        }
    }
}

/// Returns when the database has it.
async fn put<C: Claims>(shared: &Shared<C>, note: &Note) {
    let (store, known) = (C::engine(shared.store()), &shared.breakers.known);
    let mut wait = Duration::from_millis(100);
    let mut refused = 0;
    let after = loop {
        match store.move_breaker(&note.name, BreakerMove::Note(note)).await {
            Ok(after) => break after,
            Err(error) => {
                refused += u32::from(error.code().is_some());
                if refused >= REFUSED_MAX {
                    tracing::error!(
                        breaker = note.name,
                        "the database refused a breaker update, dropping it: {}",
                        error.cause()
                    );
                    return;
                }
                tracing::debug!("could not update a breaker, retrying: {}", error.cause());
            }
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(Duration::from_secs(1));
    };
    let Some(after) = after else { return };
    if after.version == note.version {
        known.set(&[after]);
        return;
    }
    match after.state {
        BreakerState::Open => tracing::warn!(
            breaker = after.name,
            reason = after.reason,
            until = ?after.open_until,
            "breaker opened; no worker claims the jobs bound to it"
        ),
        state => tracing::info!(breaker = after.name, %state, "breaker changed state"),
    }
    shared.emit(Event::BreakerChanged {
        name: after.name.clone(),
        state: after.state,
    });
    if known.set(&[after]) {
        shared.woken.notify_one();
    }
}

/// Notes in the order in which the news came. A success cancels the failures before it. News of probes are separate.
fn folded(news: impl Iterator<Item = BreakerNews>, known: &KnownBreakers, by: &str) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for BreakerNews {
        name,
        version,
        failed,
        probe,
    } in news
    {
        let same = |note: &Note| !probe && !note.probe && note.name == name && note.version == version;
        let at = notes.iter().position(same).unwrap_or(notes.len());
        if at == notes.len() {
            notes.push(Note {
                good: !probe && known.take_good(&name, version),
                name,
                version,
                failures: 0,
                error: None,
                probe,
                by: by.to_owned(),
            });
        }
        let note = &mut notes[at];
        match failed {
            Some(error) => {
                note.failures = note.failures.saturating_add(1);
                note.error = Some(error);
            }
            None => (note.good, note.failures, note.error) = (true, 0, None),
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(name: &str, failed: bool, probe: bool) -> BreakerNews {
        BreakerNews {
            name: name.into(),
            version: 1,
            failed: failed.then(|| "down".into()),
            probe,
        }
    }

    #[test]
    fn a_success_takes_back_the_failures_before_it_and_probes_speak_for_themselves() {
        let said = [
            said("a", true, false),
            said("a", true, false),
            said("b", true, false),
            said("a", false, false),
            said("a", true, false),
            said("a", false, true),
            said("a", true, true),
        ];
        let notes = folded(said.into_iter(), &KnownBreakers::default(), "w");
        let notes: Vec<_> = notes
            .iter()
            .map(|n| (n.name.as_str(), n.probe, n.good, n.failures))
            .collect();
        assert_eq!(
            notes,
            [
                ("a", false, true, 1),
                ("b", false, false, 1),
                ("a", true, true, 0),
                ("a", true, false, 1)
            ]
        );
    }
}
