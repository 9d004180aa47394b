//! The statements, by their files' names.
//!
//! Where several files make up one constant they are sent as one, with the same parameters: a message to a
//! connection's thread costs more than running a statement. The first that fails keeps the rest from running.

macro_rules! text {
    ($file:literal) => {
        include_str!(concat!("../../../sql/sqlite/", $file, ".sql"))
    };
}

macro_rules! statements {
    ($($constant:ident = $first:literal $(+ $then:literal)*),* $(,)?) => {
        $(pub const $constant: &str = concat!(text!($first) $(, ";\n", text!($then))*);)*

        /// Name and text of each file, for the tests that prepare and explain them.
        #[cfg(test)]
        pub const FILES: &[(&str, &str)] = &[$(($first, text!($first)) $(, ($then, text!($then)))*),*];
    };
}

statements!(
    ALONE_DUE = "alone_due",
    ATTEMPTS = "attempts",
    AUDIT = "audit",
    BEAT = "beat",
    CASES = "cases",
    CHAIN = "chain",
    CLAIM = "claim",
    CLAIM_HOLD = "claim_lease" + "claim_body",
    CLAIM_WORKER = "claim_worker",
    COMPENSATE = "compensate",
    DATA_VERSION = "data_version",
    DEAD_HOLDING = "dead_holding",
    ENQUEUE = "enqueue" + "enqueue_ready",
    EXPIRE = "expire",
    FORGET_DEAD = "forget_dead",
    JOB = "job",
    JOB_KEY_PUT = "job_key_put",
    JOB_KEY_READ = "job_key_read",
    JOB_KEY_TAKE = "job_key_take",
    JOBS = "jobs",
    KEYS_PAGE = "keys_page",
    LEAVE = "leave",
    LEDGER_PAGE = "ledger_page",
    MARK_DEAD = "mark_dead",
    MARK_SUSPECT = "mark_suspect",
    MIGRATED = "migrated",
    OWN_LEASES = "own_leases",
    PRUNE = "prune",
    PRUNE_BODY = "prune_body",
    PRUNE_EFFECTS = "prune_effects",
    PRUNE_PAGE = "prune_page",
    REGISTER = "register",
    REOPEN = "reopen",
    REOPEN_READY = "reopen_ready",
    RESOLVE_LOCK = "resolve_lock",
    RESOLVE_OUTCOME = "resolve_outcome",
    SCHEMA_EXISTS = "schema_exists",
    SCHEMA_VERSION = "schema_version",
    SETTLE_ALL = "settle" + "settle_ready" + "settle_case" + "settle_gone",
    SETTLE_FINISHED = "settle" + "settle_gone",
    STATUS = "status",
    SWEEP_BODY_LOCKS = "sweep_body_locks",
    SWEEP_CASE_BODIES = "sweep_case_bodies",
    SWEEP_CASES = "sweep_cases",
    SWEEP_COMPLETIONS = "sweep_completions",
    SWEEP_KEYS = "sweep_keys",
    SWEEP_LEDGER = "sweep_ledger",
    WORKERS = "workers",
);
