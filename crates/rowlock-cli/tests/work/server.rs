//! An HTTP server that answers as ordered, one connection at a time, and keeps what it was asked.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use tokio_rustls::rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    crypto::ring,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// Made for these tests, good until the year 2100; nobody else trusts it, and its key is no secret.
fn tls_file(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests", "work", "tls", name]
        .iter()
        .collect()
}

/// What a client must trust.
pub(crate) fn ca_file() -> PathBuf {
    tls_file("ca.pem")
}

fn tls_config() -> Arc<ServerConfig> {
    let certificate = CertificateDer::from_pem_file(tls_file("server.pem")).unwrap();
    let key = PrivateKeyDer::from_pem_file(tls_file("server.key")).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key);
    Arc::new(config.unwrap())
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) line: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Asked {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }
}

/// What follows a request: these bytes, and the end of the connection.
pub(crate) fn answer(status: &str, headers: &str, body: &str) -> Vec<u8> {
    format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n{body}",
        body.len()
    )
    .into_bytes()
}

pub(crate) struct Server {
    pub(crate) url: String,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// The answer to each request in turn; the last one again and again. An empty one is silence until the client
    /// leaves.
    pub(crate) fn start(answers: Vec<Vec<u8>>) -> Server {
        Server::with("http", answers, |stream| Box::new(stream))
    }

    /// The same behind TLS, with a certificate for 127.0.0.1 that is signed by [`ca_file`].
    pub(crate) fn start_tls(answers: Vec<Vec<u8>>) -> Server {
        let config = tls_config();
        Server::with("https", answers, move |stream| {
            let session = ServerConnection::new(config.clone()).unwrap();
            Box::new(StreamOwned::new(session, stream))
        })
    }

    fn with(
        scheme: &str,
        answers: Vec<Vec<u8>>,
        open: impl Fn(TcpStream) -> Box<dyn Stream> + Send + 'static,
    ) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("{scheme}://{address}");
        let (asked, stop) = (Arc::<Mutex<Vec<Asked>>>::default(), Arc::<AtomicBool>::default());
        let (kept, stopped) = (asked.clone(), stop.clone());
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if stopped.load(Ordering::Relaxed) {
                    return;
                }
                let mut stream = open(stream);
                let Some(request) = read(&mut *stream) else { continue };
                let number = kept.lock().unwrap().len();
                kept.lock().unwrap().push(request);
                reply(&mut *stream, &answers[number.min(answers.len() - 1)]);
            }
        });
        Server {
            url,
            address,
            asked,
            stop,
            thread: Some(thread),
        }
    }

    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Wakes it, to look.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn reply(stream: &mut dyn Stream, bytes: &[u8]) {
    if bytes.is_empty() {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    // A client that has heard enough may leave before the end.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
}

fn read(stream: &mut dyn Stream) -> Option<Asked> {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let length = headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let mut body = vec![0; length?.1.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    Some(Asked {
        line: lines[0].clone(),
        headers,
        body: String::from_utf8(body).ok()?,
    })
}
