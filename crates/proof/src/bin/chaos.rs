//! The chaos run, as `cargo xtask proof` starts it.

use std::{
    path::PathBuf,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use proof::chaos::{
    mutants::{Caught, MUTANTS, Mutant, NOT_YET_BUILT, SMOKE, try_out},
    orders::Workload,
    report::{Part, object},
    run::{Kind, Lanes, Plan, programs, run},
};

/// What the caller asked for.
struct Options {
    smoke: bool,
    minutes: f64,
    seed: u64,
    databases: Vec<Kind>,
    workloads: Vec<Workload>,
    json: bool,
    out: PathBuf,
    keep: bool,
    record: Option<PathBuf>,
    mutants: bool,
    only: Option<String>,
}

fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1).collect()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let outcome = runtime
        .context("no runtime")
        .and_then(|runtime| runtime.block_on(until_told(&options)));
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whatever was asked for. On a signal to stop, it removes its servers, processes and file systems.
async fn until_told(options: &Options) -> Result<bool> {
    let mut asked = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    let work = async {
        match options.mutants {
            true => mutants(options).await,
            false => all(options).await,
        }
    };
    tokio::select! {
        outcome = work => outcome,
        _ = asked.recv() => bail!("told to stop"),
        _ = tokio::signal::ctrl_c() => bail!("told to stop"),
    }
}

fn parse(args: Vec<String>) -> Result<Options> {
    let mut options = Options {
        smoke: false,
        minutes: 10.0,
        seed: fastrand::u64(..1 << 48),
        databases: vec![Kind::Postgres, Kind::Sqlite],
        workloads: Workload::ALL.to_vec(),
        json: false,
        out: PathBuf::from("target/proof"),
        keep: false,
        record: None,
        mutants: false,
        only: None,
    };
    let mut args = args.into_iter();
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--smoke" => options.smoke = true,
            "--minutes" => options.minutes = value()?.parse().context("--minutes wants a number")?,
            "--seed" => options.seed = value()?.parse().context("--seed wants a whole number")?,
            "--database" => {
                options.databases = match value()?.as_str() {
                    "postgres" => vec![Kind::Postgres],
                    "sqlite" => vec![Kind::Sqlite],
                    "both" => vec![Kind::Postgres, Kind::Sqlite],
                    other => bail!("--database is postgres, sqlite or both, not {other}"),
                };
            }
            "--workload" => {
                let name = value()?;
                let known: Vec<&str> = Workload::ALL.iter().map(|workload| workload.as_str()).collect();
                let workload = Workload::parse(&name);
                options.workloads =
                    vec![workload.with_context(|| format!("--workload is one of {}", known.join(", ")))?];
            }
            "--mutants" => options.mutants = true,
            "--mutant" => (options.mutants, options.only) = (true, Some(value()?)),
            "--json" => options.json = true,
            "--keep" => options.keep = true,
            "--record" => options.record = Some(value()?.into()),
            "--out" => options.out = value()?.into(),
            other => bail!("proof does not take `{other}`"),
        }
    }
    Ok(options)
}

/// Runs every database in turn. `false` when something was broken.
async fn all(options: &Options) -> Result<bool> {
    let mut parts = Vec::new();
    let folder = std::path::absolute(&options.out)?.join(format!("seed-{}", options.seed));
    // Of an earlier run with the same seed.
    match std::fs::remove_dir_all(&folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    eprintln!("seed {}", options.seed);
    for database in &options.databases {
        let plan = plan(options, *database, &folder)?;
        let started = Instant::now();
        let history = run(&plan)
            .await
            .with_context(|| format!("on {}; logs in {}", database.as_str(), plan.folder.display()))?;
        let part = Part::new(database.as_str(), started.elapsed().as_secs_f64(), history);
        let table = part.table();
        std::fs::write(plan.folder.join("table.txt"), &table)?;
        std::fs::write(plan.folder.join("violations.txt"), part.all_violations())?;
        eprint!("{table}");
        parts.push(part);
    }
    let object = object(&parts, options.seed);
    if options.json {
        println!("{object}");
    }
    if let Some(folder) = &options.record {
        record(folder, &parts, &object)?;
    }
    let clean = parts.iter().all(|part| part.violations().next().is_none());
    if clean && !options.keep {
        std::fs::remove_dir_all(&folder)?;
    } else {
        std::fs::write(folder.join("summary.json"), format!("{object:#}\n"))?;
        eprintln!("logs in {}", folder.display());
    }
    Ok(clean)
}

/// Leaves the tables and the object where they can be kept.
fn record(folder: &std::path::Path, parts: &[Part], object: &serde_json::Value) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    for part in parts {
        std::fs::write(folder.join(format!("{}.txt", part.database)), part.table())?;
    }
    Ok(std::fs::write(folder.join("summary.json"), format!("{object:#}\n"))?)
}

fn plan(options: &Options, database: Kind, folder: &std::path::Path) -> Result<Plan> {
    let smoke = match database {
        Kind::Postgres => Duration::from_secs(85),
        Kind::Sqlite => Duration::from_secs(40),
    };
    Ok(Plan {
        database,
        lasts: if options.smoke {
            smoke
        } else {
            Duration::from_secs_f64(options.minutes * 60.0)
        },
        seed: options.seed,
        workloads: options.workloads.clone(),
        folder: folder.join(database.as_str()),
        programs: programs()?,
        lease: Duration::from_secs(2),
        slow: false,
        rate: 300,
        gap: Duration::from_millis(if options.smoke { 500 } else { 900 }),
        cuts: if options.smoke { 0.004 } else { 0.002 },
        env: Vec::new(),
        spoil: None,
        lanes: Lanes::ALL,
        patience: Duration::from_secs(90),
    })
}

/// What the checks said, here and beside the logs of the run.
fn tell(plan: &Plan, caught: &Caught) -> Result<()> {
    caught.says.iter().for_each(|what| eprintln!("    {what}"));
    Ok(std::fs::write(
        plan.folder.join("violations.txt"),
        caught.says.join("\n"),
    )?)
}

/// Puts in one bug after the other; every one must be noticed, and nothing where there is none. The smoke has two bugs
/// and leaves the run without any to `--smoke` alone.
async fn mutants(options: &Options) -> Result<bool> {
    let folder = std::path::absolute(&options.out)?.join(format!("mutants-{}", options.seed));
    let fresh = |no: usize| -> Result<Plan> {
        let mut plan = plan(options, Kind::Postgres, &folder.join(format!("{no:02}")))?;
        plan.lasts = Duration::from_secs(if options.smoke { 10 } else { 25 });
        plan.gap = Duration::from_millis(400);
        plan.patience = Duration::from_secs(60);
        Ok(plan)
    };
    let wanted = |mutant: &Mutant| match &options.only {
        Some(only) => mutant.name.contains(only.as_str()),
        None => !options.smoke || SMOKE.contains(&mutant.name),
    };
    let chosen: Vec<&Mutant> = MUTANTS.iter().filter(|mutant| wanted(mutant)).collect();
    let mut clean = !chosen.is_empty();
    if !options.smoke {
        let plan = fresh(0)?;
        let sound = try_out(None, &plan).await?;
        clean &= sound.by.is_empty();
        let verdict = match sound.by.is_empty() {
            true => "nothing noticed",
            false => "FALSE ALARM",
        };
        println!("{:<76} {verdict}", "no bug at all");
        tell(&plan, &sound)?;
    }
    let mut caught = 0;
    for (no, mutant) in (1..).zip(&chosen) {
        let plan = fresh(no)?;
        let found = try_out(Some(mutant), &plan).await.with_context(|| mutant.name)?;
        let verdict = match found.by.first() {
            Some(by) => format!("caught: {by}"),
            None => "NOT CAUGHT".into(),
        };
        caught += usize::from(!found.by.is_empty());
        println!("{:<76} {verdict}", format!("{} ({})", mutant.name, mutant.seen_in));
        tell(&plan, &found)?;
    }
    for name in NOT_YET_BUILT {
        println!("{name:<76} not yet built");
    }
    println!("caught {caught}/{}", chosen.len());
    clean &= caught == chosen.len();
    if clean && !options.keep {
        std::fs::remove_dir_all(&folder)?;
    }
    Ok(clean)
}
