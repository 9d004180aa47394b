-- Finds the relation with a given name: in the given schema, or else the first one in the search path.
-- Index: pg_class_relname_nsp_index.
-- only here: tables are adopted on PostgreSQL only.
select
  c.oid::bigint as oid, n.nspname::text as schema, c.relname::text as name, c.relkind::text as kind, c.relhassubclass as has_children
from pg_catalog.pg_class c
join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where c.relname = $2 and c.relkind in ('r', 'p', 'v', 'm', 'f')
  and case when $1::text is null then pg_catalog.pg_table_is_visible(c.oid) else n.nspname = $1 end
