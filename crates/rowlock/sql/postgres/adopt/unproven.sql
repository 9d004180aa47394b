-- Says whether the check constraint of this name is not validated yet; no row if there is no such constraint.
-- Index: pg_constraint_conrelid_contypid_conname_index.
-- only here: tables are adopted on PostgreSQL only.
select not c.convalidated from pg_catalog.pg_constraint c where c.conrelid = $1::bigint::oid and c.conname = $2 and c.contype = 'c'
