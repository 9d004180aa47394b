//! What a job waited for, read in the handler's own transaction.

use serde::de::DeserializeOwned;

use super::{Fail, Prepare, Tx};
use crate::root::{Backend, Rowlock};

impl<DB: Backend> Tx<DB> {
    /// The answer that the name this job waits for (`.waits_for(name)`) was completed with. `None` when the job waits
    /// for nothing, or the name was completed without an answer.
    ///
    /// # Errors
    /// The database refused; or the answer is not a `T`, which retires the job, because a repeat would read the same.
    ///
    /// Cancel safety: dropped half-way, the transaction's connection is closed and the attempt fails.
    pub async fn answer<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Fail> {
        let (id, rowlock) = (self.attempt.token.id, self.rowlock.clone());
        answer(&rowlock, self, id).await
    }
}

impl<DB: Backend> Prepare<'_, DB> {
    /// As [`Tx::answer`], before external calls.
    ///
    /// # Errors
    /// As [`Tx::answer`].
    ///
    /// Cancel safety: dropped half-way, its connection is closed.
    pub async fn answer<T: DeserializeOwned>(&mut self) -> Result<Option<T>, Fail> {
        let (id, rowlock) = (self.id, self.rowlock.clone());
        answer(&rowlock, self, id).await
    }
}

async fn answer<DB: Backend, T: DeserializeOwned>(
    rowlock: &Rowlock<DB>,
    conn: &mut DB::Connection,
    id: i64,
) -> Result<Option<T>, Fail> {
    let Some(text) = DB::answer_in(rowlock.store(), conn, id).await? else {
        return Ok(None);
    };
    let mut reader = serde_json::Deserializer::from_str(&text);
    let read = serde_path_to_error::deserialize(&mut reader);
    read.map(Some).map_err(|e| {
        Fail::retire(format!(
            "the answer of the completion cannot be decoded at {}: {}",
            e.path(),
            e.inner()
        ))
    })
}
