//! `rowlock work`: a worker with programs and servers as handlers, so that you need not write Rust.
//!
//! Each is a staged handler. The call is an effect: its intent is committed first, it carries a key that is the same on
//! every attempt, and a stored reply is not asked for again. Every write about the job needs its token, as in any
//! worker: a program that goes on after its lease is lost changes nothing here.

mod call;
mod exec;
mod group;
mod http;
mod pipe;
mod spec;

use std::{process::ExitCode, sync::Arc, time::Duration};

use anyhow::Result;
use clap::ValueEnum;
use rowlock::{
    Admin, Backend, Error, Event, Fail, NamedKind, OnUnknown, Outcome, RawJob, Retention, Rowlock, Staged, Worker,
};
use serde_json::value::RawValue;
use tokio_util::task::TaskTracker;

use self::{
    call::Call,
    exec::{LIMIT_GRACE, Program},
    http::Server,
    spec::{Exec, Http, Served, Slots},
};
use super::{Place, duration, signal::interrupted};
use crate::output::{self, Advice, short, span_ms};

/// The name of the one effect of such a job. Its key is what programs and servers get, so it must never change.
const EFFECT: &str = "call";

/// More could not be stored as a result once it is written as a JSON string.
const OUTPUT_BYTES_MAX: usize = 128 * 1024;

/// How often `--until-empty` looks.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// How much longer than the time limit a handler may run, so that it ends its program itself and says so.
const MARGIN: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Run this program for each job of the kind, with the payload on stdin. PROGRAM is a path, or a JSON array with
    /// arguments: 'resize=["./resize","--small"]'. KIND accepts payloads of version 1, KIND@3 of versions 1 to 3
    #[arg(long = "exec", value_name = "KIND=PROGRAM", value_parser = spec::exec)]
    execs: Vec<Exec>,
    /// Send a POST request to this URL for each job of the kind, with the payload as the body
    #[arg(long = "http", value_name = "KIND=URL", value_parser = spec::http)]
    https: Vec<Http>,
    /// Queue to work on, and how many of its jobs run concurrently (4 if not given); may be repeated
    #[arg(long = "queue", value_name = "NAME[=SLOTS]", value_parser = spec::slots, default_value = "default")]
    queues: Vec<Slots>,
    /// Time limit of one call; a program that runs longer is killed, with every process it started
    #[arg(long, value_name = "TIME", value_parser = timeout, default_value = "60s")]
    timeout: Duration,
    /// How much output is stored as the result, in bytes or with k, at most 128k; the rest is dropped
    #[arg(long, value_name = "BYTES", value_parser = bytes, default_value = "64k")]
    output_max: usize,
    /// What to do if it is unknown whether a call happened
    #[arg(long, value_enum, value_name = "WHAT", default_value_t = Unknown::Retry)]
    on_unknown: Unknown,
    /// How long a worker without a heartbeat keeps its jobs
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "15s")]
    lease: Duration,
    /// Graceful shutdown: how long running calls may take after Ctrl-C or SIGTERM
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "30s")]
    grace: Duration,
    /// How long finished jobs are kept, in the whole database; use the same value for every worker
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "14d")]
    history: Duration,
    /// Stop when these queues have no due, scheduled or running job of these kinds
    #[arg(long)]
    until_empty: bool,
    /// Print no line for each job
    #[arg(long, short)]
    quiet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Unknown {
    /// Call again with the same key
    Retry,
    /// Make the job a case, so that a person decides
    Park,
}

/// Limits of a call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    time_limit: Duration,
    output_bytes_max: usize,
}

/// Who does the work.
#[derive(Debug)]
enum Target {
    Program(Program),
    Server(Server),
}

impl Target {
    async fn call(&self, call: &Call, bounds: &Bounds) -> Result<Box<RawValue>, Fail> {
        match self {
            Target::Program(program) => program.run(call, bounds).await,
            Target::Server(server) => server.call(call, bounds).await,
        }
    }

    fn name(&self) -> &str {
        match self {
            Target::Program(program) => &program.name,
            Target::Server(server) => &server.shown,
        }
    }
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<ExitCode> {
    let enders = TaskTracker::new();
    let targets = targets(&args, &enders)?;
    let admin = place.checked().await?;
    let (url, schema) = (place.url()?, place.schema());
    let stopped = match url.starts_with("postgres") {
        true => work(&Rowlock::<sqlx::Postgres>::open_in(url, schema)?, admin, &args, targets).await,
        false => work(&Rowlock::<sqlx::Sqlite>::open_in(url, schema)?, admin, &args, targets).await,
    };
    // Programs that were cut off are still being killed; none of them outlives this process.
    enders.close();
    enders.wait().await;
    stopped?;
    Ok(ExitCode::SUCCESS)
}

/// Finds every mistake in the options before connecting to the database.
fn targets(args: &Args, enders: &TaskTracker) -> Result<Vec<(Served, Arc<Target>)>> {
    let mut targets: Vec<(Served, Arc<Target>)> = Vec::new();
    for exec in &args.execs {
        let program = Program {
            name: exec.program.clone(),
            file: spec::program_file(&exec.program)?,
            args: exec.args.clone(),
            enders: enders.clone(),
        };
        targets.push((exec.served.clone(), Arc::new(Target::Program(program))));
    }
    for http in &args.https {
        targets.push((http.served.clone(), Arc::new(Target::Server(Server::new(&http.url)?))));
    }
    if targets.is_empty() {
        return Err(Advice::usage(
            "nothing to run",
            "use --exec KIND=PROGRAM or --http KIND=URL, once for each kind",
        ));
    }
    for (i, (served, _)) in targets.iter().enumerate() {
        if targets[..i].iter().any(|(other, _)| other.kind == served.kind) {
            return Err(Advice::usage(
                format!("kind {} is given twice", served.kind),
                "use one --exec or --http for each kind",
            ));
        }
    }
    Ok(targets)
}

async fn work<DB: Backend>(
    rowlock: &Rowlock<DB>,
    admin: Admin,
    args: &Args,
    targets: Vec<(Served, Arc<Target>)>,
) -> Result<()> {
    let bounds = Bounds {
        time_limit: args.timeout,
        output_bytes_max: args.output_max,
    };
    let on_unknown = match args.on_unknown {
        Unknown::Retry => OnUnknown::RetryWithKey,
        Unknown::Park => OnUnknown::Park,
    };
    let mut worker = Worker::new(rowlock)
        .name(format!("rowlock work, pid {}", std::process::id()))
        .lease(args.lease)
        .grace(args.grace)
        .retention(Retention::new().history(args.history));
    for Slots { queue, slots } in &args.queues {
        worker = worker.queue(queue, *slots);
    }
    for (served, target) in &targets {
        let kind = NamedKind::new(&served.kind)
            .version(served.version)
            .time_limit(bounds.time_limit.saturating_add(LIMIT_GRACE + MARGIN));
        let target = target.clone();
        worker = worker.handle(kind.staged(move |cx, job| handle(cx, job, target.clone(), bounds, on_unknown)));
    }
    if !args.quiet {
        worker = worker.on_event(|event| {
            if let Some(line) = told(event) {
                output::note(&line);
            }
        });
    }
    // Polled only after the worker has started.
    let stop = async {
        for (served, target) in targets.iter().filter(|_| !args.quiet) {
            output::note(&format!("{} is done by {}", served.kind, target.name()));
        }
        let kinds: Vec<&str> = targets.iter().map(|(served, _)| &*served.kind).collect();
        tokio::select! {
            () = interrupted() => {}
            () = emptied(&admin, &args.queues, &kinds), if args.until_empty => {}
        }
    };
    // A bad name or time is refused before anything is claimed.
    worker.run_until(stop).await.map_err(|error| match error {
        Error::Config(_) | Error::Invalid { .. } => Advice::usage(error.to_string(), "rowlock work --help"),
        other => other.into(),
    })
}

async fn handle<DB: Backend>(
    cx: Staged<(), DB>,
    job: RawJob,
    target: Arc<Target>,
    bounds: Bounds,
    on_unknown: OnUnknown,
) -> Outcome<DB> {
    let request: &RawValue = serde_json::from_str(&job.payload)?;
    let attempt = &*cx;
    let call = |key| {
        let call = Call::of(attempt, &job, &key);
        async move { target.call(&call, &bounds).await }
    };
    let effect = cx.effect(EFFECT, call).request(request).on_unknown(on_unknown);
    let result: Box<RawValue> = effect.await?;
    let done = cx.done();
    match result.get() {
        "null" => done.ok(),
        _ => done.result(&result).ok(),
    }
}

/// One line about an attempt that ended.
fn told(event: &Event) -> Option<String> {
    let Event::Settled {
        id,
        kind,
        attempt,
        ended,
        took,
        error,
        ..
    } = event
    else {
        return match event {
            Event::LeaseLost { id, kind, attempt, .. } => Some(format!(
                "job {id} {kind}: lease lost; the result of attempt {attempt} is dropped"
            )),
            _ => None,
        };
    };
    let took = span_ms(i64::try_from(took.as_millis()).unwrap_or(i64::MAX));
    let why = error.as_deref().map(|why| format!(": {}", short(why, 200)));
    let why = why.unwrap_or_default();
    let ended = ended.as_str();
    Some(format!("job {id} {kind}: {ended}, attempt {attempt}, {took}{why}"))
}

/// Resolves when no job is due, scheduled or running, in any worker. It keeps waiting while the database does not
/// answer.
async fn emptied(admin: &Admin, queues: &[Slots], kinds: &[&str]) {
    loop {
        if let Ok(status) = admin.observe().status().await {
            let ours = status
                .lanes
                .iter()
                .filter(|lane| kinds.contains(&&*lane.kind) && queues.iter().any(|queue| queue.queue == lane.queue));
            if ours.map(|lane| lane.due + lane.scheduled + lane.leased).sum::<i64>() == 0 {
                return;
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Time limit of a call.
fn timeout(text: &str) -> Result<Duration, String> {
    let limit = duration(text)?;
    match (Duration::from_millis(1)..=Duration::from_secs(24 * 3600)).contains(&limit) {
        true => Ok(limit),
        false => Err("use 1ms to 1d".into()),
    }
}

/// `4096` or `4k`.
fn bytes(text: &str) -> Result<usize, String> {
    let (number, unit) = match text.strip_suffix(['k', 'K']) {
        Some(number) => (number, 1024),
        None => (text, 1),
    };
    let bytes = number.parse::<usize>().ok().and_then(|n| n.checked_mul(unit));
    bytes
        .filter(|bytes| (1..=OUTPUT_BYTES_MAX).contains(bytes))
        .ok_or_else(|| format!("use 1 to {OUTPUT_BYTES_MAX} bytes, such as 4096 or 64k"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_is_bounded_in_bytes_or_kibibytes() {
        assert_eq!(bytes("1"), Ok(1));
        assert_eq!(bytes("64k"), Ok(64 * 1024));
        assert_eq!(bytes("128K"), Ok(OUTPUT_BYTES_MAX));
        for bad in ["", "0", "k", "129k", "-1", "1m", "99999999999999999999k"] {
            assert!(bytes(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_call_takes_some_time_and_at_most_a_day() {
        assert_eq!(timeout("1d"), Ok(Duration::from_secs(86400)));
        assert!(timeout("0s").is_err() && timeout("25h").is_err() && timeout("5").is_err());
    }
}
