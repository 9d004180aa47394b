//! What the network between clients and server is like for the time being, and how each direction of a connection
//! suffers from it.

use std::{
    collections::HashMap,
    future::pending,
    io,
    time::{Duration, Instant},
};

use fastrand::Rng;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt},
    sync::watch,
};

use super::{
    frames::{BUFFER, Piece},
    link::Link,
    log::Kind,
};

/// One of the two directions of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    Up,
    /// From the server to the client.
    Down,
}

/// What a network suffers from for a while.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trouble {
    /// Every frame comes so much later, and up to `jitter` more, in order.
    Latency {
        /// At least.
        base: Duration,
        /// At most so much more.
        jitter: Duration,
    },
    /// Nothing gets through in this direction, not even an end, and every connection stays open. When it is over, what
    /// was sent meanwhile arrives: a network that comes back repeats what it owes.
    Blackhole(Way),
    /// Every byte is written by itself.
    OneByte,
    /// New connections are reset as soon as they are accepted; those that are open stay.
    Refuse,
}

impl Trouble {
    /// Whether one takes the other's place.
    fn is_like(self, other: Trouble) -> bool {
        match (self, other) {
            (Trouble::Blackhole(way), Trouble::Blackhole(other)) => way == other,
            _ => std::mem::discriminant(&self) == std::mem::discriminant(&other),
        }
    }
}

/// A trouble that has begun.
#[derive(Clone, Copy, Debug)]
struct Spell {
    /// Counted from one.
    no: u64,
    trouble: Trouble,
    until: Option<Instant>,
}

/// All troubles of the moment.
#[derive(Clone, Debug, Default)]
pub struct Net {
    begun: u64,
    spells: Vec<Spell>,
    /// How often all connections were reset.
    pub resets: u64,
    /// How often everything was made calm.
    pub calms: u64,
}

impl Net {
    /// A trouble begins, for so long or until it is calm.
    pub fn begin(&mut self, trouble: Trouble, lasts: Option<Duration>) {
        self.begun += 1;
        let (no, until) = (self.begun, lasts.map(|lasts| after(Instant::now(), lasts)));
        self.spells.retain(|spell| !spell.trouble.is_like(trouble));
        self.spells.push(Spell { no, trouble, until });
    }

    /// All troubles are over, and so is every delay.
    pub fn calm(&mut self) {
        self.spells.clear();
        self.calms += 1;
    }

    /// Whether new connections are turned away.
    pub fn refuses(&self) -> bool {
        self.find(|trouble| matches!(trouble, Trouble::Refuse)).is_some()
    }

    fn find(&self, which: impl Fn(Trouble) -> bool) -> Option<Spell> {
        let found = self.spells.iter().find(|spell| which(spell.trouble)).copied()?;
        found.until.is_none_or(|until| Instant::now() < until).then_some(found)
    }
}

/// One direction of a connection.
pub struct Path<'a> {
    link: &'a Link,
    way: Way,
    net: watch::Receiver<Net>,
    /// No frame overtakes the one before.
    due: Instant,
    rng: Rng,
    /// What goes on in one write with what follows.
    out: Vec<u8>,
    /// Which troubles have been logged.
    told: HashMap<Kind, u64>,
}

impl<'a> Path<'a> {
    /// As healthy as the network is.
    pub fn new(link: &'a Link, way: Way) -> Path<'a> {
        Path {
            link,
            way,
            net: link.net(),
            due: Instant::now(),
            rng: Rng::with_seed(link.seed() ^ (2 * link.no + u64::from(way == Way::Up))),
            out: Vec::new(),
            told: HashMap::new(),
        }
    }

    fn tell(&mut self, kind: Kind, no: u64) {
        if self.told.insert(kind, no) != Some(no) {
            self.link.tell(kind);
        }
    }

    /// Waits while nothing gets through.
    pub async fn hold(&mut self) {
        let hole = Trouble::Blackhole(self.way);
        let kind = match self.way {
            Way::Up => Kind::HoleUp,
            Way::Down => Kind::HoleDown,
        };
        loop {
            let spell = self.net.borrow_and_update().find(|trouble| trouble == hole);
            let Some(spell) = spell else { return };
            self.tell(kind, spell.no);
            let over = async {
                match spell.until {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = over => {}
                // Never an error: the connection itself keeps the other end.
                _ = self.net.changed() => {}
            }
        }
    }

    /// What a frame that arrived then goes through before it is passed on.
    pub async fn travel(&mut self, arrived: Instant) {
        self.hold().await;
        let slow = self
            .net
            .borrow()
            .find(|trouble| matches!(trouble, Trouble::Latency { .. }));
        let Some(Spell {
            no,
            trouble: Trouble::Latency { base, jitter },
            ..
        }) = slow
        else {
            return;
        };
        self.tell(Kind::Latency, no);
        let late = base.saturating_add(jitter.mul_f64(self.rng.f64()));
        self.due = self.due.max(after(arrived, late));
        self.rest_until(self.due).await;
        self.hold().await;
    }

    /// Waits so long, or until everything is calm, and while nothing gets through.
    pub async fn late(&mut self, time: Duration) {
        self.rest_until(after(Instant::now(), time)).await;
        self.hold().await;
    }

    async fn rest_until(&mut self, at: Instant) {
        let calms = self.net.borrow().calms;
        tokio::select! {
            () = tokio::time::sleep_until(at.into()) => {}
            _ = self.net.wait_for(|net| net.calms != calms) => {}
        }
    }

    /// Passes a piece on, together with what follows immediately.
    ///
    /// # Errors
    /// The receiver's.
    pub async fn pass(&mut self, to: &mut (impl AsyncWrite + Unpin), piece: &Piece<'_>) -> io::Result<()> {
        self.out.extend_from_slice(piece.bytes);
        if piece.more && self.out.len() < BUFFER {
            return Ok(());
        }
        self.flush(to).await
    }

    /// Passes bytes on, with what was to go together with them.
    ///
    /// # Errors
    /// The receiver's.
    pub async fn write(&mut self, to: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> io::Result<()> {
        self.out.extend_from_slice(bytes);
        self.flush(to).await
    }

    /// Passes on what was to go together with more.
    ///
    /// # Errors
    /// The receiver's.
    pub async fn flush(&mut self, to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
        let bytes = std::mem::take(&mut self.out);
        let one_byte = self.net.borrow().find(|trouble| trouble == Trouble::OneByte);
        let Some(spell) = one_byte else {
            return to.write_all(&bytes).await;
        };
        self.tell(Kind::OneByte, spell.no);
        for byte in &bytes {
            to.write_all(std::slice::from_ref(byte)).await?;
        }
        Ok(())
    }
}

/// A century at most, which every clock has left.
fn after(at: Instant, time: Duration) -> Instant {
    at + time.min(Duration::from_secs(100 * 365 * 24 * 3600))
}
