//! Everything around a scene: the database, progress lines, Ctrl-C, what is printed and kept, the exit code.

use std::{collections::BTreeMap, io::IsTerminal, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::Result;

use super::{
    crew::Crew,
    own::{INTERRUPTED, Site, TIMED_OUT, Tables},
    record::{Head, Tape},
    report,
};
use crate::output::{self, Advice};

/// Options of every scene, before the scene's name or after it.
#[derive(clap::Args)]
pub(crate) struct Manners {
    /// Print the result as one JSON object and nothing else
    #[arg(long, global = true)]
    json: bool,
    /// Write the run to FILE as JSON: the result, samples over time, and each start and kill of a worker
    #[arg(long, global = true, value_name = "FILE")]
    record: Option<PathBuf>,
    /// Seed for who fails when and how long calls take; random by default
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// Keep the database and the logs, and print where they are
    #[arg(long, global = true)]
    keep: bool,
    /// Give up after so many seconds
    #[arg(long, global = true, default_value_t = 120, hide = true)]
    limit: u64,
}

/// Where a scene runs, and how.
pub(crate) struct Show {
    pub(crate) site: Site,
    pub(crate) seed: u64,
    /// No progress and no table, for `--json`.
    pub(crate) quiet: bool,
    pub(crate) limit: Duration,
    /// Keeps the database and the logs.
    pub(crate) keep: bool,
    pub(crate) tape: Tape,
}

impl Show {
    /// The database's name for people.
    pub(crate) fn database(&self) -> &'static str {
        if self.site.is_postgres() {
            "PostgreSQL"
        } else {
            "SQLite"
        }
    }

    /// The first step of most scenes.
    pub(crate) fn creating(&self) -> &'static str {
        if self.site.is_postgres() {
            "creating a schema for the demo"
        } else {
            "creating the database"
        }
    }

    /// Says on stderr what is going on now: one line that changes on a terminal, plain lines elsewhere.
    pub(crate) fn step(&self, text: &str) {
        if self.quiet {
            return;
        }
        if std::io::stderr().is_terminal() {
            output::progress(&format!("  {text} …"));
        } else {
            output::note(text);
        }
    }

    /// Clears the changing line of a terminal.
    pub(crate) fn clear_step(&self) {
        if !self.quiet {
            output::progress("");
        }
    }
}

pub(crate) trait Scene {
    type Ended: Verdict;
    /// As on the command line.
    const NAME: &'static str;

    /// What is about to happen.
    fn intro(&self, show: &Show) -> String;

    /// How much work there is, and what it is called.
    fn size(&self) -> (&'static str, i64);

    /// The whole run, with the final count. If it is dropped half-way, the caller ends the crew.
    async fn play<DB: Tables>(&self, show: &Show, crew: &mut Option<Crew>) -> Result<Self::Ended>;
}

/// A run and its count.
pub(crate) trait Verdict {
    /// Whether every promise was kept.
    fn is_clean(&self) -> bool;

    /// What to say if the time was over before the work, and no promise is broken so far.
    fn unfinished(&self) -> Option<String>;

    /// For machines.
    fn json(&self) -> serde_json::Result<String>;

    /// For someone who has never seen this before.
    fn table(&self, show: &Show) -> String;

    /// Whether a broken promise was asked for.
    fn is_meant(&self) -> bool {
        false
    }

    /// The commands that show most of what was kept.
    fn looks(&self) -> &'static [&'static str] {
        &["status", "jobs"]
    }
}

pub(crate) async fn run<S: Scene>(
    database: Option<&str>,
    scene: &S,
    manners: &Manners,
    stop: impl Future<Output = ()>,
) -> Result<ExitCode> {
    check_record(manners)?;
    let show = Show {
        site: Site::new(database, "demo")?,
        seed: manners.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        quiet: manners.json,
        limit: Duration::from_secs(manners.limit),
        keep: manners.keep,
        tape: Tape::new(manners.record.clone()),
    };
    if !show.quiet {
        output::note(&scene.intro(&show));
    }
    let mut crew = None;
    let played = tokio::select! {
        played = play(scene, &show, &mut crew) => Some(played),
        () = stop => None,
    };
    show.clear_step();
    if let Some(mut crew) = crew {
        crew.dismiss(Duration::ZERO).await;
    }
    let Some(played) = played else {
        output::note("stopped; cleaning up");
        show.site.clear().await?;
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let ended = match played {
        Ok(ended) => ended,
        Err(error) => {
            // The first error is the one to report, whether or not the cleaning up succeeds.
            let _ = leave(show.site, manners.keep, &["status"]).await;
            return Err(error);
        }
    };
    let printed = print(scene, &show, &ended);
    // A broken promise, or what was not finished, can be looked into.
    leave(
        show.site,
        manners.keep || !ended.is_clean() && !ended.is_meant(),
        ended.looks(),
    )
    .await?;
    printed?;
    Ok(match (ended.is_clean(), ended.unfinished()) {
        (true, _) => ExitCode::SUCCESS,
        (false, Some(_)) => ExitCode::from(TIMED_OUT),
        (false, None) => ExitCode::FAILURE,
    })
}

/// A record that cannot be written is noticed before the run.
fn check_record(manners: &Manners) -> Result<()> {
    let Some(file) = &manners.record else { return Ok(()) };
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty());
    if folder.is_none_or(|folder| folder.is_dir()) && !file.is_dir() {
        return Ok(());
    }
    Err(Advice::usage(
        format!("--record {}: not a file in an existing folder", file.display()),
        "create the folder first, or name another file",
    ))
}

async fn play<S: Scene>(scene: &S, show: &Show, crew: &mut Option<Crew>) -> Result<S::Ended> {
    if show.site.is_postgres() {
        return scene.play::<sqlx::Postgres>(show, crew).await;
    }
    scene.play::<sqlx::Sqlite>(show, crew).await
}

/// Prints the result, and writes the record.
fn print<S: Scene>(scene: &S, show: &Show, ended: &S::Ended) -> Result<()> {
    if show.quiet {
        output::print(&format!("{}\n", ended.json()?))?;
        if let Some(unfinished) = ended.unfinished() {
            output::note(unfinished.trim_end());
        }
    } else {
        output::print(&ended.table(show))?;
    }
    let head = Head {
        scene: S::NAME,
        database: show.database(),
        seed: show.seed,
        size: BTreeMap::from([scene.size()]),
    };
    show.tape.write(head, &ended.json()?)
}

async fn leave(site: Site, keep: bool, looks: &[&str]) -> Result<()> {
    if !keep {
        return site.clear().await;
    }
    let options = site.options();
    let schema = site.is_postgres().then(|| site.schema.clone());
    let folder = site.keep();
    output::note(&format!("kept: {}", folder.display()));
    if let Some(schema) = schema {
        output::note(&format!(
            "kept: the schema {schema}; `drop schema {schema} cascade` removes it"
        ));
    }
    let program = report::program();
    let looks: Vec<String> = looks.iter().map(|look| format!("{program} {look} {options}")).collect();
    output::note(&format!("look:  {}", looks.join("\n       ")));
    Ok(())
}
