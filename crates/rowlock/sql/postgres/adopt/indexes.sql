-- Returns the btree indexes of a relation: keys in order, empty for an expression, and predicate.
-- Index: pg_index_indrelid_index.
-- only here: tables are adopted on PostgreSQL only.
select
  x.relname::text as name, i.indisvalid as valid,
  array(
    select coalesce(a.attname::text, '')
    from unnest(i.indkey::int2[]) with ordinality as k (attnum, place)
    left join pg_catalog.pg_attribute a on a.attrelid = i.indrelid and a.attnum = k.attnum and k.attnum > 0
    where k.place <= i.indnkeyatts order by k.place
  ) as keys,
  coalesce(pg_catalog.pg_get_expr(i.indpred, i.indrelid), '') as only_where
from pg_catalog.pg_index i
join pg_catalog.pg_class x on x.oid = i.indexrelid
join pg_catalog.pg_am m on m.oid = x.relam
where i.indrelid = $1::bigint::oid and m.amname = 'btree'
order by x.relname
