//! The operator commands. Each is audited with its actor, and refuses with a sentence when the job is in the wrong
//! place.

mod cases;
mod prune;

use std::sync::Arc;

use jiff::Timestamp;

pub use self::{cases::Reopened, prune::Pruned};
pub use crate::pause::Target;
use crate::{
    breaker::Force,
    effect::{EffectState, Resolution},
    error::{Error, Result},
    handle::clean,
    id::{EffectNo, JobId},
    job::{Limits, check_name, check_payload, queue_no, storable},
    state::State,
    store::{
        Store,
        action::{Action, Verdict},
    },
};

/// The operator commands, on either database. Cheap to clone.
#[derive(Clone)]
pub struct Operate {
    pub(crate) store: Arc<dyn Store>,
}

crate::debug::debug_fields!([] Operate, "Operate");

impl Operate {
    /// Puts a case back to ready, with all its attempts and under the same uid, so that its effect keys do not change.
    /// If the name it waits for is not completed, it goes to waiting instead. The epoch goes on rising: no token of an
    /// earlier attempt fits again.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job, [`Error::Conflict`] when it is not a case. Cancel-safe: it either
    /// happened or did not.
    pub async fn reopen(&self, id: impl Into<JobId>, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        if self.store.act(Action::Reopen { id }, actor).await? == Verdict::Done {
            return Ok(());
        }
        let state = self.store.job(id).await?.map(|j| j.state.as_str());
        Err(match state {
            Some(state) => Error::Conflict(format!("job {id} is {state}, not a case; only cases can be reopened")),
            None => Error::NotFound(format!("no job {id}; `rowlock cases` lists what can be reopened")),
        })
    }

    /// Changes the due time of a job that is ready, or that waits for its turn. A time in the past means now.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job, [`Error::Conflict`] when it is leased, a case or finished.
    /// Cancel-safe: it either happened or did not.
    pub async fn delay(&self, id: impl Into<JobId>, until: Timestamp, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        let until = Some(storable(until));
        let verdict = self.store.act(Action::Delay { id, until }, actor).await?;
        self.told(id, verdict, "delayed").await
    }

    /// Makes a job due now. A job that waits for a name, or behind the head of its group, still waits.
    ///
    /// # Errors
    /// As [`Operate::delay`].
    pub async fn run_now(&self, id: impl Into<JobId>, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        let verdict = self.store.act(Action::Delay { id, until: None }, actor).await?;
        self.told(id, verdict, "run now").await?;
        if let Some(job) = self.store.job(id).await? {
            self.store.wake(&[queue_no(&job.queue)]);
        }
        Ok(())
    }

    /// Cancels a job that is not finished. A job that does not run is cancelled immediately. A running job loses its
    /// lease, so nothing it still does counts, not even its commit. Its worker stops the handler at its next heartbeat,
    /// about three times per lease, and jobs that waited for it may start before that. Its next links are never
    /// enqueued, and its group goes on without it.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job, [`Error::Conflict`] when it is a case or finished. Cancel-safe:
    /// it either happened or did not.
    pub async fn cancel(&self, id: impl Into<JobId>, reason: Option<&str>, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        let reason = reason.map(|reason| clean(reason.to_owned()));
        let reason = reason.as_deref();
        let verdict = self.store.act(Action::Cancel { id, reason }, actor).await?;
        self.told(id, verdict, "cancelled").await
    }

    /// Makes a case of a job that is not finished, as if its last attempt had failed: its compensation is enqueued in
    /// the same commit, and its group goes on or stops as its policy says. A running job is stopped as by
    /// [`Operate::cancel`].
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job, [`Error::Conflict`] when it is a case or finished. Cancel-safe:
    /// it either happened or did not.
    pub async fn retire(&self, id: impl Into<JobId>, reason: Option<&str>, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        let reason = reason.map(|reason| clean(reason.to_owned()));
        let reason = reason.as_deref();
        let verdict = self.store.act(Action::Retire { id, reason }, actor).await?;
        self.told(id, verdict, "retired").await
    }

    /// Runs a finished job once more, with all its attempts, under its own uid and a new epoch. Its handler's
    /// transaction commits once more. What is kept under a key is not repeated: an effect returns its stored reply,
    /// `once` its answer, and existing next links are not enqueued again. A job in a group waits for its turn.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such job; [`Error::Conflict`] when it is not finished, its expiry is past,
    /// or its history is gone. Cancel-safe: it either happened or did not.
    pub async fn rerun(&self, id: impl Into<JobId>, reason: Option<&str>, actor: &str) -> Result<()> {
        let JobId(id) = id.into();
        let reason = reason.map(|reason| clean(reason.to_owned()));
        let reason = reason.as_deref();
        let verdict = self.store.act(Action::Rerun { id, reason }, actor).await?;
        let job = self.store.job(id).await?;
        let Some(job) = job.filter(|_| verdict != Verdict::Missing) else {
            return Err(Error::NotFound(format!("no job {id}")));
        };
        if verdict == Verdict::Done {
            self.store.wake(&[queue_no(&job.queue)]);
            return Ok(());
        }
        let past = job.expires_at.filter(|at| *at <= Timestamp::now());
        Err(Error::Conflict(match (job.state, past) {
            (State::Finished, Some(at)) => format!("job {id} expired at {at}, and cannot be re-run; enqueue a new job"),
            (State::Finished, None) => {
                format!(
                    "job {id} cannot be re-run: its history was removed, or somebody else has just re-run it; check \
                     it again"
                )
            }
            (state, _) => format!("job {id} is {}, and cannot be re-run", state.as_str()),
        }))
    }

    async fn told(&self, id: i64, verdict: Verdict, what: &str) -> Result<()> {
        match verdict {
            Verdict::Done | Verdict::Unchanged => Ok(()),
            Verdict::Missing => Err(Error::NotFound(format!("no job {id}"))),
            Verdict::Elsewhere => {
                let state = self.store.job(id).await?.map_or("gone", |job| job.state.as_str());
                Err(Error::Conflict(format!("job {id} is {state}, and cannot be {what}")))
            }
        }
    }

    /// Records what a person found out about an effect in doubt, and returns its job. If the effect happened, later
    /// attempts get this reply without a call; if it did not, the next attempt calls. This does not reopen the job's
    /// case.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is no such effect, [`Error::Conflict`] when its call is under way or it is not in
    /// doubt; [`Error::Invalid`] when the reply is too large or cannot be stored. Cancel-safe: it either happened or
    /// did not.
    pub async fn resolve_effect(&self, no: impl Into<EffectNo>, resolution: Resolution, actor: &str) -> Result<JobId> {
        let EffectNo(no) = no.into();
        if let Resolution::Happened(reply) = &resolution {
            check_payload(&reply.to_string(), &Limits::new()).map_err(|error| error.about("reply"))?;
        }
        let resolution = &resolution;
        let verdict = self.store.act(Action::ResolveEffect { no, resolution }, actor).await?;
        let Some(effect) = self.store.effect(no).await? else {
            let problem = format!("no effect {no}; `rowlock effects` lists the effects in doubt");
            return Err(Error::NotFound(problem));
        };
        if verdict == Verdict::Done {
            return Ok(effect.id);
        }
        Err(Error::Conflict(match effect.state {
            EffectState::InFlight => format!(
                "effect {no} {:?} of job {} is in flight; resolve it when its attempt has ended",
                effect.name, effect.id
            ),
            EffectState::Uncertain => format!("effect {no} has just changed; check it and try again"),
            state => format!(
                "effect {no} {:?} of job {} is {}, not in doubt",
                effect.name,
                effect.id,
                state.as_str()
            ),
        }))
    }

    /// Stops claims of this queue, kind or group in every process within a second. Jobs that were claimed and not
    /// started are handed back with their attempt. Running handlers go on. Jobs can be enqueued, and wait. `false` when
    /// it was paused before.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name. Cancel safety: dropped half-way, it may or may not be paused; pause it again.
    pub async fn pause(&self, target: &Target, actor: &str) -> Result<bool> {
        target.check()?;
        self.set_pause(target, true, actor).await
    }

    /// Resumes claims within a second. `false` when it was not paused.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name. Cancel safety: dropped half-way, it may or may not be resumed; resume it
    /// again.
    pub async fn resume(&self, target: &Target, actor: &str) -> Result<bool> {
        target.check()?;
        self.set_pause(target, false, actor).await
    }

    async fn set_pause(&self, target: &Target, paused: bool, actor: &str) -> Result<bool> {
        let verdict = self.store.act(Action::SetPause { target, paused }, actor).await?;
        Ok(verdict == Verdict::Done)
    }

    /// Opens or closes the breaker of this name by hand. Nothing else changes it until it is automatic again
    /// ([`Force::Auto`]). Workers learn of it within a second; no claim that begins after this commit takes a job bound
    /// to an open breaker. `false` when nothing changed.
    ///
    /// # Errors
    /// [`Error::NotFound`] when no worker ever had a kind bound to this name. Cancel safety: dropped half-way, it may
    /// or may not have happened; repeat it.
    pub async fn force_breaker(&self, name: &str, force: Force, actor: &str) -> Result<bool> {
        match self.store.act(Action::ForceBreaker { name, force }, actor).await? {
            Verdict::Done => Ok(true),
            Verdict::Unchanged => Ok(false),
            Verdict::Missing | Verdict::Elsewhere => Err(Error::NotFound(format!(
                "no breaker {name:?}; `rowlock breaker` lists the breakers that workers have used"
            ))),
        }
    }

    /// Sets how many of a hundred keys take the new code path of this rollout; the change takes effect within a second
    /// in every process, without a restart.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name or a percentage above 100. Cancel safety: dropped half-way, it may or may not
    /// be set; set it again.
    pub async fn set_rollout(&self, name: &str, percent: u8, actor: &str) -> Result<()> {
        check_name("rollout", name)?;
        if percent > 100 {
            return Err(Error::invalid(
                "percent",
                format!("{percent} is out of range (0 to 100)"),
            ));
        }
        self.store
            .act(Action::SetRollout { name, percent }, actor)
            .await
            .map(drop)
    }
}
