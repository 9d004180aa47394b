//! One call passed on as it is: a connection each, read to its end.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail};
use axum::{
    body::Bytes,
    http::{HeaderMap, StatusCode},
    response::{IntoResponse, Response},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

/// What came back.
pub(super) struct Reply {
    status: StatusCode,
    body: Vec<u8>,
}

impl Reply {
    /// Its status and its body as JSON; an empty one is an empty object.
    pub(super) fn json(self) -> Result<(StatusCode, Value)> {
        let body = match self.body.is_empty() {
            true => serde_json::json!({}),
            false => serde_json::from_slice(&self.body).context("the emulator's answer is no json")?,
        };
        Ok((self.status, body))
    }
}

impl IntoResponse for Reply {
    fn into_response(self) -> Response {
        let kind = [("content-type", "application/x-amz-json-1.0")];
        (self.status, kind, self.body).into_response()
    }
}

pub(super) async fn forward(to: SocketAddr, headers: &HeaderMap, body: &Bytes) -> Result<Reply> {
    let mut head = format!(
        "POST / HTTP/1.1\r\nhost: {to}\r\nconnection: close\r\ncontent-length: {}\r\n",
        body.len()
    );
    for (name, value) in headers {
        if !["host", "connection", "content-length", "accept-encoding"].contains(&name.as_str()) {
            head += &format!("{name}: {}\r\n", value.to_str().unwrap_or_default());
        }
    }
    head += "\r\n";
    let mut stream = TcpStream::connect(to).await.context("the emulator is not there")?;
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await?;
    read(&said)
}

fn read(said: &[u8]) -> Result<Reply> {
    let end = said
        .windows(4)
        .position(|four| four == b"\r\n\r\n")
        .context("an answer without an end to its head")?;
    let head = std::str::from_utf8(&said[..end]).context("a head that is no text")?;
    let status = head.split_whitespace().nth(1).context("an answer without a status")?;
    let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
    let body = &said[end + 4..];
    Ok(Reply {
        status: status.parse()?,
        body: if chunked { unchunked(body)? } else { body.to_vec() },
    })
}

fn unchunked(mut body: &[u8]) -> Result<Vec<u8>> {
    let mut whole = Vec::new();
    loop {
        let line = body
            .windows(2)
            .position(|two| two == b"\r\n")
            .context("a chunk without its size")?;
        let size = std::str::from_utf8(&body[..line])?.trim();
        let size = usize::from_str_radix(size, 16)?;
        body = &body[line + 2..];
        if size == 0 {
            return Ok(whole);
        }
        if body.len() < size + 2 {
            bail!("a chunk that ends early");
        }
        whole.extend_from_slice(&body[..size]);
        body = &body[size + 2..];
    }
}
