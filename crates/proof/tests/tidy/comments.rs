//! The comments of Rust and SQL sources as text, line by line. What is not a comment is an empty line there, so a
//! phrase does not go on over code. A comment inside a string is not a comment.

use std::{iter::Peekable, str::Chars};

/// The text of a file's comments: as many lines as the file has, each without the mark of the comment.
pub fn comments(path: &str, text: &str) -> String {
    let marked = match path.ends_with(".sql") {
        true => sql(text),
        false => rust(text),
    };
    let lines = marked.split('\n').map(|line| {
        let bare = line.trim_start_matches(['/', '!', '-']);
        bare.strip_prefix(' ').unwrap_or(bare)
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Where the reader is, from one character to the next.
enum At {
    Code,
    /// Up to the end of the line.
    Comment,
    /// Up to this closing quote, which a backslash may escape.
    Quoted(char),
    /// A raw string: up to a quote and so many hashes.
    Raw(usize),
}

/// Keeps line ends and comments of Rust, with their mark.
fn rust(text: &str) -> String {
    let mut kept = String::new();
    let mut at = At::Code;
    let mut before = ' ';
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        at = match at {
            At::Comment if c == '\n' => At::Code,
            At::Comment => {
                kept.push(c);
                At::Comment
            }
            At::Quoted(_) if c == '\\' => {
                keep_line_end(&mut kept, rest.next());
                at
            }
            At::Quoted(quote) if c == quote => At::Code,
            At::Raw(hashes) if c == '"' && ends_raw(&rest, hashes) => At::Code,
            At::Quoted(_) | At::Raw(_) => at,
            At::Code if c == '/' && rest.peek() == Some(&'/') => {
                kept.push(c);
                At::Comment
            }
            At::Code if c == '"' => At::Quoted('"'),
            At::Code if c == '\'' && is_char(&rest) => At::Quoted('\''),
            At::Code if c == 'r' && !is_name(before) => raw_hashes(&rest).map_or(At::Code, |hashes| {
                rest.by_ref().take(hashes + 1).for_each(drop);
                At::Raw(hashes)
            }),
            At::Code => At::Code,
        };
        keep_line_end(&mut kept, Some(c));
        before = c;
    }
    kept
}

/// Keeps line ends and comments of SQL, with their mark.
fn sql(text: &str) -> String {
    let mut kept = String::new();
    let mut at = At::Code;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        at = match at {
            At::Comment if c == '\n' => At::Code,
            At::Comment => {
                kept.push(c);
                At::Comment
            }
            At::Quoted(quote) if c == quote => At::Code,
            At::Code if c == '-' && rest.peek() == Some(&'-') => {
                kept.push(c);
                At::Comment
            }
            At::Code if c == '\'' || c == '"' => At::Quoted(c),
            _ => at,
        };
        keep_line_end(&mut kept, Some(c));
    }
    kept
}

fn keep_line_end(kept: &mut String, c: Option<char>) {
    if c == Some('\n') {
        kept.push('\n');
    }
}

fn is_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Whether a quote opens a character and not a lifetime.
fn is_char(rest: &Peekable<Chars<'_>>) -> bool {
    let mut next = rest.clone();
    let first = next.next();
    first == Some('\\') || next.next() == Some('\'')
}

/// How many hashes the raw string has that may begin after an `r`.
fn raw_hashes(rest: &Peekable<Chars<'_>>) -> Option<usize> {
    let hashes = rest.clone().take_while(|c| *c == '#').count();
    (rest.clone().nth(hashes) == Some('"')).then_some(hashes)
}

fn ends_raw(rest: &Peekable<Chars<'_>>, hashes: usize) -> bool {
    rest.clone().take(hashes).filter(|c| *c == '#').count() == hashes
}

#[test]
fn comments_are_found_beside_strings_and_lifetimes() {
    let rust = [
        "//! one",
        "/// two",
        "let a = \"// no\"; // three",
        "let b = r#\"// \" no\"#; // four",
        "let c = ('\"', '\\'', 'a'); // five",
        "fn f<'a>(x: &'a str) {} // six",
        "let d = \"\\\" // no \\",
        "    // no\";",
        "writer(\"x\"); // seven",
    ];
    let found = comments("a.rs", &rust.join("\n"));
    let said: Vec<&str> = found.split('\n').collect();
    assert_eq!(said, ["one", "two", "three", "four", "five", "six", "", "", "seven"]);
    let sql = "-- one\nselect '-- no', \"-- no\" -- two\nfrom a";
    assert_eq!(comments("a.sql", sql), "one\ntwo\n");
}
