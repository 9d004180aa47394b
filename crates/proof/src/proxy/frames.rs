//! Splits a stream into PostgreSQL's frames: a letter, a length that counts itself, a body.
//!
//! A frame that fits the buffer is given out whole, so that its reader can act before any byte of it is
//! passed on. A longer one is given out in pieces as they come: no more than one buffer is ever held.

use std::{io, ops::Range, time::Instant};

use tokio::io::{AsyncRead, AsyncReadExt};

/// How much of a stream is held at most.
pub const BUFFER: usize = 16 * 1024;

/// The letter and the length.
pub const HEADER: usize = 5;

/// A stream's bytes that are not given out yet.
pub struct Frames {
    buffer: Box<[u8]>,
    from: usize,
    to: usize,
    tag: u8,
    /// Of the frame under way, how much is not given out yet.
    left: u64,
    read_at: Instant,
}

/// A frame, or a part of a long one.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The frame's letter.
    pub tag: u8,
    /// As it was read, with the header in the first piece.
    pub bytes: &'a [u8],
    /// The frame begins here.
    pub first: bool,
    /// The frame ends here.
    pub last: bool,
    /// When the end of it arrived.
    pub read_at: Instant,
    /// Another piece is there already.
    pub more: bool,
}

impl Piece<'_> {
    /// Its part of the frame's body.
    pub fn body(&self) -> &[u8] {
        let header = if self.first { HEADER } else { 0 };
        &self.bytes[header..]
    }
}

impl Default for Frames {
    fn default() -> Frames {
        Frames {
            buffer: vec![0; BUFFER].into_boxed_slice(),
            from: 0,
            to: 0,
            tag: 0,
            left: 0,
            read_at: Instant::now(),
        }
    }
}

impl Frames {
    /// The next piece; none at the stream's end, even in the middle of a frame. Cancel-safe.
    ///
    /// # Errors
    /// The stream's, or a length that no frame has.
    pub async fn next(&mut self, stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Piece<'_>>> {
        let (range, first) = loop {
            if let Some(found) = self.split()? {
                break found;
            }
            self.buffer.copy_within(self.from..self.to, 0);
            (self.from, self.to) = (0, self.to - self.from);
            let read = stream.read(&mut self.buffer[self.to..]).await?;
            if read == 0 {
                return Ok(None);
            }
            self.to += read;
            self.read_at = Instant::now();
        };
        Ok(Some(Piece {
            tag: self.tag,
            bytes: &self.buffer[range],
            first,
            last: self.left == 0,
            read_at: self.read_at,
            more: self.peek().is_ok_and(|next| next.is_some()),
        }))
    }

    /// Takes the next piece off what was read, if there is enough; and whether a frame begins with it.
    fn split(&mut self) -> io::Result<Option<(Range<usize>, bool)>> {
        let Some((tag, left)) = self.peek()? else {
            return Ok(None);
        };
        let first = self.left == 0;
        let size = usize::try_from(left).unwrap_or(usize::MAX).min(self.to - self.from);
        let range = self.from..self.from + size;
        self.from = range.end;
        (self.tag, self.left) = (tag, left - size as u64);
        Ok(Some((range, first)))
    }

    /// The letter of the frame that the next piece is of, and how much of that is not given out yet; none if more has
    /// to be read first.
    fn peek(&self) -> io::Result<Option<(u8, u64)>> {
        let held = &self.buffer[self.from..self.to];
        if self.left > 0 {
            return Ok((!held.is_empty()).then_some((self.tag, self.left)));
        }
        let &[tag, a, b, c, d, ..] = held else {
            return Ok(None);
        };
        let length = u32::from_be_bytes([a, b, c, d]);
        if length < 4 {
            let problem = format!("a frame {:?} with a length of {length}", tag as char);
            return Err(io::Error::new(io::ErrorKind::InvalidData, problem));
        }
        let whole = u64::from(length) + 1;
        let enough = held.len() as u64 >= whole || whole > BUFFER as u64;
        Ok(enough.then_some((tag, whole)))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    fn frame(tag: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).unwrap().to_be_bytes();
        [&[tag][..], &length, body].concat()
    }

    /// What comes out of a stream that arrives in portions of this size: the pieces, put together to frames again.
    async fn frames_of(bytes: &[u8], portion: usize) -> Vec<(u8, Vec<u8>, usize)> {
        let (mut near, mut far) = tokio::io::duplex(portion);
        let bytes = bytes.to_vec();
        let sending = tokio::spawn(async move { near.write_all(&bytes).await.unwrap() });
        let mut frames = Frames::default();
        let mut found: Vec<(u8, Vec<u8>, usize)> = Vec::new();
        let mut open = false;
        while let Some(piece) = frames.next(&mut far).await.unwrap() {
            assert_eq!(piece.first, !open, "a frame begins where the last one ended");
            assert!(piece.bytes.len() <= BUFFER);
            open = !piece.last;
            if piece.first {
                found.push((piece.tag, Vec::new(), 0));
            }
            let (tag, body, pieces) = found.last_mut().unwrap();
            assert_eq!(*tag, piece.tag);
            body.extend(piece.body());
            *pieces += 1;
        }
        assert!(!open);
        sending.await.unwrap();
        found
    }

    #[tokio::test]
    async fn frames_come_out_as_they_went_in_however_they_arrive() {
        let long = vec![7; 3 * BUFFER];
        let sent = [
            (b'Q', &b"select 1\0"[..]),
            (b'S', b""),
            (b'd', &long),
            (b'Z', b"I"),
            (b'd', &long[..BUFFER - HEADER]),
            (b'd', &long[..BUFFER - HEADER + 1]),
            (b'X', b""),
        ];
        let stream: Vec<u8> = sent.iter().flat_map(|(tag, body)| frame(*tag, body)).collect();
        for portion in [1, 2, 3, 5, 7, 1000, 8192, 1 << 20] {
            let found = frames_of(&stream, portion).await;
            let bare: Vec<(u8, &[u8])> = found.iter().map(|(tag, body, _)| (*tag, body.as_slice())).collect();
            assert_eq!(bare, sent, "in portions of {portion}");
            for (tag, body, pieces) in &found {
                let fits = body.len() + HEADER <= BUFFER;
                assert_eq!(*pieces == 1, fits, "{:?} of {} bytes", *tag as char, body.len());
            }
        }
    }

    #[tokio::test]
    async fn a_stream_that_ends_inside_a_frame_just_ends() {
        let mut frames = Frames::default();
        let cut = &frame(b'Q', b"commit\0")[..8];
        assert_eq!(frames.next(&mut &cut[..]).await.unwrap(), None);
    }

    #[tokio::test]
    async fn a_length_that_no_frame_has_is_an_error() {
        let mut frames = Frames::default();
        let wrong = [b'Q', 0, 0, 0, 3, 0];
        let error = frames.next(&mut &wrong[..]).await.unwrap_err();
        assert_eq!(error.to_string(), "a frame 'Q' with a length of 3");
    }
}
