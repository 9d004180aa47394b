//! A server with the layer, and a client that speaks plain HTTP to it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, State},
    http::{HeaderMap, StatusCode, header},
    middleware::from_fn_with_state,
    response::IntoResponse,
    routing::{get, post},
};
use rowlock::Once;
use rowlock_axum::{Idempotency, idempotent};
use sqlx::{Connection, Pool, pool::PoolOptions};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};

use super::super::{
    Bed, Note,
    db::{Backend, Rowlock},
};

type Tx = rowlock_axum::IdempotentTx<Backend>;
type Layer = Idempotency<Backend>;

pub(super) const COUNTER: &str = "create table counter (n bigint not null); insert into counter (n) values (0)";

/// No request of the suite takes longer, on the slowest machine, unless it hangs.
const REPLY_MAX: Duration = Duration::from_secs(60);

/// What the handlers share.
#[derive(Clone)]
struct App {
    rowlock: Rowlock,
    gate: Arc<Semaphore>,
    entered: Arc<AtomicUsize>,
}

/// A server on a free loopback port, until the case ends.
pub(super) struct Front {
    pub(super) address: SocketAddr,
    /// `/wait` and `/keep` run on once there is a permit.
    pub(super) gate: Arc<Semaphore>,
    /// How often `/wait` was entered: its request is then the first under its key.
    entered: Arc<AtomicUsize>,
    pub(super) pool: Pool<Backend>,
    task: tokio::task::JoinHandle<()>,
}

impl Front {
    pub(super) async fn new(bed: &Bed) -> Front {
        Front::with(bed, |layer| layer).await
    }

    pub(super) async fn with(bed: &Bed, chosen: impl FnOnce(Layer) -> Layer) -> Front {
        bed.run(COUNTER).await;
        Front::on(bed, chosen).await
    }

    /// On a bed that has its counter already.
    pub(super) async fn on(bed: &Bed, chosen: impl FnOnce(Layer) -> Layer) -> Front {
        let pool = PoolOptions::new()
            .max_connections(8)
            .connect(&bed.database.url)
            .await
            .unwrap();
        let gate = Arc::new(Semaphore::new(0));
        let entered = Arc::new(AtomicUsize::new(0));
        let app = App {
            rowlock: bed.rowlock.clone(),
            gate: gate.clone(),
            entered: entered.clone(),
        };
        let layer = chosen(Idempotency::new(&bed.rowlock, &pool));
        let router = Router::new()
            .route("/charge", post(charge).put(charge).get(async || "looked"))
            .route("/status/{status}", post(status))
            .route("/bytes", post(bytes))
            .route("/wait", post(wait))
            .route("/panic", post(panic))
            .route("/keep", post(keep_the_transaction))
            .route("/forget", post(forget_a_nested_one))
            .route("/big", post(big))
            .route("/job", post(job))
            .route("/two", post(two))
            .route("/inner", post(inner))
            .nest("/nested", Router::new().route("/charge", post(charge)))
            .layer(from_fn_with_state(layer, idempotent))
            .route("/outside", get(async |_tx: Tx| "unreached"))
            .with_state(app);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Front {
            address,
            gate,
            entered,
            pool,
            task,
        }
    }

    pub(super) fn entered(&self) -> usize {
        self.entered.load(Ordering::SeqCst)
    }

    pub(super) async fn send(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let asked = self.ask(method, path, headers, body);
        let reply = tokio::time::timeout(REPLY_MAX, asked).await;
        reply.unwrap_or_else(|_| panic!("{method} {path} {headers:?}: no reply within {REPLY_MAX:?}"))
    }

    async fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut socket = TcpStream::connect(self.address).await.unwrap();
        socket.write_all(&request(method, path, headers, body)).await.unwrap();
        let mut reply = Vec::new();
        // A request that was cut off has no reply.
        let _ = socket.read_to_end(&mut reply).await;
        Reply::read(&reply)
    }

    pub(super) async fn post(&self, path: &str, key: &str, body: &str) -> Reply {
        self.send("POST", path, &[("idempotency-key", key)], body.as_bytes())
            .await
    }

    pub(super) async fn end(self) {
        self.task.abort();
        self.pool.close().await;
    }
}

pub(super) fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        text += &format!("{name}: {value}\r\n");
    }
    text += &format!("content-length: {}\r\n\r\n", body.len());
    [text.as_bytes(), body].concat()
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Reply {
    /// 0 when the connection was closed without one.
    pub(super) status: u16,
    head: String,
    pub(super) body: Vec<u8>,
}

impl Reply {
    fn read(reply: &[u8]) -> Reply {
        let end = reply.windows(4).position(|w| w == b"\r\n\r\n");
        let (head, body) = match end {
            Some(end) => (&reply[..end], &reply[end + 4..]),
            None => (&b""[..], &b""[..]),
        };
        let head = String::from_utf8_lossy(head).to_lowercase();
        let status = head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or_default();
        Reply {
            status,
            head,
            body: body.to_vec(),
        }
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .into_iter()
            .find(|(found, _)| *found == name)
            .map(|(_, value)| value)
    }

    pub(super) fn is_replay(&self) -> bool {
        self.header("idempotency-replayed") == Some("true")
    }
}

async fn raise(tx: &mut Tx) -> i64 {
    let raise = sqlx::query_scalar("update counter set n = n + 1 returning n");
    raise.fetch_one(&mut **tx).await.unwrap()
}

async fn charge(mut tx: Tx, body: String) -> impl IntoResponse {
    let n = raise(&mut tx).await;
    let headers = [
        (header::LOCATION, format!("/charges/{n}")),
        (header::SERVER, "mine".into()),
    ];
    (StatusCode::CREATED, headers, format!("charge {n} of {body}"))
}

async fn status(Path(status): Path<u16>, mut tx: Tx) -> StatusCode {
    raise(&mut tx).await;
    // Refused by the database: on PostgreSQL the transaction can do nothing more.
    let refused = sqlx::query("insert into counter (n) values (null)")
        .execute(&mut *tx)
        .await;
    assert!(refused.is_err());
    StatusCode::from_u16(status).unwrap()
}

async fn bytes(mut tx: Tx) -> (HeaderMap, Vec<u8>) {
    raise(&mut tx).await;
    let mut headers = HeaderMap::new();
    headers.insert("x-kept", "kept".parse().unwrap());
    (headers, vec![0, 159, 146, 150, b'\n', 0, 255])
}

async fn wait(State(app): State<App>, mut tx: Tx) -> String {
    let n = raise(&mut tx).await;
    app.entered.fetch_add(1, Ordering::SeqCst);
    app.gate.acquire().await.unwrap().forget();
    format!("waited for {n}")
}

async fn panic(mut tx: Tx) -> StatusCode {
    raise(&mut tx).await;
    panic!("as a test wants it")
}

async fn keep_the_transaction(State(app): State<App>, mut tx: Tx) -> &'static str {
    raise(&mut tx).await;
    tokio::spawn(async move {
        app.gate.acquire().await.unwrap().forget();
        drop(tx);
    });
    "done, or so it says"
}

async fn forget_a_nested_one(mut tx: Tx) -> &'static str {
    raise(&mut tx).await;
    std::mem::forget(tx.begin().await.unwrap());
    "done, or so it says"
}

async fn big(mut tx: Tx) -> String {
    raise(&mut tx).await;
    "x".repeat(2 << 20)
}

async fn job(State(app): State<App>, mut tx: Tx) -> String {
    let id = app
        .rowlock
        .enqueue(&mut tx, Note::new("from a request"))
        .await
        .unwrap()
        .id();
    format!("job {id}")
}

/// Takes another key in the request's transaction.
async fn inner(State(app): State<App>, mut tx: Tx) -> String {
    match app.rowlock.once(tx.transaction(), "inner").await.unwrap() {
        Once::First(_) => format!("first {}", raise(&mut tx).await),
        Once::Seen(_) => "seen".to_owned(),
    }
}

async fn two(_one: Tx, _two: Tx) -> &'static str {
    "unreached"
}
