//! The program whose instructions `cargo xtask counts` counts: the hot path's verbs on batches of a hundred jobs.
//!
//! It runs under callgrind, which writes down what happens between [`counted_from`] and [`counted_to`]: every part in
//! its order, once for every round; all threads together, because on SQLite the writer has its own. Nothing is timed,
//! and a server's work is not in the figures.

use anyhow::{Result, bail, ensure};
use rowlock::{
    Backend, Job, Rowlock,
    counts::{Drafts, Verbs},
};
use serde::{Deserialize, Serialize};

/// What is counted without a database, in this order.
const PARTS_OF_JOBS: &str = "encode decode";

/// What is counted on a database, in this order.
const PARTS_OF_VERBS: &str = "enqueue claim settle";

const JOBS: i32 = 100;

/// Rounds before counting begins, so that statements are prepared, files have their pages and all lazy things have
/// happened.
const WARM_UP: usize = 3;

/// Rounds that are counted. The least of them is the figure: what varies is how often a reply arrives in pieces and how
/// the allocator's lists happen to lie, and both only add.
const COUNTED: usize = 7;

/// About 200 bytes of JSON: numbers, text with something to escape, a list.
#[derive(Serialize, Deserialize, Job)]
#[job(kind = "ship")]
struct Ship {
    order: i64,
    weight_g: u32,
    address: String,
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    article: String,
    pieces: u32,
}

impl Ship {
    fn number(order: i64) -> Ship {
        let line = |n: u32| Line {
            article: format!("article-{n:04}"),
            pieces: n,
        };
        Ship {
            order,
            weight_g: 1250,
            address: "Ada Lovelace\n12 St James's Square\nLondon \"SW1Y\" 4JH".to_owned(),
            lines: vec![line(1), line(2), line(3)],
        }
    }
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let jobs: Vec<Ship> = (0..JOBS).map(|i| Ship::number(100_000 + i64::from(i))).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["parts", "job"] => println!("{PARTS_OF_JOBS}"),
        ["parts", _] => println!("{PARTS_OF_VERBS}"),
        ["job"] => without_database(&jobs)?,
        ["sqlite"] => {
            let folder = tempfile::tempdir()?;
            let url = format!("sqlite:{}?mode=rwc", folder.path().join("counts.db").display());
            on_database::<sqlx::Sqlite>(&jobs, &url, "rowlock")?;
        }
        ["postgres", url, schema] => on_database::<sqlx::Postgres>(&jobs, url, schema)?,
        _ => bail!("usage: counts job | sqlite | postgres <url> <schema> | parts <job | sqlite | postgres>"),
    }
    Ok(())
}

fn without_database(jobs: &[Ship]) -> Result<()> {
    for round in 0..WARM_UP + COUNTED {
        let count = round >= WARM_UP;
        let drafts = take(count, || Drafts::of(jobs))?;
        let decoded = take(count, || drafts.decode::<Ship>()).map_err(anyhow::Error::msg)?;
        let same = jobs.iter().map(|job| job.order).eq(decoded.iter().map(|job| job.order));
        ensure!(same, "a job does not come back as it was");
    }
    Ok(())
}

fn on_database<DB: Backend>(jobs: &[Ship], url: &str, schema: &str) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let verbs = runtime.block_on(async {
        let rowlock = Rowlock::<DB>::open_in(url, schema)?;
        rowlock.migrate().await?;
        Verbs::new(rowlock).await
    })?;
    let drafts = Drafts::of(jobs)?;
    for round in 0..WARM_UP + COUNTED {
        let count = round >= WARM_UP;
        let put = take(count, || runtime.block_on(verbs.enqueue(&drafts)))?;
        let claims = take(count, || runtime.block_on(verbs.claim::<Ship>(JOBS)))?;
        let settled = take(count, || runtime.block_on(verbs.settle(&claims)))?;
        let (all, claimed) = (jobs.len(), claims.whole());
        ensure!(
            (put, claimed, settled) == (all, all, all),
            "of {all} jobs {put} were enqueued, {claimed} claimed, {settled} settled"
        );
    }
    Ok(())
}

/// callgrind writes down what was counted so far whenever one of the two is called; it knows them by their names. They
/// say different things, or the compiler would make one function of them.
#[inline(never)]
fn counted_from() {
    std::hint::black_box("from");
}

#[inline(never)]
fn counted_to() {
    std::hint::black_box("to");
}

/// Runs a part, under callgrind's eye if it is to be counted.
fn take<T>(count: bool, part: impl FnOnce() -> T) -> T {
    if !count {
        return part();
    }
    counted_from();
    let answer = part();
    counted_to();
    answer
}
