-- Returns the columns of a relation, which of them are in its primary key, and how many columns that key has.
-- Index: pg_attribute_relid_attnum_index, pg_index_indrelid_index.
-- only here: tables are adopted on PostgreSQL only.
select
  a.attname::text as name, pg_catalog.format_type(a.atttypid, a.atttypmod) as type, a.attnotnull as required,
  a.attgenerated <> '' as generated, coalesce(a.attnum = any (i.indkey), false) as in_key, coalesce(i.indnkeyatts, 0)::int as key_columns
from pg_catalog.pg_attribute a
left join pg_catalog.pg_index i on i.indrelid = a.attrelid and i.indisprimary
where a.attrelid = $1::bigint::oid and a.attnum > 0 and not a.attisdropped
order by a.attnum
