-- Raises a counter, always or only if it still has the value that was read; otherwise returns no row.
-- Index: rowlock_guard_version by key.
insert into rowlock_guard_version as g (key, version, changed_at)
select ?1, 1, ?3
-- A counter that was read above zero and does not exist now has been removed. A removal is a change too.
where coalesce(?2, 0) = 0 or exists (select 1 from rowlock_guard_version v where v.key = ?1)
on conflict (key) do update set version = g.version + 1, changed_at = excluded.changed_at
where ?2 is null or g.version = ?2
returning version
