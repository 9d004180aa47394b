//! What the server answers, as far as a COMMIT goes: which frames are the reply to it, and what they say became of it.
//!
//! Replies come in the order of the questions and end with ReadyForQuery, so the reply to a COMMIT is the one behind as
//! many of those as were still to come when it was sent. Inside it each statement has one answer, in order, until one
//! is an error.

use std::time::Duration;

use super::{
    client::Asked,
    frames::Piece,
    log::{Commit, Kind},
    plan::CommitCut,
};

/// What is under way on one connection.
#[derive(Debug)]
pub struct Talk {
    /// Replies still to come; the first is the one to the start-up.
    due: u64,
    commit: Option<Underway>,
}

#[derive(Debug)]
struct Underway {
    /// Replies to come before its own.
    ahead: u64,
    /// Statements to be answered before it in its own.
    before: u32,
    commit: Commit,
    cut: Option<CommitCut>,
    /// Where the log tells of its faults.
    told: Vec<usize>,
}

/// What is done with a piece of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// It is passed on.
    Pass,
    /// It is passed on so much later.
    Delay(Duration),
    /// It is not passed on.
    Keep,
    /// The client is cut when it has so many bytes of it.
    Cut(usize, Kind),
}

impl Default for Talk {
    fn default() -> Talk {
        Talk { due: 1, commit: None }
    }
}

impl Talk {
    /// This piece is to be sent to the server. If a COMMIT ends with it, it meets that.
    pub fn asks(&mut self, piece: &Piece<'_>, asked: Option<Asked>, cut: Option<CommitCut>) {
        if let Some(asked) = asked {
            self.commit = Some(Underway {
                ahead: self.due,
                before: asked.before,
                commit: Commit {
                    carrier: asked.carrier,
                    sent: false,
                    committed: None,
                },
                cut,
                told: Vec::new(),
            });
        }
        // Query, Sync and FunctionCall are each answered to the end.
        if piece.last && matches!(piece.tag, b'Q' | b'S' | b'F') {
            self.due += 1;
        }
    }

    /// The COMMIT is on its way to the server, whole.
    pub fn sent(&mut self) {
        if let Some(underway) = &mut self.commit {
            underway.commit.sent = true;
        }
    }

    /// The COMMIT is not sent, if it was not, and never will be.
    pub fn never(&mut self) {
        if let Some(underway) = &mut self.commit
            && !underway.commit.sent
        {
            underway.commit.committed = Some(false);
        }
    }

    /// The COMMIT under way, and where the log tells of it.
    pub fn commit(&self) -> Option<(Commit, &[usize])> {
        let underway = self.commit.as_ref()?;
        Some((underway.commit, &underway.told))
    }

    /// The log tells of the COMMIT under way there.
    pub fn told(&mut self, place: usize) {
        if let Some(underway) = &mut self.commit {
            underway.told.push(place);
        }
    }

    /// Hears what the server says, and tells what to do with it; and whether it was the word on the COMMIT.
    pub fn hears(&mut self, piece: &Piece<'_>) -> (Step, bool) {
        let ready = piece.tag == b'Z' && piece.last;
        self.due = self.due.saturating_sub(u64::from(ready));
        let Some(underway) = &mut self.commit else {
            return (Step::Pass, false);
        };
        if underway.ahead > 0 {
            underway.ahead -= u64::from(ready);
            return (Step::Pass, false);
        }
        // Notices, settings and notifications belong to no reply.
        if matches!(piece.tag, b'N' | b'S' | b'A') {
            return (Step::Pass, false);
        }
        let word = underway.word(piece).filter(|_| underway.commit.committed.is_none());
        underway.commit.committed = underway.commit.committed.or(word);
        let size = piece.bytes.len();
        let step = match underway.cut {
            Some(CommitCut::DelayedReply(time)) => {
                underway.cut = None;
                Step::Delay(time)
            }
            Some(CommitCut::Unanswered) if word.is_some() => Step::Cut(0, Kind::Unanswered),
            Some(CommitCut::Unanswered) => Step::Keep,
            Some(CommitCut::MidFrame) if word.is_some() => Step::Cut(size / 2, Kind::MidFrame),
            Some(CommitCut::AfterComplete) if word.is_some() => Step::Cut(size, Kind::AfterComplete),
            Some(CommitCut::BeforeReady) if ready => Step::Cut(0, Kind::BeforeReady),
            _ => Step::Pass,
        };
        if ready && step == Step::Pass {
            self.commit = None;
        }
        (step, word.is_some())
    }
}

impl Underway {
    /// What a frame of the reply says of the COMMIT, if it does. In a transaction that had failed, it rolls back.
    fn word(&mut self, piece: &Piece<'_>) -> Option<bool> {
        match (piece.tag, piece.body()) {
            (b'C', b"COMMIT\0") => return Some(true),
            // Before the COMMIT it is the answer to one, back to a savepoint maybe.
            (b'C', b"ROLLBACK\0") if self.before == 0 => return Some(false),
            (b'E', _) if piece.first => return Some(false),
            (b'C' | b'I' | b's', _) if piece.last => self.before = self.before.saturating_sub(1),
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::proxy::client::Carrier;

    fn piece(bytes: &[u8]) -> Piece<'_> {
        Piece {
            tag: bytes[0],
            bytes,
            first: true,
            last: true,
            read_at: Instant::now(),
            more: false,
        }
    }

    const QUERY: &[u8] = b"Q\0\0\0\x05\0";
    const COMMITTED: &[u8] = b"C\0\0\0\x0bCOMMIT\0";
    const ROLLED_BACK: &[u8] = b"C\0\0\0\x0dROLLBACK\0";
    const SELECTED: &[u8] = b"C\0\0\0\x0dSELECT 1\0";
    const READY: &[u8] = b"Z\0\0\0\x05I";
    const FAILED: &[u8] = b"E\0\0\0\x05\0";
    const NOTICE: &[u8] = b"N\0\0\0\x05\0";

    /// A client past its start-up that has sent one query before its COMMIT without waiting.
    fn talk(cut: CommitCut) -> Talk {
        let mut talk = Talk::default();
        assert_eq!(talk.hears(&piece(READY)), (Step::Pass, false));
        talk.asks(&piece(QUERY), None, None);
        let (carrier, before) = (Carrier::Among, 1);
        talk.asks(&piece(QUERY), Some(Asked { carrier, before }), Some(cut));
        talk.sent();
        talk
    }

    fn steps(cut: CommitCut, frames: &[&[u8]]) -> Vec<Step> {
        let mut talk = talk(cut);
        frames.iter().map(|frame| talk.hears(&piece(frame)).0).collect()
    }

    #[test]
    fn each_cut_is_made_at_its_frame_of_the_reply_and_of_no_other() {
        let reply = [
            COMMITTED, READY, NOTICE, SELECTED, COMMITTED, SELECTED, READY, COMMITTED,
        ];
        for (cut, at, step) in [
            (CommitCut::AfterComplete, 4, Step::Cut(12, Kind::AfterComplete)),
            (CommitCut::MidFrame, 4, Step::Cut(6, Kind::MidFrame)),
            (CommitCut::BeforeReady, 6, Step::Cut(0, Kind::BeforeReady)),
        ] {
            let steps = steps(cut, &reply);
            assert!(steps[..at].iter().all(|step| *step == Step::Pass), "{steps:?}");
            assert_eq!(steps[at], step);
        }
        assert_eq!(
            steps(CommitCut::Unanswered, &reply)[..5],
            [
                Step::Pass,
                Step::Pass,
                Step::Pass,
                Step::Keep,
                Step::Cut(0, Kind::Unanswered)
            ]
        );
        let second = Duration::from_secs(1);
        let mut wanted = [Step::Pass; 8];
        wanted[3] = Step::Delay(second);
        assert_eq!(steps(CommitCut::DelayedReply(second), &reply), wanted);
    }

    #[test]
    fn a_commit_that_fails_is_cut_at_its_error() {
        let steps = steps(CommitCut::AfterComplete, &[READY, FAILED]);
        assert_eq!(steps, [Step::Pass, Step::Cut(FAILED.len(), Kind::AfterComplete)]);
    }

    #[test]
    fn the_servers_first_word_on_the_commit_is_what_became_of_it() {
        for (frames, committed) in [
            (vec![READY, SELECTED, COMMITTED, FAILED], Some(true)),
            (vec![READY, FAILED, ROLLED_BACK], Some(false)),
            (vec![READY, SELECTED, ROLLED_BACK], Some(false)),
            (vec![READY, ROLLED_BACK, COMMITTED], Some(true)),
            (vec![COMMITTED, READY, SELECTED], None),
        ] {
            let mut talk = talk(CommitCut::AfterSent);
            talk.told(5);
            let words = frames.iter().filter(|frame| talk.hears(&piece(frame)).1).count();
            assert_eq!(words, usize::from(committed.is_some()));
            let commit = Commit {
                carrier: Carrier::Among,
                sent: true,
                committed,
            };
            assert_eq!(talk.commit(), Some((commit, &[5][..])));
        }
    }

    #[test]
    fn a_commit_that_is_not_sent_by_the_end_never_happens_and_one_that_was_may() {
        for (sent, committed) in [(false, Some(false)), (true, None)] {
            let (carrier, before) = (Carrier::Alone, 0);
            let mut talk = Talk::default();
            talk.asks(&piece(QUERY), Some(Asked { carrier, before }), None);
            if sent {
                talk.sent();
            }
            talk.never();
            assert_eq!(talk.commit().unwrap().0.committed, committed);
        }
    }

    #[test]
    fn a_commit_is_over_with_its_reply() {
        let mut talk = talk(CommitCut::AfterSent);
        for frame in [READY, COMMITTED] {
            talk.hears(&piece(frame));
            assert!(talk.commit().is_some());
        }
        talk.hears(&piece(READY));
        assert_eq!(talk.commit(), None);
    }
}
