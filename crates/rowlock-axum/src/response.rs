//! Responses: what is stored of one, what a repeat gets, and what the layer itself says.

use std::error::Error as StdError;

use axum::{
    body::Body,
    http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, response},
    response::{IntoResponse, Response},
};
use rowlock::{Error, handle::Answer};
use serde::{Deserialize, Serialize};

const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Whether a repeat should get the same response. A status that means "later" or "I failed" should be tried again.
pub fn is_remembered(status: StatusCode) -> bool {
    let later = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    !status.is_server_error() && !later.contains(&status)
}

/// A response as it is stored in the ledger.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub struct Stored {
    status: u16,
    /// Values as Latin-1: each byte of a header is one character.
    headers: Vec<(String, String)>,
    body: StoredBody,
}

#[derive(Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredBody {
    Text(String),
    /// A body that is not text, or has a NUL character, which PostgreSQL cannot store.
    Hex(String),
}

impl Stored {
    pub fn of(head: &response::Parts, body: &[u8], kept: &[HeaderName]) -> Stored {
        let values = |name: &HeaderName| {
            let latin = |value: &HeaderValue| value.as_bytes().iter().map(|b| char::from(*b)).collect();
            let all = head.headers.get_all(name).iter();
            all.map(|value| (name.to_string(), latin(value))).collect::<Vec<_>>()
        };
        Stored {
            status: head.status.as_u16(),
            headers: kept.iter().flat_map(values).collect(),
            body: match std::str::from_utf8(body) {
                Ok(text) if !text.contains('\0') => StoredBody::Text(text.to_owned()),
                _ => StoredBody::Hex(body.iter().map(|byte| format!("{byte:02x}")).collect()),
            },
        }
    }

    /// The response of a repeat.
    pub fn replay(answer: &Answer) -> Response {
        let stored = answer.get::<Option<Stored>>().ok().flatten();
        stored.and_then(Stored::response).unwrap_or_else(|| {
            tracing::error!(
                "the ledger entry of an idempotent request is not a response; check whether other code uses its key"
            );
            Refusal::failed("the ledger entry of this key is not a response").into_response()
        })
    }

    fn response(self) -> Option<Response> {
        let body = match self.body {
            StoredBody::Text(text) => text.into_bytes(),
            StoredBody::Hex(hex) => from_hex(&hex)?,
        };
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            let value = value
                .chars()
                .map(|c| u8::try_from(c).ok())
                .collect::<Option<Vec<u8>>>()?;
            headers.append(
                HeaderName::from_bytes(name.as_bytes()).ok()?,
                HeaderValue::from_bytes(&value).ok()?,
            );
        }
        headers.insert(REPLAYED, HeaderValue::from_static("true"));
        let status = StatusCode::from_u16(self.status).ok()?;
        Some((status, headers, Body::from(body)).into_response())
    }
}

fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let byte = |at| u8::from_str_radix(hex.get(at..at + 2)?, 16).ok();
    (0..hex.len()).step_by(2).map(byte).collect()
}

/// What the layer answers instead of the handler.
#[derive(Debug)]
pub struct Refusal {
    status: u16,
    text: String,
    retry: bool,
}

impl Refusal {
    fn new(status: u16, text: impl Into<String>) -> Refusal {
        Refusal {
            status,
            text: text.into(),
            retry: false,
        }
    }

    fn and_retry(mut self) -> Refusal {
        self.retry = true;
        self
    }

    pub fn key(problem: &str) -> Refusal {
        let text =
            format!("idempotency-key: {problem}; send one key for each operation, and the same key on every retry");
        Refusal::new(400, text)
    }

    pub fn body(error: &(dyn StdError + 'static), limit: usize) -> Refusal {
        let mut next = Some(error);
        while let Some(link) = next {
            if link.to_string() == "length limit exceeded" {
                let text =
                    format!("the body is larger than {limit} bytes, the limit for requests with an idempotency key");
                return Refusal::new(413, text);
            }
            next = link.source();
        }
        Refusal::new(400, "the body is incomplete; send the request again")
    }

    pub fn under_way() -> Refusal {
        Refusal::new(
            409,
            "a request with this idempotency key is still running; try again later",
        )
        .and_retry()
    }

    pub fn busy(text: &str) -> Refusal {
        Refusal::new(503, format!("{text}; try again with the same idempotency key")).and_retry()
    }

    pub fn failed(text: &str) -> Refusal {
        Refusal::new(500, text)
    }

    /// The handler's response could not be stored, so nothing of the request is kept.
    pub fn unreadable(error: axum::Error) -> Refusal {
        tracing::error!(
            "the response of an idempotent request is too large or incomplete, rolled back: {}",
            in_one_line(&error)
        );
        Refusal::failed("the response could not be stored; nothing was changed")
    }

    /// The transaction did not come back from the handler as it was lent.
    pub fn kept_away() -> Refusal {
        tracing::error!(
            "the handler kept the transaction of its idempotent request, or left a nested one open; rolled back"
        );
        Refusal::failed("the handler did not give the request's transaction back; nothing was changed")
    }
}

/// An error and its sources, each text once: many errors print their source themselves.
fn in_one_line(error: &(dyn StdError + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(link) = next {
        let text = link.to_string();
        if !texts.last().is_some_and(|last| last.contains(&text)) {
            texts.push(text);
        }
        next = link.source();
    }
    texts.join(": ")
}

impl From<Error> for Refusal {
    fn from(error: Error) -> Refusal {
        match &error {
            Error::KeyConflict { .. } => Refusal::new(
                422,
                "this idempotency key was used for a different request; use a new key",
            ),
            Error::TryAgain { .. } => Refusal::busy("the request conflicted with another transaction"),
            Error::Database { .. } => {
                tracing::error!(
                    "the database could not process an idempotent request: {}",
                    error.cause()
                );
                Refusal::busy("the database could not process the request")
            }
            _ => {
                tracing::error!("could not store an idempotent request, rolled back: {}", error.cause());
                Refusal::failed("the response could not be stored; nothing was changed")
            }
        }
    }
}

impl From<sqlx::Error> for Refusal {
    fn from(source: sqlx::Error) -> Refusal {
        Refusal::from(Error::database("an idempotent request", source))
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, self.text).into_response();
        if self.retry {
            let soon = HeaderValue::from_static("1");
            response.headers_mut().insert(header::RETRY_AFTER, soon);
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(headers: &[(&'static str, &[u8])], body: &[u8]) -> Stored {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::CREATED;
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value).unwrap();
            response.headers_mut().append(HeaderName::from_static(name), value);
        }
        Stored::of(
            &response.into_parts().0,
            body,
            &[header::CONTENT_TYPE, header::LOCATION],
        )
    }

    #[test]
    fn a_stored_response_comes_back_byte_for_byte() {
        for body in ["naïve".as_bytes(), b"", b"a\0b", &[0, 159, 146, 150, 255]] {
            let json = serde_json::to_string(&kept(&[("location", b"/caf\xe9")], body)).unwrap();
            let stored: Stored = serde_json::from_str(&json).unwrap();
            assert!(!json.contains("\\u0000"), "{json}");
            let stored = stored.response().unwrap();
            assert_eq!(stored.status(), StatusCode::CREATED);
            assert_eq!(stored.headers()["location"].as_bytes(), b"/caf\xe9");
            assert_eq!(stored.headers()["idempotency-replayed"], "true");
            let bytes = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let bytes = bytes.block_on(axum::body::to_bytes(stored.into_body(), 100)).unwrap();
            assert_eq!(bytes, body);
        }
    }

    #[test]
    fn only_chosen_headers_are_stored() {
        let stored = kept(&[("set-cookie", b"secret"), ("content-type", b"text/plain")], b"");
        assert_eq!(stored.headers, [("content-type".to_owned(), "text/plain".to_owned())]);
    }

    #[test]
    fn what_says_later_is_not_remembered() {
        for (status, remembered) in [
            (200, true),
            (303, true),
            (404, true),
            (408, false),
            (429, false),
            (503, false),
        ] {
            assert_eq!(
                is_remembered(StatusCode::from_u16(status).unwrap()),
                remembered,
                "{status}"
            );
        }
    }
}
