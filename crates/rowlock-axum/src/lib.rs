//! An axum layer that honours the `Idempotency-Key` header: one committed effect per key, the stored response for every
//! repeat.
//!
//! The request runs in a transaction of your pool, on a separate task, so a client that goes away does not stop it
//! half-way. The layer takes the key with [`Rowlock::once`] before the handler runs. The handler writes through
//! [`IdempotentTx`], and its response is stored in the same commit. A repeat gets that response with the header
//! `idempotency-replayed: true`.
//!
//! ```
//! use axum::{Router, http::StatusCode, middleware::from_fn_with_state, routing::post};
//! use rowlock::sqlite::Rowlock;
//! use rowlock_axum::{Idempotency, IdempotentTx, idempotent};
//!
//! async fn pay(mut tx: IdempotentTx<sqlx::Sqlite>) -> Result<StatusCode, StatusCode> {
//!     let pay = sqlx::query("update wallet set cents = cents - 100 where cents >= 100");
//!     let paid = pay.execute(&mut *tx).await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
//!     Ok(if paid.rows_affected() == 1 { StatusCode::CREATED } else { StatusCode::PAYMENT_REQUIRED })
//! }
//!
//! fn app(rowlock: &Rowlock, db: &sqlx::SqlitePool) -> Router {
//!     let once = Idempotency::new(rowlock, db);
//!     Router::new().route("/payments", post(pay)).layer(from_fn_with_state(once, idempotent))
//! }
//! ```
//!
//! | the handler answers | what it wrote | the response |
//! |---|---|---|
//! | 1xx to 3xx | is committed | is stored |
//! | 4xx | is rolled back | is stored: a repeat would be refused again |
//! | 408, 425, 429, 5xx; a panic | is rolled back | is not stored: a repeat runs again |
//!
//! Requests that change nothing (`GET`, `HEAD`, `OPTIONS`, `TRACE`) pass untouched. What else the client may get: 400
//! for a missing or malformed key and for a body that broke off, 409 with `retry-after` while a concurrent request with
//! the same key runs for longer than the wait, 413 for a body over the limit, 422 for another request under the same
//! key, 503 with `retry-after` when the database could not decide now.

mod request;
mod response;
mod tx;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    body::{Body, to_bytes},
    extract::{OriginalUri, Request, State},
    http::{HeaderName, StatusCode, header, request::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use rowlock::{
    Backend, Error, Result, Rowlock,
    handle::{Once, OnceSlot},
    key::Hold,
};
use sqlx::{Pool, Transaction};
use sqlx_core::transaction::TransactionManager;

pub use self::tx::IdempotentTx;
use self::{
    request::Asked,
    response::{Refusal, Stored, is_remembered},
    tx::Lent,
};

type Scope = dyn Fn(&Parts) -> String + Send + Sync;

/// What the layer works with: `from_fn_with_state(Idempotency::new(&rowlock, &pool), idempotent)`.
pub struct Idempotency<DB: Backend> {
    rowlock: Rowlock<DB>,
    pool: Pool<DB>,
    hold: Hold,
    timeout: Duration,
    body_bytes_max: usize,
    headers: Vec<HeaderName>,
    scope: Option<Arc<Scope>>,
    /// Keys whose handlers run in this process.
    under_way: UnderWay,
}

impl<DB: Backend> Clone for Idempotency<DB> {
    fn clone(&self) -> Self {
        Idempotency {
            rowlock: self.rowlock.clone(),
            pool: self.pool.clone(),
            hold: self.hold,
            timeout: self.timeout,
            body_bytes_max: self.body_bytes_max,
            headers: self.headers.clone(),
            scope: self.scope.clone(),
            under_way: self.under_way.clone(),
        }
    }
}

impl<DB: Backend> Idempotency<DB> {
    /// Keys are kept in Rowlock's ledger, which lies in the database of your pool.
    pub fn new(rowlock: &Rowlock<DB>, pool: &Pool<DB>) -> Self {
        Idempotency {
            rowlock: rowlock.clone(),
            pool: pool.clone(),
            hold: Hold::Policy,
            timeout: Duration::from_secs(5),
            body_bytes_max: 1 << 20,
            headers: vec![
                header::CONTENT_TYPE,
                header::CONTENT_ENCODING,
                header::CONTENT_LANGUAGE,
                header::CONTENT_DISPOSITION,
                header::LOCATION,
            ],
            scope: None,
            under_way: UnderWay::default(),
        }
    }

    /// The owner of a key: the user, the tenant, the API token. The same key of two owners names two operations, and
    /// neither owner ever gets the other's response. Without a scope all clients share one space of keys, so a client
    /// that knows another's key and request gets the stored response.
    pub fn scope(mut self, scope: impl Fn(&Parts) -> String + Send + Sync + 'static) -> Self {
        self.scope = Some(Arc::new(scope));
        self
    }

    /// How long a response is kept for repeats. By default as long as the workers keep keys.
    pub fn hold(mut self, hold: Hold) -> Self {
        self.hold = hold;
        self
    }

    /// How long a concurrent request waits for the first one before it gets 409; 5 s unless set. On SQLite the pool's
    /// busy time-out decides instead.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// The longest body of a request; 1 MiB unless set. The handle's limits bound the responses.
    pub fn body_limit(mut self, bytes: usize) -> Self {
        self.body_bytes_max = bytes;
        self
    }

    /// Stores this header of responses too, besides `content-type` and `location`. The first response keeps all of its
    /// headers either way.
    pub fn keep_header(mut self, name: HeaderName) -> Self {
        self.headers.push(name);
        self
    }

    /// What is asked, and under which key.
    async fn read(&self, request: Request) -> Result<Asked, Refusal> {
        let (parts, body) = request.into_parts();
        let key = self.key(&parts)?;
        let body = to_bytes(body, self.body_bytes_max)
            .await
            .map_err(|e| Refusal::body(&e, self.body_bytes_max))?;
        // Inside a nested router the path has lost its beginning.
        let uri = parts.extensions.get::<OriginalUri>().map_or(&parts.uri, |uri| &uri.0);
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Asked {
            key,
            print: request::print_of(&parts.method, path, &body),
            parts,
            body,
        })
    }

    fn key(&self, parts: &Parts) -> Result<String, Refusal> {
        let key = request::key_in(&parts.headers)?;
        Ok(match &self.scope {
            None => format!("http:{key}"),
            Some(scope) => format!("http/{}:{key}", request::scope_mark(&scope(parts))),
        })
    }

    /// Begins and takes the key. A retryable error is tried once more: nothing has run yet.
    async fn take(&self, asked: &Asked) -> Result<(Transaction<'static, DB>, Once<DB>), Refusal> {
        let mut tried = self.try_to_take(asked).await;
        if let Err(error) = &tried
            && error.is_retryable()
            && !self.is_still_under_way(&asked.key, error)
        {
            tried = self.try_to_take(asked).await;
        }
        tried.map_err(|error| match self.is_still_under_way(&asked.key, &error) {
            true => Refusal::under_way(),
            false => Refusal::from(error),
        })
    }

    async fn try_to_take(&self, asked: &Asked) -> Result<(Transaction<'static, DB>, Once<DB>)> {
        let mut tx = self.rowlock.begin(&self.pool).await?;
        let take = self.rowlock.once(&mut tx, &asked.key).request_digest(asked.print);
        let once = take.hold(self.hold).timeout(self.timeout).await?;
        Ok((tx, once))
    }

    /// A lock time-out means that another request holds the key. A busy file can have any cause, so on SQLite the key
    /// must also be among those that run in this process.
    fn is_still_under_way(&self, key: &str, error: &Error) -> bool {
        match error.code().as_deref() {
            Some("55P03") => true,
            Some(_) => error.is_retryable() && self.under_way.has(key),
            None => false,
        }
    }

    async fn answer(self, asked: Asked, next: Next) -> Response {
        match self.take(&asked).await {
            Err(refusal) => refusal.into_response(),
            Ok((tx, Once::Seen(answer))) => {
                rolled_back(tx).await;
                Stored::replay(&answer)
            }
            Ok((tx, Once::First(slot))) => match self.first(tx, slot, asked, next).await {
                Ok(response) => response,
                Err(refusal) => refusal.into_response(),
            },
        }
    }

    async fn first(
        &self,
        mut tx: Transaction<'static, DB>,
        slot: OnceSlot<DB>,
        asked: Asked,
        next: Next,
    ) -> Result<Response, Refusal> {
        let _under_way = self.under_way.enter(&asked.key);
        // A refusal rolls back to this savepoint.
        slot.mark(&mut tx).await?;
        let lent = Lent::new(tx);
        let mut request = Request::from_parts(asked.parts, Body::from(asked.body));
        request.extensions_mut().insert(lent.clone());
        let response = next.run(request).await;
        if !is_remembered(response.status()) {
            if let Some(tx) = lent.take() {
                rolled_back(tx).await;
            }
            return Ok(response);
        }
        let (head, body) = response.into_parts();
        let body = to_bytes(body, self.rowlock.limits().payload_bytes_max())
            .await
            .map_err(Refusal::unreadable)?;
        let stored = Stored::of(&head, &body, &self.headers);
        // After the body: a stream may have written through the transaction too.
        let tx = lent.take().ok_or_else(Refusal::kept_away)?;
        keep(tx, slot, head.status, &stored).await?;
        Ok(Response::from_parts(head, Body::from(body)))
    }
}

/// Goes back to the savepoint if the status says so, stores the response and commits.
async fn keep<DB: Backend>(
    mut tx: Transaction<'static, DB>,
    slot: OnceSlot<DB>,
    status: StatusCode,
    stored: &Stored,
) -> Result<(), Refusal> {
    if DB::TransactionManager::get_transaction_depth(&tx) != 1 {
        rolled_back(tx).await;
        return Err(Refusal::kept_away());
    }
    if status.is_client_error() {
        slot.back_to_mark(&mut tx).await?;
    }
    slot.store(&mut tx, stored).await?;
    Ok(tx.commit().await?)
}

/// Nothing was kept either way, so a failure here is only logged.
async fn rolled_back<DB: Backend>(mut tx: Transaction<'static, DB>) {
    let mut ended = Ok(());
    // A nested transaction that user code forgot would keep the outer one open on a connection of the pool.
    while ended.is_ok() && DB::TransactionManager::get_transaction_depth(&tx) > 1 {
        ended = DB::TransactionManager::rollback(&mut tx).await;
    }
    if let Err(source) = ended.and(tx.rollback().await) {
        let error = Error::database("roll back", source);
        tracing::warn!("could not roll back an idempotent request: {}", error.cause());
    }
}

/// The middleware itself; see the [crate](self).
///
/// Cancel safety: if it is dropped, the request runs to its commit on a separate task, and a repeat gets its response.
pub async fn idempotent<DB: Backend>(State(layer): State<Idempotency<DB>>, request: Request, next: Next) -> Response {
    if request.method().is_safe() {
        return next.run(request).await;
    }
    let asked = match layer.read(request).await {
        Ok(asked) => asked,
        Err(refusal) => return refusal.into_response(),
    };
    match tokio::spawn(layer.answer(asked, next)).await {
        Ok(response) => response,
        // Panic here too, so that an outer layer that catches panics sees it.
        Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
        Err(_) => Refusal::busy("the server is stopping").into_response(),
    }
}

#[derive(Clone, Default)]
struct UnderWay(Arc<Mutex<HashMap<String, usize>>>);

impl UnderWay {
    fn enter(&self, key: &str) -> Leave {
        let mut keys = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *keys.entry(key.to_owned()).or_default() += 1;
        Leave(self.clone(), key.to_owned())
    }

    fn has(&self, key: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains_key(key)
    }
}

struct Leave(UnderWay, String);

impl Drop for Leave {
    fn drop(&mut self) {
        let mut keys = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(times) = keys.get_mut(&self.1) {
            *times -= 1;
            if *times == 0 {
                keys.remove(&self.1);
            }
        }
    }
}
