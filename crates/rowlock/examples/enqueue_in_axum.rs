//! Transactional enqueue in an axum handler: the request inserts an order and enqueues its job in one transaction, so a
//! request that fails leaves neither.

use std::sync::Arc;

use axum::{Json, Router, extract::State, http::StatusCode, routing::post};
use rowlock::{
    Applied, Event, Job, atomic,
    sqlite::{Ctx, Outcome, Rowlock, Tx, Worker},
};
use serde::{Deserialize, Serialize};
use sqlx::SqlitePool;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
};

#[derive(Clone)]
struct App {
    db: SqlitePool,
    rowlock: Rowlock,
}

#[derive(Deserialize)]
struct NewOrder {
    item: String,
    cents: i64,
}

#[derive(Serialize, Deserialize, Job)]
struct ConfirmOrder {
    order_id: i64,
}

/// `POST /orders`.
async fn orders(State(app): State<App>, Json(order): Json<NewOrder>) -> (StatusCode, String) {
    match place(&app, order).await {
        Ok(Some(id)) => (StatusCode::CREATED, format!("order {id}")),
        Ok(None) => (StatusCode::PAYMENT_REQUIRED, "not enough money".into()),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// However it is left, unless by the commit, the transaction is dropped: no order and no job.
async fn place(app: &App, order: NewOrder) -> anyhow::Result<Option<i64>> {
    let mut tx = app.db.begin_with("begin immediate").await?;
    let insert = sqlx::query_scalar("insert into orders (item, state) values ($1, 'new') returning id");
    let order_id: i64 = insert.bind(&order.item).fetch_one(&mut *tx).await?;
    let _ = app.rowlock.enqueue(&mut tx, ConfirmOrder { order_id }).await?;
    // Late on purpose: the order and its job are both written by now, but not committed.
    let pay = sqlx::query("update wallet set cents = cents - $1 where cents >= $1");
    if pay.bind(order.cents).execute(&mut *tx).await?.rows_affected() == 0 {
        return Ok(None);
    }
    tx.commit().await?;
    Ok(Some(order_id))
}

async fn confirm(_cx: Ctx, job: ConfirmOrder, mut tx: Tx) -> Outcome {
    let update = sqlx::query("update orders set state = 'confirmed' where id = $1 and state = 'new'");
    update.bind(job.order_id).execute(&mut *tx).await?.applied()?;
    tx.done().ok()
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("orders.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let db = SqlitePool::connect(&url).await?;
    let tables = "create table orders (id integer primary key, item text not null, state text not null);
                  create table wallet (cents integer not null); insert into wallet values (1000)";
    sqlx::raw_sql(tables).execute(&db).await?;

    let app = App {
        db: db.clone(),
        rowlock: rowlock.clone(),
    };
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, Router::new().route("/orders", post(orders)).with_state(app)).into_future());
    for (item, cents) in [("oars", 800), ("boat", 90_000)] {
        let body = format!(r#"{{"item":"{item}","cents":{cents}}}"#);
        let (status, text) = request(address, &body).await?;
        println!("{item}: {status}: {text}");
    }
    let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(&db).await?;
    let jobs = rowlock.observe().jobs(&Default::default()).await?.len();
    println!("{orders} order, {jobs} job");

    let settled = Arc::new(Notify::new());
    let notify = settled.clone();
    let worker = Worker::new(&rowlock).queue("default", 4).handle(atomic(confirm));
    let worker = worker.on_event(move |event| {
        if matches!(event, Event::Settled { .. }) {
            notify.notify_one()
        }
    });
    worker.run_until(settled.notified()).await?;
    let (id, state): (i64, String) = sqlx::query_as("select id, state from orders").fetch_one(&db).await?;
    println!("order {id} is {state}");
    Ok(())
}

/// A request over a plain socket: the status line's number and the body.
async fn request(address: std::net::SocketAddr, body: &str) -> anyhow::Result<(String, String)> {
    let mut socket = TcpStream::connect(address).await?;
    let head = "POST /orders HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json";
    socket
        .write_all(format!("{head}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes())
        .await?;
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await?;
    let status = reply.split(' ').nth(1).unwrap_or_default().to_owned();
    Ok((status, reply.rsplit("\r\n").next().unwrap_or_default().to_owned()))
}
