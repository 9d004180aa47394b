//! The statements, with the schema's name put in.
//!
//! The files under `sql/postgres` say `rowlock.` and run as they are on the default schema.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::error::{Error, Result};

macro_rules! statements {
    ($($name:ident),* $(,)?) => {
        /// Every statement of the room, by its file's name.
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
                    $($name: text(schema, stringify!($name), include_str!(concat!("../../../sql/postgres/", stringify!($name), ".sql"))),)*
                })
            }

            /// Name and text of each, for the test that prepares them all.
            #[cfg(test)]
            pub fn all(&self) -> Vec<(&'static str, SqlStr)> {
                vec![$((stringify!($name), self.$name.clone()),)*]
            }
        }
    };
}

/// The same for statements of an adopted table, whose names are put in when it is known.
macro_rules! templates {
    ($($name:ident),* $(,)?) => {
        /// Every statement of one adopted table, by its file's name.
        #[derive(Clone, Debug)]
        pub struct Templates {
            $(pub $name: SqlStr,)*
        }

        impl Templates {
            pub fn new(schema: &str, fill: impl Fn(&str) -> String) -> Templates {
                Templates {
                    $($name: AssertSqlSafe(fill(
                        text(schema, stringify!($name), include_str!(concat!("../../../sql/postgres/", stringify!($name), ".sql"))).as_str(),
                    )).into_sql_str(),)*
                }
            }
        }
    };
}

templates!(
    adopt_beat,
    adopt_beat_wait,
    adopt_claim,
    adopt_delete,
    adopt_due,
    adopt_effect_begin,
    adopt_effect_end,
    adopt_effect_known,
    adopt_effect_take_back,
    adopt_finish,
    adopt_look,
    adopt_probing,
    adopt_recover,
    adopt_reopen,
    adopt_stale,
    adopt_unclaim,
);

statements!(
    adopt_case,
    adopt_columns,
    adopt_effect_undo,
    adopt_identity,
    adopt_indexes,
    adopt_table,
    adopt_unproven,
    alone_due,
    answer,
    attempts,
    audit_read,
    beat,
    body_lock_release,
    body_lock_take,
    breaker_audit,
    breaker_declare,
    breaker_lock,
    breaker_log,
    breaker_logged,
    breaker_set,
    breaker_try,
    breakers,
    cancel,
    case_again,
    case_close,
    case_edit,
    case_errors,
    case_name,
    case_newest,
    case_note,
    case_unnamed,
    cases,
    cases_alike,
    cases_of_error,
    chain,
    claim,
    claim_bound,
    compensate,
    complete,
    delay,
    drop_history,
    effect,
    effect_begin,
    effect_end,
    effect_known,
    effect_lock,
    effect_resolve,
    effects,
    effects_doubtful,
    effects_of,
    enqueue,
    enqueue_grouped,
    enqueue_waiting,
    expire,
    forget_dead,
    group_drop,
    group_lock_empty,
    group_mend,
    group_pass,
    group_share,
    group_take,
    group_take_over,
    group_vacant,
    group_withdraw,
    guard_lock,
    guard_raise,
    guard_take_back,
    guard_version,
    job,
    job_key_put,
    job_key_read,
    job_key_take,
    jobs,
    jobs_of_group,
    jobs_standing,
    keys_page,
    leave,
    ledger_page,
    lock_dead,
    lock_wait,
    lock_worker,
    mark_dead,
    migrated,
    note_deed,
    notify,
    once_read,
    once_store,
    once_take,
    once_take_over,
    outcomes_since,
    own_leases,
    partitions,
    pause,
    pauses,
    plan_as_before,
    plan_by_key,
    probe_count,
    probe_put,
    probe_sweep,
    prune,
    register,
    reopen,
    rerun,
    retire,
    resolve_lock,
    resolve_outcome,
    resume,
    rollouts,
    schema_exists,
    schema_version,
    seal,
    set_rollout,
    settle,
    settle_done,
    settle_one,
    settle_turns,
    stand,
    stand_chain,
    standing,
    status,
    sweep_audit,
    sweep_body_locks,
    sweep_breaker_log,
    sweep_case_errors,
    sweep_cases,
    sweep_completions,
    sweep_keys,
    sweep_ledger,
    terminate,
    transaction,
    transition,
    trigger,
    untaken,
    verify_attempts,
    verify_bodies,
    verify_effects,
    verify_endings,
    verify_finished,
    verify_groups,
    verify_indexes,
    verify_keys,
    verify_leases,
    verify_ledger,
    verify_outcomes,
    verify_owners,
    verify_places,
    verify_schema,
    verify_stands,
    verify_uids,
    verify_waits,
    vitals,
    waits_completed,
    waits_due,
    waits_over,
    was_done,
    workers,
);

/// A statement or script with the default schema's name replaced. The name was checked: it needs no quoting.
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

/// A schema's name goes into statements as it is, so it must be a plain lower-case identifier.
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

    /// The two must not drift apart: whoever mends one mends the other.
    #[test]
    fn the_jobs_of_a_group_are_listed_as_all_jobs_are() -> Result<()> {
        let sql = Sql::new("rowlock")?;
        let plain = lines(&sql.jobs)
            .join("\n")
            .replace("where (", "where j.in_group = $8\n    and (");
        assert_eq!(lines(&sql.jobs_of_group).join("\n"), plain);
        Ok(())
    }

    /// These neither.
    #[test]
    fn a_claim_of_bound_kinds_is_the_plain_claim_with_the_breakers_before_it() -> Result<()> {
        let sql = Sql::new("rowlock")?;
        let (plain, bound) = (lines(&sql.claim), lines(&sql.claim_bound));
        let mut rest = bound.iter();
        let missing = plain.iter().find(|line| !rest.any(|other| other == *line));
        assert_eq!(missing, None, "not in its place in claim_bound.sql");
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
