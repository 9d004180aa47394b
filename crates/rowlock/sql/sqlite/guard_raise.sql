-- Raises a counter, or only if it still stands where it was seen: no row comes back when it does not.
-- Index: rowlock_guard_version by key.
insert into rowlock_guard_version as g (key, version, changed_at) values (?1, 1, ?3)
on conflict (key) do update set version = g.version + 1, changed_at = excluded.changed_at
where ?2 is null or g.version = ?2
returning version
