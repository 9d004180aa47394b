//! What a client asks for, as far as a COMMIT goes: in a text, or by executing one that was prepared.

use std::collections::HashSet;

use super::{
    frames::Piece,
    text::{Finder, Found},
};

/// PostgreSQL knows names by so many bytes.
const NAME_MAX: usize = 63;

/// How a COMMIT travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A separate text.
    Alone,
    /// A text with other statements.
    Among,
    /// The execution of a prepared one.
    Prepared,
}

/// A COMMIT that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// How it travels.
    pub carrier: Carrier,
    /// How many statements are answered before it in the same reply.
    pub before: u32,
}

/// Follows a client's frames.
#[derive(Debug, Default)]
pub struct Client {
    /// The zero-terminated fields that the frame under way has begun with.
    fields: usize,
    names: [Vec<u8>; 2],
    text: Finder,
    prepared: HashSet<Vec<u8>>,
    portals: HashSet<Vec<u8>>,
    /// Executions since the last Sync, all answered in one reply.
    executed: u32,
}

impl Client {
    /// Whether the frame that ends with this piece makes the server commit.
    pub fn asks(&mut self, piece: &Piece<'_>) -> Option<Asked> {
        if piece.first {
            self.fields = 0;
            self.names = Default::default();
            self.text = Finder::default();
        }
        // Where the frame's letter has a text, counted in fields.
        let text_at = match piece.tag {
            b'Q' => 0,
            b'P' => 1,
            b'B' | b'C' | b'E' | b'S' => usize::MAX,
            _ => return None,
        };
        for byte in piece.body() {
            match byte {
                0 => self.fields += 1,
                _ if self.fields == text_at => self.text.feed(*byte),
                _ => match self.names.get_mut(self.fields) {
                    // One more for a name that is closed: before it is the type of the named thing.
                    Some(name) if name.len() < NAME_MAX + usize::from(piece.tag == b'C') => name.push(*byte),
                    Some(_) => {}
                    // Parameters follow, which nobody here reads.
                    None => break,
                },
            }
        }
        if piece.last { self.asked(piece.tag) } else { None }
    }

    fn asked(&mut self, tag: u8) -> Option<Asked> {
        let found = std::mem::take(&mut self.text).end();
        let [first, second] = std::mem::take(&mut self.names);
        match tag {
            b'Q' => {
                let (carrier, before) = match found {
                    Found::Nothing => return None,
                    Found::Alone => (Carrier::Alone, 0),
                    Found::Among { before } => (Carrier::Among, before),
                };
                return Some(Asked { carrier, before });
            }
            b'P' if found == Found::Nothing => _ = self.prepared.remove(&first),
            b'P' => _ = self.prepared.insert(first),
            b'B' if self.prepared.contains(&second) => _ = self.portals.insert(first),
            b'B' => _ = self.portals.remove(&first),
            b'E' => {
                let (carrier, before) = (Carrier::Prepared, self.executed);
                self.executed = before.saturating_add(1);
                return self.portals.contains(&first).then_some(Asked { carrier, before });
            }
            b'S' => self.executed = 0,
            b'C' => match first.split_first() {
                Some((b'S', name)) => _ = self.prepared.remove(name),
                Some((_, name)) => _ = self.portals.remove(name),
                None => {}
            },
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn by(carrier: Carrier, before: u32) -> Option<Asked> {
        Some(Asked { carrier, before })
    }

    fn asks(client: &mut Client, tag: u8, body: &[u8]) -> Option<Asked> {
        let bytes = [&[tag, 0, 0, 0, 0][..], body].concat();
        client.asks(&Piece {
            tag,
            bytes: &bytes,
            first: true,
            last: true,
            read_at: Instant::now(),
            more: false,
        })
    }

    #[test]
    fn a_text_is_asked_for_by_its_last_piece() {
        let mut client = Client::default();
        assert_eq!(asks(&mut client, b'Q', b"commit\0"), by(Carrier::Alone, 0));
        assert_eq!(asks(&mut client, b'Q', b"select 1\0"), None);
        let text = b"\0\0\0\0Qselect '; commit'; commit; begin\0";
        for cut in 5..text.len() {
            let (one, two) = text.split_at(cut);
            let piece = |bytes, first| Piece {
                tag: b'Q',
                bytes,
                first,
                last: !first,
                read_at: Instant::now(),
                more: false,
            };
            assert_eq!(client.asks(&piece(one, true)), None);
            assert_eq!(client.asks(&piece(two, false)), by(Carrier::Among, 1), "cut at {cut}");
        }
    }

    #[test]
    fn a_prepared_commit_is_asked_for_by_its_execution() {
        let mut client = Client::default();
        assert_eq!(asks(&mut client, b'P', b"s1\0commit\0\0\0"), None);
        assert_eq!(asks(&mut client, b'P', b"s2\0select 'commit'\0\0\0"), None);
        assert_eq!(asks(&mut client, b'B', b"\0s1\0\0\0\0\0\0\0"), None);
        assert_eq!(asks(&mut client, b'E', b"\0\0\0\0\0"), by(Carrier::Prepared, 0));
        assert_eq!(asks(&mut client, b'B', b"\0s2\0\0\0\0\0\0\0"), None);
        assert_eq!(asks(&mut client, b'E', b"\0\0\0\0\0"), None, "the portal is another's");
        assert_eq!(asks(&mut client, b'B', b"p\0s1\0\0\0\0\0\0\0"), None);
        assert_eq!(asks(&mut client, b'E', b"p\0\0\0\0\0"), by(Carrier::Prepared, 2));
        assert_eq!(asks(&mut client, b'S', b""), None);
        assert_eq!(asks(&mut client, b'E', b"p\0\0\0\0\0"), by(Carrier::Prepared, 0));
        assert_eq!(asks(&mut client, b'C', b"Pp\0"), None);
        assert_eq!(asks(&mut client, b'E', b"p\0\0\0\0\0"), None, "the portal is closed");
        assert_eq!(asks(&mut client, b'C', b"Ss1\0"), None);
        assert_eq!(asks(&mut client, b'B', b"p\0s1\0\0\0\0\0\0\0"), None);
        assert_eq!(asks(&mut client, b'E', b"p\0\0\0\0\0"), None, "the statement is closed");
        assert_eq!(asks(&mut client, b'P', b"s2\0end\0\0\0"), None);
        assert_eq!(asks(&mut client, b'B', b"p\0s2\0\0\0\0\0\0\0"), None);
        assert_eq!(
            asks(&mut client, b'E', b"p\0\0\0\0\0"),
            by(Carrier::Prepared, 3),
            "prepared anew"
        );
    }

    #[test]
    fn parameters_and_other_frames_ask_for_nothing() {
        let mut client = Client::default();
        assert_eq!(asks(&mut client, b'P', b"\0insert into t values ($1)\0\0\0"), None);
        assert_eq!(asks(&mut client, b'B', b"\0\0commit\0commit\0"), None);
        assert_eq!(asks(&mut client, b'E', b"\0\0\0\0\0"), None);
        assert_eq!(asks(&mut client, b'd', b"commit\0"), None);
        assert_eq!(asks(&mut client, b'p', b"commit\0"), None);
        let name = [&[b'n'; 70][..], b"\0commit\0\0\0"].concat();
        assert_eq!(asks(&mut client, b'P', &name), None);
        let bind = [&b"\0"[..], &[b'n'; 70], b"\0\0\0\0\0\0\0"].concat();
        assert_eq!(asks(&mut client, b'B', &bind), None);
        assert_eq!(
            asks(&mut client, b'E', b"\0\0\0\0\0"),
            by(Carrier::Prepared, 1),
            "a name is as long as PostgreSQL has it"
        );
    }
}
