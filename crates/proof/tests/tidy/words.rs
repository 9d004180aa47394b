//! Pages and comments are in plain English and fit a screen: a list of words to avoid, and a length for lines. Code
//! is not prose: identifiers, blocks, inline code and link targets are left out.

use super::{assert_none, comments::comments, tree};

/// Words and phrases to avoid, and what to write instead.
const AVOID: [(&str, &str); 25] = [
    ("mend", "fix"),
    ("mends", "fixes"),
    ("mended", "fixed"),
    ("mending", "fixing"),
    ("deed", "action"),
    ("deeds", "actions"),
    ("of its own", "separate, or: its own"),
    ("of their own", "separate, or: their own"),
    ("of your own", "your own"),
    ("in vain", "without success"),
    ("whose doing", "caused by"),
    ("stands", "is"),
    ("told", "reported"),
    ("nobody knows", "unknown"),
    ("at once", "immediately, or: in one statement, at the same time"),
    ("lest", "rewrite the sentence"),
    ("whereas", "rewrite the sentence"),
    ("thereby", "rewrite the sentence"),
    ("of which", "rewrite the sentence"),
    ("room", "space, or: backend"),
    ("rooms", "backends"),
    ("door", "interface, or the name of the crate"),
    ("doors", "interfaces"),
    ("twin", "concurrent caller, or: counterpart"),
    ("twins", "concurrent callers, or: counterparts"),
];

const COLUMNS_MAX: usize = 120;

/// What kind of line it is to this check.
enum Line<'a> {
    /// A sentence, heading or list item.
    Prose(&'a str),
    /// A row of a table: read for words, of any length.
    Row(&'a str),
    /// One link or picture: of any length.
    Link(&'a str),
    /// Inside a fenced block, or the fence itself.
    Code,
}

/// Whether a line is a link or picture and nothing else, maybe as an item of a list.
fn is_one_link(line: &str) -> bool {
    let bare = line.trim().trim_start_matches(['-', '*', ' ']);
    let bare = bare.strip_prefix('!').unwrap_or(bare);
    let link = bare.starts_with('[') && bare.ends_with(')') && bare.matches("](").count() == 1;
    let address = (bare.starts_with("http") || bare.starts_with('<')) && !bare.contains(' ');
    link || address
}

fn lines(text: &str) -> Vec<Line<'_>> {
    let mut in_block = false;
    let mut found = Vec::new();
    for line in text.lines() {
        let start = line.trim_start();
        let fence = start.starts_with("```") || start.starts_with("~~~");
        found.push(if fence || in_block {
            Line::Code
        } else if start.starts_with('|') {
            Line::Row(line)
        } else if is_one_link(line) {
            Line::Link(line)
        } else {
            Line::Prose(line)
        });
        in_block ^= fence;
    }
    found
}

/// A line without its inline code and the targets of its links; a mark stays where they were.
fn prose(line: &str) -> String {
    let spoken: String = line
        .split('`')
        .enumerate()
        .map(|(n, part)| if n % 2 == 0 { part } else { "\u{0}" })
        .collect();
    let mut parts = spoken.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        text + "\u{0}" + part.split_once(')').map_or("", |(_, rest)| rest)
    })
}

/// The words of a page with their line numbers. Whatever is no letter, space or mark of emphasis ends a phrase, and so
/// do a blank line and code; the end of a line does not.
fn words(text: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    for (n, line) in (1..).zip(lines(text)) {
        let spoken = match line {
            Line::Code => "\u{0}".to_owned(),
            Line::Prose("") => "\u{0}".to_owned(),
            Line::Prose(line) | Line::Row(line) | Line::Link(line) => prose(line),
        };
        let mut word = String::new();
        for c in spoken.chars().chain([' ']) {
            if c.is_alphanumeric() || c == '\'' {
                word.extend(c.to_lowercase());
                continue;
            }
            if !word.is_empty() {
                found.push((n, std::mem::take(&mut word)));
            }
            if !c.is_whitespace() && c != '*' && c != '_' {
                found.push((n, String::new()));
            }
        }
    }
    found
}

/// What is wrong with a page, each with its line.
fn breaches(text: &str) -> Vec<String> {
    let said = words(text);
    let mut found = Vec::new();
    for (avoid, instead) in AVOID {
        let phrase: Vec<&str> = avoid.split(' ').collect();
        let hits = said
            .windows(phrase.len())
            .filter(|window| window.iter().map(|(_, word)| word.as_str()).eq(phrase.iter().copied()));
        found.extend(hits.map(|hit| format!("{}: \"{avoid}\"; write: {instead}", hit[0].0)));
    }
    for (n, line) in (1..).zip(lines(text)) {
        if let Line::Prose(line) = line {
            let columns = line.chars().count();
            if columns > COLUMNS_MAX {
                found.push(format!("{n}: {columns} columns, at most {COLUMNS_MAX}"));
            }
        }
    }
    found
}

/// The pages that people read first, the docs, and the pages of the crates.
fn pages() -> Vec<(String, String)> {
    let root = [
        "README.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "SECURITY.md",
        "RELEASING.md",
    ];
    let prose = |path: &str| root.contains(&path) || path.starts_with("docs/") || path.starts_with("crates/");
    tree(&[".md"]).into_iter().filter(|(path, _)| prose(path)).collect()
}

/// What is wrong with the comments of a source, each with its line. A line counts with the code before its comment.
fn comment_breaches(path: &str, text: &str) -> Vec<String> {
    let said = comments(path, text);
    let mut found = breaches(&said);
    for (n, (line, comment)) in (1..).zip(text.lines().zip(lines(&said))) {
        let columns = line.chars().count();
        let short_by_itself = |comment: &str| !comment.is_empty() && comment.chars().count() <= COLUMNS_MAX;
        if columns > COLUMNS_MAX && matches!(comment, Line::Prose(comment) if short_by_itself(comment)) {
            found.push(format!("{n}: {columns} columns, at most {COLUMNS_MAX}"));
        }
    }
    found
}

#[test]
fn prose_is_plain_and_fits_the_page() {
    let pages = pages();
    assert!(pages.len() > 60, "only {} pages found", pages.len());
    let found = pages.iter().flat_map(|(path, text)| {
        let breaches = breaches(text).into_iter();
        breaches.map(move |breach| format!("{path}:{breach}"))
    });
    assert_none(found.collect(), "plain English, in lines of at most 120 columns");
}

#[test]
fn comments_are_plain_and_fit_the_page() {
    let sources = tree(&[".rs", ".sql"]);
    assert!(sources.len() > 800, "only {} sources found", sources.len());
    let found = sources.iter().flat_map(|(path, text)| {
        let breaches = comment_breaches(path, text).into_iter();
        breaches.map(move |breach| format!("{path}:{breach}"))
    });
    assert_none(
        found.collect(),
        "comments in plain English, in lines of at most 120 columns",
    );
}

#[test]
fn the_prose_check_sees_each_breach() {
    for (avoid, _) in AVOID {
        assert_eq!(breaches(&format!("Then it {avoid} so.")).len(), 1, "{avoid}");
        assert_eq!(breaches(&format!("| a | {avoid} |")).len(), 1, "{avoid} in a table");
    }
    assert_eq!(breaches("all of them at\n**once**, At Once").len(), 2);
    assert_eq!(breaches(&"word ".repeat(25)), ["1: 125 columns, at most 120"]);
    assert_eq!(breaches("```\ncode\n```\nit stands"), ["4: \"stands\"; write: is"]);
    assert_eq!(comment_breaches("a.rs", "f(); // at\n// once").len(), 1);
    assert_eq!(comment_breaches("a.sql", "-- a door").len(), 1);
    let (code, long) = ("f();".repeat(25), "word ".repeat(25));
    assert_eq!(comment_breaches("a.rs", &format!("{code} // {long}")).len(), 1);
    assert_eq!(
        comment_breaches("a.rs", &format!("{code} // too far to the right")).len(),
        1
    );
}

#[test]
fn the_prose_check_leaves_code_links_tables_and_other_words_alone() {
    let long = "a".repeat(130);
    for fine in [
        "understands, standstill, bigtold, at, once; out of. Which",
        "`it stands` and [once](told.md#at-once)",
        "look at\n\nonce more",
        "```text\nit stands\n```",
        "~~~\nit stands\n~~~",
        &format!("| {long} |"),
        &format!("![a picture](docs/{long}.svg)"),
        &format!("- [a page](docs/{long}.md)"),
        &format!("```\n{long}\n```"),
    ] {
        assert_eq!(breaches(fine), [""; 0], "{fine}");
    }
    for fine in [
        "let room = \"a door\"; // one\n// of the others",
        "f(); // at\ng();\n// once",
        "/// ```\n/// let twin = 1;\n/// ```",
        &format!("let a = \"{long}\";"),
    ] {
        assert_eq!(comment_breaches("a.rs", fine), [""; 0], "{fine}");
    }
}
