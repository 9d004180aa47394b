//! A server as a handler: the payload as the body of a POST, facts in its headers, and the status decides.
//!
//! | status | the job | the call |
//! |---|---|---|
//! | 2xx | done, with the body as its result | happened |
//! | 425, 429, no connection | tried again | did not happen |
//! | 408, 409, 3xx, 5xx, a connection that breaks, the time limit | tried again | unknown |
//! | any other 4xx | retired, with the beginning of the body as the reason | did not happen, says the server |
//!
//! 409 is what servers that honour keys answer while the first call with that key is still under way. Redirects are not
//! followed: a payload goes nowhere but where it was sent. `Retry-After` is respected from a second to an hour; the
//! attempt is then given back, a hundred times at most. Each call has a separate connection.

use std::{sync::Arc, time::Duration};

use anyhow::Result;
use http_body_util::{BodyExt, Full};
use hyper::{
    Request, Response, StatusCode, Uri,
    body::{Bytes, Incoming},
    client::conn::http1,
    header::{self, HeaderMap, HeaderName, HeaderValue},
};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rowlock::Fail;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::{Instant, timeout_at},
};
use tokio_rustls::{
    TlsConnector,
    rustls::{ClientConfig, RootCertStore, crypto::ring, pki_types::ServerName},
};
use tokio_util::task::AbortOnDropHandle;

use super::{Bounds, call::Call, pipe::Head};
use crate::output::{Advice, short};

/// A server that asks for a shorter pause gets the backoff of any failure.
const RETRY_AFTER_MIN: Duration = Duration::from_secs(1);

/// A longer pause is cut to this.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(3600);

/// How often a server may ask for more time before an attempt counts.
const GIVEN_BACK_MAX: i64 = 100;

/// How much of an answer a reason holds.
const REASON_CHARS_MAX: usize = 1024;

/// Where to call.
#[derive(Debug)]
pub(crate) struct Server {
    /// The address without what may be a secret in its query.
    pub(crate) shown: String,
    host: String,
    port: u16,
    host_header: HeaderValue,
    path: Uri,
    tls: Option<Tls>,
}

struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Server {
    /// Reads an address; no I/O but for the certificates that this machine trusts.
    pub(crate) fn new(url: &str) -> Result<Server> {
        let refuse = |problem: &str| {
            Advice::usage(
                format!("the URL of --http {problem}"),
                "use http://host:port/path or https://host/path",
            )
        };
        let uri: Uri = url.parse().map_err(|_| refuse("cannot be parsed"))?;
        let tls = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err(refuse("does not start with http:// or https://")),
        };
        let authority = uri.authority().ok_or_else(|| refuse("has no host"))?;
        if authority.as_str().contains('@') {
            return Err(refuse(
                "contains a user or password, which every user of this machine could read",
            ));
        }
        let host = authority.host().trim_matches(['[', ']']).to_owned();
        if host.is_empty() {
            return Err(refuse("has no host"));
        }
        let path = uri.path_and_query().map_or("/", |path| path.as_str());
        Ok(Server {
            shown: format!("{}://{authority}{}", if tls { "https" } else { "http" }, uri.path()),
            port: authority.port_u16().unwrap_or(if tls { 443 } else { 80 }),
            host_header: HeaderValue::from_str(authority.as_str()).map_err(|_| refuse("has no host"))?,
            path: path.parse().map_err(|_| refuse("cannot be parsed"))?,
            tls: match tls {
                true => Some(Tls {
                    connector: connector()?,
                    name: ServerName::try_from(host.clone()).map_err(|_| refuse("has no host"))?,
                }),
                false => None,
            },
            host,
        })
    }

    /// Calls once. If this is dropped half-way, the connection is closed.
    pub(crate) async fn call(&self, call: &Call, bounds: &Bounds) -> Result<Box<RawValue>, Fail> {
        let deadline = Instant::now() + bounds.time_limit;
        let (shown, limit) = (&self.shown, bounds.time_limit);
        let connected = timeout_at(deadline, self.connect()).await;
        let stream = connected
            .unwrap_or_else(|_| Err(Fail::retry(format!("no connection to {shown} within {limit:?}"))))
            .map_err(Fail::not_done)?;
        let exchange = self.exchange(stream, call, bounds);
        let answered = timeout_at(deadline, exchange).await;
        answered.unwrap_or_else(|_| Err(Fail::retry(format!("{shown} did not answer within {limit:?}"))))
    }

    async fn connect(&self) -> Result<Box<dyn Stream>, Fail> {
        let broken = |error: std::io::Error| Fail::retry(format!("could not connect to {}: {error}", self.shown));
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(broken)?;
        match &self.tls {
            None => Ok(Box::new(stream)),
            Some(tls) => {
                let stream = tls.connector.connect(tls.name.clone(), stream).await;
                Ok(Box::new(stream.map_err(broken)?))
            }
        }
    }

    async fn exchange(&self, stream: Box<dyn Stream>, call: &Call, bounds: &Bounds) -> Result<Box<RawValue>, Fail> {
        let broke = |error: hyper::Error| {
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            let source = source.unwrap_or_default();
            Fail::retry(format!("the connection to {} broke: {error}{source}", self.shown))
        };
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
        let _connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let answer = sender.send_request(self.request(call)).await.map_err(broke)?;
        let (status, headers) = (answer.status(), answer.headers().clone());
        let mut body = Head::new(bounds.output_bytes_max);
        let read = read(answer, &mut body).await;
        if status.is_success() {
            // Half an answer is not an answer: the missing part may be the important one.
            read.map_err(broke)?;
        }
        self.judge(status, &headers, &body, call)
    }

    fn request(&self, call: &Call) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(Bytes::from(call.payload.clone())));
        *request.method_mut() = hyper::Method::POST;
        *request.uri_mut() = self.path.clone();
        let headers = request.headers_mut();
        headers.insert(header::HOST, self.host_header.clone());
        let agent = concat!("rowlock/", env!("CARGO_PKG_VERSION"));
        headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let facts = call.facts().map(|(name, value)| (header_name(name), value));
        let trace = call
            .trace()
            .map(|(name, value)| (name.to_owned(), value.map(str::to_owned)));
        let facts = facts.into_iter().map(|(name, value)| (name, Some(value)));
        let key = ("idempotency-key".to_owned(), Some(call.key.clone()));
        for (name, value) in facts.chain(trace).chain([key]) {
            // Our names and numbers fit into headers. If a trace does not, leave it out instead of failing the call.
            let name = HeaderName::from_bytes(name.as_bytes()).ok();
            let value = value.and_then(|value| HeaderValue::from_str(&value).ok());
            if let (Some(name), Some(value)) = (name, value) {
                headers.insert(name, value);
            }
        }
        request
    }

    fn judge(&self, status: StatusCode, headers: &HeaderMap, body: &Head, call: &Call) -> Result<Box<RawValue>, Fail> {
        if status.is_success() {
            return Ok(body.result());
        }
        let said = short(&body.text(), REASON_CHARS_MAX);
        let colon = if said.is_empty() { "" } else { ": " };
        let reason = match status.is_redirection() {
            true => format!(
                "{} answered {status}; redirects are not followed, use the new URL",
                self.shown
            ),
            false => format!("{} answered {status}{colon}{said}", self.shown),
        };
        let asked = headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok());
        let again = match asked.and_then(|asked| retry_after(asked, Timestamp::now())) {
            _ if is_refusal(status) => Fail::retire(reason),
            Some(delay) if call.given_back < GIVEN_BACK_MAX => Fail::defer(delay).because(reason),
            Some(delay) => Fail::retry_after(delay, reason),
            None => Fail::retry(reason),
        };
        Err(if did_not_happen(status) {
            again.not_done()
        } else {
            again
        })
    }
}

/// Another call would be answered in the same way.
fn is_refusal(status: StatusCode) -> bool {
    status.is_client_error() && !matches!(status.as_u16(), 408 | 409 | 425 | 429)
}

/// The server says that it has done nothing about it.
fn did_not_happen(status: StatusCode) -> bool {
    is_refusal(status) || matches!(status.as_u16(), 425 | 429)
}

/// Seconds or a date, as the header may hold. Bounded above; `None` if it is too short to be a pause.
fn retry_after(asked: &str, now: Timestamp) -> Option<Duration> {
    let asked = asked.trim();
    let delay = match asked.parse::<u64>() {
        Ok(seconds) => Duration::from_secs(seconds),
        Err(_) => {
            let at = jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(asked).ok()?;
            Duration::try_from(at.duration_since(now)).unwrap_or_default()
        }
    };
    (delay >= RETRY_AFTER_MIN).then(|| delay.min(RETRY_AFTER_MAX))
}

/// `JOB_ID` as `rowlock-job-id`.
fn header_name(fact: &str) -> String {
    format!("rowlock-{}", fact.to_ascii_lowercase().replace('_', "-"))
}

/// Stops at the limit; the connection is closed after it anyway.
async fn read(answer: Response<Incoming>, into: &mut Head) -> Result<(), hyper::Error> {
    let mut body = answer.into_body();
    while let Some(frame) = body.frame().await {
        if frame?.data_ref().is_some_and(|data| !into.push(data)) {
            break;
        }
    }
    Ok(())
}

/// Trusts what this machine trusts.
fn connector() -> Result<TlsConnector> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        return Err(Advice::error(
            "no trusted certificates on this machine, so https servers cannot be called",
            "install the certificates (Debian: ca-certificates), or set SSL_CERT_FILE to a file of them",
        ));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(url: &str) -> String {
        Server::new(url).unwrap_err().to_string()
    }

    #[test]
    fn an_address_is_read_or_refused_with_the_reason() {
        let server = Server::new("http://127.0.0.1:8080/a/b?token=secret").unwrap();
        assert_eq!(server.shown, "http://127.0.0.1:8080/a/b");
        assert_eq!((server.host.as_str(), server.port), ("127.0.0.1", 8080));
        assert_eq!(server.path, "/a/b?token=secret");
        let server = Server::new("http://[::1]").unwrap();
        assert_eq!(
            (server.host.as_str(), server.port, server.path.path()),
            ("::1", 80, "/")
        );
        assert!(problem("ftp://h/").contains("does not start with http:// or https://"));
        assert!(problem("127.0.0.1:8080").contains("does not start with http:// or https://"));
        assert!(problem("http://me:pw@h/").contains("contains a user or password"));
        assert!(problem("http://h /").contains("cannot be parsed"));
        assert!(problem("/path").contains("does not start with http:// or https://"));
    }

    #[test]
    fn only_a_refusal_retires_and_only_an_answer_says_that_nothing_was_done() {
        let status = |code| StatusCode::from_u16(code).unwrap();
        for code in [400, 401, 403, 404, 410, 413, 422] {
            assert!(is_refusal(status(code)) && did_not_happen(status(code)), "{code}");
        }
        for code in [425, 429] {
            assert!(!is_refusal(status(code)) && did_not_happen(status(code)), "{code}");
        }
        for code in [301, 303, 408, 409, 500, 502, 503, 504] {
            assert!(!is_refusal(status(code)) && !did_not_happen(status(code)), "{code}");
        }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date_from_a_second_to_an_hour() {
        let now: Timestamp = "2026-01-01T12:00:00Z".parse().unwrap();
        let delay = |asked| retry_after(asked, now);
        assert_eq!(delay("7"), Some(Duration::from_secs(7)));
        assert_eq!(delay(" 7 "), Some(Duration::from_secs(7)));
        assert_eq!(delay("99999999"), Some(RETRY_AFTER_MAX));
        assert_eq!(delay("Thu, 01 Jan 2026 12:00:30 GMT"), Some(Duration::from_secs(30)));
        assert_eq!(delay("1"), Some(RETRY_AFTER_MIN));
        assert_eq!(delay("0"), None);
        assert_eq!(delay("Thu, 01 Jan 2026 11:00:00 GMT"), None, "it is past");
        assert_eq!(delay("Fri, 02 Jan 2026 12:00:00 GMT"), Some(RETRY_AFTER_MAX));
        assert_eq!(delay("soon"), None);
        assert_eq!(delay("-1"), None);
    }

    #[test]
    fn headers_are_named_after_the_variables() {
        assert_eq!(header_name("JOB_ID"), "rowlock-job-id");
        assert_eq!(header_name("ATTEMPTS_MAX"), "rowlock-attempts-max");
    }
}
