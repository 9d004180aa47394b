//! What the proxy did to whom. The suites compare it with what the workers say and with what the database has.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::Timestamp;

use super::client::Carrier;

/// The kinds of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The client was cut before its COMMIT was sent, and so was the server.
    BeforeSent,
    /// The client was cut as soon as its COMMIT had been sent.
    AfterSent,
    /// The client was cut when the server had answered its COMMIT, before any of that.
    Unanswered,
    /// The client was cut before its COMMIT was sent, which then reached the server all the same.
    Late,
    /// The client was cut behind the reply's word on the COMMIT.
    AfterComplete,
    /// The client was cut when only the end of the reply was missing.
    BeforeReady,
    /// The client was cut in the middle of the frame with the reply's word on the COMMIT.
    MidFrame,
    /// The reply to a COMMIT was delayed.
    DelayedReply,
    /// What one side of a connection sent came late.
    Latency,
    /// What a client sent was kept back.
    HoleUp,
    /// What the server sent was kept back.
    HoleDown,
    /// What one side of a connection sent came byte by byte.
    OneByte,
    /// A connection was reset on both sides.
    Reset,
    /// A new connection was turned away.
    Refused,
}

impl Kind {
    /// Every kind there is.
    pub const ALL: [Kind; 14] = [
        Kind::BeforeSent,
        Kind::AfterSent,
        Kind::Unanswered,
        Kind::Late,
        Kind::AfterComplete,
        Kind::BeforeReady,
        Kind::MidFrame,
        Kind::DelayedReply,
        Kind::Latency,
        Kind::HoleUp,
        Kind::HoleDown,
        Kind::OneByte,
        Kind::Reset,
        Kind::Refused,
    ];

    /// Whether it happened to one COMMIT, not to all that passes.
    pub fn is_of_a_commit(self) -> bool {
        self.cuts() && !matches!(self, Kind::Reset | Kind::Refused) || self == Kind::DelayedReply
    }

    /// Whether the client lost its connection by it.
    pub fn cuts(self) -> bool {
        !matches!(
            self,
            Kind::DelayedReply | Kind::Latency | Kind::HoleUp | Kind::HoleDown | Kind::OneByte
        )
    }
}

/// A COMMIT that a fault met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit {
    /// How it travelled.
    pub carrier: Carrier,
    /// Whether it was sent to the server.
    pub sent: bool,
    /// What became of it, by the server's own word, or because it was never sent and never will be. None while that is
    /// not known; it stays so if the server's word was not heard.
    pub committed: Option<bool>,
}

/// One fault that happened to one connection. A lasting fault is logged once per connection and direction.
#[derive(Clone, Debug)]
pub struct Event {
    /// When, by this machine's clock.
    pub at: Timestamp,
    /// The connection, counted from one.
    pub conn: u64,
    /// The application name that it gave.
    pub name: String,
    /// What happened.
    pub kind: Kind,
    /// The COMMIT that was under way.
    pub commit: Option<Commit>,
}

/// COMMITs whose client was cut off, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitCuts {
    /// The server said that it committed.
    pub committed: usize,
    /// It never gets the COMMIT, or said that it did not commit.
    pub not_committed: usize,
    /// It has not answered yet or its word was not heard; only the database knows.
    pub unknown: usize,
}

/// The list of all that happened.
#[derive(Debug, Default)]
pub struct Log(Mutex<Vec<Event>>);

impl Log {
    fn events(&self) -> MutexGuard<'_, Vec<Event>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one; its place is for [`Log::learn`].
    pub fn add(&self, conn: u64, name: &str, kind: Kind, commit: Option<Commit>) -> usize {
        let mut events = self.events();
        events.push(Event {
            at: Timestamp::now(),
            conn,
            name: name.to_owned(),
            kind,
            commit,
        });
        tracing::debug!(conn, name, ?kind, ?commit, "fault");
        events.len() - 1
    }

    /// More has become known of the COMMIT of these faults.
    pub fn learn(&self, places: &[usize], more: Commit) {
        let mut events = self.events();
        for place in places {
            if let Some(event) = events.get_mut(*place) {
                event.commit = Some(more);
            }
        }
    }

    /// A copy of all but the first so many, oldest first.
    pub fn from(&self, first: usize) -> Vec<Event> {
        self.events().get(first..).unwrap_or_default().to_vec()
    }

    /// How many of each kind.
    pub fn counts(&self) -> BTreeMap<Kind, usize> {
        let mut counts = BTreeMap::new();
        for event in self.events().iter() {
            *counts.entry(event.kind).or_default() += 1;
        }
        counts
    }

    /// The cut COMMITs of connections with this name, or of all.
    pub fn commit_cuts(&self, of: Option<&str>) -> CommitCuts {
        let mut cuts = CommitCuts::default();
        let events = self.events();
        let ours = events
            .iter()
            .filter(|e| e.kind.cuts() && of.is_none_or(|of| of == e.name));
        for commit in ours.filter_map(|event| event.commit) {
            match commit.committed {
                Some(true) => cuts.committed += 1,
                Some(false) => cuts.not_committed += 1,
                None => cuts.unknown += 1,
            }
        }
        cuts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_commits_are_told_apart_by_what_became_of_them() {
        let commit = |sent, committed| {
            Some(Commit {
                carrier: Carrier::Alone,
                sent,
                committed,
            })
        };
        let log = Log::default();
        log.add(1, "a", Kind::BeforeSent, commit(false, Some(false)));
        let place = log.add(2, "a", Kind::AfterSent, commit(true, None));
        log.add(3, "b", Kind::MidFrame, commit(true, Some(true)));
        log.add(4, "a", Kind::AfterComplete, commit(true, Some(false)));
        log.add(5, "a", Kind::DelayedReply, commit(true, Some(true)));
        log.add(6, "a", Kind::Reset, None);
        let cuts = |committed, not_committed, unknown| CommitCuts {
            committed,
            not_committed,
            unknown,
        };
        assert_eq!(log.commit_cuts(None), cuts(1, 2, 1));
        log.learn(&[place], commit(true, Some(true)).unwrap());
        assert_eq!(log.commit_cuts(None), cuts(2, 2, 0));
        assert_eq!(log.commit_cuts(Some("b")), cuts(1, 0, 0));
        assert_eq!(log.counts()[&Kind::Reset], 1);
        assert_eq!(log.from(0).len(), 6);
        assert_eq!(log.from(5)[0].kind, Kind::Reset);
        assert_eq!(log.from(7).len(), 0);
    }
}
