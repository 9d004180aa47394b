//! The settings, in one place: what a run used is what `about` prints.

use std::sync::Arc;

use protocol::{Args, say};
use rowlock::{Rowlock, Worker};
use serde_json::json;

use super::handlers::{Tables, Tally};

/// The concurrency of the README's first example, which `--mode defaults` takes over: the number has no default.
const README_CONCURRENCY: usize = 16;

/// A worker's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tuning {
    pub(crate) concurrency: usize,
    pub(crate) connections: usize,
}

/// A producer's settings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bulk {
    pub(crate) producers: usize,
    pub(crate) chunk: u64,
}

const NOOP: Tuning = Tuning {
    concurrency: 200,
    connections: 1,
};
const BOOK: Tuning = Tuning {
    concurrency: 16,
    connections: 16,
};
const NOOP_SQLITE: Tuning = NOOP;
const BOOK_SQLITE: Tuning = Tuning {
    concurrency: 16,
    connections: 1,
};

impl Tuning {
    pub(crate) fn best<DB: Tables>(kind: &str) -> Tuning {
        match (kind, DB::POSTGRES) {
            ("book", true) => BOOK,
            ("book", false) => BOOK_SQLITE,
            (_, true) => NOOP,
            (_, false) => NOOP_SQLITE,
        }
    }
}

impl Bulk {
    pub(crate) fn best<DB: Tables>(args: &Args) -> Bulk {
        let producers = if DB::POSTGRES { 4 } else { 2 };
        // Large payloads travel in statements of about two megabytes.
        let chunk = (2_000_000 / args.payload.max(1) as u64).clamp(10, 1000);
        Bulk {
            producers: args.producers.unwrap_or(producers).max(1),
            chunk: args.chunk.unwrap_or(chunk).max(1),
        }
    }
}

/// A worker on one queue, tuned or as the README's first example has it.
pub(crate) fn worker<DB: Tables>(
    rowlock: &Rowlock<DB>,
    args: &Args,
    queue: &str,
    tally: &Arc<Tally>,
) -> Worker<Arc<Tally>, DB> {
    let worker = Worker::new(rowlock).state(tally.clone());
    if args.mode == "defaults" {
        return worker.queue(queue, args.concurrency.unwrap_or(README_CONCURRENCY));
    }
    let best = Tuning::best::<DB>(queue);
    let worker = worker
        .queue(queue, args.concurrency.unwrap_or(best.concurrency))
        .connections(args.connections.unwrap_or(best.connections));
    match args.prefetch {
        Some(jobs) => worker.prefetch(jobs),
        None => worker,
    }
}

fn words(tuning: Tuning) -> String {
    format!(
        "concurrency {}, connections for handlers {}",
        tuning.concurrency, tuning.connections
    )
}

/// Prints who this is and what it is set to.
pub(crate) fn about() {
    let per_database = |postgres, sqlite| format!("PostgreSQL: {}; SQLite: {}", words(postgres), words(sqlite));
    say(&json!({
        "event": "about",
        "name": "rowlock",
        "version": env!("CARGO_PKG_VERSION"),
        "settings": {
            "drain": per_database(NOOP, NOOP_SQLITE),
            "book": per_database(BOOK, BOOK_SQLITE),
            "defaults": format!("Worker::new, queue(name, {README_CONCURRENCY}) as in the README, a handler; nothing else"),
            "life": "as drain and enqueue, half the producers, in one process",
            "pickup": "as drain; enqueue_now",
            "enqueue": "enqueue_all_now, 1000 jobs per call, 4 at once (SQLite: 2)",
        },
        "keeps_history": true,
        "completes_in_handlers_tx": true,
        "fenced": true,
    }));
}
