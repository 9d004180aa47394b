//! Settings that a worker on queues and a worker on a user's table have in common, and how both start.

use std::{sync::Arc, time::Duration};

use super::{breaker::Breakers, patiently};
use crate::{
    attempt::hand::cut_off,
    breaker::Breaker,
    error::{Error, Result},
    event::{Counters, Event, Listener},
    job::check_name,
    pause::{KnownPauses, Pauses},
    retention::Retention,
    root::{Backend, Rowlock},
    store::{Timing, breaker::declare, setting},
};

pub(crate) struct Settings {
    pub(crate) name: String,
    pub(crate) lease: Duration,
    pub(crate) grace: Duration,
    pub(crate) retention: Retention,
    pub(crate) counters: Arc<Counters>,
    pub(crate) listeners: Vec<Listener>,
    pub(crate) breakers: Vec<(String, Breaker)>,
}

crate::debug::debug_fields!([] Settings, "Settings", name, lease, grace, retention, breakers);

impl Settings {
    pub(crate) fn new(lease: Duration) -> Settings {
        Settings {
            name: format!("pid {}", std::process::id()),
            lease,
            grace: Duration::from_secs(30),
            retention: Retention::new(),
            counters: Arc::default(),
            listeners: Vec::new(),
            breakers: Vec::new(),
        }
    }

    pub(crate) fn timing(&self) -> Timing {
        Timing::of_lease(self.lease)
    }

    pub(crate) fn listen(&mut self, listener: impl Fn(&Event) + Send + Sync + 'static) {
        self.listeners.push(Box::new(listener));
    }

    /// Reads the pauses and declares the breakers, before the first claim. Waits for a database that does not answer.
    pub(crate) async fn prepare<DB: Backend>(&self, rowlock: &Rowlock<DB>) -> Result<(KnownPauses, Breakers)> {
        let store = rowlock.store();
        let pauses = KnownPauses::default();
        patiently(|| async {
            pauses.set(Pauses::of(setting::pauses(store).await?));
            Ok(())
        })
        .await?;
        let breakers = Breakers::new(declared(&self.breakers)?);
        if !breakers.declared.is_empty() {
            patiently(|| async {
                declare(store, &breakers.declared, &self.name).await?;
                breakers.refresh(store, &self.name).await.map(drop)
            })
            .await?;
        }
        Ok((pauses, breakers))
    }
}

/// Each breaker once.
pub(crate) fn declared(breakers: &[(String, Breaker)]) -> Result<Vec<(String, Breaker)>> {
    let mut declared: Vec<(String, Breaker)> = Vec::new();
    for (name, breaker) in breakers {
        check_name("breaker", name)?;
        breaker.check(name)?;
        match declared.iter().find(|(other, _)| other == name) {
            Some((_, other)) if other != breaker => {
                return Err(Error::Config(format!(
                    "breaker {name:?} has two different settings; use the same for every kind that is bound to it"
                )));
            }
            Some(_) => {}
            None => declared.push((name.clone(), *breaker)),
        }
    }
    Ok(declared)
}

/// The inequalities that the protocol depends on.
pub(crate) fn check_timing(timing: Timing) -> Result<()> {
    let lease = timing.lease;
    if lease < Duration::from_secs(2) || lease > Duration::from_secs(3600) {
        return Err(Error::Config(format!(
            "lease {lease:?} is out of range (2 s to 1 h, default 15 s)"
        )));
    }
    let (beat, cut_off) = (lease / 3, cut_off(lease));
    if beat >= cut_off || timing.lock > lease / 2 {
        return Err(Error::Config(format!(
            "lease {lease:?}: the heartbeat ({beat:?}) must come before the cut-off ({cut_off:?}), and locks ({:?}) \
             must end within half of the lease",
            timing.lock
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timing_inequalities_are_checked() {
        let ok = |secs| check_timing(Timing::of_lease(Duration::from_secs(secs)));
        assert!(ok(2).is_ok() && ok(15).is_ok() && ok(3600).is_ok());
        assert!(ok(1).is_err() && ok(3601).is_err());
        let lease = Duration::from_secs(15);
        assert!(check_timing(Timing { lease, lock: lease }).is_err());
    }
}
