-- Whether what has run here is recorded with its hash; no row where nothing ever ran.
-- Index: none.
select exists (select 1 from pragma_table_info('rowlock_migration') where name = 'hash')
from sqlite_schema
where type = 'table' and name = 'rowlock_migration'
