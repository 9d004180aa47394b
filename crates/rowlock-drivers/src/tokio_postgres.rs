//! On a transaction of tokio-postgres, or of a pool on top of it.

use tokio_postgres::GenericClient;

use crate::{Enqueue, Error, Put};

impl Enqueue {
    /// Enqueues on a [`Transaction`](tokio_postgres::Transaction), or in a separate commit on a
    /// [`Client`](tokio_postgres::Client).
    ///
    /// # Errors
    /// [`Error::KeyConflict`] and [`Error::Invalid`] where the database refuses it, [`Error::Driver`] otherwise. Cancel
    /// safety: as any query dropped half-way; roll back.
    pub async fn on_tokio_postgres<C: GenericClient>(&self, client: &C) -> Result<Put, Error<tokio_postgres::Error>> {
        let call = self.call()?;
        let row = client
            .query_one(&call.sql, &[&call.kind, &call.payload, &call.options])
            .await
            .map_err(refused)?;
        let put = |row: tokio_postgres::Row| {
            Ok(Put {
                id: row.try_get(0)?,
                is_new: row.try_get(1)?,
            })
        };
        put(row).map_err(Error::Driver)
    }
}

fn refused(error: tokio_postgres::Error) -> Error<tokio_postgres::Error> {
    let said = error
        .as_db_error()
        .map(|db| (db.code().code().to_owned(), db.message().to_owned()));
    let (code, said) = said.unzip();
    Error::of(code.as_deref(), said.as_deref(), error)
}
