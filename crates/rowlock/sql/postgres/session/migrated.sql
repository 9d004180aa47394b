-- Records what ran, with the hash of its text; the functions replace the earlier functions.
-- Index: migration_pkey.
insert into rowlock.migration (version, name, oldest, hash, release) values ($1, $2, $3, $4, $5)
on conflict (version) do update set hash = excluded.hash, release = excluded.release, applied_at = clock_timestamp()
