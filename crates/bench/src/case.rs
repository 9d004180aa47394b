//! The cases: each is one thing run and measured, with its figure and the settings that matter.

/// Which way a figure is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Better {
    More,
    Less,
}

/// One thing run and measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// The value of a sample that is its figure.
    pub(crate) value: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) better: Better,
    /// The verb whose settings were used.
    pub(crate) settings: &'static str,
}

const fn more(name: &'static str, title: &'static str, unit: &'static str, settings: &'static str) -> Case {
    Case {
        name,
        title,
        value: "per_s",
        unit,
        better: Better::More,
        settings,
    }
}

const fn less(
    name: &'static str,
    title: &'static str,
    (value, unit): (&'static str, &'static str),
    settings: &'static str,
) -> Case {
    Case {
        name,
        title,
        value,
        unit,
        better: Better::Less,
        settings,
    }
}

/// Every case, in the order they are shown.
pub(crate) const CASES: &[Case] = &[
    more("drain", "no-op jobs drained", "jobs/s", "drain"),
    more("life", "no-op jobs, enqueued and drained at once", "jobs/s", "life"),
    more(
        "book-next",
        "update + insert + next job, one job per commit",
        "jobs/s",
        "book",
    ),
    more("book", "update + insert, one job per commit", "jobs/s", "book"),
    more(
        "book-batch",
        "update + insert, up to ten jobs per commit",
        "jobs/s",
        "book",
    ),
    less(
        "pickup",
        "commit to handler start, idle",
        ("p50_ms", "ms p50"),
        "pickup",
    ),
    less(
        "pickup-poll",
        "commit to handler start, idle, polling only",
        ("p50_ms", "ms p50"),
        "pickup",
    ),
    less(
        "pickup-load",
        "commit to handler start, at half load",
        ("p50_ms", "ms p50"),
        "pickup",
    ),
    Case {
        name: "hold",
        title: "no-op jobs while an old transaction is open, last part",
        value: "last_per_s",
        unit: "jobs/s",
        better: Better::More,
        settings: "life",
    },
    more("fill-empty", "no-op drain, empty tables", "jobs/s", "drain"),
    more("fill-backlog", "no-op drain, large backlog", "jobs/s", "drain"),
    more("fill-history", "no-op drain, large history", "jobs/s", "drain"),
    more("sqlite-enqueue", "SQLite: bulk enqueue", "rows/s", "enqueue"),
    more("sqlite-drain", "SQLite: no-op jobs drained", "jobs/s", "drain"),
    more(
        "sqlite-life",
        "SQLite: no-op jobs, enqueued and drained at once",
        "jobs/s",
        "life",
    ),
    less(
        "idle-1",
        "idle worker, 1 queue",
        ("statements_per_s", "statements/s"),
        "idle",
    ),
    less(
        "idle-50",
        "idle worker, 50 queues",
        ("statements_per_s", "statements/s"),
        "idle",
    ),
    more("share-1", "no-op drain by 1 process", "jobs/s", "drain"),
    more("share-2", "no-op drain by 2 processes", "jobs/s", "drain"),
    more("share-4", "no-op drain by 4 processes", "jobs/s", "drain"),
    more("share-8", "no-op drain by 8 processes", "jobs/s", "drain"),
    more("share-16", "no-op drain by 16 processes", "jobs/s", "drain"),
    more(
        "drain-defaults",
        "no-op drain, untouched defaults",
        "jobs/s",
        "defaults",
    ),
    more(
        "book-next-defaults",
        "update + insert + next job, untouched defaults",
        "jobs/s",
        "defaults",
    ),
    more(
        "book-batch-defaults",
        "update + insert, ten per commit, else untouched",
        "jobs/s",
        "defaults",
    ),
    more("enqueue", "bulk enqueue", "rows/s", "enqueue"),
    less(
        "stuck",
        "killed worker's job claimed again, defaults",
        ("seconds", "s"),
        "defaults",
    ),
    more(
        "claims",
        "jobs claimed by a hundred, the statement alone",
        "jobs/s",
        "drain",
    ),
    more(
        "claims-before",
        "the same, as claims were before breakers, groups and traces",
        "jobs/s",
        "drain",
    ),
    more("groups-none", "no-op drain, no groups", "jobs/s", "drain"),
    more(
        "groups-many",
        "no-op drain, a group for each job, beside a blocked one",
        "jobs/s",
        "drain",
    ),
    more(
        "look-none",
        "no-op drain beside a large history and backlog",
        "jobs/s",
        "drain",
    ),
    more("look-on", "the same while somebody looks on", "jobs/s", "drain"),
    more("grow-base", "no-op drain, nothing else stored", "jobs/s", "drain"),
    more("grow-future", "no-op drain beside rows due in a day", "jobs/s", "drain"),
    more("grow-queues-base", "100 queues served, no others", "jobs/s", "drain"),
    more("grow-queues", "100 queues served of 10,000", "jobs/s", "drain"),
    more("grow-kinds-1", "1 kind", "jobs/s", "drain"),
    more("grow-kinds-50", "50 kinds", "jobs/s", "drain"),
    more("grow-payload-200", "payload 200 B", "jobs/s", "drain"),
    more("grow-payload-2048", "payload 2 KB", "jobs/s", "drain"),
    more("grow-payload-65536", "payload 64 KB", "jobs/s", "drain"),
];

/// The case of a name; every name used is in the table, which a test proves for the benchmarks.
pub(crate) fn case(name: &str) -> Case {
    let known = CASES.iter().find(|case| case.name == name).copied();
    known.unwrap_or(more("unknown", "unknown", "jobs/s", "drain"))
}
