//! What happens to each COMMIT: as it was asked for, or as the seed draws it.
//!
//! A seed decides the order of the draws. Which connection meets which of them is the scheduler's doing; the log says
//! what happened in the end.

use std::{collections::VecDeque, time::Duration};

use fastrand::Rng;

/// What can happen to a COMMIT and its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CommitCut {
    /// Cuts client and server before the COMMIT is sent on. It never commits.
    BeforeSent,
    /// Sends it on and cuts the client immediately. The server does not know, and commits while the client asks.
    AfterSent,
    /// Sends it on and cuts the client when the server has answered. Nothing of the reply is delivered.
    Unanswered,
    /// Cuts the client, and sends the COMMIT on after so long: as a network does that has it on the way still.
    Late(Duration),
    /// Cuts behind the reply's `COMMIT`.
    AfterComplete,
    /// Cuts when all of the reply is delivered but its end, ReadyForQuery.
    BeforeReady,
    /// Cuts in the middle of the frame that says `COMMIT`.
    MidFrame,
    /// Keeps the reply back for so long, and cuts nothing.
    DelayedReply(Duration),
}

/// Decides what happens to each COMMIT.
#[derive(Debug)]
pub struct Desk {
    rng: Rng,
    armed: VecDeque<Armed>,
    rates: Rates,
}

#[derive(Debug)]
struct Armed {
    of: Option<String>,
    cut: CommitCut,
    left: usize,
}

#[derive(Debug, Default)]
struct Rates {
    of: Option<String>,
    cuts: Vec<(CommitCut, f64)>,
}

impl Desk {
    /// Lets every COMMIT through.
    pub fn new(seed: u64) -> Desk {
        Desk {
            rng: Rng::with_seed(seed),
            armed: VecDeque::new(),
            rates: Rates::default(),
        }
    }

    /// The next so many COMMITs, of connections with this name or of all, meet this.
    pub fn arm(&mut self, of: Option<&str>, cut: CommitCut, left: usize) {
        let of = of.map(str::to_owned);
        self.armed.push_back(Armed { of, cut, left });
    }

    /// From now on COMMITs, of connections with this name or of all, meet each of these with its probability.
    pub fn draw(&mut self, of: Option<&str>, cuts: &[(CommitCut, f64)]) {
        self.rates = Rates {
            of: of.map(str::to_owned),
            cuts: cuts.to_vec(),
        };
    }

    /// Nothing happens to any of them.
    pub fn clear(&mut self) {
        self.armed.clear();
        self.rates = Rates::default();
    }

    /// What happens to the COMMIT of a connection with this name. What was asked for comes first.
    pub fn next(&mut self, name: &str) -> Option<CommitCut> {
        let meets = |of: &Option<String>| of.as_ref().is_none_or(|of| of == name);
        self.armed.retain(|armed| armed.left > 0);
        if let Some(armed) = self.armed.iter_mut().find(|armed| meets(&armed.of)) {
            armed.left -= 1;
            return Some(armed.cut);
        }
        if self.rates.cuts.is_empty() || !meets(&self.rates.of) {
            return None;
        }
        let mut roll = self.rng.f64();
        for (cut, probability) in &self.rates.cuts {
            if roll < *probability {
                return Some(*cut);
            }
            roll -= probability;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATES: [(CommitCut, f64); 2] = [(CommitCut::BeforeSent, 0.1), (CommitCut::AfterSent, 0.05)];

    fn cuts(seed: u64) -> Vec<Option<CommitCut>> {
        let mut desk = Desk::new(seed);
        desk.draw(Some("a"), &RATES);
        (0..2000).map(|_| desk.next("a")).collect()
    }

    #[test]
    fn the_same_seed_draws_the_same_cuts_as_often_as_it_was_told() {
        assert_eq!(cuts(7), cuts(7));
        assert_ne!(cuts(7), cuts(8));
        let count = |cut| cuts(7).iter().filter(|drawn| **drawn == cut).count();
        assert!((150..250).contains(&count(Some(CommitCut::BeforeSent))));
        assert!((60..140).contains(&count(Some(CommitCut::AfterSent))));
    }

    #[test]
    fn what_was_asked_for_comes_first_and_only_as_often_as_it_was() {
        let mut desk = Desk::new(7);
        desk.arm(Some("b"), CommitCut::MidFrame, 1);
        desk.arm(None, CommitCut::BeforeReady, 2);
        assert_eq!(desk.next("a"), Some(CommitCut::BeforeReady));
        assert_eq!(desk.next("b"), Some(CommitCut::MidFrame));
        assert_eq!(desk.next("b"), Some(CommitCut::BeforeReady));
        assert_eq!(desk.next("b"), None);
        desk.draw(Some("a"), &[(CommitCut::BeforeSent, 1.0)]);
        assert_eq!(desk.next("a"), Some(CommitCut::BeforeSent));
        assert_eq!(desk.next("b"), None, "another's COMMITs are left alone");
        desk.arm(None, CommitCut::MidFrame, 1);
        desk.clear();
        assert_eq!(desk.next("a"), None);
    }
}
