-- Records what ran, with the hash of its text; the functions replace the earlier functions.
-- Index: rowlock_migration by version.
insert into rowlock_migration (version, name, oldest, hash, release) values (?1, ?2, ?3, ?4, ?5)
on conflict (version) do update set hash = excluded.hash, release = excluded.release, applied_at = excluded.applied_at
