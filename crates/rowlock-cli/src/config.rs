//! The config file: `database`, `schema` and `actor`, so that they need not be typed each time.
//!
//! An error names the file and the line, and never prints a value: a URL may hold a password.

use std::{
    env,
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use anyhow::Result;
use toml::de::{DeTable, DeValue};

use crate::output::Advice;

/// Far more than three lines need.
const BYTES_MAX: u64 = 64 * 1024;

/// The settings of a file.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Config {
    pub(crate) database: Option<String>,
    pub(crate) schema: Option<String>,
    pub(crate) actor: Option<String>,
}

impl Config {
    /// The named file, or the first of the usual places that has one.
    pub(crate) fn find(named: Option<&Path>) -> Result<Config> {
        if let Some(path) = named {
            return match read(path) {
                Ok(text) => Config::of(path, text),
                Err(error) => Err(unreadable(path, error)),
            };
        }
        let places = [Some(PathBuf::from("rowlock.toml")), users()];
        for path in places.into_iter().flatten() {
            match read(&path) {
                Ok(text) => return Config::of(&path, text),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(unreadable(&path, error)),
            }
        }
        Ok(Config::default())
    }

    fn of(path: &Path, bytes: Vec<u8>) -> Result<Config> {
        let file = path.display();
        if bytes.len() as u64 > BYTES_MAX {
            let problem = format!("config file {file} is longer than {BYTES_MAX} bytes");
            return Err(Advice::usage(problem, KEYS));
        }
        let Ok(text) = String::from_utf8(bytes) else {
            return Err(Advice::usage(format!("config file {file} is not text in UTF-8"), KEYS));
        };
        parse(&text).map_err(|slip| {
            let line = text.bytes().take(slip.at).filter(|byte| *byte == b'\n').count() + 1;
            Advice::usage(format!("config file {file}, line {line}: {}", slip.problem), KEYS)
        })
    }
}

const KEYS: &str = "use the keys database, schema and actor, each once, as in: database = \"sqlite:app.db\"";

/// What is wrong, and where: bytes from the beginning.
#[derive(Debug, PartialEq, Eq)]
struct Slip {
    at: usize,
    problem: String,
}

fn parse(text: &str) -> Result<Config, Slip> {
    let table = DeTable::parse(text).map_err(|error| Slip {
        at: error.span().map_or(0, |span| span.start),
        problem: error.message().to_owned(),
    })?;
    let mut config = Config::default();
    for (key, value) in table.get_ref() {
        let slip = |problem| Slip {
            at: key.span().start,
            problem,
        };
        let name = key.get_ref().as_ref();
        let field = match name {
            "database" => &mut config.database,
            "schema" => &mut config.schema,
            "actor" => &mut config.actor,
            // A URL may have been pasted where a key belongs.
            _ if !name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') =>
            {
                return Err(slip("unknown key".into()));
            }
            _ => return Err(slip(format!("unknown key {name}"))),
        };
        *field = match value.get_ref() {
            DeValue::String(text) if !text.is_empty() => Some(text.to_string()),
            DeValue::String(_) => return Err(slip(format!("{name} is empty; leave the line out"))),
            other => return Err(slip(format!("{name} is of type {}; use a string", other.type_str()))),
        };
    }
    Ok(config)
}

/// The file of the user.
fn users() -> Option<PathBuf> {
    let folder = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let configs = folder("XDG_CONFIG_HOME").or_else(|| Some(folder("HOME")?.join(".config")))?;
    Some(configs.join("rowlock/config.toml"))
}

/// One byte more than allowed, so that a file that is too long is noticed.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

fn unreadable(path: &Path, error: io::Error) -> anyhow::Error {
    let next = "check its path and permissions, or use another file with --config";
    let problem = format!("config file {} cannot be read", path.display());
    Advice::because(error, problem, next)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slip(text: &str) -> (usize, String) {
        let slip = parse(text).unwrap_err();
        (text[..slip.at].lines().count().max(1), slip.problem)
    }

    #[test]
    fn a_file_may_say_all_three_or_nothing() {
        assert_eq!(parse("# nothing yet\n"), Ok(Config::default()));
        let all = "# ours\ndatabase = 'sqlite:app.db' # here\nschema=\"jobs\"\n\nactor = \"ann\"\n";
        let told = |text: &str| Some(text.to_owned());
        let expected = Config {
            database: told("sqlite:app.db"),
            schema: told("jobs"),
            actor: told("ann"),
        };
        assert_eq!(parse(all), Ok(expected));
    }

    #[test]
    fn a_slip_is_told_with_its_place_and_never_with_a_value() {
        for bad in [
            "schema = \"jobs\"\ndatabse = \"postgres://me:secret@h/d\"\n",
            "schema = \"jobs\"\ndatabase = secret\n",
            "schema = \"jobs\"\ndatabase = \"secret\n",
            "schema = \"jobs\"\ndatabase \"secret\"\n",
            "schema = \"jobs\"\n\"postgres://me:secret@h/d\" = 1\n",
            "schema = \"jobs\"\npostgres://me:secret@h/d\n",
            "schema = \"jobs\"\ndatabase = \"postgres://me:\"secret\"@h/d\"\n",
            "schema = \"jobs\"\ndatabase = [\"secret\"]\n",
            "schema = \"jobs\"\ndatabase.secret = \"x\"\n",
            "schema = \"jobs\"\ndatabase = \"\"\n",
            "schema = \"jobs\"\nschema = \"secret\"\n",
        ] {
            let text = parse(bad).map(|_| ()).unwrap_err();
            let line = bad[..text.at].matches('\n').count() + 1;
            assert_eq!(line, 2, "{bad}: {text:?}");
            assert!(!text.problem.contains("secret") && !text.problem.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn an_unknown_key_and_a_wrong_type_are_named() {
        assert_eq!(slip("databse = \"x\"\n").1, "unknown key databse");
        assert_eq!(slip("schema = 5\n").1, "schema is of type integer; use a string");
        assert_eq!(
            slip("[database]\nurl = \"x\"\n").1,
            "database is of type table; use a string"
        );
        assert_eq!(slip("actor = \"\"\n").1, "actor is empty; leave the line out");
    }
}
