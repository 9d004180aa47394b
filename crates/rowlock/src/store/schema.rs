//! The parts of a schema, on every database: the base, numbered migrations after it, and functions.
//!
//! The base creates every table. A migration changes the tables later, and runs once. Functions are created again
//! whenever their text changes. Everything that is missing runs in one transaction, in this order, and is recorded with
//! its hash. This file only decides; each database runs the scripts itself.

use sha2::{Digest, Sha256};

use super::rows::{Columns, Noun};
use crate::error::{Error, Result};

/// The number of the base among the migrations.
const BASE: i32 = 1;

/// The number under which the functions are recorded; no migration has this number.
const FUNCTIONS: i32 = 0;

/// The release of this binary.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// A change after the base.
#[derive(Clone, Copy, Debug)]
pub struct Migration {
    pub name: &'static str,
    /// The oldest schema number that a binary may use once this migration has run.
    pub oldest: i32,
    pub sql: &'static str,
}

/// What a schema check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaFound {
    Missing,
    /// Created from another base, so no migration leads from it to this schema.
    Unknown,
    At {
        version: i32,
        oldest: i32,
        functions: Functions,
    },
}

/// How the functions in the database compare with the functions of this binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Functions {
    Same,
    /// From a newer schema or release, which keeps the functions that this binary calls.
    Newer,
    Older,
}

/// What the database has recorded, as read.
#[derive(Clone, Debug, Default)]
pub struct Recorded {
    pub version: Option<i32>,
    pub oldest: Option<i32>,
    /// The hash of the base.
    pub base: Option<String>,
    /// The hash of the functions, and the release that created them.
    pub functions: Option<String>,
    pub release: Option<String>,
}

impl Recorded {
    /// For a database where scripts have run but no hash is known.
    pub fn without_hashes() -> Recorded {
        Recorded {
            version: Some(BASE),
            oldest: Some(BASE),
            ..Recorded::default()
        }
    }
}

impl Noun for Recorded {
    fn of(row: &impl Columns) -> sqlx::Result<Recorded> {
        Ok(Recorded {
            version: row.read("version")?,
            oldest: row.read("oldest")?,
            base: row.read("base")?,
            functions: row.read("functions")?,
            release: row.read("release")?,
        })
    }
}

/// One script to run and to record.
#[derive(Clone, Debug)]
pub struct Step {
    pub version: i32,
    pub name: &'static str,
    pub oldest: i32,
    pub hash: String,
    pub sql: String,
}

impl Step {
    /// Whether this is the base, which comes first in an empty database.
    pub fn is_base(&self) -> bool {
        self.version == BASE
    }

    /// The name that people read.
    pub fn label(&self) -> String {
        match self.version {
            FUNCTIONS => self.name.to_owned(),
            version => format!("{version:04} {}", self.name),
        }
    }
}

/// The scripts that this binary was built with.
#[derive(Clone, Debug)]
pub struct Scripts {
    base: &'static [&'static str],
    migrations: Vec<Migration>,
    functions: &'static [&'static str],
}

impl Scripts {
    pub fn new(base: &'static [&'static str], migrations: &[Migration], functions: &'static [&'static str]) -> Scripts {
        Scripts {
            base,
            migrations: migrations.to_vec(),
            functions,
        }
    }

    /// These scripts with more migrations at the end.
    pub fn and(mut self, more: &[Migration]) -> Scripts {
        self.migrations.extend_from_slice(more);
        self
    }

    /// The number of the schema that these scripts create.
    pub const fn number(migrations: &[Migration]) -> i32 {
        BASE + migrations.len() as i32
    }

    /// Compares what was recorded with what these scripts would record.
    pub fn judge(&self, recorded: &Recorded) -> SchemaFound {
        let (Some(version), Some(oldest)) = (recorded.version, recorded.oldest) else {
            return SchemaFound::Missing;
        };
        if recorded.base != Some(hash_of_statements(self.base)) {
            return SchemaFound::Unknown;
        }
        let functions = if recorded.functions == Some(hash(self.functions)) {
            Functions::Same
        } else if version > Scripts::number(&self.migrations)
            || recorded.release.as_deref().map(numbers) > Some(numbers(RELEASE))
        {
            Functions::Newer
        } else {
            Functions::Older
        };
        SchemaFound::At {
            version,
            oldest,
            functions,
        }
    }

    /// Every step, for a database that has no schema yet.
    pub fn steps(&self) -> Vec<Step> {
        let base = Step {
            version: BASE,
            name: "base",
            oldest: BASE,
            hash: hash_of_statements(self.base),
            sql: self.base.join("\n"),
        };
        let numbered = (BASE + 1..).zip(&self.migrations).map(|(version, migration)| Step {
            version,
            name: migration.name,
            oldest: migration.oldest,
            hash: hash_of_statements(&[migration.sql]),
            sql: migration.sql.to_owned(),
        });
        let functions = Step {
            version: FUNCTIONS,
            name: "functions",
            oldest: FUNCTIONS,
            hash: hash(self.functions),
            sql: self.functions.join("\n"),
        };
        std::iter::once(base).chain(numbered).chain([functions]).collect()
    }

    /// The steps that the database lacks, in order. A newer schema, and the functions of a newer release, are not
    /// changed.
    ///
    /// # Errors
    /// [`Error::SchemaUnknown`] where no migration leads from the recorded schema to this one.
    pub fn missing(&self, found: SchemaFound) -> Result<Vec<Step>> {
        let (version, functions) = match found {
            SchemaFound::Missing => return Ok(self.steps()),
            SchemaFound::Unknown => return Err(Error::SchemaUnknown),
            SchemaFound::At { version, functions, .. } => (version, functions),
        };
        let number = Scripts::number(&self.migrations);
        if version > number {
            return Ok(Vec::new());
        }
        // A migration may have dropped a function whose parameters change, so the functions always follow it.
        let refresh = functions == Functions::Older || version < number;
        let mut steps = self.steps();
        steps.retain(|step| match step.version {
            FUNCTIONS => refresh,
            number => number > version,
        });
        Ok(steps)
    }
}

/// The first three numbers of a release, such as 0.1.0.
fn numbers(release: &str) -> [u32; 3] {
    let mut parts = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

/// The hash of the exact texts.
fn hash(texts: &[&str]) -> String {
    hash_of_lines(texts.iter().flat_map(|text| text.lines()))
}

/// The hash of the statements, without comments and layout.
fn hash_of_statements(texts: &[&str]) -> String {
    let lines = texts.iter().flat_map(|text| text.lines()).map(str::trim);
    hash_of_lines(lines.filter(|line| !line.is_empty() && !line.starts_with("--")))
}

fn hash_of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let mut hash = Sha256::new();
    for line in lines {
        hash.update(line.as_bytes());
        hash.update(b"\n");
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Migration = Migration {
        name: "first",
        oldest: 1,
        sql: "alter table a add column b int;",
    };

    fn scripts(migrations: &[Migration]) -> Scripts {
        Scripts::new(&["create table a ();"], migrations, &["create function f;"])
    }

    fn recorded(version: i32, release: &str, functions: &[&str]) -> Recorded {
        Recorded {
            version: Some(version),
            oldest: Some(1),
            base: Some(hash_of_statements(&["-- A table.\n\n  create table a ();\n"])),
            functions: Some(hash(functions)),
            release: Some(release.to_owned()),
        }
    }

    fn labels(scripts: &Scripts, recorded: &Recorded) -> Vec<String> {
        let missing = scripts.missing(scripts.judge(recorded)).unwrap();
        missing.iter().map(Step::label).collect()
    }

    #[test]
    fn what_is_missing_runs_in_order_and_nothing_twice() {
        let (base, first) = (scripts(&[]), scripts(&[FIRST]));
        assert_eq!(labels(&base, &Recorded::default()), ["0001 base", "functions"]);
        assert_eq!(
            labels(&first, &Recorded::default()),
            ["0001 base", "0002 first", "functions"]
        );
        let at_base = recorded(1, RELEASE, base.functions);
        assert_eq!(labels(&base, &at_base), [""; 0]);
        assert_eq!(labels(&first, &at_base), ["0002 first", "functions"]);
        assert_eq!(labels(&base, &recorded(2, RELEASE, base.functions)), [""; 0], "newer");
    }

    #[test]
    fn functions_follow_their_text_but_never_back_to_an_older_release() {
        let base = scripts(&[]);
        let other = ["create function g;"];
        assert_eq!(labels(&base, &recorded(1, RELEASE, &other)), ["functions"]);
        assert_eq!(labels(&base, &recorded(1, "0.0.1", &other)), ["functions"]);
        assert_eq!(labels(&base, &recorded(1, "999.0.0", &other)), [""; 0]);
        let newer = recorded(2, RELEASE, &other);
        assert_eq!(labels(&base, &newer), [""; 0], "a newer schema");
        let functions = Functions::Newer;
        assert_eq!(
            base.judge(&newer),
            SchemaFound::At {
                version: 2,
                oldest: 1,
                functions
            },
            "whoever made the schema made its functions"
        );
    }

    #[test]
    fn another_base_is_refused_and_comments_do_not_make_one() {
        let base = scripts(&[]);
        let mut other = recorded(1, RELEASE, base.functions);
        assert_ne!(base.judge(&other), SchemaFound::Unknown, "only the layout differs");
        other.base = Some(hash_of_statements(&["create table b ();"]));
        assert_eq!(base.judge(&other), SchemaFound::Unknown);
        other.base = None;
        assert!(matches!(base.missing(base.judge(&other)), Err(Error::SchemaUnknown)));
    }

    #[test]
    fn releases_are_compared_by_their_numbers() {
        assert!(numbers("0.10.0") > numbers("0.9.12"));
        assert_eq!(numbers("1.2.3-rc.4"), [1, 2, 3]);
        assert_eq!(numbers(""), [0, 0, 0]);
    }
}
