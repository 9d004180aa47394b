//! The statements, by their files' names.

macro_rules! statements {
    ($($constant:ident = $file:literal),* $(,)?) => {
        $(pub const $constant: &str = include_str!(concat!("../../../sql/sqlite/", $file, ".sql"));)*

        /// Name and text of each, for the test that prepares them all.
        #[cfg(test)]
        pub const ALL: &[(&str, &str)] = &[$(($file, $constant)),*];
    };
}

/// Statements sent as one, for the same parameters: each message to a connection's thread costs more than running one.
/// The first that fails keeps the rest from running.
macro_rules! together {
    ($($constant:ident = $($file:literal)+),* $(,)?) => {
        $(pub const $constant: &str = concat!($(include_str!(concat!("../../../sql/sqlite/", $file, ".sql")), ";\n"),+);)*
    };
}

together!(
    ENQUEUE_ALL = "enqueue" "enqueue_ready",
    CLAIM_HOLD = "claim_lease" "claim_body",
    SETTLE_FINISHED = "settle" "settle_gone",
    SETTLE_ALL = "settle" "settle_ready" "settle_case" "settle_gone",
);

statements!(
    ALONE_DUE = "alone_due",
    ATTEMPTS = "attempts",
    AUDIT = "audit",
    BEAT = "beat",
    CASES = "cases",
    CHAIN = "chain",
    CLAIM = "claim",
    CLAIM_BODY = "claim_body",
    CLAIM_LEASE = "claim_lease",
    CLAIM_WORKER = "claim_worker",
    COMPENSATE = "compensate",
    DATA_VERSION = "data_version",
    DEAD_HOLDING = "dead_holding",
    ENQUEUE = "enqueue",
    ENQUEUE_READY = "enqueue_ready",
    EXPIRE = "expire",
    FORGET_DEAD = "forget_dead",
    JOB = "job",
    JOBS = "jobs",
    LEAVE = "leave",
    MARK_DEAD = "mark_dead",
    MARK_SUSPECT = "mark_suspect",
    MIGRATED = "migrated",
    OWN_LEASES = "own_leases",
    PRUNE = "prune",
    PRUNE_BODY = "prune_body",
    REGISTER = "register",
    REOPEN = "reopen",
    REOPEN_READY = "reopen_ready",
    RESOLVE_LOCK = "resolve_lock",
    RESOLVE_OUTCOME = "resolve_outcome",
    SCHEMA_EXISTS = "schema_exists",
    SCHEMA_VERSION = "schema_version",
    SETTLE = "settle",
    SETTLE_CASE = "settle_case",
    SETTLE_GONE = "settle_gone",
    SETTLE_READY = "settle_ready",
    STATUS = "status",
    WORKERS = "workers",
);
