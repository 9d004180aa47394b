-- Records what ran, and of which text; the functions take the place of those before.
-- Index: rowlock_migration by version.
insert into rowlock_migration (version, name, oldest, hash, release) values (?1, ?2, ?3, ?4, ?5)
on conflict (version) do update set hash = excluded.hash, release = excluded.release, applied_at = excluded.applied_at
