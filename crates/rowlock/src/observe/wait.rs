//! Wait for a job's or a chain's outcome, without a connection held between reads.

use std::{
    future::{Future, IntoFuture},
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    error::{Error, Result},
    id::JobId,
    root::{Backend, Rowlock},
    state::{Ended, State},
    store::{Store, waits::Stand},
};

/// How long a wait takes unless set.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between the first two reads, and the longest pause.
const LOOK_FIRST: Duration = Duration::from_millis(20);
const LOOK_MAX: Duration = Duration::from_millis(500);

/// How a job or chain ended, for the caller that waited.
#[derive(Clone, Debug, PartialEq)]
#[must_use]
#[non_exhaustive]
pub enum Awaited {
    /// Done, with what the handler returned through `Done::result`; of a chain, its last link's, compensations aside.
    Done(Option<Value>),
    /// It became a case, for this reason. A person may still reopen it.
    Retired(String),
    /// It is over without its effect, for this reason.
    Cancelled(String),
    /// Not over within the timeout; this is its state. Of a chain, the state of its first link that is not over.
    TimedOut(State),
}

/// A wait that is being configured; set its timeout, then `.await` it.
#[must_use = "nothing is waited for until this is awaited"]
pub struct Wait {
    store: Arc<dyn Store>,
    id: JobId,
    timeout: Duration,
    chain: bool,
}

crate::debug::debug_fields!([] Wait, "Wait", id, timeout, chain);

impl Wait {
    /// Gives up after this long (60 s unless set).
    pub fn timeout(mut self, timeout: Duration) -> Wait {
        self.timeout = timeout;
        self
    }

    /// Waits for every link of the job's chain, also those that later links add; ends early at the first that is
    /// retired or cancelled. Links whose retention is over are skipped while others are known.
    pub fn chain(mut self) -> Wait {
        self.chain = true;
        self
    }

    async fn run(self) -> Result<Awaited> {
        let start = Instant::now();
        let mut pause = LOOK_FIRST;
        let mut seen = false;
        loop {
            let links = self.store.stands(self.id.0, self.chain).await?;
            let state = match outcome(&links) {
                Some(Ok(awaited)) => return Ok(awaited),
                Some(Err(state)) => state,
                None => return Err(self.gone(seen)),
            };
            seen = true;
            let left = self.timeout.saturating_sub(start.elapsed());
            if left.is_zero() {
                return Ok(Awaited::TimedOut(state));
            }
            tokio::time::sleep(pause.mul_f64(0.9 + 0.2 * fastrand::f64()).min(left)).await;
            pause = (pause * 3 / 2).min(LOOK_MAX);
        }
    }

    fn gone(&self, seen: bool) -> Error {
        let id = self.id;
        Error::NotFound(match seen {
            false => format!("no job {id}: it is not committed yet, or its retention is over"),
            true => format!("job {id} has ended and its history was removed; its outcome is no longer known"),
        })
    }
}

/// How these links ended together, or the state of the first that goes on; `None` when nothing is known of them.
fn outcome(links: &[Stand]) -> Option<std::result::Result<Awaited, State>> {
    let mut goes_on = None;
    for link in links {
        let text = || link.error.clone().unwrap_or_default();
        match (link.state, link.last) {
            (State::Case, _) => return Some(Ok(Awaited::Retired(text()))),
            (State::Finished, Some(Ended::Cancelled)) => return Some(Ok(Awaited::Cancelled(text()))),
            (State::Finished, Some(_)) => {}
            // Its history has been dropped, and its body is next; then the link is no longer visible at all.
            (State::Finished, None) => {}
            (state, _) => goes_on = goes_on.or(Some(state)),
        }
    }
    if let Some(state) = goes_on {
        return Some(Err(state));
    }
    // A link that was retired, compensated for, reopened and done is done; its compensation does not count.
    let last = links.iter().rfind(|link| !link.compensates).or(links.last())?;
    last.last.map(|_| Ok(Awaited::Done(last.result.clone())))
}

impl IntoFuture for Wait {
    type Output = Result<Awaited>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<DB: Backend> Rowlock<DB> {
    /// Waits for a job's outcome: `rowlock.wait(id).timeout(limit).await?`. It reads every 20 ms to 500 ms, and holds
    /// no connection in between. Do not wait for a job whose enqueuing transaction is still open: the job is not
    /// visible yet.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job, or when its retention ended meanwhile; [`Error::Database`] when a
    /// read failed. Cancel-safe: it only reads.
    pub fn wait(&self, id: impl Into<JobId>) -> Wait {
        Wait {
            store: Arc::new(self.store().clone()),
            id: id.into(),
            timeout: TIMEOUT,
            chain: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(state: State, last: Option<Ended>) -> Stand {
        Stand {
            id: 1,
            state,
            last,
            error: last.map(|l| l.as_str().to_owned()),
            result: Some(1.into()),
            compensates: false,
        }
    }

    #[test]
    fn a_chains_result_is_that_of_its_last_link_that_compensates_for_nothing() {
        let compensation = |state, last| Stand {
            result: Some(2.into()),
            compensates: true,
            ..link(state, last)
        };
        let done = || link(State::Finished, Some(Ended::Done));
        let undone = || compensation(State::Finished, Some(Ended::Done));
        let one = Some(Ok(Awaited::Done(Some(1.into()))));
        assert_eq!(outcome(&[done(), undone()]), one);
        assert_eq!(
            outcome(&[undone()]),
            Some(Ok(Awaited::Done(Some(2.into())))),
            "all that is left"
        );
        let goes_on = compensation(State::Leased, None);
        assert_eq!(outcome(&[done(), goes_on]), Some(Err(State::Leased)));
    }

    #[test]
    fn a_link_whose_history_is_gone_is_passed_over_unless_it_is_the_last() {
        let gone = || link(State::Finished, None);
        let done = || link(State::Finished, Some(Ended::Done));
        assert_eq!(
            outcome(&[gone(), link(State::Waiting, None)]),
            Some(Err(State::Waiting))
        );
        assert_eq!(outcome(&[gone(), done()]), Some(Ok(Awaited::Done(Some(1.into())))));
        assert_eq!(outcome(&[done(), gone()]), None, "its result is not known any more");
    }

    #[test]
    fn a_chain_is_over_when_all_is_done_or_one_link_is_not() {
        let done = || link(State::Finished, Some(Ended::Done));
        let ready = || link(State::Ready, Some(Ended::Retried));
        let case = || link(State::Case, Some(Ended::Retired));
        let cancelled = || link(State::Finished, Some(Ended::Cancelled));
        assert_eq!(outcome(&[done(), done()]), Some(Ok(Awaited::Done(Some(1.into())))));
        assert_eq!(outcome(&[done(), ready()]), Some(Err(State::Ready)));
        assert_eq!(
            outcome(&[ready(), case()]),
            Some(Ok(Awaited::Retired("retired".into())))
        );
        assert_eq!(
            outcome(&[cancelled(), ready()]),
            Some(Ok(Awaited::Cancelled("cancelled".into())))
        );
        assert_eq!(outcome(&[]), None);
        assert_eq!(outcome(&[link(State::Finished, None)]), None);
    }
}
