//! One connection through the proxy: both directions, and what is done to them.
//!
//! Cut off from its client, the server's side is kept until the server has answered a COMMIT that it got: it knows
//! nothing of the cut, and the log learns what became of the COMMIT. When a client goes away by itself, the server
//! learns it after everything that the client had sent.

use std::{
    future::pending,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::{
    io::AsyncWriteExt,
    net::{
        TcpStream,
        tcp::{ReadHalf, WriteHalf},
    },
    sync::watch,
};

use super::{
    Shared,
    client::{Carrier, Client},
    frames::Frames,
    log::Kind,
    net::{Net, Path, Way},
    plan::CommitCut,
    reply::{Step, Talk},
    startup,
};

/// How long the server's word on a COMMIT is waited for once its client is cut off.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);

/// What a client sends behind the execution of a prepared statement to get an answer.
const SYNC: [u8; 5] = [b'S', 0, 0, 0, 4];

/// One client's connection.
pub struct Link {
    /// Counted from one.
    pub no: u64,
    name: String,
    shared: Arc<Shared>,
    talk: Mutex<Talk>,
}

/// How the two directions came to an end.
enum End {
    /// The server has nothing more to say.
    ServerClosed,
    /// Both are to be cut.
    Cut,
    /// The client is to be cut; the server has the COMMIT.
    Sent(Carrier),
    /// The client is to be cut; the server gets this, the end of its COMMIT, after so long.
    Late(Carrier, Vec<u8>, Duration),
    /// Both are to be reset.
    Reset,
}

/// Serves one client to its end.
///
/// # Errors
/// Those of either socket; nobody needs them but a log.
pub async fn serve(shared: Arc<Shared>, no: u64, mut client: TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let resets = shared.net.borrow().resets;
    let Some(startup) = startup::read(&mut client, shared.upstream).await? else {
        return Ok(());
    };
    let link = Link {
        no,
        name: startup.name,
        shared,
        talk: Mutex::default(),
    };
    let mut path = Path::new(&link, Way::Up);
    path.travel(Instant::now()).await;
    let mut server = match TcpStream::connect(link.shared.upstream).await {
        Ok(server) => server,
        Err(error) => {
            // As near as possible to what the client would have met without a proxy.
            client.set_zero_linger()?;
            return Err(error);
        }
    };
    server.set_nodelay(true)?;
    path.write(&mut server, &startup.packet).await?;
    link.run(client, server, path, resets).await
}

impl Link {
    /// What the network is like, now and when it changes.
    pub fn net(&self) -> watch::Receiver<Net> {
        self.shared.net.subscribe()
    }

    /// What decides everything that is drawn.
    pub fn seed(&self) -> u64 {
        self.shared.seed
    }

    /// Logs a fault, with the COMMIT that is under way.
    pub fn tell(&self, kind: Kind) {
        let mut talk = self.talk();
        let commit = talk.commit().map(|(commit, _)| commit);
        talk.told(self.shared.log.add(self.no, &self.name, kind, commit));
    }

    fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something becomes known of the COMMIT under way, and so to the log.
    fn learn<T>(&self, more: impl FnOnce(&mut Talk) -> T) -> T {
        let mut talk = self.talk();
        let before = talk.commit().map(|(commit, _)| commit);
        let answer = more(&mut talk);
        if let Some((commit, places)) = talk.commit()
            && before != Some(commit)
        {
            self.shared.log.learn(places, commit);
        }
        answer
    }

    async fn run(&self, mut client: TcpStream, mut server: TcpStream, path: Path<'_>, resets: u64) -> io::Result<()> {
        let mut replies = Frames::default();
        let mut net = self.net();
        let end = {
            let ((client_in, client_out), (server_in, server_out)) = (client.split(), server.split());
            tokio::select! {
                biased;
                end = self.up(path, client_in, server_out) => end,
                end = self.down(&mut replies, server_in, client_out) => end,
                _ = net.wait_for(|net| net.resets != resets) => End::Reset,
            }
        };
        match end {
            End::ServerClosed | End::Cut => Ok(()),
            End::Reset => {
                self.tell(Kind::Reset);
                client.set_zero_linger()?;
                server.set_zero_linger()
            }
            End::Sent(carrier) => {
                drop(client);
                self.hear_out(server, replies, carrier).await
            }
            End::Late(carrier, rest, after) => {
                drop(client);
                let mut path = Path::new(self, Way::Up);
                tokio::select! {
                    // It has nothing to say but that it will not wait any longer.
                    heard = self.hear_word(&mut server, &mut replies) => return heard,
                    () = path.late(after) => {}
                }
                server.write_all(&rest).await?;
                self.learn(Talk::sent);
                self.hear_out(server, replies, carrier).await
            }
        }
    }

    async fn up(&self, mut path: Path<'_>, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
        match self.pass_up(&mut path, &mut from, &mut to).await {
            Ok(Some(end)) => return end,
            Ok(None) => {
                path.hold().await;
                // Its answer, or its end, comes the other way.
                let _ = to.shutdown().await;
            }
            // What the server said last is still on its way down.
            Err(_) => {}
        }
        pending().await
    }

    /// None when the client has nothing more to say.
    async fn pass_up(
        &self,
        path: &mut Path<'_>,
        from: &mut ReadHalf<'_>,
        to: &mut WriteHalf<'_>,
    ) -> io::Result<Option<End>> {
        let mut frames = Frames::default();
        let mut client = Client::default();
        // A client that breaks off has nothing more to say either.
        while let Ok(Some(piece)) = frames.next(from).await {
            let asked = client.asks(&piece).filter(|_| self.talk().commit().is_none());
            let cut = asked.and_then(|_| self.shared.desk().next(&self.name));
            self.talk().asks(&piece, asked, cut);
            path.travel(piece.read_at).await;
            let Some(asked) = asked else {
                path.pass(to, &piece).await?;
                continue;
            };
            match cut {
                Some(CommitCut::BeforeSent) => {
                    self.learn(Talk::never);
                    self.tell(Kind::BeforeSent);
                    return Ok(Some(End::Cut));
                }
                Some(CommitCut::Late(after)) => {
                    path.flush(to).await?;
                    self.tell(Kind::Late);
                    return Ok(Some(End::Late(asked.carrier, piece.bytes.to_vec(), after)));
                }
                _ => path.write(to, piece.bytes).await?,
            }
            self.learn(Talk::sent);
            if cut == Some(CommitCut::AfterSent) {
                self.tell(Kind::AfterSent);
                return Ok(Some(End::Sent(asked.carrier)));
            }
        }
        Ok(None)
    }

    async fn down(&self, frames: &mut Frames, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) -> End {
        let mut path = Path::new(self, Way::Down);
        // A client that cannot be written to is gone. The server learns that from the other direction, and is heard
        // out: what became of a COMMIT is wanted all the same.
        let mut gone = false;
        while let Ok(Some(piece)) = frames.next(&mut from).await {
            path.travel(piece.read_at).await;
            let step = self.learn(|talk| talk.hears(&piece).0);
            gone |= match step {
                Step::Keep => continue,
                _ if gone => continue,
                Step::Pass => path.pass(&mut to, &piece).await.is_err(),
                Step::Delay(time) => {
                    let flushed = path.flush(&mut to).await;
                    self.tell(Kind::DelayedReply);
                    path.late(time).await;
                    flushed.is_err() || path.pass(&mut to, &piece).await.is_err()
                }
                Step::Cut(size, kind) => {
                    // Delivered or not, the client is cut off.
                    let _ = path.write(&mut to, &piece.bytes[..size]).await;
                    self.tell(kind);
                    return End::Cut;
                }
            };
        }
        path.hold().await;
        End::ServerClosed
    }

    /// Waits for the server's word on a COMMIT that it got and whose client is cut off.
    async fn hear_out(&self, mut server: TcpStream, mut replies: Frames, carrier: Carrier) -> io::Result<()> {
        if carrier == Carrier::Prepared {
            server.write_all(&SYNC).await?;
        }
        let heard = self.hear_word(&mut server, &mut replies);
        tokio::time::timeout(ANSWER_LIMIT, heard).await.unwrap_or(Ok(()))
    }

    /// Hears the server until its word on the COMMIT under way, or to its end.
    async fn hear_word(&self, server: &mut TcpStream, replies: &mut Frames) -> io::Result<()> {
        while let Some(piece) = replies.next(server).await? {
            if self.learn(|talk| talk.hears(&piece).1) {
                break;
            }
        }
        Ok(())
    }
}

impl Drop for Link {
    /// A COMMIT that was not sent by now never is.
    fn drop(&mut self) {
        self.learn(Talk::never);
    }
}
