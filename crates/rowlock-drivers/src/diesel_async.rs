//! On a connection of diesel-async, inside its transaction.

use diesel::{
    QueryableByName,
    sql_types::{BigInt, Bool, Text},
};
use diesel_async::{AsyncConnection, RunQueryDsl};

use crate::{Enqueue, Error, Put};

#[derive(QueryableByName)]
struct PutRow {
    #[diesel(sql_type = BigInt)]
    id: i64,
    #[diesel(sql_type = Bool)]
    is_new: bool,
}

impl Enqueue {
    /// Enqueues on a connection, in the transaction that is open on it; without one, in a separate commit.
    ///
    /// # Errors
    /// [`Error::KeyConflict`] and [`Error::Invalid`] where the database refuses it, [`Error::Driver`] otherwise. Diesel
    /// does not report a refusal's code: the text shows it. Cancel safety: as any query dropped half-way; roll back.
    pub async fn on_diesel<C>(&self, conn: &mut C) -> Result<Put, Error<diesel::result::Error>>
    where
        C: AsyncConnection<Backend = diesel::pg::Pg>,
    {
        let call = self.call()?;
        let query = diesel::sql_query(call.sql)
            .bind::<Text, _>(call.kind)
            .bind::<Text, _>(call.payload)
            .bind::<Text, _>(call.options);
        let row: PutRow = query.get_result(conn).await.map_err(refused)?;
        Ok(Put {
            id: row.id,
            is_new: row.is_new,
        })
    }
}

fn refused(error: diesel::result::Error) -> Error<diesel::result::Error> {
    let diesel::result::Error::DatabaseError(_, said) = &error else {
        return Error::Driver(error);
    };
    let said = said.message().to_owned();
    let code = if said.starts_with("key \"") && said.ends_with("for a different request") {
        Some(crate::CONFLICT)
    } else if is_about_an_option(&said) {
        Some(crate::INVALID)
    } else {
        None
    };
    Error::of(code, Some(&said), error)
}

/// A field of an enqueue, a colon, and what is wrong with it.
fn is_about_an_option(said: &str) -> bool {
    const FIELDS: [&str; 20] = [
        "at",
        "attempts",
        "delay_ms",
        "expires",
        "group",
        "group_stops",
        "hold",
        "hold_ms",
        "if_retired",
        "key",
        "kind",
        "options",
        "payload",
        "priority",
        "queue",
        "tags",
        "trace",
        "version",
        "wait_limit_ms",
        "waits_for",
    ];
    said.split_once(": ").is_some_and(|(field, _)| FIELDS.contains(&field))
}
