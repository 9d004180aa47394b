//! What happens to the network between workers and server, commit by commit and as a whole.

use std::time::Duration;

use anyhow::Result;

use super::Deck;
use crate::{
    chaos::ground::Ground,
    proxy::{CommitCut, Kind, Proxy, Trouble, Way},
};

#[derive(Clone, Copy)]
enum Card {
    Latency,
    HoleUp,
    HoleDown,
    OneByte,
    Refuse,
    Reset,
}

/// As the tables name it.
pub fn name(kind: Kind) -> &'static str {
    match kind {
        Kind::BeforeSent => "commit cut before it is sent",
        Kind::AfterSent => "commit cut when it is sent",
        Kind::Unanswered => "commit cut before its reply",
        Kind::Late => "commit delivered late, its client gone",
        Kind::AfterComplete => "commit cut after its tag",
        Kind::BeforeReady => "commit cut before the end of its reply",
        Kind::MidFrame => "commit cut inside its reply",
        Kind::DelayedReply => "commit answered past the lease",
        Kind::Latency => "latency and jitter",
        Kind::HoleUp => "nothing reaches the server",
        Kind::HoleDown => "nothing reaches the client",
        Kind::OneByte => "one byte at a time",
        Kind::Reset => "reset",
        Kind::Refused => "connection refused",
    }
}

/// The kinds that this series deals.
pub fn kinds() -> Vec<&'static str> {
    Kind::ALL.iter().map(|kind| name(*kind)).collect()
}

/// Cuts commits all the time, and lets the networks suffer one trouble after the other. Holes last at most so many
/// leases.
///
/// # Errors
/// None for now.
pub async fn lane(ground: &Ground, seed: u64, gap: Duration, share: f64, longest: f64) -> Result<()> {
    let mut random = fastrand::Rng::with_seed(seed);
    let past = ground.lease.mul_f64(1.3);
    let rates = [
        (CommitCut::BeforeSent, share),
        (CommitCut::AfterSent, share),
        (CommitCut::Unanswered, share),
        (CommitCut::Late(ground.lease.mul_f64(0.4)), share / 2.0),
        (CommitCut::AfterComplete, share),
        (CommitCut::BeforeReady, share),
        (CommitCut::MidFrame, share),
        (CommitCut::DelayedReply(past), share / 2.0),
    ];
    for proxy in ground.proxies() {
        proxy.cut_rates(None, &rates);
    }
    let mut deck = Deck::new(&[
        (Card::Latency, 2),
        (Card::HoleUp, 2),
        (Card::HoleDown, 2),
        (Card::OneByte, 1),
        (Card::Refuse, 1),
        (Card::Reset, 2),
    ]);
    while ground.pause(gap.mul_f64(0.5 + random.f64())).await {
        let proxies = ground.proxies();
        let proxy = &proxies[random.usize(..proxies.len())];
        let lasts = Duration::from_millis(random.u64(300..1_500));
        // Some holes are shorter than a lease, the others longer.
        let hole = ground.lease.mul_f64(0.3 + (longest - 0.3) * random.f64());
        match deck.deal(&mut random) {
            Some(Card::Latency) => {
                let (base, jitter) = (
                    Duration::from_millis(random.u64(1..20)),
                    Duration::from_millis(random.u64(1..40)),
                );
                trouble(ground, proxy, Kind::Latency, Trouble::Latency { base, jitter }, lasts);
            }
            Some(Card::HoleUp) => trouble(ground, proxy, Kind::HoleUp, Trouble::Blackhole(Way::Up), hole),
            Some(Card::HoleDown) => trouble(ground, proxy, Kind::HoleDown, Trouble::Blackhole(Way::Down), hole),
            Some(Card::OneByte) => trouble(ground, proxy, Kind::OneByte, Trouble::OneByte, lasts),
            Some(Card::Refuse) => {
                trouble(ground, proxy, Kind::Refused, Trouble::Refuse, lasts);
                // Somebody must come to be refused.
                proxy.reset();
            }
            Some(Card::Reset) => {
                ground.count(name(Kind::Reset), 1);
                proxy.reset();
            }
            None => break,
        }
    }
    for proxy in ground.proxies() {
        proxy.calm();
    }
    Ok(())
}

/// Counted once, however many connections it touches.
fn trouble(ground: &Ground, proxy: &Proxy, kind: Kind, trouble: Trouble, lasts: Duration) {
    ground.count(name(kind), 1);
    proxy.begin_for(trouble, lasts);
}
