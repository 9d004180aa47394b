-- Says whether the migrations that ran here are recorded with a hash; no row if none ever ran.
-- Index: none.
select exists (select 1 from pragma_table_info('rowlock_migration') where name = 'hash')
from sqlite_schema
where type = 'table' and name = 'rowlock_migration'
