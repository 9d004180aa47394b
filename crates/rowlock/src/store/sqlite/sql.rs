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
    ANSWER = "answer",
    ANY_DEAD = "any_dead",
    ATTEMPTS = "attempts",
    AUDIT = "audit",
    BEAT = "beat",
    BODY_LOCK_RELEASE = "body_lock_release",
    BODY_LOCK_TAKE = "body_lock_take",
    CASES = "cases",
    CHAIN = "chain",
    CLAIM = "claim",
    CLAIM_HOLD = "claim_lease" + "claim_body",
    CLAIM_WORKER = "claim_worker",
    COMPENSATE = "compensate",
    COMPLETE = "complete",
    COMPLETE_MOVE = "complete_ready" + "complete_gone",
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
    ENQUEUE_WAITING = "enqueue_waiting" + "enqueue_waiting_place",
    EXPIRE = "expire",
    FORGET_DEAD = "forget_dead",
    GUARD_LOCK = "guard_lock",
    GUARD_RAISE = "guard_raise",
    GUARD_VERSION = "guard_version",
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
    ONCE_READ = "once_read",
    ONCE_STORE = "once_store",
    ONCE_TAKE = "once_take",
    ONCE_TAKE_OVER = "once_take_over",
    OWN_LEASES = "own_leases",
    PRUNE = "prune",
    PRUNE_BODY = "prune_body",
    PRUNE_EFFECTS = "prune_effects",
    PRUNE_PAGE = "prune_page",
    REGISTER = "register",
    REOPEN = "reopen",
    REOPEN_READY = "reopen_ready",
    REOPEN_WAITING = "reopen_waiting",
    RESOLVE_LOCK = "resolve_lock",
    RESOLVE_OUTCOME = "resolve_outcome",
    ROLLOUTS = "rollouts",
    ROLLOUT_AUDIT = "rollout_audit",
    SCHEMA_EXISTS = "schema_exists",
    SCHEMA_VERSION = "schema_version",
    SETTLE_ALL = "settle" + "settle_ready" + "settle_case" + "settle_gone",
    SETTLE_FINISHED = "settle" + "settle_gone",
    SET_ROLLOUT = "set_rollout",
    STAND = "stand",
    STAND_CHAIN = "stand_chain",
    STATUS = "status",
    SWEEP_BODY_LOCKS = "sweep_body_locks",
    SWEEP_CASE_BODIES = "sweep_case_bodies",
    SWEEP_CASES = "sweep_cases",
    SWEEP_COMPLETIONS = "sweep_completions",
    SWEEP_KEYS = "sweep_keys",
    SWEEP_LEDGER = "sweep_ledger",
    TRANSITION = "transition",
    WAITS_DUE = "waits_due",
    WAITS_OVER = "waits_over",
    WAITS_OVER_END = "waits_over_log" + "waits_over_case" + "waits_over_gone",
    WORKERS = "workers",
);
