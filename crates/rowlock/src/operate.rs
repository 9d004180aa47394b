//! The human verbs. Each is audited with who did it, and refuses with a sentence when the job is not where it must be.

use std::sync::Arc;

use crate::{
    error::{Error, Result},
    store::Store,
};

/// The operator's verbs, on either database. Cheap to clone.
#[derive(Clone)]
pub struct Operate {
    pub(crate) store: Arc<dyn Store>,
}

impl Operate {
    /// Puts a case back to ready, with all its attempts and under the same uid, so that effect keys stay what they
    /// were; or to waiting, while the name it waits for is not completed. The epoch goes on rising: no token of an earlier
    /// attempt fits again.
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
}
