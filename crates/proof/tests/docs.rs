//! What the pages say is so: named tests exist, links lead somewhere, and the SQL runs.

use std::path::{Path, PathBuf};

use proof::bed::Database;
use sqlx::Connection;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// Every file with this ending under a folder.
fn files(folder: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        if path.is_dir() {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|e| e == ending) {
            found.push(path);
        }
    }
}

/// The text between backticks.
fn quoted(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Whether a quoted word can only be the name of a test: a claim has many words.
fn is_claim(word: &str) -> bool {
    let plain = word
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    plain && word.matches('_').count() >= 3
}

fn rust_sources() -> String {
    let mut paths = Vec::new();
    files(&root().join("crates"), "rs", &mut paths);
    let texts = paths
        .iter()
        .map(|path| std::fs::read_to_string(path).expect("sources are text"));
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_test_named_in_the_guarantees_exists() {
    let sources = rust_sources();
    let page = read("docs/guarantees.md");
    let named: Vec<&str> = quoted(&page).into_iter().filter(|word| is_claim(word)).collect();
    assert!(named.len() >= 40, "only {} tests are named", named.len());
    // A test is a function, or a line of a macro that makes a test of each line.
    let exists = |name: &str| sources.contains(&format!("fn {name}(")) || sources.contains(&format!("\n    {name}: "));
    let missing: Vec<_> = named.iter().filter(|name| !exists(name)).collect();
    assert!(missing.is_empty(), "no such tests: {missing:#?}");
}

#[test]
fn every_promise_and_invariant_in_the_guarantees_names_a_test() {
    let page = read("docs/guarantees.md");
    let mut rows = Vec::new();
    for line in page.lines().filter(|line| line.starts_with("| ")) {
        let Some(mark) = line.split('|').nth(1).map(str::trim) else {
            continue;
        };
        let number = mark.strip_prefix(|c: char| "ABCDESLW".contains(c));
        if number.is_some_and(|n| n.parse::<u8>().is_ok()) {
            assert!(quoted(line).into_iter().any(is_claim), "row {mark} names no test");
            rows.push(mark);
        }
    }
    let wanted = "A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 B1 B2 B3 B4 C1 C2 C3 C4 C5 C6 C7 C8 C9 C10 C11 D1 D2 D3 D4 E1 E2 E3 E4 E5 E6 W1 W2 \
                  S1 S2 S3 S4 S5 S6 S7 S8 S9 S11 S12 L1 L2 L3 L4 L5";
    assert_eq!(rows.join(" "), wanted);
}

#[test]
fn every_link_between_the_pages_leads_somewhere() {
    let mut pages = Vec::new();
    files(&root().join("docs"), "md", &mut pages);
    pages.extend(["README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md"].map(|page| root().join(page)));
    let mut broken = Vec::new();
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        for target in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            let outside = target.contains("://") || path.is_empty();
            if !outside && !page.parent().unwrap().join(path).exists() {
                broken.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_path_named_in_the_architecture_exists() {
    let page = read("ARCHITECTURE.md");
    let path =
        |word: &&str| word.contains('/') && !word.contains([' ', '<', '(', '*', '{', '→']) && !word.starts_with('/');
    let missing: Vec<_> = quoted(&page)
        .into_iter()
        .filter(path)
        .filter(|word| !root().join(word).exists())
        .collect();
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The parts of a message that are the same every time: the text between its placeholders (`N`, `FILE`, `…`).
fn fixed_parts(message: &str) -> Vec<String> {
    let varies = |word: &str| {
        let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
        bare == "i" || bare != "NUL" && !bare.is_empty() && bare.chars().all(|c| c.is_ascii_uppercase())
    };
    let words = message.replace('…', " X ");
    let words = words.split(' ').map(|word| if varies(word) { "\n" } else { word });
    let parts = words.collect::<Vec<_>>().join(" ");
    // Messages are put together at a colon (field, problem) and at a comma.
    let parts = parts
        .split(['\n', ':', ','])
        .map(|part| part.trim_matches([' ', '"']).to_owned());
    parts.filter(|part| part.len() >= 12).collect()
}

#[test]
fn every_message_on_the_errors_page_is_one_the_sources_can_say() {
    let sources = rust_sources().replace('`', "");
    // A long literal goes on in the next line.
    let sources: String = sources.split("\\\n").map(str::trim_start).collect();
    let page = read("docs/errors.md");
    let cells = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|line| line.split(" | ").next());
    let messages: Vec<&str> = cells.flat_map(quoted).collect();
    assert!(messages.len() >= 40, "{} messages", messages.len());
    let parts = messages.iter().flat_map(|message| fixed_parts(message));
    let unknown: Vec<String> = parts.filter(|part| !sources.contains(part.as_str())).collect();
    assert!(unknown.is_empty(), "{unknown:#?}");
}

/// The fenced blocks of a page that begin with this mark.
fn blocks<'a>(page: &'a str, mark: &str) -> Vec<&'a str> {
    let fence = format!("```{mark}\n");
    page.split(fence.as_str())
        .skip(1)
        .filter_map(|rest| rest.split("```").next())
        .collect()
}

/// The statements in the text of the operating guide that are whole, of this database or of both.
fn told(page: &str, sqlite: bool) -> Vec<String> {
    let all = page.lines().flat_map(quoted).map(str::to_owned);
    let whole = all
        .filter(|text| (text.starts_with("select ") && text.contains("rowlock")) || text.starts_with("insert into "));
    let whole = whole.filter(|text| !text.contains('…'));
    match sqlite {
        // The page says how to write it there; functions and the server's own views are PostgreSQL's alone.
        true => whole
            .filter(|text| {
                !text.starts_with("select rowlock.")
                    && !text.contains("rowlock.oldest")
                    && !text.contains("rowlock.dead")
            })
            .map(|text| text.replace("rowlock.", "rowlock_"))
            .collect(),
        false => whole.filter(|text| !text.contains("rowlock_")).collect(),
    }
}

/// Runs it; a verb may say that there is no job 42.
async fn runs<DB: sqlx::Database>(db: &mut DB::Connection, statement: &str)
where
    for<'c> &'c mut DB::Connection: sqlx::Executor<'c, Database = DB>,
{
    let run = sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(db).await;
    let Err(error) = run else { return };
    let Some(refusal) = error.as_database_error() else {
        panic!("{statement}\n{error}");
    };
    let code = refusal.code().unwrap_or_default();
    assert!(
        code == "RL010" || refusal.message().starts_with("RL010"),
        "{statement}\n{error}"
    );
}

#[tokio::test]
async fn every_query_of_the_pages_runs_on_sqlite() {
    let (page, guide) = (read("docs/sql.md"), read("docs/operating.md"));
    let (queries, told) = (blocks(&page, "sql sqlite"), told(&guide, true));
    assert!(
        queries.len() >= 6 && told.len() >= 16,
        "{} {}",
        queries.len(),
        told.len()
    );
    let [server] = proof::bed::sqlite_server().try_into().unwrap();
    let database = Database::fresh(&server, "docs::every_query_of_the_pages_runs")
        .await
        .unwrap();
    let rowlock = rowlock::sqlite::Rowlock::open(&database.url).unwrap();
    rowlock.migrate().await.unwrap();
    let mut db = sqlx::SqliteConnection::connect(&database.url).await.unwrap();
    for query in queries.into_iter().chain(told.iter().map(String::as_str)) {
        runs::<sqlx::Sqlite>(&mut db, query).await;
    }
}

#[tokio::test]
async fn every_query_of_the_pages_runs_on_postgresql() {
    let (page, guide) = (read("docs/sql.md"), read("docs/operating.md"));
    let (queries, told) = (blocks(&page, "sql postgresql"), told(&guide, false));
    assert!(
        queries.len() >= 6 && told.len() >= 22,
        "{} {}",
        queries.len(),
        told.len()
    );
    for server in proof::bed::postgres_servers() {
        let case = "docs::every_query_of_the_pages_runs";
        let database = Database::fresh(&server, case).await.unwrap();
        let rowlock = rowlock::postgres::Rowlock::open(&database.url).unwrap();
        rowlock.migrate().await.unwrap();
        let mut db = sqlx::PgConnection::connect(&database.url).await.unwrap();
        for query in queries.iter().copied().chain(told.iter().map(String::as_str)) {
            runs::<sqlx::Postgres>(&mut db, query).await;
        }
    }
}
