//! The scenes of `rowlock demo`, for newcomers. Each scene is a small application with separate worker processes, and
//! counts at the end what was lost or doubled.
//!
//! - `orders`, the default: orders go through workers that are killed all the time
//! - `charges`: the payment provider also loses replies, and half of its accounts ignore idempotency keys
//! - `incidents`: many evaluations of the same entity run at the same time, and only one may act
//! - `snoozes`: workers run jobs from an existing application table, on PostgreSQL
//!
//! The scenes share the worker processes (`crew`), the provider, the run with its kills and progress bar, the recorder
//! (`record`) and everything around a run (`show`).
//!
//! This is a part of the command line, on the public API of `rowlock`. The processes of a scene are the calling program
//! itself, started again with the hidden commands `demo-worker` and `demo-provider`: it passes these to [`work`] and
//! [`provide`].

mod charges;
mod crew;
mod desk;
mod ground;
mod incidents;
mod orders;
mod output;
mod own;
mod provider;
mod record;
mod report;
mod run;
mod show;
mod snoozes;

use std::{net::SocketAddr, process::ExitCode, time::Duration};

use anyhow::Result;
use clap::Subcommand;
use rowlock::{Backoff, Rowlock, Worker};

pub use self::{
    desk::{Args as ProviderArgs, provide},
    output::Advice,
};
use self::{own::Tables, show::Manners};

/// How long a silent worker keeps its jobs: the shortest lease there is, so that a demo does not wait long for them.
const LEASE: Duration = Duration::from_secs(2);

/// The options of `rowlock demo`.
#[derive(clap::Args)]
pub struct Args {
    #[command(subcommand)]
    scene: Option<Scene>,
    #[command(flatten)]
    orders: orders::Args,
    #[command(flatten)]
    manners: Manners,
}

#[derive(Subcommand)]
enum Scene {
    /// Run orders through workers that are killed all the time (the default scene)
    Orders(orders::Args),
    /// Charge orders at a provider that loses replies, with and without idempotency keys
    Charges(charges::Args),
    /// Evaluate the same entities many times at the same time: an entity never has two open incidents
    Incidents(incidents::Args),
    /// Send reminders from an existing application table while workers are killed (PostgreSQL)
    Snoozes(snoozes::Args),
}

/// The end of a scene's help: the JSON of its result, and of a recorded run.
fn after_help(fields: &str) -> String {
    format!(
        "--json prints: {fields}\n\
         Exits with 1 if a promise was broken, with 124 if the demo did not finish in time; lost and\n\
         doubled are null then.\n\n{}",
        record::HELP
    )
}

/// Plays a scene until it is over or `stop` resolves, prints what happened, and answers with the exit code: 0 if every
/// promise was kept, 1 if one was broken, 124 if the time was over first, 130 if it was stopped.
///
/// Without a URL of PostgreSQL it runs on a new SQLite file. It removes what it made, unless the options keep it.
///
/// # Errors
/// [`Advice`] before anything is done; anything else that keeps the scene from being played.
///
/// Cancel safety: if it is dropped, its processes end by themselves, and what it made stays.
pub async fn run(database: Option<&str>, args: Args, stop: impl Future<Output = ()>) -> Result<ExitCode> {
    if let (Some(_), Some(option)) = (&args.scene, args.orders.given()) {
        return Err(Advice::usage(
            format!("{option} comes before the name of the scene"),
            "put the options of a scene after its name: rowlock demo charges --orders 50",
        ));
    }
    match args.scene {
        None => show::run(database, &args.orders, &args.manners, stop).await,
        Some(Scene::Orders(scene)) => show::run(database, &scene, &args.manners, stop).await,
        Some(Scene::Charges(scene)) => show::run(database, &scene, &args.manners, stop).await,
        Some(Scene::Incidents(scene)) => show::run(database, &scene, &args.manners, stop).await,
        Some(Scene::Snoozes(scene)) => {
            scene.check(database)?;
            show::run(database, &scene, &args.manners, stop).await
        }
    }
}

/// The settings of a worker process.
#[derive(clap::Args)]
pub struct WorkerArgs {
    #[arg(long)]
    number: u32,
    #[command(subcommand)]
    role: Role,
}

#[derive(Subcommand)]
enum Role {
    Orders {
        #[arg(long)]
        provider: SocketAddr,
    },
    Charges {
        #[arg(long)]
        provider: SocketAddr,
        #[arg(long)]
        careless: bool,
    },
    Incidents(incidents::Role),
    Snoozes(snoozes::Role),
}

/// The hidden command `demo-worker`: one worker process, until its stdin ends.
///
/// # Errors
/// Those of the worker at its start. Cancel safety: as a worker that is killed.
pub async fn work(url: &str, schema: &str, args: WorkerArgs) -> Result<()> {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(std::io::stderr)
        .init();
    let args = match args {
        WorkerArgs {
            role: Role::Snoozes(role),
            number,
        } => return snoozes::work(url, schema, number, role).await,
        args => args,
    };
    if url.starts_with("postgres") {
        return work_on::<sqlx::Postgres>(url, schema, format!("{schema}.demo_"), args).await;
    }
    work_on::<sqlx::Sqlite>(url, schema, "demo_".into(), args).await
}

async fn work_on<DB: Tables>(url: &str, schema: &str, prefix: String, args: WorkerArgs) -> Result<()> {
    let rowlock = Rowlock::<DB>::open_in(url, schema)?;
    let name = format!("demo worker {}", args.number);
    let told = stdin_ended();
    match args.role {
        Role::Orders { provider } => {
            let shop = orders::Shop { prefix, provider };
            orders::worker(&rowlock, shop).name(name).run_until(told).await?;
        }
        Role::Charges { provider, careless } => {
            let shop = charges::Shop {
                prefix,
                provider,
                careless,
            };
            charges::worker(&rowlock, shop).name(name).run_until(told).await?;
        }
        Role::Incidents(role) => incidents::work(&rowlock, prefix, (role, args.number), told).await?,
        // Only on PostgreSQL, so not here.
        Role::Snoozes(_) => {}
    }
    Ok(())
}

/// Resolves when the demo closes this process's stdin, or dies. The process exits some seconds later in any case.
async fn stdin_ended() {
    let (ended, stop) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // The demo writes nothing there.
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        drop(ended);
        // A graceful shutdown takes no longer than this.
        std::thread::sleep(Duration::from_secs(10));
        std::process::exit(1);
    });
    drop(stop.await);
}

/// A worker of the demo's queue, without handlers yet. It claims few jobs, so that a kill hits few.
fn bare_worker<A: Send + Sync + 'static, DB: Tables>(rowlock: &Rowlock<DB>, state: A) -> Worker<A, DB> {
    Worker::new(rowlock)
        .state(state)
        .queue("demo", 4)
        .prefetch(2)
        .lease(LEASE)
        .grace(LEASE)
}

/// Quick retries, so that the demo does not wait.
fn backoff() -> Backoff {
    Backoff::new()
        .base(Duration::from_millis(200))
        .max(Duration::from_secs(1))
}
