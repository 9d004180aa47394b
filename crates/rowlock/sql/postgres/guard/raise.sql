-- Raises a counter, always or only if it still has the value that was read; otherwise returns no row.
-- Index: guard_version_pkey.
-- One statement is enough: `on conflict` waits for the row and compares the last committed value, whatever the
-- snapshot.
-- A counter that does not exist begins at 1.
with locked as materialized (select pg_advisory_xact_lock($2))
insert into rowlock.guard_version as g (key, version, changed_at)
select $1, 1, coalesce($4::timestamptz, clock_timestamp()) from locked
on conflict (key) do update set version = g.version + 1, changed_at = excluded.changed_at
where $3::bigint is null or g.version = $3
returning version
