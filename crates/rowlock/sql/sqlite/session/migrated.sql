-- Notes that a migration ran.
-- Index: rowlock_migration by version.
insert into rowlock_migration (version, name, oldest) values (?1, ?2, ?3)
