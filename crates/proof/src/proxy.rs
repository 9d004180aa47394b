//! A network that fails on purpose: a proxy before one PostgreSQL that knows where a COMMIT is.
//!
//! What a worker must survive is not a dead server but an answer that does not come. So the proxy reads PostgreSQL's
//! frames in both directions, finds every COMMIT in whatever way it travels, and cuts the connection at that very
//! place: before the server gets it, after that, inside the reply. Beside that there is what any network does: it is
//! slow, holds everything back in one direction, resets, refuses. Each fault happens when it is asked for, or as a seed
//! draws it, and each one that happened is in the log, with what the server said of the COMMIT.

mod client;
mod frames;
mod link;
mod log;
mod net;
mod plan;
mod reply;
mod startup;
mod text;

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

pub use self::{
    client::Carrier,
    log::{Commit, CommitCuts, Event, Kind},
    net::{Trouble, Way},
    plan::CommitCut,
};
use self::{log::Log, net::Net, plan::Desk};

/// A proxy on its own port. When it is dropped, every connection through it is cut and every task of it ends.
///
/// An order applies from then on, to open connections and to new ones. Any number of proxies can run in one process.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    accepting: JoinHandle<()>,
    links: TaskTracker,
}

/// What all connections share.
struct Shared {
    upstream: SocketAddr,
    /// Decides everything that is drawn.
    seed: u64,
    net: watch::Sender<Net>,
    desk: Mutex<Desk>,
    log: Log,
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Listens on a free port of this machine. The seed decides what is drawn by chance.
    ///
    /// # Errors
    /// There is no free port.
    pub async fn start(upstream: SocketAddr, seed: u64) -> Result<Proxy> {
        let listener = TcpListener::bind(("127.0.0.1", 0))
            .await
            .context("no free port for the proxy")?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            upstream,
            seed,
            net: watch::Sender::new(Net::default()),
            desk: Mutex::new(Desk::new(seed)),
            log: Log::default(),
        });
        let (stop, links) = (CancellationToken::new(), TaskTracker::new());
        let accepting = tokio::spawn(accept(listener, shared.clone(), stop.clone(), links.clone()));
        Ok(Proxy {
            address,
            shared,
            stop,
            accepting,
            links,
        })
    }

    /// The same before the server of a database's URL.
    ///
    /// # Errors
    /// The URL names no server, or there is no free port.
    pub async fn before(url: &str, seed: u64) -> Result<Proxy> {
        let (_, server, _) = parts(url)?;
        let upstream = tokio::net::lookup_host(server)
            .await
            .with_context(|| format!("no such server: {server}"))?
            .next()
            .with_context(|| format!("no address of {server}"))?;
        Proxy::start(upstream, seed).await
    }

    /// The URL of the same database through the proxy.
    ///
    /// # Errors
    /// The URL names no server.
    pub fn url(&self, url: &str) -> Result<String> {
        let (before, _, behind) = parts(url)?;
        Ok(format!("{before}{}{behind}", self.address))
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The next `n` COMMITs meet this: those of connections with this application name, or of all. Several calls queue
    /// up.
    pub fn cut_commits(&self, of: Option<&str>, cut: CommitCut, n: usize) {
        self.shared.desk().arm(of, cut, n);
    }

    /// From now on each COMMIT, of connections with this application name or of all, meets one of these with the
    /// probability beside it, or none. In place of what was said before; none of them ends it.
    pub fn cut_rates(&self, of: Option<&str>, rates: &[(CommitCut, f64)]) {
        self.shared.desk().draw(of, rates);
    }

    /// A trouble begins, beside those that there are, and in place of one of its kind. It lasts until the network is
    /// calm.
    pub fn begin(&self, trouble: Trouble) {
        self.shared.net.send_modify(|net| net.begin(trouble, None));
    }

    /// The same, for so long.
    pub fn begin_for(&self, trouble: Trouble, lasts: Duration) {
        self.shared.net.send_modify(|net| net.begin(trouble, Some(lasts)));
    }

    /// Resets every connection that is open, on both sides.
    pub fn reset(&self) {
        self.shared.net.send_modify(|net| net.resets += 1);
    }

    /// Everything is well again: no rates, no cut to come, no trouble, and whatever was kept back arrives immediately.
    pub fn calm(&self) {
        self.shared.desk().clear();
        self.shared.net.send_modify(Net::calm);
    }

    /// What happened, oldest first.
    pub fn events(&self) -> Vec<Event> {
        self.events_from(0)
    }

    /// The same without the first so many. What is known of a COMMIT may still change in those that were read before.
    pub fn events_from(&self, first: usize) -> Vec<Event> {
        self.shared.log.from(first)
    }

    /// How often each kind of fault happened.
    pub fn counts(&self) -> BTreeMap<Kind, usize> {
        self.shared.log.counts()
    }

    /// The COMMITs whose client was cut off, of connections with this application name or of all, by what became of
    /// them.
    pub fn commit_cuts(&self, of: Option<&str>) -> CommitCuts {
        self.shared.log.commit_cuts(of)
    }

    /// Connections that are open, with those whose client is gone and whose server has still to answer.
    pub fn open(&self) -> usize {
        self.links.len()
    }

    /// Cuts every connection, and waits until all of them are gone.
    pub async fn stop(mut self) {
        self.stop.cancel();
        // It ends with the stop and has nothing to say.
        let _ = (&mut self.accepting).await;
        self.links.close();
        self.links.wait().await;
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken, links: TaskTracker) {
    for no in 1.. {
        let client = tokio::select! {
            () = stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((client, _)) => client,
                Err(error) => {
                    tracing::warn!(%error, "a client could not be accepted");
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    continue;
                }
            },
        };
        if shared.net.borrow().refuses() {
            shared.log.add(no, "", Kind::Refused, None);
            // Without it the client would see an end, as from a server that is there and has nothing to say.
            let _ = client.set_zero_linger();
            continue;
        }
        let (shared, stop) = (shared.clone(), stop.clone());
        links.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                served = link::serve(shared, no, client) => {
                    if let Err(error) = served {
                        tracing::debug!(conn = no, %error, "a connection broke");
                    }
                }
            }
        });
    }
}

/// A URL in three parts: the text before the server's address, the address, and the rest.
fn parts(url: &str) -> Result<(&str, &str, &str)> {
    let from = url.find("://").context("a url has a scheme")? + 3;
    let to = url[from..].find(['/', '?']).map_or(url.len(), |at| from + at);
    let from = url[from..to].rfind('@').map_or(from, |at| from + at + 1);
    Ok((&url[..from], &url[from..to], &url[to..]))
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::{
        client::Client,
        frames::Frames,
        reply::{Step, Talk},
        *,
    };

    #[test]
    fn a_url_keeps_all_but_its_server() {
        for (url, wanted) in [
            ("postgres://h:1/d", ("postgres://", "h:1", "/d")),
            (
                "postgres://u:p%40@h:1/d?a=b@c",
                ("postgres://u:p%40@", "h:1", "/d?a=b@c"),
            ),
            ("postgres://u@127.0.0.1:5432", ("postgres://u@", "127.0.0.1:5432", "")),
            ("postgres://h:1?a=/", ("postgres://", "h:1", "?a=/")),
        ] {
            assert_eq!(parts(url).unwrap(), wanted);
        }
        assert!(parts("sqlite").is_err());
    }

    /// Bytes of letters and lengths that frames have, and some that they have not, with texts that look like SQL.
    fn odd(rng: &mut Rng) -> Vec<u8> {
        let scraps: [&[u8]; 12] = [
            b"commit",
            b"; ",
            b"'",
            b"$$",
            b"$a",
            b"/*",
            b"*/",
            b"--",
            b"\"",
            b"e'\\",
            b"\0",
            b"begin atomic (",
        ];
        let mut bytes = Vec::new();
        while bytes.len() < 2000 {
            bytes.push(*rng.choice(b"QPBESCFXZEIsNdcT\xff").unwrap());
            let length: u32 = *rng.choice(&[4, 5, 9, 30, 200, u32::MAX]).unwrap();
            bytes.extend(length.to_be_bytes());
            for _ in 0..rng.usize(..8) {
                bytes.extend(*rng.choice(&scraps).unwrap());
                bytes.push(rng.u8(..));
            }
        }
        bytes
    }

    #[tokio::test]
    async fn odd_bytes_are_passed_on_or_end_their_connection_and_nothing_more() {
        let mut passed = 0;
        for seed in 0..2000 {
            let mut rng = Rng::with_seed(seed);
            let (asked, answered) = (odd(&mut rng), odd(&mut rng));
            let (mut ours, mut theirs) = (&asked[..], &answered[..]);
            let (mut up, mut down) = (Frames::default(), Frames::default());
            let (mut client, mut talk) = (Client::default(), Talk::default());
            while let Ok(Some(piece)) = up.next(&mut ours).await {
                let asked = client.asks(&piece);
                talk.asks(&piece, asked, Some(CommitCut::MidFrame));
                passed += piece.bytes.len();
            }
            while let Ok(Some(piece)) = down.next(&mut theirs).await {
                let (step, _) = talk.hears(&piece);
                let cut = if let Step::Cut(size, _) = step { size } else { 0 };
                assert!(cut <= piece.bytes.len());
                passed += piece.bytes.len();
            }
            talk.never();
        }
        assert!(passed > 100_000, "{passed} bytes were frames");
    }
}
