-- Says whether the migrations that ran here are recorded with a hash; no row if none ever ran.
-- Index: pg_class_oid_index, pg_attribute_relid_attnam_index.
select exists (select from pg_attribute a where a.attrelid = c.oid and a.attname = 'hash' and not a.attisdropped)
from pg_class c
where c.oid = to_regclass('rowlock.migration')
