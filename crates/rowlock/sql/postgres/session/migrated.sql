-- Notes that a migration ran.
-- Index: migration_pkey.
insert into rowlock.migration (version, name, oldest) values ($1, $2, $3)
