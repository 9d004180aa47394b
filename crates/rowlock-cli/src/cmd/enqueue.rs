//! `rowlock enqueue`: a job by its kind and JSON payload, in its own transaction.

use std::{io::Read, time::Duration};

use anyhow::Result;
use rowlock::{Enqueued, Group, Hold, NamedJob, State};

use super::{Place, duration};
use crate::output::{self, Advice};

/// More is not read from stdin; a payload has at most 1 MiB.
const STDIN_BYTES_MAX: u64 = 16 * 1024 * 1024;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Kind of the job: which handler runs it
    kind: String,
    /// Payload as JSON; - reads it from stdin
    #[arg(value_name = "JSON")]
    payload: String,
    /// Queue of the job
    #[arg(long, default_value = "default")]
    queue: String,
    /// Priority, 1 (always first) to 5
    #[arg(long, value_name = "N", default_value_t = 3)]
    priority: i16,
    /// Number of attempts before the job becomes a case; the kind's own number is not known here
    #[arg(long, value_name = "N", default_value_t = 10)]
    attempts: i32,
    /// Delay before the job is due, such as 500ms, 5s, 10m, 2h or 1d
    #[arg(long, value_name = "TIME", value_parser = duration, default_value = "0s")]
    after: Duration,
    /// The job is due when something triggers it, such as a message received by `rowlock bridge sqs`
    #[arg(long, conflicts_with = "after")]
    on_trigger: bool,
    /// Version of the payload
    #[arg(long, value_name = "N", default_value_t = 1)]
    version: i32,
    /// Idempotency key: while it is held, enqueuing it again makes no second job
    #[arg(long, value_name = "TEXT")]
    key: Option<String>,
    /// How long the key is held: while its job is open, for ever, or for a time; default: as long as
    /// the workers keep keys
    #[arg(long, value_parser = hold, value_name = "open|ever|30d", requires = "key")]
    hold: Option<Hold>,
    /// Group: its jobs run one after the other, in the order of enqueuing
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// If this job is retired, stop the group until the case is reopened or removed
    #[arg(long, requires = "group")]
    group_stops: bool,
    /// Print one JSON object: id, whether the job is new, and the state of an existing one
    #[arg(long)]
    json: bool,
}

fn hold(text: &str) -> Result<Hold, String> {
    match text {
        "open" => Ok(Hold::WhileOpen),
        "ever" => Ok(Hold::ForEver),
        period => {
            let period = duration(period).map_err(|_| "use open, ever, or a time such as 30d".to_owned())?;
            Ok(Hold::For(period))
        }
    }
}

pub(crate) async fn run(place: &Place, args: Args) -> Result<()> {
    let mut job = NamedJob::new(args.kind, payload(args.payload)?)
        .version(args.version)
        .queue(args.queue)
        .priority(args.priority)
        .attempts(args.attempts)
        .after(args.after)
        .hold(args.hold.unwrap_or_default());
    if args.on_trigger {
        job = job.on_trigger();
    }
    job = args.key.into_iter().fold(job, NamedJob::key);
    if let Some(name) = args.group {
        let group = Group::new(name);
        job = job.group(if args.group_stops {
            group.stop_when_retired()
        } else {
            group
        });
    }
    let put = place.checked().await?.enqueue(job).await?;
    let existing = match &put {
        Enqueued::Existing(existing) => Some(existing),
        _ => None,
    };
    let printed = match args.json {
        true => {
            let state = existing.and_then(|job| job.state).map(State::as_str);
            output::print_json(&serde_json::json!({ "id": put.id(), "new": put.is_new(), "state": state }))
        }
        false => output::print(&format!("{}\n", put.id())),
    };
    printed.map_err(|error| {
        let id = put.id();
        Advice::error(
            format!("job {id} is enqueued, but its id could not be written to stdout: {error}"),
            format!("do not enqueue it again; rowlock inspect {id}"),
        )
    })?;
    if let Some(existing) = existing {
        let state = existing.state.map_or("gone, only its key is left", State::as_str);
        output::note(&format!("that job already holds the key; it is {state}"));
    }
    Ok(())
}

/// The payload as it was given, or from stdin: the system limits the length of arguments.
fn payload(given: String) -> Result<String> {
    if given != "-" {
        return Ok(given);
    }
    let mut bytes = Vec::new();
    let read = std::io::stdin().take(STDIN_BYTES_MAX + 1).read_to_end(&mut bytes);
    read.map_err(|error| Advice::because(error, "stdin cannot be read", "rowlock enqueue KIND - < payload.json"))?;
    if bytes.len() as u64 > STDIN_BYTES_MAX {
        return Err(Advice::usage(
            format!("stdin: the payload is longer than {STDIN_BYTES_MAX} bytes"),
            "store large data elsewhere and enqueue its name",
        ));
    }
    String::from_utf8(bytes)
        .map_err(|_| Advice::usage("stdin: the payload is not UTF-8", "write the payload as JSON in UTF-8"))
}
