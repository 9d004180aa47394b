//! What comes out of a program or a server, within bounds. Readers go on when their bound is reached and drop the rest,
//! so that a writer never waits for us.

use serde_json::value::RawValue;
use tokio::io::{AsyncRead, AsyncReadExt};

/// Marks the end of text that was cut.
const CUT: &str = "… (cut)";

/// How deep a result may nest; the library stores a hundred levels.
const DEPTH_MAX: usize = 100;

/// The beginning of what comes.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    bytes_max: usize,
    cut: bool,
}

impl Head {
    pub(crate) fn new(bytes_max: usize) -> Head {
        Head {
            bytes: Vec::new(),
            bytes_max,
            cut: false,
        }
    }

    /// Keeps what fits; returns whether more fits.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> bool {
        let room = self.bytes_max - self.bytes.len();
        self.cut |= bytes.len() > room;
        self.bytes.extend_from_slice(&bytes[..bytes.len().min(room)]);
        !self.cut
    }

    /// Reads to the end, or to an error, which ends it as well.
    pub(crate) async fn fill(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = [0; 8192];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }

    /// What is stored as the result: JSON as it is, anything else as a JSON string without the blanks around it,
    /// nothing as null.
    pub(crate) fn result(&self) -> Box<RawValue> {
        let text = self.text();
        let json = match !self.cut && std::str::from_utf8(&self.bytes).is_ok() && is_storable(&text) {
            true => serde_json::from_str(text.trim()).ok(),
            false => None,
        };
        json.unwrap_or_else(|| as_string(&text))
    }

    /// As text that every database can store, without blanks around it.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes).replace('\0', "\u{2400}");
        match self.cut {
            true => format!("{}{CUT}", text.trim()),
            false => text.trim().to_owned(),
        }
    }
}

/// The end of what comes.
#[derive(Debug)]
pub(crate) struct Tail {
    bytes: Vec<u8>,
    bytes_max: usize,
    cut: bool,
}

impl Tail {
    pub(crate) fn new(bytes_max: usize) -> Tail {
        Tail {
            bytes: Vec::new(),
            bytes_max,
            cut: false,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let over = self.bytes.len().saturating_sub(self.bytes_max);
        self.cut |= over > 0;
        self.bytes.drain(..over);
    }

    /// Reads to the end, or to an error, which ends it as well.
    pub(crate) async fn fill(&mut self, mut from: impl AsyncRead + Unpin) {
        let mut buffer = [0; 8192];
        while let Ok(read @ 1..) = from.read(&mut buffer).await {
            self.push(&buffer[..read]);
        }
    }

    /// As text, without blanks around it.
    pub(crate) fn text(&self) -> String {
        let text = String::from_utf8_lossy(&self.bytes).replace('\0', "\u{2400}");
        match self.cut {
            true => format!("…{}", text.trim()),
            false => text.trim().to_owned(),
        }
    }
}

fn as_string(text: &str) -> Box<RawValue> {
    let null = || RawValue::NULL.to_owned();
    match text.is_empty() {
        true => null(),
        false => serde_json::value::to_raw_value(text).unwrap_or_else(|_| null()),
    }
}

/// Whether JSON could be stored as it is: not too deep, without the NUL that PostgreSQL refuses, and such that it can
/// be read again. A lone surrogate or a number like 1e400 cannot, though it is JSON.
fn is_storable(json: &str) -> bool {
    let (mut depth, mut deepest) = (0_usize, 0);
    for byte in json.bytes() {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(depth);
    }
    // Brackets in strings count too: storing it as text is better than a refusal.
    deepest <= DEPTH_MAX && !json.contains("\\u0000") && serde_json::from_str::<serde_json::Value>(json).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(said: &[u8], bytes_max: usize) -> String {
        let mut head = Head::new(bytes_max);
        head.push(said);
        head.result().get().to_owned()
    }

    #[test]
    fn json_is_stored_as_it_is_and_anything_else_as_text() {
        assert_eq!(result(b" {\"a\": 1.50,\n \"b\":[]}\n", 99), "{\"a\": 1.50,\n \"b\":[]}");
        assert_eq!(result(b"12345678901234567890123\n", 99), "12345678901234567890123");
        assert_eq!(result(b"hello\nworld\n", 99), r#""hello\nworld""#);
        assert_eq!(result(b"{\"a\":", 99), r#""{\"a\":""#);
        assert_eq!(result(b"", 99), "null");
        assert_eq!(result(b" \n", 99), "null");
    }

    #[test]
    fn what_no_database_stores_becomes_text_that_it_does() {
        assert_eq!(result(b"a\0b", 99), "\"a\u{2400}b\"");
        assert_eq!(result(b"a\xffb", 99), "\"a\u{fffd}b\"");
        assert_eq!(result(br#"["\u0000"]"#, 99), r#""[\"\\u0000\"]""#);
        assert_eq!(result(br#"["\ud800"]"#, 99), r#""[\"\\ud800\"]""#);
        assert_eq!(result(br#"{"n": 1e400}"#, 99), r#""{\"n\": 1e400}""#);
        assert_eq!(result(br#"["\ud83d\ude00", 1e300]"#, 99), r#"["\ud83d\ude00", 1e300]"#);
        let deep = "[".repeat(101) + &"]".repeat(101);
        assert!(result(deep.as_bytes(), 999).starts_with("\"[["));
        let fits = "[".repeat(100) + &"]".repeat(100);
        assert_eq!(result(fits.as_bytes(), 999), fits);
    }

    #[test]
    fn over_the_bound_the_beginning_is_kept_of_output_and_the_end_of_errors() {
        assert_eq!(result(b"[1,2,3]", 4), r#""[1,2… (cut)""#);
        assert_eq!(result(b"[12]", 4), "[12]");
        let mut tail = Tail::new(4);
        for part in ["ab", "cd", "ef"] {
            tail.push(part.as_bytes());
        }
        assert_eq!(tail.text(), "…cdef");
        let mut short = Tail::new(4);
        short.push(b"ab\n");
        assert_eq!(short.text(), "ab");
    }
}
