//! What a schema holds, by the server's own catalog, one line per fact, with the schema's name taken out.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, PgConnection};

/// Facts about one schema. Each query gives one text column; `$1` is the schema.
const FACTS: [&str; 7] = [
    // Tables, indexes, sequences and views, with storage parameters, and the bound of a partition.
    "select format('%s %s persistence=%s options=%s %s',
        case c.relkind when 'r' then 'table' when 'p' then 'partitioned table' when 'i' then 'index'
          when 'I' then 'partitioned index' when 'S' then 'sequence' when 'v' then 'view' else c.relkind::text end,
        c.relname, c.relpersistence, coalesce(c.reloptions::text, '-'), coalesce(pg_get_expr(c.relpartbound, c.oid), ''))
     from pg_class c where c.relnamespace = $1::regnamespace and c.relkind <> 't'",
    // How a table is partitioned, and whose partition it is.
    "select format('partitioning %s by %s', c.relname, pg_get_partkeydef(c.oid))
     from pg_class c where c.relnamespace = $1::regnamespace and c.relkind = 'p'
     union all
     select format('inherits %s from %s', c.relname, p.relname)
     from pg_inherits i join pg_class c on c.oid = i.inhrelid join pg_class p on p.oid = i.inhparent
     where c.relnamespace = $1::regnamespace",
    "select format('column %s.%s %s type=%s null=%s default=%s identity=%s', c.relname, a.attname, a.attnum,
        format_type(a.atttypid, a.atttypmod), not a.attnotnull, coalesce(pg_get_expr(d.adbin, d.adrelid), '-'),
        coalesce(nullif(a.attidentity, ''), '-'))
     from pg_attribute a join pg_class c on c.oid = a.attrelid
     left join pg_attrdef d on d.adrelid = a.attrelid and d.adnum = a.attnum
     where c.relnamespace = $1::regnamespace and a.attnum > 0 and not a.attisdropped and c.relkind in ('r', 'p', 'v')",
    "select format('index %s', pg_get_indexdef(i.indexrelid))
     from pg_index i join pg_class c on c.oid = i.indexrelid where c.relnamespace = $1::regnamespace",
    "select format('constraint %s on %s: %s', o.conname, o.conrelid::regclass, pg_get_constraintdef(o.oid))
     from pg_constraint o where o.connamespace = $1::regnamespace",
    "select format('view %s: %s', c.relname, pg_get_viewdef(c.oid))
     from pg_class c where c.relnamespace = $1::regnamespace and c.relkind = 'v'",
    "select format('function %s granted=%s: %s', p.proname, coalesce(p.proacl::text, '-'), pg_get_functiondef(p.oid))
     from pg_proc p where p.pronamespace = $1::regnamespace",
];

/// Every fact about `schema`.
pub(crate) async fn catalog(pg: &mut PgConnection, schema: &str) -> BTreeSet<String> {
    let mut facts = BTreeSet::new();
    // Names are shown without their schema when it is on the path, and a role's own schema is.
    script(pg, "set search_path = ''").await.unwrap();
    for query in FACTS {
        let found: Vec<String> = sqlx::query_scalar(query)
            .bind(schema)
            .fetch_all(&mut *pg)
            .await
            .unwrap();
        assert!(!found.is_empty(), "nothing found by: {query}");
        facts.extend(
            found
                .into_iter()
                .map(|fact| fact.replace(&format!("{schema}."), "<schema>.")),
        );
    }
    facts
}

/// What only one of the two has, for the message of a failed assertion.
pub(crate) fn difference(left: &BTreeSet<String>, right: &BTreeSet<String>) -> String {
    let only = |mark: &str, facts: Vec<&String>| facts.into_iter().map(|f| format!("{mark} {f}\n")).collect::<String>();
    only("<", left.difference(right).collect()) + &only(">", right.difference(left).collect())
}

/// Runs a script as it is.
pub(crate) async fn script(pg: &mut PgConnection, text: &str) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned()))
        .execute(pg)
        .await
        .map(|_| ())
}
