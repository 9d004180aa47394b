//! On a transaction of SeaORM.

use sea_orm::{ConnectionTrait, DbBackend, DbErr, RuntimeErr, Statement};

use crate::{Enqueue, Error, Put};

impl Enqueue {
    /// Enqueues on a [`DatabaseTransaction`](sea_orm::DatabaseTransaction), or in a separate commit on a
    /// [`DatabaseConnection`](sea_orm::DatabaseConnection).
    ///
    /// # Errors
    /// [`Error::KeyConflict`] and [`Error::Invalid`] where the database refuses it, [`Error::Driver`] otherwise. Cancel
    /// safety: as any query dropped half-way; roll back.
    pub async fn on_sea_orm<C: ConnectionTrait>(&self, conn: &C) -> Result<Put, Error<DbErr>> {
        let call = self.call()?;
        let values = [call.kind.into(), call.payload.into(), call.options.into()];
        let statement = Statement::from_sql_and_values(DbBackend::Postgres, call.sql, values);
        let row = conn.query_one_raw(statement).await.map_err(refused)?;
        let row = row.ok_or_else(|| Error::Driver(DbErr::RecordNotFound("enqueue_v1 gave no row".into())))?;
        let put = || {
            Ok(Put {
                id: row.try_get("", "id")?,
                is_new: row.try_get("", "is_new")?,
            })
        };
        put().map_err(Error::Driver)
    }
}

fn refused(error: DbErr) -> Error<DbErr> {
    let (DbErr::Query(RuntimeErr::SqlxError(inner)) | DbErr::Exec(RuntimeErr::SqlxError(inner))) = &error else {
        return Error::Driver(error);
    };
    let said = inner
        .as_database_error()
        .map(|db| (db.code().map(|code| code.into_owned()), db.message().to_owned()));
    let (code, said) = said.unzip();
    Error::of(code.flatten().as_deref(), said.as_deref(), error)
}
