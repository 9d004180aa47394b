//! The groups of `rowlock --help`, and the examples and notes of every command.

/// Commands that people use for the same purpose.
pub(super) struct Group {
    pub(super) title: &'static str,
    pub(super) commands: &'static [&'static str],
    pub(super) example: &'static str,
}

pub(super) const GROUPS: [Group; 5] = [
    Group {
        title: "Run",
        commands: &["demo", "enqueue", "work", "complete", "bridge"],
        example: "rowlock work --exec resize=./resize.sh --database sqlite:app.db",
    },
    Group {
        title: "Look",
        commands: &[
            "status", "jobs", "inspect", "chain", "workers", "cases", "effects", "audit",
        ],
        example: "rowlock jobs --state case --json",
    },
    Group {
        title: "Decide",
        commands: &[
            "case", "reopen", "effect", "delay", "run-now", "cancel", "retire", "rerun",
        ],
        example: "rowlock cancel --kind newsletter --yes --reason \"sent twice\"",
    },
    Group {
        title: "Operate",
        commands: &["pause", "resume", "breaker", "rollout", "prune", "doctor", "verify"],
        example: "rowlock pause --queue mail",
    },
    Group {
        title: "Set up",
        commands: &["migrate", "adopt", "completions", "man"],
        example: "rowlock migrate --database postgres://app@localhost/app",
    },
];

/// What comes after the options of a command.
pub(super) const NOTES: [(&str, &str); 6] = [
    (
        "adopt",
        "Exits with 3 if the table is not ready. Works on PostgreSQL only.",
    ),
    (
        "case reopen",
        "Exits with 3 if it stops because the same error came back.",
    ),
    (
        "doctor",
        "Exits with 3 if a check fails, with 0 if there are only warnings.",
    ),
    (
        "enqueue",
        "Prints the id of the job. This command does not know the settings of a kind in your program:\n\
         without options, a job gets the queue, priority, attempts and version shown above as defaults.",
    ),
    (
        "prune",
        "Open cases and keys are kept unless you say otherwise. Without --yes it only counts, and exits\nwith 2 if there is something to delete.",
    ),
    (
        "verify",
        "Exits with 3 if an invariant is broken, with 1 if a check did not finish in time.",
    ),
];

/// At least one for every command.
pub(super) const EXAMPLES: &[(&str, &[&str])] = &[
    ("demo", &["rowlock demo", "rowlock demo charges", "rowlock demo --json"]),
    ("demo orders", &["rowlock demo orders --orders 50"]),
    ("demo charges", &["rowlock demo charges --orders 50"]),
    ("demo incidents", &["rowlock demo incidents"]),
    (
        "demo snoozes",
        &["rowlock demo snoozes --database postgres://app@localhost/app"],
    ),
    (
        "enqueue",
        &[
            "rowlock enqueue resize '{\"file\":\"cat.png\"}' --queue images",
            "rowlock enqueue charge '{\"order\":7}' --key charge:7 --json",
            "cat payload.json | rowlock enqueue import -",
        ],
    ),
    (
        "work",
        &[
            "rowlock work --exec resize=./resize.sh",
            "rowlock work --http mail=http://127.0.0.1:8080/mail --queue mail=8",
        ],
    ),
    ("complete", &["rowlock complete approval:42 '{\"by\":\"ann\"}'"]),
    (
        "bridge",
        &["rowlock bridge sqs --queue-url https://sqs.eu-west-1.amazonaws.com/123456789012/jobs"],
    ),
    (
        "bridge sqs",
        &["rowlock bridge sqs --queue-url https://sqs.eu-west-1.amazonaws.com/123456789012/jobs"],
    ),
    ("status", &["rowlock status", "rowlock status --json"]),
    (
        "jobs",
        &[
            "rowlock jobs --queue mail --state ready",
            "rowlock jobs --key charge:7 --json",
        ],
    ),
    ("inspect", &["rowlock inspect 42", "rowlock inspect 42 --json"]),
    ("chain", &["rowlock chain 42"]),
    ("workers", &["rowlock workers"]),
    (
        "cases",
        &["rowlock cases --by-error", "rowlock cases --error 0a1b2c3d4e5f"],
    ),
    ("effects", &["rowlock effects", "rowlock effects --job 42 --all"]),
    ("audit", &["rowlock audit 42", "rowlock audit --by ann --max 10"]),
    (
        "case",
        &[
            "rowlock case note 42 \"asked the bank\" --owner payments",
            "rowlock case reopen 42",
        ],
    ),
    (
        "case reopen",
        &[
            "rowlock case reopen 42",
            "rowlock case reopen --error 0a1b2c3d4e5f --per-minute 30 --yes",
        ],
    ),
    (
        "case note",
        &["rowlock case note 42 \"asked the bank\" --owner payments"],
    ),
    ("case close", &["rowlock case close 42 --reason \"a test order\""]),
    ("reopen", &["rowlock reopen 42"]),
    ("effect", &["rowlock effect resolve 7 --not-happened"]),
    (
        "effect resolve",
        &[
            "rowlock effect resolve 7 --happened '\"refund 82\"'",
            "rowlock effect resolve 7 --not-happened",
        ],
    ),
    (
        "delay",
        &[
            "rowlock delay 42 --by 2h",
            "rowlock delay --queue mail --until 2030-01-31T12:00:00Z --yes",
        ],
    ),
    (
        "run-now",
        &["rowlock run-now 42 43", "rowlock run-now --kind invoice --yes"],
    ),
    (
        "cancel",
        &[
            "rowlock cancel 42 --reason \"sent twice\"",
            "rowlock cancel --kind newsletter --yes",
        ],
    ),
    ("retire", &["rowlock retire 42 --reason \"wrong address\""]),
    ("rerun", &["rowlock rerun 42 --reason \"the printer was out of paper\""]),
    ("pause", &["rowlock pause --queue mail", "rowlock pause"]),
    ("resume", &["rowlock resume --queue mail"]),
    (
        "breaker",
        &[
            "rowlock breaker",
            "rowlock breaker bank open",
            "rowlock breaker bank auto",
        ],
    ),
    ("rollout", &["rowlock rollout", "rowlock rollout new-invoice 25"]),
    (
        "prune",
        &["rowlock prune --finished 7d", "rowlock prune --finished 7d --yes"],
    ),
    ("doctor", &["rowlock doctor", "rowlock doctor --json"]),
    (
        "verify",
        &["rowlock verify", "rowlock verify --rows 1000000 --seconds 60"],
    ),
    (
        "migrate",
        &[
            "rowlock migrate --database sqlite:app.db",
            "rowlock migrate --sql > rowlock.sql",
        ],
    ),
    (
        "adopt",
        &[
            "rowlock adopt email_snoozes --due remind_at",
            "rowlock adopt email_snoozes --due remind_at --apply",
        ],
    ),
    (
        "completions",
        &["rowlock completions bash > ~/.local/share/bash-completion/completions/rowlock"],
    ),
    (
        "man",
        &["rowlock man > rowlock.1", "rowlock man --dir ~/.local/share/man/man1"],
    ),
];
