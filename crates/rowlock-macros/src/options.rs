//! The options of `#[job(…)]`: read, checked, and refused with a sentence that says what to write instead.
//!
//! The limits repeat those of `rowlock`'s `Draft::checked`, which judges hand-written impls; change both together.
//! A bad value does not stop the reading, so one build reports every problem; only bad syntax ends it.

use std::ops::RangeInclusive;

use quote::ToTokens;
use syn::{Attribute, Error, Lit, Path, Result, Token, meta::ParseNestedMeta};

use crate::name::fits_name;

const VERSION_MAX: u64 = i32::MAX as u64;
const TIME_LIMIT_MAX_MS: u64 = 30 * 24 * 3_600_000;

/// What was given; `None` leaves the trait's default alone.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) kind: Option<String>,
    pub(crate) version: Option<i32>,
    pub(crate) queue: Option<String>,
    pub(crate) attempts: Option<i32>,
    pub(crate) priority: Option<i16>,
    pub(crate) time_limit_ms: Option<u64>,
}

impl Options {
    /// Reads every `#[job(…)]` among a type's attributes as if they were one.
    pub(crate) fn read(attrs: &[Attribute]) -> Result<Options> {
        let mut options = Options::default();
        let mut problems = None;
        for attr in attrs.iter().filter(|a| a.path().is_ident("job")) {
            let read = attr.parse_nested_meta(|meta| {
                let given = Given::parse(&meta)?;
                collect(&mut problems, options.set(&given));
                Ok(())
            });
            collect(&mut problems, read);
        }
        problems.map_or(Ok(options), Err)
    }

    fn set(&mut self, given: &Given) -> Result<()> {
        match given.key.as_str() {
            "kind" => given.fill(&mut self.kind, Given::name),
            "version" => given.fill(&mut self.version, |g| {
                g.number(1..=VERSION_MAX, "raise it by 1 when the payload changes")
            }),
            "queue" => given.fill(&mut self.queue, Given::name),
            "attempts" => given.fill(&mut self.attempts, |g| g.number(1..=10_000, "10 is the default")),
            "priority" => given.fill(&mut self.priority, |g| {
                g.number(1..=5, "1 runs first, 3 is the default")
            }),
            "time_limit" => given.fill(&mut self.time_limit_ms, Given::duration_ms),
            "time_limit_ms" => given.fill(&mut self.time_limit_ms, |g| {
                g.number(1..=TIME_LIMIT_MAX_MS, "the longest is 30 days")
            }),
            key => Err(given.at_key(format!(
                "unknown option `{key}`; the options are kind, version, queue, attempts, priority, time_limit and \
                 time_limit_ms"
            ))),
        }
    }
}

/// Adds the error, if there is one, to those found so far.
pub(crate) fn collect<T>(problems: &mut Option<Error>, result: Result<T>) -> Option<T> {
    match (result, problems.as_mut()) {
        (Ok(value), _) => Some(value),
        (Err(problem), Some(problems)) => {
            problems.combine(problem);
            None
        }
        (Err(problem), None) => {
            *problems = Some(problem);
            None
        }
    }
}

/// One `key = value`, or a bare key.
struct Given {
    path: Path,
    key: String,
    value: Option<Lit>,
}

impl Given {
    fn parse(meta: &ParseNestedMeta) -> Result<Given> {
        let path = meta.path.clone();
        let key = path.to_token_stream().to_string();
        let value = if meta.input.peek(Token![=]) {
            let literal = meta.value()?.parse::<Lit>();
            Some(literal.map_err(|e| {
                let problem = format!("{key} takes a literal; for a computed value, implement Job by hand");
                Error::new(e.span(), problem)
            })?)
        } else {
            None
        };
        Ok(Given { path, key, value })
    }

    fn fill<T>(&self, slot: &mut Option<T>, read: impl FnOnce(&Given) -> Result<T>) -> Result<()> {
        if slot.is_some() {
            let problem = match self.key.as_str() {
                "time_limit" | "time_limit_ms" => {
                    "the time limit is given twice; keep one time_limit or time_limit_ms".to_owned()
                }
                key => format!("{key} is given twice; keep one"),
            };
            return Err(self.at_key(problem));
        }
        *slot = Some(read(self)?);
        Ok(())
    }

    fn name(&self) -> Result<String> {
        let name = self.text("orders")?;
        if fits_name(&name) {
            return Ok(name);
        }
        let shown: String = name.chars().take(40).collect();
        let problem = format!(
            "{} {shown:?} is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/",
            self.key
        );
        Err(self.at_value(problem))
    }

    fn duration_ms(&self) -> Result<u64> {
        let text = self.text("30s")?;
        let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        let (count, unit) = text.split_at(split);
        let unit_ms = match unit {
            "ms" => Some(1),
            "s" => Some(1_000),
            "m" => Some(60_000),
            "h" => Some(3_600_000),
            _ => None,
        };
        let (Some(unit_ms), false) = (unit_ms, count.is_empty()) else {
            let problem =
                format!("time_limit {text:?} is not a whole number with its unit, such as 500ms, 30s, 5m or 2h");
            return Err(self.at_value(problem));
        };
        // Only too many digits can fail here, and those are too long in any unit.
        let limit_ms = count.parse::<u64>().ok().and_then(|n| n.checked_mul(unit_ms));
        limit_ms
            .filter(|ms| (1..=TIME_LIMIT_MAX_MS).contains(ms))
            .ok_or_else(|| self.at_value(format!("time_limit {text:?} is out of range (1 ms to 30 days)")))
    }

    fn text(&self, example: &str) -> Result<String> {
        match &self.value {
            Some(Lit::Str(text)) => Ok(text.value()),
            _ => Err(self.at_value(format!(
                "{key} takes a string, as in {key} = {example:?}",
                key = self.key
            ))),
        }
    }

    /// `hint` follows the range in the message. A suffix is refused, since `30s` would otherwise read as 30.
    fn number<T: TryFrom<u64>>(&self, range: RangeInclusive<u64>, hint: &str) -> Result<T> {
        let (key, first, last) = (&self.key, range.start(), range.end());
        let Some(Lit::Int(number)) = self.value.as_ref().filter(|v| v.suffix().is_empty()) else {
            let problem = format!("{key} takes a number from {first} to {last}, without quotes or suffix");
            return Err(self.at_value(problem));
        };
        let digits = number.base10_digits();
        let number = digits.parse().ok().filter(|n| range.contains(n));
        number
            .and_then(|n| T::try_from(n).ok())
            .ok_or_else(|| self.at_value(format!("{key} {digits} is out of range ({first} to {last}; {hint})")))
    }

    fn at_key(&self, problem: String) -> Error {
        Error::new_spanned(&self.path, problem)
    }

    fn at_value(&self, problem: String) -> Error {
        match &self.value {
            Some(value) => Error::new_spanned(value, problem),
            None => self.at_key(problem),
        }
    }
}

#[cfg(test)]
mod tests {
    use syn::parse_quote;

    use super::*;

    fn problems(attr: Attribute) -> Vec<String> {
        let error = Options::read(&[attr]).expect_err("it was accepted");
        error.into_iter().map(|e| e.to_string()).collect()
    }

    fn limit_ms(text: &str) -> std::result::Result<Option<u64>, String> {
        let options = Options::read(&[parse_quote!(#[job(time_limit = #text)])]);
        options.map(|o| o.time_limit_ms).map_err(|e| e.to_string())
    }

    #[test]
    fn options_may_be_spread_over_several_attributes() {
        let read = Options::read(&[
            parse_quote!(#[job(kind = "a/b", version = 2, queue = "eu:1", attempts = 10_000,)]),
            parse_quote!(#[serde(rename_all = "kebab-case")]),
            parse_quote!(#[job()]),
            parse_quote!(#[job(priority = 0x5, time_limit_ms = 30000)]),
        ]);
        let expected = Options {
            kind: Some("a/b".to_owned()),
            version: Some(2),
            queue: Some("eu:1".to_owned()),
            attempts: Some(10_000),
            priority: Some(5),
            time_limit_ms: Some(30_000),
        };
        assert_eq!(read.unwrap(), expected);
        assert_eq!(Options::read(&[]).unwrap(), Options::default());
    }

    #[test]
    fn an_unknown_option_is_answered_with_the_known_ones() {
        let known = "the options are kind, version, queue, attempts, priority, time_limit and time_limit_ms";
        for (attr, key) in [
            (parse_quote!(#[job(retries = 3)]), "retries"),
            (parse_quote!(#[job(secret)]), "secret"),
            (parse_quote!(#[job(Kind = "a")]), "Kind"),
            (parse_quote!(#[job(type = "a")]), "type"),
        ] {
            assert_eq!(problems(attr), [format!("unknown option `{key}`; {known}")]);
        }
    }

    #[test]
    fn an_option_given_twice_is_refused_across_attributes_too() {
        assert_eq!(
            problems(parse_quote!(#[job(attempts = 8, attempts = 8)])),
            ["attempts is given twice; keep one"]
        );
        let twice = [parse_quote!(#[job(kind = "a")]), parse_quote!(#[job(kind = "b")])];
        assert_eq!(
            Options::read(&twice).unwrap_err().to_string(),
            "kind is given twice; keep one"
        );
        assert_eq!(
            problems(parse_quote!(#[job(time_limit = "30s", time_limit_ms = 30000)])),
            ["the time limit is given twice; keep one time_limit or time_limit_ms"]
        );
    }

    #[test]
    fn names_are_1_to_100_plain_characters() {
        let rule = "is not a valid name; use 1 to 100 of a-z, A-Z, 0-9 and -_.:/";
        let longest = "x".repeat(100);
        assert!(Options::read(&[parse_quote!(#[job(kind = #longest, queue = "aZ09-_.:/")])]).is_ok());
        for bad in ["", "a b", "a\0", "é", "a';drop"] {
            assert_eq!(
                problems(parse_quote!(#[job(kind = #bad)])),
                [format!("kind {bad:?} {rule}")]
            );
            assert_eq!(
                problems(parse_quote!(#[job(queue = #bad)])),
                [format!("queue {bad:?} {rule}")]
            );
        }
        let long = "x".repeat(101);
        assert_eq!(
            problems(parse_quote!(#[job(kind = #long)])),
            [format!("kind {:?} {rule}", "x".repeat(40))]
        );
    }

    #[test]
    fn numbers_outside_their_range_are_refused_together() {
        assert_eq!(
            problems(parse_quote!(#[job(version = 0, attempts = 10001, priority = 6, time_limit_ms = 0)])),
            [
                "version 0 is out of range (1 to 2147483647; raise it by 1 when the payload changes)",
                "attempts 10001 is out of range (1 to 10000; 10 is the default)",
                "priority 6 is out of range (1 to 5; 1 runs first, 3 is the default)",
                "time_limit_ms 0 is out of range (1 to 2592000000; the longest is 30 days)",
            ]
        );
        for (attr, start) in [
            (parse_quote!(#[job(version = -1)]), "version -1 is out of range (1 to "),
            (
                parse_quote!(#[job(version = 2147483648)]),
                "version 2147483648 is out of range (1 to ",
            ),
            (parse_quote!(#[job(attempts = 0)]), "attempts 0 is out of range (1 to "),
            (
                parse_quote!(#[job(attempts = 99999999999999999999999)]),
                "attempts 99999999999999999999999 is out of range (1 to ",
            ),
            (parse_quote!(#[job(priority = 0)]), "priority 0 is out of range (1 to "),
        ] {
            let found = problems(attr);
            assert!(found.len() == 1 && found[0].starts_with(start), "{found:?}");
        }
    }

    #[test]
    fn a_value_of_the_wrong_type_is_answered_with_an_example() {
        let attempts = "attempts takes a number from 1 to 10000, without quotes or suffix";
        for (attr, problem) in [
            (
                parse_quote!(#[job(kind = 3)]),
                r#"kind takes a string, as in kind = "orders""#,
            ),
            (
                parse_quote!(#[job(queue)]),
                r#"queue takes a string, as in queue = "orders""#,
            ),
            (
                parse_quote!(#[job(kind = b"a")]),
                r#"kind takes a string, as in kind = "orders""#,
            ),
            (
                parse_quote!(#[job(time_limit = 30000)]),
                r#"time_limit takes a string, as in time_limit = "30s""#,
            ),
            (parse_quote!(#[job(attempts = "8")]), attempts),
            (parse_quote!(#[job(attempts = 8.0)]), attempts),
            (parse_quote!(#[job(attempts = 8u32)]), attempts),
            (parse_quote!(#[job(attempts)]), attempts),
            (
                parse_quote!(#[job(attempts = MANY)]),
                "attempts takes a literal; for a computed value, implement Job by hand",
            ),
        ] {
            assert_eq!(problems(attr), [problem]);
        }
    }

    #[test]
    fn a_unit_outside_the_quotes_is_never_dropped() {
        let attr: Attribute = syn::parse_str::<syn::DeriveInput>("#[job(time_limit_ms = 30s)] struct A;")
            .unwrap()
            .attrs
            .remove(0);
        assert_eq!(
            problems(attr),
            ["time_limit_ms takes a number from 1 to 2592000000, without quotes or suffix"]
        );
    }

    #[test]
    fn a_duration_is_a_whole_number_and_its_unit() {
        for (text, ms) in [
            ("1ms", 1),
            ("30s", 30_000),
            ("5m", 300_000),
            ("2h", 7_200_000),
            ("720h", TIME_LIMIT_MAX_MS),
        ] {
            assert_eq!(limit_ms(text), Ok(Some(ms)), "{text}");
        }
        for bad in [
            "", "30", "s", "1.5s", "-1s", "+1s", "30 s", "30S", "1m30s", "30sec", "٣s",
        ] {
            let problem =
                format!("time_limit {bad:?} is not a whole number with its unit, such as 500ms, 30s, 5m or 2h");
            assert_eq!(limit_ms(bad), Err(problem));
        }
        for far in ["0s", "721h", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(
                limit_ms(far),
                Err(format!("time_limit {far:?} is out of range (1 ms to 30 days)"))
            );
        }
    }

    #[test]
    fn an_attribute_without_a_list_is_refused() {
        assert!(
            problems(parse_quote!(#[job]))
                .concat()
                .contains("expected attribute arguments in parentheses")
        );
        assert!(
            problems(parse_quote!(#[job = "a"]))
                .concat()
                .contains("expected parentheses")
        );
        assert!(
            problems(parse_quote!(#[job(kind = "a" version = 2)]))
                .concat()
                .contains("expected `,`")
        );
    }
}
