//! `rowlock demo`: orders go through worker processes that are killed all the time, and at the end everything is
//! counted: in the shop's tables, and at a provider that is outside the database.
//!
//! Orders come in waves, one before every kill, so that there is work in hand whenever a worker dies. Half of the kills
//! come at a random moment; the other half when the provider has just acted and the worker does not know it yet.

mod check;
mod crew;
mod play;
mod provider;
mod report;
mod shop;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use anyhow::Result;
use rowlock::Rowlock;

use self::{crew::Crew, play::Play, provider::Provider, shop::Shop};
use super::own::{INTERRUPTED, Site, Tables, interrupted};
use crate::output;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How many orders to place; each is three jobs
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    orders: u32,
    /// How many worker processes
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=64))]
    workers: u32,
    /// How many times to kill one with SIGKILL; it is started again each time
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    kills: u32,
    /// Print one JSON object: jobs, done, effects, lost, doubled, kills, seconds
    #[arg(long)]
    json: bool,
    /// Chooses whom to kill and when, and the provider's moods; a new one each time unless given
    #[arg(long)]
    seed: Option<u64>,
    /// Leave the database and the logs, and say where
    #[arg(long)]
    keep: bool,
    /// Give up after so many seconds
    #[arg(long, default_value_t = 120, hide = true)]
    limit: u64,
}

/// What a worker process is told.
#[derive(clap::Args)]
pub(crate) struct WorkerArgs {
    #[arg(long)]
    provider: SocketAddr,
    #[arg(long)]
    number: u32,
}

pub(crate) async fn run(database: Option<&str>, args: Args) -> Result<ExitCode> {
    let site = Site::new(database, "demo")?;
    if site.is_postgres() {
        return run_on::<sqlx::Postgres>(site, args).await;
    }
    run_on::<sqlx::Sqlite>(site, args).await
}

async fn run_on<DB: Tables>(site: Site, args: Args) -> Result<ExitCode> {
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    if !args.json {
        output::note(&report::intro(&args, &site));
    }
    let mut crew = None;
    let played = tokio::select! {
        played = play::<DB>(&site, &args, seed, &mut crew) => Some(played),
        () = interrupted() => None,
    };
    if let Some(mut crew) = crew {
        crew.dismiss(Duration::ZERO).await;
    }
    let Some(played) = played else {
        output::note("stopped; cleaning up");
        site.clear().await?;
        return Ok(ExitCode::from(INTERRUPTED));
    };
    let ended = match played {
        Ok(ended) => ended,
        Err(error) => {
            // What went wrong first is what to tell, whether or not it can be cleaned up.
            let _ = leave(site, args.keep).await;
            return Err(error);
        }
    };
    let told = if args.json {
        output::print(&format!("{}\n", serde_json::to_string(&ended.summary())?))
    } else {
        output::print(&report::table(&ended, &args, &site, seed))
    };
    // What went wrong can be looked into.
    leave(site, args.keep || !ended.is_clean()).await?;
    told?;
    Ok(if ended.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The whole run, up to the count. Dropped half-way it leaves the crew to the caller, who ends it.
async fn play<DB: Tables>(site: &Site, args: &Args, seed: u64, crew: &mut Option<Crew>) -> Result<report::Ended> {
    let rowlock = Rowlock::<DB>::open_in(&site.url, &site.schema)?;
    rowlock.migrate().await?;
    let (provider, strikes) = Provider::start(site.folder(), seed).await?;
    let crew = crew.insert(Crew::new(site, provider.address)?);
    let mut play = Play::<DB>::open(site, args, seed, rowlock).await?;
    crew.hire(args.workers as usize)?;
    let seconds = play.run(crew, &provider, strikes).await?;
    let stuck = play.stuck().await?;
    // Nobody may be at work while the count is made.
    crew.dismiss(Duration::from_secs(5)).await;
    let found = play.count(&provider.tally()?).await?;
    Ok(report::Ended {
        found,
        seconds,
        kills: crew.kills,
        struck: play.struck,
        stuck,
    })
}

async fn leave(site: Site, keep: bool) -> Result<()> {
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
    output::note(&format!(
        "look:  rowlock status {options}\n       rowlock jobs {options}"
    ));
    Ok(())
}

/// The hidden command: one worker process, until its stdin ends.
pub(crate) async fn work(url: &str, schema: &str, args: WorkerArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    if url.starts_with("postgres") {
        return work_on::<sqlx::Postgres>(url, schema, format!("{schema}.demo_"), args).await;
    }
    work_on::<sqlx::Sqlite>(url, schema, "demo_".into(), args).await
}

async fn work_on<DB: Tables>(url: &str, schema: &str, prefix: String, args: WorkerArgs) -> Result<()> {
    let (ended, stop) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // The demo writes nothing there; the pipe ends when it lets go, or dies.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(ended);
        // A stop in good order takes no longer than this.
        std::thread::sleep(Duration::from_secs(10));
        std::process::exit(1);
    });
    let rowlock = Rowlock::<DB>::open_in(url, schema)?;
    let shop = Shop {
        prefix,
        provider: args.provider,
    };
    let worker = shop::worker(&rowlock, shop, format!("demo worker {}", args.number));
    worker.run_until(async move { drop(stop.await) }).await?;
    Ok(())
}
