//! An axum layer that honours `Idempotency-Key`: a client that repeats its request, because the reply got lost, is
//! charged once and gets the first response again.

use std::net::SocketAddr;

use axum::{Router, http::StatusCode, middleware::from_fn_with_state, response::IntoResponse, routing::post};
use rowlock::sqlite::Rowlock;
use rowlock_axum::{Idempotency, IdempotentTx, idempotent};
use sqlx::{Sqlite, SqlitePool};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

/// `POST /orders`. Everything written through `tx` commits with the stored response, or not at all.
async fn order(mut tx: IdempotentTx<Sqlite>, item: String) -> Result<impl IntoResponse, StatusCode> {
    let failed = |_| StatusCode::INTERNAL_SERVER_ERROR;
    let insert = sqlx::query_scalar("insert into orders (item) values ($1) returning id").bind(&item);
    let id: i64 = insert.fetch_one(&mut *tx).await.map_err(failed)?;
    let pay = sqlx::query("update wallet set cents = cents - 800 where cents >= 800");
    if pay.execute(&mut *tx).await.map_err(failed)?.rows_affected() == 0 {
        // A refusal is remembered, and the order that was just inserted is not kept.
        return Err(StatusCode::PAYMENT_REQUIRED);
    }
    let place = [("location", format!("/orders/{id}"))];
    Ok((StatusCode::CREATED, place, format!("order {id}: {item}")))
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let url = format!("sqlite:{}", folder.path().join("orders.db").display());
    let rowlock = Rowlock::open(&url)?;
    rowlock.migrate().await?;
    let db = SqlitePool::connect(&url).await?;
    let tables = "create table orders (id integer primary key, item text not null);
                  create table wallet (cents integer not null); insert into wallet values (1000)";
    sqlx::raw_sql(tables).execute(&db).await?;

    // Whose key it is: two users may pick the same one, and neither may see the other's response.
    let once = Idempotency::new(&rowlock, &db).scope(|parts| {
        let user = parts.headers.get("x-user").and_then(|user| user.to_str().ok());
        user.unwrap_or_default().to_owned()
    });
    let app = Router::new()
        .route("/orders", post(order))
        .layer(from_fn_with_state(once, idempotent));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(axum::serve(listener, app).into_future());

    for (key, item) in [
        ("k1", "oars"),
        ("k1", "oars"),
        ("k1", "boat"),
        ("", "oars"),
        ("k2", "boat"),
        ("k2", "boat"),
    ] {
        println!("{}", request(address, key, item).await?);
    }
    let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(&db).await?;
    let cents: i64 = sqlx::query_scalar("select cents from wallet").fetch_one(&db).await?;
    println!("{orders} order, {cents} cents left");
    Ok(())
}

/// Sends a request over a plain socket and sums the response up in one line.
async fn request(address: SocketAddr, key: &str, body: &str) -> anyhow::Result<String> {
    let mut socket = TcpStream::connect(address).await?;
    let mut head = "POST /orders HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\nx-user: ann\r\n".to_owned();
    if !key.is_empty() {
        head += &format!("idempotency-key: {key}\r\n");
    }
    let length = body.len();
    socket
        .write_all(format!("{head}content-length: {length}\r\n\r\n{body}").as_bytes())
        .await?;
    let mut reply = String::new();
    socket.read_to_string(&mut reply).await?;
    let status = reply.split(' ').nth(1).unwrap_or_default();
    let how = match reply.contains("idempotency-replayed: true") {
        true => "replayed",
        false => "fresh",
    };
    let text = reply.rsplit("\r\n").next().unwrap_or_default();
    Ok(format!("key {key:?}, {body}: {status} {how} {text:?}"))
}
