//! What is found of a table, what it needs, and that nothing of the user's is touched.

use rowlock::{
    adopt::{self, Adopted, Columns, Inspection, Part},
    atomic,
};
use sqlx::AssertSqlSafe;

use super::{
    bed::{TABLE, columns},
    worker::worked_off,
};
use crate::steps::{catalog::script, session::Bed};

async fn look(bed: &Bed, table: &str, columns: &Columns) -> Inspection {
    Adopted::inspect(&bed.rowlock, table, columns).await.unwrap()
}

/// The only problem of this table.
async fn problem(bed: &mut Bed, table: &str) -> String {
    script(&mut bed.eye, table).await.unwrap();
    let seen = look(bed, "t", &Columns::due("due_at")).await;
    assert_eq!(seen.problems.len(), 1, "{seen:?}");
    assert!(seen.migration.is_empty() && !seen.is_ready());
    let opened = Adopted::open(&bed.rowlock, "t", Columns::due("due_at")).await;
    let refused = opened.err().unwrap().to_string();
    assert_eq!(refused, format!("public.t cannot be adopted: {}", seen.problems[0]));
    let refused = Adopted::migrate(&bed.rowlock, "t", &Columns::due("due_at")).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        format!("public.t cannot be adopted: {}", seen.problems[0])
    );
    script(&mut bed.eye, "drop view if exists v; drop table if exists t cascade")
        .await
        .unwrap();
    seen.problems[0].clone()
}

async fn the_table_of_reminders_is_ready_as_it_stands(mut bed: Bed) {
    script(&mut bed.eye, TABLE).await.unwrap();
    let seen = look(&bed, "email_snoozes", &columns()).await;
    assert!(seen.is_ready(), "{seen:?}");
    assert_eq!(seen.key, Some(("id".into(), "bigint".into())));
    assert_eq!(seen.claim_index.as_deref(), Some("idx_email_snoozes_due"));
    assert_eq!(seen.recovery_index.as_deref(), Some("idx_email_snoozes_claimed"));
    let applied = Adopted::migrate(&bed.rowlock, "email_snoozes", &columns())
        .await
        .unwrap();
    assert_eq!(applied, [""; 0]);
}

async fn whatever_is_missing_is_added_and_nothing_else_is_touched(mut bed: Bed) {
    let parts = Part::ALL.into_iter().skip(1).map(Some).chain([None]);
    for missing in parts {
        script(&mut bed.eye, "drop table if exists email_snoozes, sent")
            .await
            .unwrap();
        script(&mut bed.eye, TABLE).await.unwrap();
        let gone = match missing {
            Some(part) => format!("alter table email_snoozes drop column {}", part.as_str()),
            None => "drop index idx_email_snoozes_due, idx_email_snoozes_claimed".into(),
        };
        script(&mut bed.eye, &gone).await.unwrap();
        script(
            &mut bed.eye,
            "insert into email_snoozes (user_email, message_id, remind_at) values ('a@b', 'm', now())",
        )
        .await
        .unwrap();
        let refused = Adopted::open(&bed.rowlock, "email_snoozes", columns())
            .await
            .err()
            .unwrap()
            .to_string();
        assert!(
            refused.starts_with("public.email_snoozes needs a migration first; run `rowlock adopt"),
            "{refused}"
        );
        let seen = look(&bed, "email_snoozes", &columns()).await;
        assert!(refused.contains(&seen.migration[1]), "{refused}");
        let node = "select relfilenode::bigint from pg_class where relname = 'email_snoozes'";
        let before = bed.count(node).await;
        let applied = Adopted::migrate(&bed.rowlock, "email_snoozes", &columns())
            .await
            .unwrap();
        assert_eq!(applied, seen.migration, "{missing:?}");
        assert_eq!(bed.count(node).await, before, "the table was not rewritten");
        assert!(look(&bed, "email_snoozes", &columns()).await.is_ready(), "{missing:?}");
        Adopted::open(&bed.rowlock, "email_snoozes", columns()).await.unwrap();
        assert_eq!(
            bed.count("select count(*) from email_snoozes where remind_at <= now()")
                .await,
            1
        );
    }
}

async fn a_bare_table_becomes_a_queue(mut bed: Bed) {
    script(
        &mut bed.eye,
        "create table t (id uuid primary key default gen_random_uuid(), due_at timestamptz)",
    )
    .await
    .unwrap();
    script(
        &mut bed.eye,
        "insert into t (due_at) select now() from generate_series(1, 5)",
    )
    .await
    .unwrap();
    let due = Columns::due("due_at");
    let applied = Adopted::migrate(&bed.rowlock, "t", &due).await.unwrap();
    let all = applied.join("\n");
    for part in [
        "not valid",
        "validate constraint",
        "create index concurrently if not exists",
        "default 5",
    ] {
        assert!(all.contains(part), "{part:?} is not in {all}");
    }
    // What was cut short between two statements is gone on with.
    script(&mut bed.eye, "drop index t_rowlock_due").await.unwrap();
    assert_eq!(Adopted::migrate(&bed.rowlock, "t", &due).await.unwrap().len(), 2);
    assert_eq!(Adopted::migrate(&bed.rowlock, "t", &due).await.unwrap(), [""; 0]);
    let adopted = Adopted::open(&bed.rowlock, "t", due).await.unwrap();
    worked_off(adopted.worker().handle(atomic(nothing)), 5).await;
    assert_eq!(
        bed.count("select count(*) from t where inactive and last_error is null")
            .await,
        5
    );
}

async fn nothing(_cx: adopt::Ctx, _row: (), tx: adopt::Tx) -> adopt::Outcome {
    tx.done().ok()
}

async fn an_invalid_index_of_ours_is_built_anew(mut bed: Bed) {
    script(&mut bed.eye, TABLE).await.unwrap();
    script(&mut bed.eye, "drop index idx_email_snoozes_due").await.unwrap();
    Adopted::migrate(&bed.rowlock, "email_snoozes", &columns())
        .await
        .unwrap();
    let spoil = "update pg_index set indisvalid = false where indexrelid = 'email_snoozes_rowlock_due'::regclass";
    script(&mut bed.eye, spoil).await.unwrap();
    let seen = look(&bed, "email_snoozes", &columns()).await;
    assert_eq!(seen.claim_index, None);
    assert!(seen.migration[1].starts_with("drop index concurrently"), "{seen:?}");
    Adopted::migrate(&bed.rowlock, "email_snoozes", &columns())
        .await
        .unwrap();
    assert!(look(&bed, "email_snoozes", &columns()).await.is_ready());
}

async fn what_cannot_be_adopted_is_refused_with_a_sentence(mut bed: Bed) {
    let missing = look_for_none(&bed).await;
    assert_eq!(
        missing,
        "no table nowhere; use its exact name, with its schema if that is not in the search path"
    );
    let cases = [
        (
            "create table t (id bigint, due_at timestamptz)",
            "there is no primary key; add one with a single column of type bigint, integer, uuid or text",
        ),
        (
            "create table t (a int, b int, due_at timestamptz, primary key (a, b))",
            "the primary key has 2 columns; only a key of a single column can be used",
        ),
        (
            "create table t (id date primary key, due_at timestamptz)",
            "the primary key \"id\" is date; only bigint, integer, smallint, uuid and text can be used",
        ),
        (
            "create table t (id int primary key)",
            "there is no column \"due_at\"; name the column that holds the due time",
        ),
        (
            "create table t (id int primary key, due_at timestamp)",
            "column \"due_at\" is timestamp without time zone, but due must be timestamp with time zone; name another column for it",
        ),
        (
            "create table t (id int primary key, due_at timestamptz, attempts text not null)",
            "column \"attempts\" is text, but attempts must be integer or bigint; name another column for it",
        ),
        (
            "create table t (id int primary key, due_at timestamptz, inactive boolean)",
            "column \"inactive\" allows null, and a row with null would never be claimed; make it not null",
        ),
        (
            "create table t (id int primary key, due_at timestamptz, last_error text generated always as ('x') stored)",
            "column \"last_error\" is generated and cannot be written",
        ),
        (
            "create table t (id int primary key, due_at timestamptz) partition by range (id)",
            "public.t is partitioned; adopt its partitions one by one, or a plain table",
        ),
        (
            "create table t (id int primary key, due_at timestamptz); create table c () inherits (t)",
            "public.t has child tables; adopt each of them instead",
        ),
    ];
    for (table, said) in cases {
        assert_eq!(problem(&mut bed, table).await, said);
    }
    script(
        &mut bed.eye,
        "create table b (id int primary key, due_at timestamptz); create view t as select * from b",
    )
    .await
    .unwrap();
    let seen = look(&bed, "t", &Columns::due("due_at")).await;
    assert_eq!(seen.problems[0], "public.t is a view; adopt the table behind it");
}

async fn a_column_that_is_cleared_must_allow_null(mut bed: Bed) {
    let cleared = [
        ("claimed_at", "timestamptz"),
        ("claimed_by", "text"),
        ("claim_token", "uuid"),
        ("last_error", "text"),
        ("last_error_at", "timestamptz"),
    ];
    for (column, kind) in cleared {
        let table =
            format!("create table t (id int primary key, due_at timestamptz not null, {column} {kind} not null)");
        let said = format!(
            r#"column "{column}" must allow null: alter table "public"."t" alter column "{column}" drop not null"#
        );
        assert_eq!(problem(&mut bed, &table).await, said);
    }
}

async fn look_for_none(bed: &Bed) -> String {
    let found = Adopted::inspect(&bed.rowlock, "nowhere", &Columns::due("due_at")).await;
    found.unwrap_err().to_string()
}

async fn names_are_quoted_whatever_is_in_them(mut bed: Bed) {
    let odd = r#"create schema "My App"; create table "My App"."Reminders ""to do""; drop table x" (
        "Id No" text primary key, "When" timestamptz, "select" uuid, "{due}" text, "max""tries" int not null default 2)"#;
    script(&mut bed.eye, odd).await.unwrap();
    script(
        &mut bed.eye,
        r#"insert into "My App"."Reminders ""to do""; drop table x" values ('a''b', now()), ('c "d"', now()), ('{id}', now())"#,
    )
    .await
    .unwrap();
    let name = r#""My App"."Reminders ""to do""; drop table x""#;
    let columns = Columns::due("When")
        .with(Part::ClaimToken, "select")
        .with(Part::LastError, "{due}")
        .with(Part::MaxAttempts, "max\"tries");
    let applied = Adopted::migrate(&bed.rowlock, name, &columns).await.unwrap();
    assert!(!applied.is_empty());
    assert!(look(&bed, name, &columns).await.is_ready());
    let adopted = Adopted::open(&bed.rowlock, name, columns).await.unwrap();
    worked_off(adopted.worker().handle(atomic(nothing)), 3).await;
    let done = format!("select count(*) from {name} where inactive and \"select\" is null");
    let done: i64 = sqlx::query_scalar(AssertSqlSafe(done))
        .fetch_one(&mut bed.eye)
        .await
        .unwrap();
    assert_eq!(done, 3);
}

async fn every_type_of_key_can_be_used(mut bed: Bed) {
    for kind in ["bigint", "integer", "smallint", "uuid", "text", "varchar(40)"] {
        script(&mut bed.eye, "drop table if exists t").await.unwrap();
        let id = match kind {
            "uuid" => "gen_random_uuid()",
            _ => "n",
        };
        let table = format!(
            "create table t (id {kind} primary key, due_at timestamptz);
             insert into t select {id}, now() from generate_series(1, 4) n"
        );
        script(&mut bed.eye, &table).await.unwrap();
        let due = Columns::due("due_at");
        Adopted::migrate(&bed.rowlock, "t", &due).await.unwrap();
        let adopted = Adopted::open(&bed.rowlock, "t", due).await.unwrap();
        worked_off(adopted.worker().handle(atomic(nothing)), 4).await;
        assert_eq!(
            bed.count("select count(*) from t where inactive and claimed_at is null")
                .await,
            4,
            "{kind}"
        );
    }
}

on_postgresql!(
    the_table_of_reminders_is_ready_as_it_stands,
    whatever_is_missing_is_added_and_nothing_else_is_touched,
    a_bare_table_becomes_a_queue,
    an_invalid_index_of_ours_is_built_anew,
    what_cannot_be_adopted_is_refused_with_a_sentence,
    a_column_that_is_cleared_must_allow_null,
    names_are_quoted_whatever_is_in_them,
    every_type_of_key_can_be_used,
);
