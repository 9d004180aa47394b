-- Whether the check of this name is there and has not been validated yet; no row where there is none.
-- Index: pg_constraint_conrelid_contypid_conname_index.
-- no twin: tables are adopted on PostgreSQL only.
select not c.convalidated from pg_catalog.pg_constraint c where c.conrelid = $1::bigint::oid and c.conname = $2 and c.contype = 'c'
