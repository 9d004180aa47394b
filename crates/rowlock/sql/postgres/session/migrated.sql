-- Records what ran, and of which text; the functions take the place of those before.
-- Index: migration_pkey.
insert into rowlock.migration (version, name, oldest, hash, release) values ($1, $2, $3, $4, $5)
on conflict (version) do update set hash = excluded.hash, release = excluded.release, applied_at = clock_timestamp()
