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
    EFFECT = "effect",
    EFFECT_BEGIN = "effect_known" + "effect_begin",
    EFFECT_END = "effect_end",
    EFFECT_KNOWN = "effect_known",
    EFFECT_NOTE = "effect_note",
    EFFECT_RESOLVE = "effect_resolve",
    EFFECTS = "effects",
    EFFECTS_DOUBTFUL = "effects_doubtful",
    EFFECTS_OF = "effects_of",
    ENQUEUE = "enqueue" + "enqueue_ready",
    EXPIRE = "expire",
    FORGET_DEAD = "forget_dead",
    GUARD_LOCK = "guard_lock",
    GUARD_RAISE = "guard_raise",
    GUARD_VERSION = "guard_version",
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
    SETTLE_ALL = "settle" + "settle_ready" + "settle_case" + "settle_gone",
    SETTLE_FINISHED = "settle" + "settle_gone",
    STATUS = "status",
    WORKERS = "workers",
);
