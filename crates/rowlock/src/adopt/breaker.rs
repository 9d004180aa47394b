//! A row worker's part in the breakers: it tells them how attempts ended, after their commit.

use std::time::Duration;

use super::{hand::RowInHand, run::Shared};
use crate::{breaker::Note, event::Event, store::breaker::Breakers};

/// How often a note is tried to be put.
const TRIES: u32 = 5;

/// An attempt's end has committed: it blames a dependency, or it was `good`.
pub(super) async fn heard(shared: &Shared, row: &RowInHand, blamed: Option<&str>, good: bool, error: Option<&str>) {
    let note = |name: &str, version: i64| Note {
        name: name.to_owned(),
        version,
        good: false,
        failures: 0,
        error: None,
        probe: row.probe,
        by: shared.settings.name.clone(),
    };
    if let Some(name) = blamed {
        let Some((_, version)) = row.bond.iter().find(|(bound, _)| bound == name) else {
            tracing::warn!(
                dependency = name,
                table = %shared.table.queue,
                "a handler reported a dependency that this worker has no breaker for; add .breaker(…) to the handler"
            );
            return;
        };
        let failed = Note {
            good: !row.probe && shared.known.take_good(name, *version),
            failures: 1,
            error: error.map(str::to_owned),
            ..note(name, *version)
        };
        return put(shared, failed).await;
    }
    for (name, version) in row.bond.iter().filter(|_| good) {
        if row.probe || !shared.known.keep_good(name, *version) {
            let good = Note {
                good: true,
                ..note(name, *version)
            };
            put(shared, good).await;
        }
    }
}

async fn put(shared: &Shared, note: Note) {
    let mut cause = String::new();
    for tries in 1..=TRIES {
        match shared.store.note_breaker(&note).await {
            Ok(None) => return,
            Ok(Some(after)) => {
                let (name, state) = (after.name.clone(), after.state);
                let changed = after.version != note.version;
                if shared.known.set(&[after]) {
                    shared.woken.notify_one();
                }
                if changed {
                    tracing::info!(breaker = name, %state, "breaker changed state");
                    shared.emit(&Event::BreakerChanged { name, state });
                }
                return;
            }
            Err(error) => {
                cause = error.cause();
                tracing::debug!("could not update a breaker, retrying: {cause}");
                tokio::time::sleep(Duration::from_millis(100) * tries).await;
            }
        }
    }
    tracing::error!(
        breaker = note.name,
        "could not update a breaker, dropping the update: {cause}"
    );
}
