//! What is another each time, as placeholders: times, spans, workers, uids, versions, and the widths that follow from
//! them.

/// The text as it is kept. `known` are texts of this run with their placeholders, longest first.
pub(crate) fn normal(text: &str, known: &[(&str, &str)]) -> String {
    let mut text = text.to_owned();
    for (this_time, always) in known {
        text = text.replace(this_time, always);
    }
    let mut check = "";
    let mut kept = String::new();
    for line in text.lines() {
        let of_it = |name: &&&str| {
            line.starts_with(**name)
                || line
                    .trim_end_matches(',')
                    .ends_with(&format!("\"{}\"", name.trim_end()))
        };
        if line.contains("\"check\": ") || !line.starts_with(' ') {
            check = OF_THE_SERVER.iter().find(of_it).copied().unwrap_or_default();
        }
        let line = match check {
            "" => line.to_owned(),
            _ => unseen(line, check),
        };
        kept += &(narrow(&milliseconds(&words(&version(&line)))) + "\n");
    }
    kept
}

/// Checks of the doctor that depend on what else the server does.
const OF_THE_SERVER: [&str; 6] = [
    "clock ",
    "connections ",
    "journal ",
    "oldest transaction",
    "dead rows",
    "retention",
];

/// Without what such a check has seen.
fn unseen(line: &str, check: &str) -> String {
    if let Some((name, _)) = line.split_once("\"detail\": ") {
        return format!("{name}\"detail\": \"<seen>\",");
    }
    match line.strip_prefix(check).and_then(|rest| rest.split_whitespace().next()) {
        Some(health) => format!("{}  {health}  <seen>", check.trim_end()),
        None => line.to_owned(),
    }
}

/// Which release of a database it is.
fn version(line: &str) -> String {
    let mut line = line.to_owned();
    for (name, end) in [("PostgreSQL ", " as "), ("SQLite ", ", ")] {
        let Some((before, after)) = line.split_once(name) else {
            continue;
        };
        if after.starts_with(|c: char| c.is_ascii_digit()) {
            let rest = after.find(end).map_or("", |at| &after[at..]);
            line = format!("{before}{name}<version>{rest}");
        }
    }
    size(&line)
}

/// How large the file is, and how much of it is free.
fn size(line: &str) -> String {
    let Some((before, after)) = line.split_once("SQLite <version>, <file>, ") else {
        return line.to_owned();
    };
    let rest = after.find('"').map_or("", |at| &after[at..]);
    format!("{before}SQLite <version>, <file>, <size>{rest}")
}

/// Everything that is known by its form, wherever a word may begin.
fn words(line: &str) -> String {
    let (mut kept, mut rest, mut inside) = (String::new(), line, false);
    while let Some(first) = rest.chars().next() {
        let found = if inside { None } else { placeholder(rest) };
        let (length, word) = found.unwrap_or((first.len_utf8(), &rest[..first.len_utf8()]));
        kept += word;
        inside = rest[..length].ends_with(|c: char| c.is_ascii_alphanumeric());
        rest = &rest[length..];
    }
    kept
}

/// How much of the text a placeholder replaces, and which placeholder.
fn placeholder(text: &str) -> Option<(usize, &'static str)> {
    let by_form = |form: &str, word| matches(text, form).map(|length| (length, word));
    by_form("dddd-dd-ddTdd:dd:dd", "<time>")
        .map(|(length, word)| {
            let rest = text[length..].trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            // The database writes some of them itself.
            let rest = rest.strip_prefix('Z').or(rest.strip_prefix("+00:00")).unwrap_or(rest);
            (text.len() - rest.len(), word)
        })
        .or_else(|| by_form("xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx", "<uid>"))
        .or_else(|| span(text).map(|length| (length, "<span>")))
        .or_else(|| {
            let digits = text.bytes().take_while(u8::is_ascii_digit).count();
            (digits >= 13).then_some((digits, "<worker>"))
        })
}

/// `d` is a digit, `x` a hexadecimal one.
fn matches(text: &str, form: &str) -> Option<usize> {
    let text = text.as_bytes().get(..form.len())?;
    let fits = |(is, wanted): (&u8, u8)| match wanted {
        b'd' => is.is_ascii_digit(),
        b'x' => is.is_ascii_hexdigit(),
        other => *is == other,
    };
    text.iter().zip(form.bytes()).all(fits).then_some(form.len())
}

/// `12 ms`, `1.2 s`, `4 min 59 s`, `1 h 0 min`, `2 d 3 h`.
fn span(text: &str) -> Option<usize> {
    let one = |text: &str, units: &[&str]| {
        let number = text.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
        let rest = text.get(number..)?.strip_prefix(' ')?;
        let unit = units.iter().find(|unit| {
            let after = rest.strip_prefix(**unit);
            after.is_some_and(|after| !after.starts_with(|c: char| c.is_ascii_alphanumeric()))
        })?;
        (number > 0).then_some(number + 1 + unit.len())
    };
    let first = one(text, &["ms", "s", "min", "h", "d"])?;
    let second = text.get(first + 1..).and_then(|rest| one(rest, &["s", "min", "h"]));
    Some(first + second.map_or(0, |length| length + 1))
}

/// Fields of JSON that are named after their unit.
fn milliseconds(line: &str) -> String {
    let Some((name, value)) = line.split_once("_ms\": ") else {
        return line.to_owned();
    };
    let rest = value.trim_start_matches(|c: char| c.is_ascii_digit());
    match rest.len() < value.len() {
        true => format!("{name}_ms\": <ms>{rest}"),
        false => line.to_owned(),
    }
}

/// Columns are as wide as what is in them; between them stay two blanks.
fn narrow(line: &str) -> String {
    let indent = line.len() - line.trim_start().len();
    let mut kept = line[..indent].to_owned();
    let mut blanks = 0;
    for c in line[indent..].chars() {
        blanks = if c == ' ' { blanks + 1 } else { 0 };
        if blanks <= 2 {
            kept.push(c);
        }
    }
    kept
}

/// Without the figures that are another each time.
pub(crate) fn without_figures(text: &str) -> String {
    let mut text = text.to_owned();
    let charges = text.contains("dropped_replies");
    // A slow reply is a doubt.
    let of_charges = ["done", "effects", "uncertain"].iter().filter(|_| charges);
    for name in [
        "seconds",
        "changed",
        "at_once",
        "attempts cut short",
        "repeats suppressed",
    ]
    .iter()
    .chain(of_charges)
    {
        for mark in [format!("\"{name}\":"), format!("  {name} ")] {
            let Some((before, after)) = text.split_once(&mark) else {
                continue;
            };
            let figure = after.trim_start();
            let rest = figure.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
            text = format!("{before}{mark}<figure>{rest}");
        }
    }
    text
}

#[test]
fn placeholders_stand_for_what_is_another_each_time_and_for_nothing_else() {
    for (from, to) in [
        ("due in 4 min 59 s", "due in <span>"),
        ("1   12 ms   x", "1  <span>  x"),
        ("took 1.2 s, 2 d 3 h ago", "took <span>, <span> ago"),
        ("5 sheets, 3 shops", "5 sheets, 3 shops"),
        ("at 2026-01-02T03:04:05.678901Z.", "at <time>."),
        ("2026-01-02T03:04:05.678901+00:00", "<time>"),
        ("0198c3d2-1111-7222-8333-444455556666:charge", "<uid>:charge"),
        ("by worker 1234567890123456789", "by worker <worker>"),
        ("error 6a2f00112233", "error 6a2f00112233"),
        ("  \"beat_age_ms\": 15,", "  \"beat_age_ms\": <ms>,"),
        ("  \"oldest_due_ms\": null", "  \"oldest_due_ms\": null"),
        ("sqlite:/tmp/x/app.db", "<database>"),
        ("SQLite 3.51.3, <file>, 96 KiB", "SQLite <version>, <file>, <size>"),
        (
            "\"detail\": \"SQLite 3.51.3, <file>, 2 MiB, 8 KiB of it free\",",
            "\"detail\": \"SQLite <version>, <file>, <size>\",",
        ),
        (
            "connection  ok  PostgreSQL 15.18 (Debian 1) as me",
            "connection  ok  PostgreSQL <version> as me",
        ),
        ("connections  ok  6 of 197", "connections  ok  <seen>"),
        (
            "\"check\": \"dead rows\",\n  \"detail\": \"7 dead\",",
            "\"check\": \"dead rows\",\n  \"detail\": \"<seen>\",",
        ),
        (
            "\"check\": \"cases\",\n  \"detail\": \"7\",",
            "\"check\": \"cases\",\n  \"detail\": \"7\",",
        ),
    ] {
        let known = [("sqlite:/tmp/x/app.db", "<database>")];
        assert_eq!(normal(from, &known), format!("{to}\n"));
    }
}
