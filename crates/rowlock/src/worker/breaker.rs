//! A worker's part in the breakers: it looks where they stand, and tells them how attempts ended, after their commit.

use std::{sync::Arc, time::Duration};

use tokio::sync::{
    Notify,
    mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
};
use tokio_util::sync::CancellationToken;

use super::{hand::Shared, watch::look_again};
use crate::{
    attempt::{Bond, hand::InHand},
    breaker::{Breaker, BreakerState, Known, Note},
    error::Result,
    event::{Event, Skipped},
    handle::Emit,
    state::Ended,
    store::{
        Store,
        breaker::{BreakerMove, declare},
    },
};

/// How often the database may refuse a note, for whatever reason, before the others have their turn.
const REFUSED_MAX: u32 = 10;

/// The breakers that a worker's kinds are bound to.
pub(crate) struct Breakers {
    pub(crate) known: Known,
    declared: Vec<(String, Breaker)>,
    pub(crate) names: Vec<String>,
    said: UnboundedSender<Said>,
}

/// How one attempt ended, for one dependency.
pub(crate) struct Said {
    name: String,
    version: i64,
    /// What it failed with; `None` when it did not.
    failed: Option<String>,
    probe: bool,
}

impl Breakers {
    /// With where the notes come out.
    pub(crate) fn new(declared: Vec<(String, Breaker)>) -> (Breakers, UnboundedReceiver<Said>) {
        let (said, notes) = unbounded_channel();
        let names = declared.iter().map(|(name, _)| name.clone()).collect();
        let breakers = Breakers {
            known: Known::default(),
            declared,
            names,
            said,
        };
        (breakers, notes)
    }

    /// Makes sure that they are there, and reads where they stand; whether the claimer should hear of it.
    pub(crate) async fn look(&self, store: &dyn Store, by: &str) -> Result<bool> {
        if self.names.is_empty() {
            return Ok(false);
        }
        let mut found = store.breakers(Some(&self.names)).await?;
        let is_there = |name: &String| found.iter().any(|breaker| breaker.name == *name);
        if !self.names.iter().all(is_there) {
            declare(store, &self.declared, by).await?;
            found = store.breakers(Some(&self.names)).await?;
        }
        Ok(self.known.set(&found))
    }

    /// For a job just claimed, to try these versions of breakers or as any other.
    pub(crate) fn bond(&self, names: &[String], tried: &[(String, i64)]) -> Bond {
        let version = |name: &String| match tried.iter().find(|(probed, _)| probed == name) {
            Some((_, version)) => Some(*version),
            None => self.known.of(name).map(|standing| standing.version),
        };
        let seen = names.iter().filter_map(|name| Some((name.clone(), version(name)?)));
        Bond::new(seen.collect(), tried.iter().map(|(name, _)| name.clone()).collect())
    }

    /// An attempt's end has committed: what it says of its dependencies is told in its own time.
    pub(crate) fn heard(&self, job: &InHand, ended: Ended, skipped: Option<Skipped>, error: Option<&str>) {
        for said in self.said_by(job, ended, skipped, error) {
            // Without a listener the worker is over, and so are its notes.
            let _ = self.said.send(said);
        }
    }

    /// What an attempt's end says of its dependencies.
    pub(crate) fn said_by(
        &self,
        job: &InHand,
        ended: Ended,
        skipped: Option<Skipped>,
        error: Option<&str>,
    ) -> Vec<Said> {
        let bond = &job.bond;
        let said = |name: &str, version: i64, failed: Option<String>| Said {
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
            return vec![said(&name, version, Some(error.unwrap_or_default().to_owned()))];
        }
        if ended != Ended::Done || skipped.is_some() {
            return Vec::new();
        }
        let news = bond
            .seen
            .iter()
            .filter(|(name, version)| bond.tries.contains(name) || !self.known.keep_good(name, *version));
        news.map(|(name, version)| said(name, *version, None)).collect()
    }
}

/// Looks again and again where the breakers stand, and has the claimer look after a change.
pub(crate) async fn heed(shared: &Shared, store: &dyn Store, woken: &Notify) {
    if shared.breakers.names.is_empty() {
        return std::future::pending().await;
    }
    // A claim looks at them itself; only what is in hand goes by the last known.
    let complaint = "could not read breakers, using the last known state";
    look_again(woken, complaint, async || {
        shared.breakers.look(store, &shared.name).await
    })
    .await
}

/// Tells the breakers what attempts said.
pub(crate) struct Teller {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) known: Known,
    /// The worker's name.
    pub(crate) by: String,
    pub(crate) emit: Emit,
    /// Wakes the claimer after a change.
    pub(crate) woken: Arc<Notify>,
    pub(crate) gone: CancellationToken,
}

impl Teller {
    pub(super) fn of(shared: &Arc<Shared>, woken: Arc<Notify>) -> Teller {
        let told = shared.clone();
        Teller {
            store: shared.store.clone(),
            known: shared.breakers.known.clone(),
            by: shared.name.clone(),
            emit: Arc::new(move |event| told.emit(event)),
            woken,
            gone: shared.gone.clone(),
        }
    }

    /// Until the worker is over and all is told.
    pub(crate) async fn run(self, mut notes: UnboundedReceiver<Said>) {
        let mut heard = Vec::new();
        loop {
            tokio::select! {
                biased;
                some = notes.recv_many(&mut heard, 1000) => if some == 0 { return },
                () = self.gone.cancelled() => return,
            }
            self.tell(heard.drain(..)).await;
        }
    }

    /// Until the database has taken all of it, or the worker is over.
    pub(crate) async fn tell(&self, said: impl IntoIterator<Item = Said>) {
        for note in folded(said.into_iter(), &self.known, &self.by) {
            tokio::select! {
                () = self.put(&note) => {}
                () = self.gone.cancelled() => return,
            }
        }
    }

    /// Until the database has taken it.
    async fn put(&self, note: &Note) {
        let mut wait = Duration::from_millis(100);
        let mut refused = 0;
        let after = loop {
            match self.store.move_breaker(&note.name, BreakerMove::Note(note)).await {
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
            self.known.set(&[after]);
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
        (self.emit)(Event::BreakerChanged {
            name: after.name.clone(),
            state: after.state,
        });
        if self.known.set(&[after]) {
            self.woken.notify_one();
        }
    }
}

/// In the order in which they came: a success takes back the failures before it. What probes say is told one by one.
fn folded(said: impl Iterator<Item = Said>, known: &Known, by: &str) -> Vec<Note> {
    let mut notes: Vec<Note> = Vec::new();
    for Said {
        name,
        version,
        failed,
        probe,
    } in said
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

    fn said(name: &str, failed: bool, probe: bool) -> Said {
        Said {
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
        let notes = folded(said.into_iter(), &Known::default(), "w");
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
