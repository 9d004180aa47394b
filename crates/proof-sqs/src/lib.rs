//! SQS as the tests have it: two emulators, and a crooked proxy in front of them that does what the real one may do.
//!
//! The proxy speaks the JSON protocol of SQS. It knows the calls by their name and changes what is in them: messages
//! come twice, shuffled and late, deletes fail, sends vanish, calls are throttled or not answered at all.

pub mod bed;
pub mod crew;
mod forward;
pub mod workload;

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use axum::{
    Router,
    body::Bytes,
    extract::State,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use self::forward::forward;

/// One emulator of this run.
#[derive(Clone, Debug)]
pub struct Emulator {
    /// What the summary calls it.
    pub label: &'static str,
    /// Where it listens.
    pub url: String,
}

/// The emulators of this run, from `ROWLOCK_TEST_SQS_MOTO` and `ROWLOCK_TEST_SQS_MINISTACK`.
///
/// # Panics
/// When a variable is not set: a suite that silently runs nothing would look green.
pub fn emulators() -> Vec<Emulator> {
    [
        ("moto", "ROWLOCK_TEST_SQS_MOTO"),
        ("ministack", "ROWLOCK_TEST_SQS_MINISTACK"),
    ]
    .map(|(label, variable)| {
        let url = std::env::var(variable);
        let url = url.unwrap_or_else(|_| {
            panic!("{variable} is not set; run `cargo xtask test`, or `cargo xtask servers` for hand work")
        });
        Emulator { label, url }
    })
    .into()
}

/// What the proxy does wrong. Every number counts: of so many one goes wrong, and 0 is none.
#[derive(Debug, Default)]
pub struct Faults {
    /// No call is answered.
    pub outage: AtomicBool,
    /// Every n-th call is refused as one too many.
    pub throttle_every: AtomicU64,
    /// Every n-th delete fails.
    pub fail_delete_every: AtomicU64,
    /// Every n-th message sent is lost, and said to have been sent.
    pub drop_send_every: AtomicU64,
    /// So many copies of each message arrive.
    pub copies: AtomicU64,
    /// Messages are held back, and come in another order.
    pub shuffle: AtomicBool,
    /// Visibility is not extended, and said to be.
    pub no_extension: AtomicBool,
    /// Every n-th receive is answered with what the last one had been, once more.
    pub again_every: AtomicU64,
    calls: AtomicU64,
    receives: AtomicU64,
    deletes: AtomicU64,
    sends: AtomicU64,
    /// Messages that were lost.
    pub dropped: AtomicU64,
    /// Deletes that failed.
    pub deletes_failed: AtomicU64,
    /// Calls that were refused.
    pub throttled: AtomicU64,
    /// Bodies that were lost: how often, and when last.
    lost: Mutex<HashMap<String, (u32, Instant)>>,
    /// For each body that was lost and came again: how often it had been lost, and how long ago.
    found: Mutex<Vec<(u32, Duration)>>,
}

impl Faults {
    /// Whether it is the turn of the n-th.
    fn turn(every: &AtomicU64, count: &AtomicU64) -> bool {
        let every = every.load(Ordering::Relaxed);
        every > 0 && (count.fetch_add(1, Ordering::Relaxed) + 1).is_multiple_of(every)
    }

    /// Notes that this body is lost, or comes again.
    fn note(&self, body: &Value, lost: bool) {
        let body = body.as_str().unwrap_or_default().to_owned();
        let mut all = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.remove(&body);
        if let Some((times, at)) = before {
            let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
            found.push((times, at.elapsed()));
        }
        if lost {
            let times = before.map_or(1, |(times, _)| times + 1);
            all.insert(body, (times, Instant::now()));
        }
    }

    /// For each body that was lost and came again: how often it had been lost, and after how long it came.
    pub fn found(&self) -> Vec<(u32, Duration)> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many bodies were lost and never came again.
    pub fn never_found(&self) -> usize {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    fn is(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Relaxed)
    }
}

/// A proxy in front of an emulator.
pub struct Crooked {
    /// Where it listens.
    pub url: String,
    /// What it does wrong, to be changed at any time.
    pub faults: Arc<Faults>,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Crooked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct Inner {
    upstream: SocketAddr,
    faults: Arc<Faults>,
    /// Messages that are held back, with the queue they came from.
    pool: Mutex<Vec<(String, Value)>>,
    last: Mutex<Option<(String, Value)>>,
}

impl Crooked {
    /// Starts one that does everything right, until it is changed.
    ///
    /// # Errors
    /// The emulator's address cannot be read, or there is no port.
    pub async fn before(emulator: &Emulator) -> Result<Crooked> {
        let upstream = emulator.url.trim_start_matches("http://").trim_end_matches('/');
        let faults = Arc::new(Faults::default());
        let inner = Inner {
            upstream: upstream.parse().context("an emulator's url is http://127.0.0.1:port")?,
            faults: faults.clone(),
            pool: Mutex::default(),
            last: Mutex::default(),
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().fallback(call).with_state(Arc::new(inner));
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, router).await {
                eprintln!("the crooked proxy ended: {error}");
            }
        });
        Ok(Crooked { url, faults, task })
    }
}

async fn call(State(inner): State<Arc<Inner>>, headers: HeaderMap, body: Bytes) -> Response {
    match answer(&inner, &headers, body).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
    }
}

fn refused(code: &str) -> Response {
    let said = json!({ "__type": format!("com.amazonaws.sqs#{code}"), "message": code });
    (
        StatusCode::BAD_REQUEST,
        [("content-type", "application/x-amz-json-1.0")],
        said.to_string(),
    )
        .into_response()
}

fn told(body: &Value) -> Response {
    ([("content-type", "application/x-amz-json-1.0")], body.to_string()).into_response()
}

async fn answer(inner: &Inner, headers: &HeaderMap, body: Bytes) -> Result<Response> {
    let faults = &inner.faults;
    if Faults::is(&faults.outage) {
        return Ok(StatusCode::SERVICE_UNAVAILABLE.into_response());
    }
    if Faults::turn(&faults.throttle_every, &faults.calls) {
        faults.throttled.fetch_add(1, Ordering::Relaxed);
        return Ok(refused("RequestThrottled"));
    }
    let target = headers.get("x-amz-target").and_then(|value| value.to_str().ok());
    let name = target.and_then(|target| target.rsplit('.').next()).unwrap_or_default();
    match name {
        "ReceiveMessage" => receive(inner, headers, &body).await,
        "DeleteMessageBatch" => delete(inner, headers, &body).await,
        "SendMessageBatch" => send(inner, headers, &body).await,
        "ChangeMessageVisibilityBatch" if Faults::is(&faults.no_extension) => {
            let call: Value = serde_json::from_slice(&body)?;
            let said = |entry: &Value| json!({ "Id": entry["Id"] });
            let all: Vec<Value> = call["Entries"].as_array().into_iter().flatten().map(said).collect();
            Ok(told(&json!({ "Successful": all, "Failed": [] })))
        }
        _ => Ok(forward(inner.upstream, headers, &body).await?.into_response()),
    }
}

/// Held back and mixed up, and now and then the same once more.
async fn receive(inner: &Inner, headers: &HeaderMap, body: &Bytes) -> Result<Response> {
    let faults = &inner.faults;
    let queue = serde_json::from_slice::<Value>(body)?["QueueUrl"].to_string();
    if Faults::turn(&faults.again_every, &faults.receives) {
        let last = inner.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, again)) = last.as_ref().filter(|(of, _)| *of == queue) {
            return Ok(told(again));
        }
    }
    let (status, mut said) = forward(inner.upstream, headers, body).await?.json()?;
    if !status.is_success() {
        return Ok((status, said.to_string()).into_response());
    }
    if Faults::is(&faults.shuffle) {
        let came = said["Messages"].as_array().cloned().unwrap_or_default();
        let mut pool = inner.pool.lock().unwrap_or_else(PoisonError::into_inner);
        let empty = came.is_empty();
        pool.extend(came.into_iter().map(|message| (queue.clone(), message)));
        fastrand::shuffle(&mut pool);
        let keep = if empty { 0 } else { 20 };
        let mut out = Vec::new();
        while out.len() < 10 && pool.len() > keep {
            match pool.iter().position(|(of, _)| *of == queue) {
                Some(at) => out.push(pool.swap_remove(at).1),
                None => break,
            }
        }
        said["Messages"] = out.into();
    }
    *inner.last.lock().unwrap_or_else(PoisonError::into_inner) = Some((queue, said.clone()));
    Ok(told(&said))
}

/// Some of them fail, and are not passed on.
async fn delete(inner: &Inner, headers: &HeaderMap, body: &Bytes) -> Result<Response> {
    let faults = &inner.faults;
    let mut call: Value = serde_json::from_slice(body)?;
    let entries = call["Entries"].as_array().cloned().unwrap_or_default();
    let (mut failed, mut rest) = (Vec::new(), Vec::new());
    for entry in entries {
        match Faults::turn(&faults.fail_delete_every, &faults.deletes) {
            true => failed.push(json!({
                "Id": entry["Id"], "SenderFault": false, "Code": "InternalError", "Message": "try again"
            })),
            false => rest.push(entry),
        }
    }
    faults.deletes_failed.fetch_add(failed.len() as u64, Ordering::Relaxed);
    if rest.is_empty() {
        return Ok(told(&json!({ "Successful": [], "Failed": failed })));
    }
    call["Entries"] = rest.into();
    let (status, mut said) = forward(inner.upstream, headers, &call.to_string().into())
        .await?
        .json()?;
    if !status.is_success() {
        return Ok((status, said.to_string()).into_response());
    }
    failed.extend(said["Failed"].as_array().cloned().unwrap_or_default());
    said["Failed"] = failed.into();
    Ok(told(&said))
}

/// Some of them are lost, the rest arrives in so many copies.
async fn send(inner: &Inner, headers: &HeaderMap, body: &Bytes) -> Result<Response> {
    let faults = &inner.faults;
    let mut call: Value = serde_json::from_slice(body)?;
    let entries = call["Entries"].as_array().cloned().unwrap_or_default();
    let (mut lost, mut rest) = (Vec::new(), Vec::new());
    for entry in entries {
        let drop = Faults::turn(&faults.drop_send_every, &faults.sends);
        faults.note(&entry["MessageBody"], drop);
        match drop {
            true => lost.push(json!({
                "Id": entry["Id"], "MessageId": "lost", "MD5OfMessageBody": "lost"
            })),
            false => rest.push(entry),
        }
    }
    faults.dropped.fetch_add(lost.len() as u64, Ordering::Relaxed);
    let mut said = json!({ "Successful": [], "Failed": [] });
    if !rest.is_empty() {
        call["Entries"] = rest.into();
        for _ in 0..faults.copies.load(Ordering::Relaxed).max(1) {
            let (status, once) = forward(inner.upstream, headers, &call.to_string().into())
                .await?
                .json()?;
            if !status.is_success() {
                return Ok((status, once.to_string()).into_response());
            }
            said = once;
        }
    }
    let mut sent = said["Successful"].as_array().cloned().unwrap_or_default();
    sent.extend(lost);
    said["Successful"] = sent.into();
    Ok(told(&said))
}
