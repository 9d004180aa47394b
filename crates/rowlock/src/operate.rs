//! The human verbs. Each is audited with who did it, and refuses with a sentence when the job is not where it must be.

use std::sync::Arc;

use crate::{
    error::{Error, Result},
    job::check_name,
    store::Store,
};

/// The operator's verbs, on either database. Cheap to clone.
#[derive(Clone)]
pub struct Operate {
    pub(crate) store: Arc<dyn Store>,
}

impl Operate {
    /// Puts a case back to ready, with all its attempts and under the same uid, so that effect keys stay what they
    /// were. The epoch goes on rising: no token of an earlier attempt fits again.
    ///
    /// # Errors
    /// [`Error::NotFound`] when the job is no case. Cancel-safe: it either happened or did not.
    pub async fn reopen(&self, id: i64, actor: &str) -> Result<()> {
        if self.store.reopen(id, actor).await? {
            return Ok(());
        }
        let state = self.store.job(id).await?.map(|j| j.state.as_str());
        Err(Error::NotFound(match state {
            Some(state) => format!("job {id} is {state}, not a case; only cases can be reopened"),
            None => format!("no job {id}; `rowlock cases` lists what can be reopened"),
        }))
    }

    /// Sets how many of a hundred keys take the new way of this rollout; it counts within a second in every process,
    /// without a restart.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a bad name or a percentage above 100. Cancel safety: dropped half-way, it may or may not be
    /// set; set it again.
    pub async fn set_rollout(&self, name: &str, percent: u8, actor: &str) -> Result<()> {
        check_name("rollout", name)?;
        if percent > 100 {
            return Err(Error::invalid("percent", format!("{percent} is not in 0..=100")));
        }
        self.store.set_rollout(name, percent, actor).await
    }
}
