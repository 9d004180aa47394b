//! The SQS workload, as `cargo xtask proof --workload sqs` starts it. It wants the emulators and, for PostgreSQL, a
//! server in the environment, as the tests have them.

use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use proof::bed::{Server, postgres_servers, sqlite_server};
use proof_sqs::{
    emulators,
    workload::{Size, reference, run},
};
use serde_json::json;

struct Options {
    size: Size,
    json: bool,
    databases: Vec<Server>,
    /// Only this one.
    emulator: Option<String>,
}

fn parse(args: Vec<String>) -> Result<Options> {
    let mut options = Options {
        size: Size { jobs: 10_000 },
        json: false,
        databases: Vec::new(),
        emulator: None,
    };
    let (mut args, mut database) = (args.into_iter(), "both".to_owned());
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} wants a value"));
        match arg.as_str() {
            "--jobs" => options.size.jobs = value()?.parse().context("--jobs wants a whole number")?,
            "--smoke" => options.size.jobs = 300,
            "--json" => options.json = true,
            "--database" => database = value()?,
            "--emulator" => options.emulator = Some(value()?),
            "--workload" => drop(value()?),
            other => bail!("proof --workload sqs does not take `{other}`"),
        }
    }
    options.databases = match database.as_str() {
        "sqlite" => sqlite_server(),
        "postgres" => postgres_servers(),
        "both" => [sqlite_server(), postgres_servers()].concat(),
        other => bail!("--database is postgres, sqlite or both, not {other}"),
    };
    Ok(options)
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = match parse(std::env::args().skip(1).collect()) {
        Ok(options) => options,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    match all(&options).await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(3),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn all(options: &Options) -> Result<bool> {
    let started = std::time::Instant::now();
    let expected = reference(options.size).await?;
    let without = started.elapsed().as_secs_f64();
    eprintln!("without SQS: {} jobs in {without:.0} s", options.size.jobs);
    let (mut parts, mut clean) = (Vec::new(), true);
    let wanted = |label: &str| options.emulator.as_deref().is_none_or(|only| only == label);
    for emulator in emulators().into_iter().filter(|emulator| wanted(emulator.label)) {
        for server in &options.databases {
            let (part, holds) = run(server, &emulator, options.size, &expected).await?;
            eprintln!(
                "{} on {}: {:.0} s",
                emulator.label,
                server.label,
                part["seconds"].as_f64().unwrap_or_default()
            );
            for check in part["checks"].as_array().into_iter().flatten() {
                let verdict = if check["holds"] == true { "ok" } else { "BROKEN" };
                let (name, said) = (check["name"].as_str(), check["said"].as_str());
                eprintln!(
                    "  {:<60} {verdict:>6}  {}",
                    name.unwrap_or_default(),
                    said.unwrap_or_default()
                );
            }
            clean &= holds;
            parts.push(part);
        }
    }
    let parts_are_none = parts.is_empty();
    if options.json {
        let object = json!({ "workload": "sqs", "holds": clean && !parts_are_none, "seconds_without_sqs": without, "parts": parts });
        println!("{object}");
    }
    // An emulator that is none has shown nothing.
    Ok(clean && !parts_are_none)
}
