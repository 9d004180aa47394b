-- Whether a migration was ever run here.
-- Index: none.
select exists (select 1 from sqlite_schema where type = 'table' and name = 'rowlock_migration')
