//! The show around a scene: where it plays, Ctrl-C, what is printed, what is left behind, the exit code.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use super::{
    super::own::{INTERRUPTED, Site, Tables, interrupted},
    crew::Crew,
};
use crate::output;

/// What every scene understands, before its name or after it.
#[derive(clap::Args)]
pub(crate) struct Manners {
    /// Print one JSON object and nothing else
    #[arg(long, global = true)]
    json: bool,
    /// Chooses who fails when, and how long things take; a new one each time unless given
    #[arg(long, global = true)]
    seed: Option<u64>,
    /// Leave the database and the logs, and say where
    #[arg(long, global = true)]
    keep: bool,
    /// Give up after so many seconds
    #[arg(long, global = true, default_value_t = 120, hide = true)]
    limit: u64,
}

/// Where a scene plays, and how.
pub(crate) struct Show {
    pub(crate) site: Site,
    pub(crate) seed: u64,
    /// No bar and no words: somebody wants JSON.
    pub(crate) quiet: bool,
    pub(crate) limit: Duration,
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
}

pub(crate) trait Scene {
    type Ended: Verdict;

    /// What is about to happen, in one line.
    fn intro(&self, show: &Show) -> String;

    /// The whole run, up to the count. Dropped half-way it leaves the crew to the caller, who ends it.
    async fn play<DB: Tables>(&self, show: &Show, crew: &mut Option<Crew>) -> Result<Self::Ended>;
}

/// A run and its count.
pub(crate) trait Verdict {
    /// Whether every promise was kept.
    fn is_clean(&self) -> bool;

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

pub(crate) async fn run<S: Scene>(database: Option<&str>, scene: &S, manners: &Manners) -> Result<ExitCode> {
    let show = Show {
        site: Site::new(database, "demo")?,
        seed: manners.seed.unwrap_or_else(|| fastrand::u64(..1_000_000)),
        quiet: manners.json,
        limit: Duration::from_secs(manners.limit),
    };
    if !show.quiet {
        output::note(&scene.intro(&show));
    }
    let mut crew = None;
    let played = tokio::select! {
        played = play(scene, &show, &mut crew) => Some(played),
        () = interrupted() => None,
    };
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
            // What went wrong first is what to tell, whether or not it can be cleaned up.
            let _ = leave(show.site, manners.keep, &["status"]).await;
            return Err(error);
        }
    };
    let told = if show.quiet {
        output::print(&format!("{}\n", ended.json()?))
    } else {
        output::print(&ended.table(&show))
    };
    // What went wrong can be looked into.
    leave(
        show.site,
        manners.keep || !ended.is_clean() && !ended.is_meant(),
        ended.looks(),
    )
    .await?;
    told?;
    Ok(if ended.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

async fn play<S: Scene>(scene: &S, show: &Show, crew: &mut Option<Crew>) -> Result<S::Ended> {
    if show.site.is_postgres() {
        return scene.play::<sqlx::Postgres>(show, crew).await;
    }
    scene.play::<sqlx::Sqlite>(show, crew).await
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
    let looks: Vec<String> = looks.iter().map(|look| format!("rowlock {look} {options}")).collect();
    output::note(&format!("look:  {}", looks.join("\n       ")));
    Ok(())
}
