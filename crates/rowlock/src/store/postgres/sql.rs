//! The statements, with the schema's name filled in.
//!
//! The files under `sql/postgres` say `rowlock.` and run unchanged on the default schema.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::error::{Error, Result};

macro_rules! statements {
    ($($name:ident = $path:literal),* $(,)?) => {
        /// Every statement of the backend, with the name of its file.
        #[derive(Clone, Debug)]
        pub struct Sql {
            pub schema: Arc<str>,
            $(pub $name: SqlStr,)*
        }

        impl Sql {
            pub fn new(schema: &str) -> Result<Sql> {
                check_schema(schema)?;
                Ok(Sql {
                    schema: schema.into(),
                    $($name: text(schema, $path, include_str!(concat!("../../../sql/postgres/", $path, ".sql"))),)*
                })
            }

            /// Name and text of each statement, for the test that prepares them all.
            #[cfg(test)]
            pub fn all(&self) -> Vec<(&'static str, SqlStr)> {
                vec![$(($path, self.$name.clone()),)*]
            }
        }
    };
}

/// The same for statements of an adopted table, whose names are filled in when the table is known.
macro_rules! templates {
    ($($name:ident = $path:literal),* $(,)?) => {
        /// Every statement of one adopted table, with the name of its file.
        #[derive(Clone, Debug)]
        pub struct Templates {
            $(pub $name: SqlStr,)*
        }

        impl Templates {
            pub fn new(schema: &str, fill: impl Fn(&str) -> String) -> Templates {
                Templates {
                    $($name: AssertSqlSafe(fill(
                        text(schema, $path, include_str!(concat!("../../../sql/postgres/", $path, ".sql"))).as_str(),
                    )).into_sql_str(),)*
                }
            }
        }
    };
}

templates!(
    adopt_beat = "adopt/beat",
    adopt_beat_wait = "adopt/beat_wait",
    adopt_claim = "adopt/claim",
    adopt_delete = "adopt/delete",
    adopt_due = "adopt/due",
    adopt_effect_begin = "adopt/effect/begin",
    adopt_effect_end = "adopt/effect/end",
    adopt_effect_known = "adopt/effect/known",
    adopt_effect_take_back = "adopt/effect/take_back",
    adopt_finish = "adopt/finish",
    adopt_look = "adopt/look",
    adopt_probing = "adopt/probing",
    adopt_recover = "adopt/recover",
    adopt_reopen = "adopt/reopen",
    adopt_stale = "adopt/stale",
    adopt_unclaim = "adopt/unclaim",
);

statements!(
    adopt_case = "adopt/case",
    adopt_columns = "adopt/columns",
    adopt_effect_keep = "adopt/effect/keep",
    adopt_effect_of_row = "adopt/effect/of_row",
    adopt_effect_undo = "adopt/effect/undo",
    adopt_identity = "adopt/identity",
    adopt_indexes = "adopt/indexes",
    adopt_table = "adopt/table",
    adopt_unproven = "adopt/unproven",
    breaker_audit = "breaker/audit",
    breaker_declare = "breaker/declare",
    breakers = "breaker/list",
    breaker_lock = "breaker/lock",
    breaker_log = "breaker/log_list",
    breaker_logged = "breaker/log_put",
    sweep_breaker_log = "breaker/log_sweep",
    probe_count = "breaker/probe_count",
    probe_put = "breaker/probe_put",
    probe_sweep = "breaker/probe_sweep",
    breaker_set = "breaker/set",
    breaker_try = "breaker/try_lock",
    case_again = "case/again",
    cases_alike = "case/alike",
    case_close = "case/close",
    case_edit = "case/edit",
    case_errors = "case/errors",
    cases = "case/list",
    case_name = "case/name",
    case_note = "case/note",
    cases_of_error = "case/of_error",
    reopen = "case/reopen",
    sweep_cases = "case/sweep",
    sweep_case_errors = "case/sweep_errors",
    case_unnamed = "case/unnamed",
    alone_due = "claim/alone_due",
    claim = "claim/take",
    claim_bound = "claim/take_bound",
    effect_begin = "effect/begin",
    effects_doubtful = "effect/doubtful",
    effect_end = "effect/end",
    effect_known = "effect/known",
    effects = "effect/list",
    effect_lock = "effect/lock",
    effects_of = "effect/of_job",
    effect = "effect/one",
    effect_resolve = "effect/resolve",
    enqueue = "enqueue/jobs",
    group_drop = "group/drop",
    jobs_of_group = "group/jobs",
    group_lock_empty = "group/lock_empty",
    group_mend = "group/mend",
    group_pass = "group/pass",
    group_share = "group/share",
    group_take = "group/take",
    group_take_over = "group/take_over",
    group_vacant = "group/vacant",
    group_withdraw = "group/withdraw",
    body_lock_release = "guard/body_lock_release",
    sweep_body_locks = "guard/body_lock_sweep",
    body_lock_take = "guard/body_lock_take",
    guard_lock = "guard/lock",
    guard_raise = "guard/raise",
    guard_take_back = "guard/take_back",
    transition = "guard/transition",
    guard_version = "guard/version",
    attempts = "job/attempts",
    cancel = "job/cancel",
    chain = "job/chain",
    delay = "job/delay",
    drop_history = "job/drop_history",
    jobs = "job/list",
    jobs_standing = "job/list_standing",
    job = "job/one",
    outcomes_since = "job/outcomes_since",
    partitions = "job/partitions",
    prune = "job/prune",
    rerun = "job/rerun",
    retire = "job/retire",
    stand = "job/stand",
    stand_chain = "job/stand_chain",
    status = "job/status",
    keys_page = "key/page",
    job_key_put = "key/put",
    job_key_read = "key/read",
    sweep_keys = "key/sweep",
    job_key_take = "key/take",
    ledger_page = "ledger/page",
    once_read = "ledger/read",
    once_store = "ledger/store",
    sweep_ledger = "ledger/sweep",
    once_take = "ledger/take",
    once_take_over = "ledger/take_over",
    audit_read = "operate/audit_list",
    note_deed = "operate/audit_put_all",
    sweep_audit = "operate/audit_sweep",
    pause = "operate/pause",
    pauses = "operate/pauses",
    resume = "operate/resume",
    set_rollout = "operate/rollout_set",
    rollouts = "operate/rollouts",
    lock_wait = "session/lock_wait",
    migrated = "session/migrated",
    notify = "session/notify",
    plan_as_before = "session/plan_as_before",
    plan_by_key = "session/plan_by_key",
    schema_exists = "session/schema_exists",
    schema_version = "session/schema_version",
    seal = "session/seal",
    terminate = "session/terminate",
    transaction = "session/transaction",
    vitals = "session/vitals",
    settle = "settle/attempts",
    settle_one = "settle/one",
    resolve_lock = "settle/resolve_lock",
    resolve_outcome = "settle/resolve_outcome",
    was_done = "settle/was_done",
    trigger = "trigger/jobs",
    standing = "trigger/standing",
    untaken = "trigger/untaken",
    verify_attempts = "verify/attempts",
    verify_bodies = "verify/bodies",
    verify_effects = "verify/effects",
    verify_endings = "verify/endings",
    verify_finished = "verify/finished",
    verify_groups = "verify/groups",
    verify_indexes = "verify/indexes",
    verify_keys = "verify/keys",
    verify_leases = "verify/leases",
    verify_ledger = "verify/ledger",
    verify_outcomes = "verify/outcomes",
    verify_owners = "verify/owners",
    verify_places = "verify/places",
    verify_schema = "verify/schema",
    verify_stands = "verify/stands",
    verify_uids = "verify/uids",
    verify_waits = "verify/waits",
    answer = "wait/answer",
    complete = "wait/complete",
    sweep_completions = "wait/complete_sweep",
    waits_completed = "wait/completed",
    waits_due = "wait/due",
    waits_over = "wait/over",
    beat = "worker/beat",
    expire = "worker/expire",
    forget_dead = "worker/forget_dead",
    own_leases = "worker/leases",
    leave = "worker/leave",
    workers = "worker/list",
    lock_worker = "worker/lock",
    lock_dead = "worker/lock_dead",
    mark_dead = "worker/mark_dead",
    register = "worker/register",
);

/// A statement or script with the default schema's name replaced. The name has been checked and needs no quoting.
pub fn in_schema(schema: &str, text: &str) -> String {
    text.replace("rowlock.", &format!("{schema}."))
}

fn text(schema: &str, name: &str, text: &'static str) -> SqlStr {
    #[cfg(feature = "__faults")]
    if let std::borrow::Cow::Owned(text) = crate::fault::statement(name, text) {
        return AssertSqlSafe(in_schema(schema, &text)).into_sql_str();
    }
    let _ = name;
    if schema == "rowlock" {
        return SqlStr::from_static(text);
    }
    AssertSqlSafe(in_schema(schema, text)).into_sql_str()
}

/// A schema's name goes into statements unquoted, so it must be a plain lower-case identifier.
fn check_schema(schema: &str) -> Result<()> {
    let first = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let rest = schema
        .chars()
        .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if !first || !rest || schema.len() > 40 || schema.starts_with("pg_") {
        let shown: String = schema.chars().take(60).collect();
        return Err(Error::invalid(
            "schema",
            format!(
                "{shown:?} is not a valid schema name; use 1 to 40 of a-z, 0-9 and _, starting with a letter or _, \
                 but not pg_…"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_name_is_a_plain_identifier() {
        for good in ["rowlock", "jobs_2", "_x"] {
            assert!(Sql::new(good).is_ok(), "{good}");
        }
        for bad in ["", "Jobs", "a-b", "a\"b", "pg_jobs", "2x", "a;drop", &"x".repeat(41)] {
            assert!(Sql::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn another_schema_leaves_no_trace_of_the_default() -> Result<()> {
        for (name, text) in Sql::new("jobs_2")?.all() {
            assert!(!text.as_str().contains("rowlock."), "{name}");
        }
        Ok(())
    }

    fn lines(text: &SqlStr) -> Vec<String> {
        let code = text.as_str().lines().filter(|line| !line.starts_with("--"));
        code.map(str::to_owned).collect()
    }

    /// The two statements must stay equal: a fix of one must also be made in the other.
    #[test]
    fn the_jobs_of_a_group_are_listed_as_all_jobs_are() -> Result<()> {
        let sql = Sql::new("rowlock")?;
        let plain = lines(&sql.jobs)
            .join("\n")
            .replace("where (", "where j.in_group = $8\n    and (");
        assert_eq!(lines(&sql.jobs_of_group).join("\n"), plain);
        Ok(())
    }

    /// These two statements must also stay equal.
    #[test]
    fn a_claim_of_bound_kinds_is_the_plain_claim_with_the_breakers_before_it() -> Result<()> {
        let sql = Sql::new("rowlock")?;
        let (plain, bound) = (lines(&sql.claim), lines(&sql.claim_bound));
        let mut rest = bound.iter();
        let missing = plain.iter().find(|line| !rest.any(|other| other == *line));
        assert_eq!(missing, None, "not in its place in claim/take_bound.sql");
        let more: Vec<&String> = bound.iter().filter(|line| !plain.contains(line)).collect();
        let about_breakers = |line: &&&String| {
            ["breaker", "closed", "shut", "b.kind_no"]
                .iter()
                .any(|word| line.contains(word))
        };
        assert_eq!(more.iter().filter(about_breakers).count(), more.len(), "{more:#?}");
        assert_eq!(more.len(), bound.len() - plain.len());
        Ok(())
    }
}
